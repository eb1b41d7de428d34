package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

const (
	// splitWeight is about what a topic or a partition of a Produce request comes to in memory that is
	// refused in part: decoded, in what is passed on, and in the answer, with a message.
	splitWeight = 512
	// maxSplit bounds the topics and partitions of such a request. Its records are not decoded.
	maxSplit = maxDecoded * decodedWeight / splitWeight
)

// produce passes on what of a Produce request does not go to a mirror partition. The
// request is decoded only if something of it does.
func (c *conn) produce(r *request) (exchange, error) {
	rules := c.p.readRules()
	saw, err := produceRefused(&rules, r.body, r.version, c.p.flex.flexible(r.key, r.version))
	if err != nil {
		return exchange{}, err
	}
	if !saw.refused {
		return c.produced(r.forward(), saw.acks), nil
	}
	large := len(r.raw) > readBuffer
	if large {
		if saw.elements > maxSplit {
			return exchange{}, because(reasonOversized, "%d topics and partitions, of which some are read only, at most %d are read", saw.elements, maxSplit)
		}
		// What is passed on is a copy.
		if r.decoded, err = c.acquire(c.p.decoding, int64(saw.elements)*splitWeight+int64(len(r.raw))); err != nil {
			return exchange{}, err
		}
	}
	req, err := decode(r, kmsg.NewPtrProduceRequest())
	if err != nil {
		return exchange{}, err
	}
	acks, split := saw.acks, rules.Produce(req)
	if split == nil { // the mirror was stopped meanwhile
		return c.produced(r.forward(), acks), nil
	}
	if some, err := c.hide(r, &rules, split.Refused); err != nil {
		return exchange{}, err
	} else if some {
		if split = rules.Produce(req); split == nil {
			return c.produced(r.forward(), acks), nil
		}
	}
	c.refused(r, split.Refused)
	ex := relayed(r.header)
	ex.held = large
	more := split.Rest != nil
	if more {
		ex.send = encodeRequest(split.Rest, r.correlation, r.clientID)
		split.Rest = nil // the records need not wait for the answer
	}
	if acks == 0 {
		// Without an answer, hanging up is the only way to tell; brokers do the same.
		ex.hangUp = because(reasonRefusedWrite, "produce with acks=0 to read only topic %q", split.Refused[0].Topic)
		return ex, nil
	}
	if !more {
		return c.local(r.header, split.Merge(nil)), nil
	}
	if large {
		r.answer = int64(saw.elements) * splitWeight
	}
	key, version := r.key, r.version // and nothing else of the request
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(key, version, body)
		if err != nil {
			return nil, err
		}
		merged := split.Merge(resp.(*kmsg.ProduceResponse))
		if row := c.p.rows[key]; row.rewrite != nil {
			row.rewrite(c.p, merged)
		}
		return merged, nil
	}
	return ex, nil
}

// seenProduce is what a walk over a Produce request finds.
type seenProduce struct {
	acks     int16
	refused  bool // the rules refuse something of it
	elements int  // topics and partitions
}

// produceRefused walks over a Produce request's body.
func produceRefused(rules *readonly.Rules, body []byte, version int16, flexible bool) (seen seenProduce, err error) {
	c := cursor{b: body}
	if version >= 3 {
		c.string(flexible) // transactional id
	}
	seen.acks = c.int16()
	c.int32() // timeout
	for topics := c.array(flexible); topics > 0 && c.err == nil; topics-- {
		seen.elements++
		var t readonly.Topic
		if version >= 13 {
			if b := c.take(len(t.ID)); b != nil {
				t.ID = ids.UUID(b)
			}
		} else {
			t.Name = string(c.string(flexible))
		}
		for parts := c.array(flexible); parts > 0 && c.err == nil; parts-- {
			seen.elements++
			partition := c.int32()
			c.skipBytes(flexible) // records
			if flexible {
				c.skipTags()
			}
			if c.err == nil && !seen.refused {
				seen.refused = rules.Refuses(t, partition)
			}
		}
		if flexible {
			c.skipTags()
		}
	}
	return seen, c.err
}

