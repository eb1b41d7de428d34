package proxy

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// The state topic holds what mirrors were created with, passwords included, so that reading
// it takes DESCRIBE on the cluster beside what the cluster's own ACLs say (contract.md §2).
// Each way to its records is closed here for who lacks that: Fetch, ShareFetch, and what
// tells of offsets. Sidecars read it around the proxies.
//
// A Fetch session goes on without naming what is in it, so that whoever may not read the
// topic must never get it into one. Who names it before it exists, which brokers let into
// a session (by name, so up to version 12), is asked for his right all the same. A session of
// somebody who had the right when he began it goes on when he loses it, as long as it lasts;
// his right on the topic itself, which brokers ask for each time, ends it at once.

// stateTopicID returns the state topic's id; ok is false while there is no such topic.
func (p *Proxy) stateTopicID() (id ids.UUID, ok bool) { return p.deps.View.Topic(stateTopic) }

// mayNameState tells whether bytes of a request can name the state topic, which most
// requests cannot, without decoding them.
func (p *Proxy) mayNameState(b []byte, byID bool) bool {
	if !byID {
		return bytes.Contains(b, []byte(stateTopic))
	}
	id, ok := p.stateTopicID()
	return ok && bytes.Contains(b, id[:])
}

// lightRead tells whether a request that reads may be streamed: it fits the buffer and
// cannot name the state topic. That costs one search through the request, a name's of 22
// bytes or an id's of 16, at most 64 KiB long: next to nothing for what consumers send,
// which is a few hundred bytes, and about what copying it costs at most. A longer request is
// read whole.
func (c *conn) lightRead(size int, byID bool) (bool, error) {
	if _, ok := c.p.stateTopicID(); !ok && byID {
		return true, nil // no id is its id
	}
	head, err := c.peekAll(size)
	if err != nil {
		return false, err
	}
	return len(head) == size && !c.p.mayNameState(head, byID), nil
}

// stateRights is what the reader knows of the caller's right to read the state topic.
type stateRights struct {
	until time.Time
	may   bool
}

// mayReadState asks the cluster, once in a while, whether the caller may read the state topic.
func (c *conn) mayReadState(r *request) (bool, error) {
	if time.Now().Before(c.stateRights.until) {
		return c.stateRights.may, nil
	}
	err := c.consult(r, func(ctx context.Context, who Caller) error {
		have, err := rights.OnCluster(ctx, who)
		if err != nil {
			return err
		}
		c.stateRights = stateRights{until: time.Now().Add(authorityLasts), may: have.Has(rights.Describe)}
		return nil
	})
	if err == nil && !c.stateRights.may {
		c.log.Debug("read of the state topic refused", "api", c.p.apiName(r.key))
	}
	return c.stateRights.may && err == nil, err
}

// deniedState tells whether a request that names the state topic is refused what it wants of
// it.
func (c *conn) deniedState(r *request, named bool) (bool, error) {
	if !named {
		return false, nil
	}
	may, err := c.mayReadState(r)
	return !may, err
}

func (p *Proxy) isStateFetch(t *kmsg.FetchRequestTopic, version int16) bool {
	if version < 13 {
		return t.Topic == stateTopic
	}
	id, ok := p.stateTopicID()
	return ok && t.TopicID == id
}

// lightShareFetch streams a ShareFetch that does not name the state topic.
func (c *conn) lightShareFetch(h header, size int) (exchange, bool, error) {
	ok, err := c.lightRead(size, true)
	if err != nil || !ok {
		return exchange{}, false, err
	}
	ex := relayed(h)
	ex.transform = c.shareRewriter(h.version)
	return ex, true, nil
}

// shareFetch passes on what of a ShareFetch does not go to the state topic.
func (c *conn) shareFetch(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrShareFetchRequest())
	if err != nil {
		return exchange{}, err
	}
	state, exists := c.p.stateTopicID()
	isState := func(t kmsg.ShareFetchRequestTopic) bool { return exists && ids.UUID(t.TopicID) == state }
	denied, err := c.deniedState(r, slices.ContainsFunc(req.Topics, isState))
	if err != nil {
		return exchange{}, err
	}
	ex := r.forward()
	ex.transform = c.shareRewriter(r.version)
	if !denied {
		return ex, nil
	}
	rest := *req
	rest.Topics = nil
	var refused []kmsg.ShareFetchResponseTopic
	for _, t := range req.Topics {
		if !isState(t) {
			rest.Topics = append(rest.Topics, t)
			continue
		}
		rt := kmsg.NewShareFetchResponseTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewShareFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.Records = p.Partition, errTopicAuthorization, []byte{}
			rt.Partitions = append(rt.Partitions, rp)
		}
		refused = append(refused, rt)
	}
	ex.send = encodeRequest(&rest, r.correlation, r.clientID)
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, r.version, body)
		if err != nil {
			return nil, err
		}
		got := resp.(*kmsg.ShareFetchResponse)
		got.Topics = append(got.Topics, refused...)
		c.rewriteShares(got)
		return got, nil
	}
	return ex, nil
}
