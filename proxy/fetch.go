package proxy

import (
	"context"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher/near"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// followersAnswer is the first version of Fetch that a follower answers to
	// consumers (KIP-392).
	followersAnswer int16 = 11
	// fetchLeaders is the first version whose answer may name a leader.
	fetchLeaders int16 = 12
	// followerBuffer is the send buffer towards a near follower.
	followerBuffer = 4 << 20
)

// maxFetchBytes is what a broker takes for versions without the field.
const maxFetchBytes = 1<<31 - 1

// lightFetch streams a Fetch request at a client listener. Its response is looked at
// for leaders on its way.
func (c *conn) lightFetch(h header, size int) (exchange, bool, error) {
	if h.version < followersAnswer && !c.p.deps.Leaders.none() {
		return exchange{}, false, nil
	}
	if ok, err := c.lightRead(size, h.version >= 13); err != nil || !ok {
		return exchange{}, false, err
	}
	ex := relayed(h)
	c.inspectFetch(&ex)
	return ex, true, nil
}

// fetch decides about a Fetch request at a client listener that cannot be streamed.
func (c *conn) fetch(r *request) (exchange, error) {
	if c.p.mayNameState(r.body, r.version >= 13) {
		req, err := decode(r, kmsg.NewPtrFetchRequest())
		if err != nil {
			return exchange{}, err
		}
		denied, err := c.deniedState(r, slices.ContainsFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool {
			return c.p.isStateFetch(&t, r.version)
		}))
		if err != nil {
			return exchange{}, err
		}
		if denied {
			return c.fetchWithoutState(r, req)
		}
	}
	if r.version < followersAnswer && !c.p.deps.Leaders.none() {
		return c.raiseFetch(r)
	}
	ex := r.forward()
	c.inspectFetch(&ex)
	return ex, nil
}

func (c *conn) inspectFetch(ex *exchange) {
	if ex.version >= fetchLeaders {
		if t := c.p.rewriter(ex.key, ex.version); t != nil {
			ex.inspect = &fetchInspector{p: c.p, version: ex.version, transform: t}
		}
	}
}

// raiseFetch lets a consumer older than KIP-392 read from a follower: its request goes
// upstream as version 11, and the response comes back as the version it knows. Which
// partitions an incremental request is about cannot be seen in it, so that this is done
// whatever it names.
func (c *conn) raiseFetch(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrFetchRequest())
	if err != nil {
		return exchange{}, err
	}
	if req.ReplicaID >= 0 {
		return r.forward(), nil
	}
	if r.version < 3 {
		req.MaxBytes = maxFetchBytes
	}
	if r.version < 7 {
		req.SessionID, req.SessionEpoch = 0, -1
	}
	req.Version = followersAnswer
	ex := relayed(r.header)
	ex.send = encodeRequest(req, r.correlation, r.clientID)
	ex.version = followersAnswer // of the response's header and body
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, followersAnswer, body)
		if err != nil {
			return nil, err
		}
		resp.SetVersion(r.version)
		return resp, nil
	}
	return ex, nil
}

// virtualFetch answers a Fetch at a virtual listener: a follower's from the virtual
// broker, a consumer's with the real replica to read from.
func (c *conn) virtualFetch(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrFetchRequest())
	if err != nil {
		return exchange{}, err
	}
	replica := req.ReplicaID
	if r.version >= 15 {
		replica = req.ReplicaState.ID
	}
	if replica < 0 {
		return c.redirectFetch(r, req), nil
	}
	if !c.bulk {
		// A whole answer goes into the send buffer at once: this side need not be woken for
		// each of its parts.
		c.bulk = true
		near.Send(c.client, followerBuffer)
	}
	ex := relayed(r.header)
	release := func() {}
	ex.answered = func() { release() }
	c.followerOnly(&ex,
		func(ctx context.Context) (net.Buffers, error) {
			reply, err := c.p.deps.Replica.Fetch(ctx, req)
			if err != nil {
				return nil, err
			}
			release = reply.Release
			return reply.AppendFrame(r.correlation, r.version), nil
		},
		func(context.Context) (net.Buffers, error) {
			return responseFrame(refuseFetch(req, func(ids.UUID, string, *kmsg.FetchResponseTopicPartition) int16 {
				return errTopicAuthorization
			}), r.header)
		})
	return ex, nil
}

// redirectFetch tells a consumer that came around the proxy which real replica to read
// from. The real broker asks its own questions about the consumer's rights there.
func (c *conn) redirectFetch(r *request, req *kmsg.FetchRequest) exchange {
	resp := refuseFetch(req, func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16 {
		missing := errUnknownTopicID
		if r.version < 13 {
			missing = errUnknownTopicOrPartition
			id, _ = c.p.deps.View.Topic(topic)
		}
		part := c.p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: out.Partition})
		if part == nil {
			return missing
		}
		return c.redirect(r.version, part, out)
	})
	if req.SessionID != 0 {
		// There are no sessions here, so that this is another listener's.
		resp.ErrorCode, resp.Topics = errFetchSessionIDNotFound, nil
	}
	return c.local(r.header, resp)
}

func (c *conn) redirect(version int16, part *metadata.Partition, out *kmsg.FetchResponseTopicPartition) int16 {
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = part.Leader, part.LeaderEpoch
	if part.Leader != c.p.cfg.IDs.Of(c.p.cfg.Home) || version < followersAnswer {
		return errNotLeaderOrFollower
	}
	leader, ok := c.p.shownLeader(part)
	if !ok {
		return errNotLeaderOrFollower
	}
	out.CurrentLeader = kmsg.NewFetchResponseTopicPartitionCurrentLeader()
	out.PreferredReadReplica = leader
	return errNone
}

// refuseFetch makes a response without records, with the error that code returns for
// each partition. The record field is empty, not null, which some clients do not read.
func refuseFetch(req *kmsg.FetchRequest, code func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition = p.Partition
			rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = -1, -1, -1
			rp.RecordBatches = []byte{}
			rp.ErrorCode = code(t.TopicID, t.Topic, &rp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