// refused counts and logs what the rules refuse.
func (c *conn) refused(r *request, refused []readonly.Refused) {
	for _, f := range refused {
		c.p.deps.Metrics.Refused(r.key, f)
	}
	if len(refused) > 0 {
		f := refused[0]
		c.log.Debug("write refused", "api", c.p.apiName(r.key), "topic", f.Topic, "partition", f.Partition, "mirror", f.Mirror, "refused", len(refused))
	}
}

// split makes the exchange of a request that is refused in part: rest, nil if nothing
// remains, goes upstream, and merge puts the refusals into its response.
func (c *conn) split(r *request, refused []readonly.Refused, rest kmsg.Request, merge func(kmsg.Response) kmsg.Response) exchange {
	c.refused(r, refused)
	if rest == nil {
		return c.local(r.header, merge(nil))
	}
	ex := relayed(r.header)
	ex.send = encodeRequest(rest, r.correlation, r.clientID)
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, r.version, body)
		if err != nil {
			return nil, err
		}
		return merge(resp), nil
	}
	return ex
}

// orNil makes an interface of a pointer that may be nil.
func orNil[T any, P interface {
	*T
	kmsg.Request
}](p P,
) kmsg.Request {
	if p == nil {
		return nil
	}
	return p
}

// merger adapts the Merge method of a split.
func merger[T any, P interface {
	*T
	kmsg.Response
}](merge func(P) P,
) func(kmsg.Response) kmsg.Response {
	return func(resp kmsg.Response) kmsg.Response {
		p, _ := resp.(P)
		return merge(p)
	}
}

func (c *conn) addPartitionsToTxn(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrAddPartitionsToTxnRequest())
	if err != nil {
		return exchange{}, err
	}
	if may, err := c.mayTransact(r, transactionsOf(req)...); err != nil {
		return exchange{}, err
	} else if !may {
		return c.local(r.header, refusedTransaction(req)), nil
	}
	rules := c.p.readRules()
	s := rules.AddPartitionsToTxn(req)
	if s != nil && rules.Code == readonly.ReadOnlyTopic { // the other code for it is what brokers refuse with
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.AddPartitionsToTxn(req)
		}
	}
	c.p.nothingAdded.addition(req, s != nil)
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) deleteRecords(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrDeleteRecordsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.DeleteRecords(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.DeleteRecords(req)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) alterReplicaLogDirs(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrAlterReplicaLogDirsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.AlterReplicaLogDirs(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.AlterReplicaLogDirs(req)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) createPartitions(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrCreatePartitionsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.CreatePartitions(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.CreatePartitions(req)
		}
	}
	if s == nil {
		if c.p.places() {
			return c.placedPartitions(r, req, func(resp *kmsg.CreatePartitionsResponse) *kmsg.CreatePartitionsResponse { return resp }), nil
		}
		return r.forward(), nil
	}
	if s.Rest != nil && c.p.places() {
		c.refused(r, s.Refused)
		return c.placedPartitions(r, s.Rest, s.Merge), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) createTopics(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrCreateTopicsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.CreateTopics(req)
	if s == nil {
		if c.p.places() {
			return c.placedTopics(r, req, func(resp *kmsg.CreateTopicsResponse) *kmsg.CreateTopicsResponse { return resp }), nil
		}
		return r.forward(), nil
	}
	if s.Rest != nil && c.p.places() {
		c.refused(r, s.Refused)
		return c.placedTopics(r, s.Rest, s.Merge), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) deleteTopics(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrDeleteTopicsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.DeleteTopics(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.DeleteTopics(req)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

func (c *conn) alterConfigs(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrAlterConfigsRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.AlterConfigs(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.AlterConfigs(req)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}
