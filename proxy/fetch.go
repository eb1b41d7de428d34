package proxy

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher/near"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// followersAnswer is the first version of Fetch that a follower answers to
	// consumers (KIP-392).
	followersAnswer int16 = 11
	// fetchFlexible is the first flexible version; its answer may name a leader.
	fetchFlexible int16 = 12
	// fetchTopicIDs is the first version that names topics by their ids.
	fetchTopicIDs int16 = 13
	// followerBuffer is the send buffer towards a near follower.
	followerBuffer = 4 << 20
)

// maxFetchBytes is what a broker takes for versions without the field.
const maxFetchBytes = 1<<31 - 1

// lightFetch streams a Fetch request at a client listener. Its response is looked at
// for leaders and replicas to read from on its way.
func (c *conn) lightFetch(h header, size int) (exchange, bool, error) {
	if h.version < followersAnswer && !c.p.deps.Leaders.none() {
		return exchange{}, false, nil
	}
	if _, some := c.behind(); some || c.fromLeader(h.version) {
		return exchange{}, false, nil
	}
	if ok, err := c.lightRead(size, h.version >= 13); err != nil || !ok {
		return exchange{}, false, err
	}
	ex := relayed(h)
	c.inspectFetch(&ex)
	return ex, true, nil
}

// fetch decides about a consumer's Fetch request that cannot be streamed.
func (c *conn) fetch(r *request) (exchange, error) {
	generation, late := c.behind()
	byID := r.version >= 13
	if late || c.p.mayNameState(r.body, byID) {
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
		rest, refused := splitFetch(req, func(t *kmsg.FetchRequestTopic, partition int32) int16 {
			switch {
			case denied && c.p.isStateFetch(t, r.version):
				return errTopicAuthorization
			case late && c.p.isBehind(t.Topic, t.TopicID, byID, partition):
				return errNotLeaderOrFollower
			}
			return errNone
		})
		switch {
		case len(refused) > 0:
			return c.fetchRest(r, req, rest, refused), nil
		case late && inSession(req) && !c.behindSeen.knows(generation, req.SessionID):
			// What the session holds cannot be seen: the client has to say it once.
			return c.noSession(r), nil
		case late:
			if session := c.behindSeen.named(generation, req); session != nil {
				ex, err := c.passFetch(r)
				if err == nil {
					session.learned(&ex)
				}
				return ex, err
			}
		}
	}
	return c.passFetch(r)
}

// passFetch passes on a consumer's Fetch request of which nothing is refused.
func (c *conn) passFetch(r *request) (exchange, error) {
	if r.version < followersAnswer && !c.p.deps.Leaders.none() {
		return c.raiseFetch(r)
	}
	if c.fromLeader(r.version) {
		return c.fetchFromLeader(r)
	}
	ex := r.forward()
	c.inspectFetch(&ex)
	return ex, nil
}

// A real leader sends a consumer, which says in which rack it stands, to a replica there, and gives it
// no records; it does so again each time it is asked. If that replica is a virtual one and there is no
// other to read from, the consumer has to be served by the leader, which it is if it stands nowhere.

// leaderOnlyFor is for how long no rack is passed on. Virtual replicas are followers for a short time
// only, before a mirror topic begins and when it has been handed back.
const leaderOnlyFor = 10 * time.Second

// fromLeader tells whether a Fetch request is passed on without its rack.
func (c *conn) fromLeader(version int16) bool {
	until := c.leaderOnly.Load()
	return until != 0 && version >= followersAnswer && time.Now().UnixNano() < until
}

func (c *conn) fetchFromLeader(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrFetchRequest())
	if err != nil {
		return exchange{}, err
	}
	req.Rack = ""
	ex := relayed(r.header)
	ex.send = encodeRequest(req, r.correlation, r.clientID)
	c.inspectFetch(&ex)
	return ex, nil
}

// inSession tells whether a request goes on with a session, so that it names only what
// changes.
func inSession(req *kmsg.FetchRequest) bool { return req.Version >= 7 && req.SessionEpoch > 0 }

// noSession tells a client that its session has ended, upon which it names all it wants.
func (c *conn) noSession(r *request) exchange {
	resp := kmsg.NewPtrFetchResponse()
	resp.ErrorCode = errFetchSessionIDNotFound
	return c.local(r.header, resp)
}

// splitFetch takes what code has an error for out of a request's topics, and answers it.
func splitFetch(req *kmsg.FetchRequest, code func(t *kmsg.FetchRequestTopic, partition int32) int16) (rest []kmsg.FetchRequestTopic, refused []kmsg.FetchResponseTopic) {
	for i := range req.Topics {
		t := &req.Topics[i]
		kept := *t
		kept.Partitions = nil
		out := kmsg.NewFetchResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			if why := code(t, p.Partition); why != errNone {
				out.Partitions = append(out.Partitions, refusedFetch(p.Partition, why))
			} else {
				kept.Partitions = append(kept.Partitions, p)
			}
		}
		if len(kept.Partitions) > 0 {
			rest = append(rest, kept)
		}
		if len(out.Partitions) > 0 {
			refused = append(refused, out)
		}
	}
	return rest, refused
}

// fetchRest passes on what of a Fetch is not refused. It makes no session and ends one that
// there is: what a session holds cannot be seen in the requests that follow, and the client
// would not be told again that it is refused.
func (c *conn) fetchRest(r *request, req *kmsg.FetchRequest, topics []kmsg.FetchRequestTopic, refused []kmsg.FetchResponseTopic) exchange {
	if inSession(req) {
		return c.noSession(r) // it has to say once more what it wants
	}
	if len(topics) == 0 {
		resp := kmsg.NewPtrFetchResponse()
		resp.Topics = refused
		return c.local(r.header, resp)
	}
	rest := *req
	rest.Topics = topics
	rest.SessionID, rest.SessionEpoch, rest.ForgottenTopics = 0, -1, nil
	rest.Rack = "" // whoever leads what is left has to serve it
	ex := relayed(r.header)
	if r.version < followersAnswer && !c.p.deps.Leaders.none() {
		raise(&rest)
		ex.version = followersAnswer
	}
	ex.send = encodeRequest(&rest, r.correlation, r.clientID)
	sent := rest.Version
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, sent, body)
		if err != nil {
			return nil, err
		}
		got := resp.(*kmsg.FetchResponse)
		c.p.unbelieved(got, r.version)
		got.Topics = append(got.Topics, refused...)
		if row := c.p.rows[r.key]; row.rewrite != nil {
			row.rewrite(c.p, got)
		}
		got.SetVersion(r.version)
		return got, nil
	}
	return ex
}

func (c *conn) inspectFetch(ex *exchange) {
	if ex.version < followersAnswer {
		return // all leaders: they name no others
	}
	if t := c.p.rewriter(ex.key, ex.version); t != nil {
		ex.inspect, ex.transform = inspectFetchResponse, t
	}
}

// raise makes a version that followers answer of an older request.
func raise(req *kmsg.FetchRequest) {
	if req.Version < 3 {
		req.MaxBytes = maxFetchBytes
	}
	if req.Version < 7 {
		req.SessionID, req.SessionEpoch = 0, -1
	}
	req.Version = followersAnswer
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
	if c.p.cfg.Virtual {
		if inSession(req) {
			return c.noSession(r), nil
		}
		// What is fetched elsewhere is in no session of the home broker's.
		req.SessionID, req.SessionEpoch, req.ForgottenTopics = 0, -1, nil
	}
	raise(req)
	ex := relayed(r.header)
	ex.send = encodeRequest(req, r.correlation, r.clientID)
	ex.version = followersAnswer // of the response's header and body
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, followersAnswer, body)
		if err != nil {
			return nil, err
		}
		got := resp.(*kmsg.FetchResponse)
		c.p.unbelieved(got, r.version)
		if c.p.cfg.Virtual {
			c.fetchElsewhere(req, got)
		}
		if row := c.p.rows[r.key]; row.rewrite != nil {
			row.rewrite(c.p, resp)
		}
		resp.SetVersion(r.version)
		return resp, nil
	}
	return ex, nil
}

// unbelieved takes back what a replica says that is behind, see notYet, and what a follower of a
// real leader says to a consumer that followers do not answer in its version. version is the
// client's.
func (p *Proxy) unbelieved(resp *kmsg.FetchResponse, version int16) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			switch {
			case version < followersAnswer && followerSays(rp.ErrorCode) && p.realFollower(t.Topic, rp.Partition):
				*rp = refusedFetch(rp.Partition, errNotLeaderOrFollower)
			case rp.ErrorCode == errOffsetOutOfRange && p.isBehind(t.Topic, t.TopicID, version >= fetchTopicIDs, rp.Partition):
				rp.ErrorCode = notYet(version)
			}
		}
	}
}

// followerSays tells whether an error, or none, is what a follower says of its log; what it refuses
// otherwise (rights, epochs) a broker finds before it looks who leads.
func followerSays(code int16) bool {
	return code == errNone || code == errOffsetOutOfRange || code == errOffsetNotAvailable
}

// realFollower tells whether another real broker than home leads a partition.
func (p *Proxy) realFollower(topic string, partition int32) bool {
	id, ok := p.deps.View.Topic(topic)
	if !ok {
		return false
	}
	part := p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
	return part != nil && part.Leader >= 0 && part.Leader != p.cfg.Home && !p.cfg.IDs.Is(part.Leader)
}

// notYet is the error for a fetch at an offset that a replica does not have yet. Consumers
// take OFFSET_OUT_OF_RANGE, which it says itself, for the truth of a leader, and begin again
// at the start or the end of the log. Those that are too old for OFFSET_NOT_AVAILABLE get an
// error that they know; either makes them ask for metadata, which names another replica.
func notYet(version int16) int16 {
	if version < followersAnswer {
		return errNotLeaderOrFollower
	}
	return errOffsetNotAvailable
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
	if replica < 0 && r.version < followersAnswer {
		return c.fetch(r) // it cannot be sent anywhere
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
// from. What exists and who leads it is told only of what the consumer may read: the home broker is
// asked on the consumer's own connection, and what it refuses is its answer.
func (c *conn) redirectFetch(r *request, req *kmsg.FetchRequest) exchange {
	if req.SessionID != 0 {
		// There are no sessions here, so that this is another listener's.
		resp := kmsg.NewPtrFetchResponse()
		resp.ErrorCode = errFetchSessionIDNotFound
		return c.local(r.header, resp)
	}
	ex := relayed(r.header)
	var judged *kmsg.FetchResponse
	ex.converse = func(ctx context.Context, up *conversation) error {
		got, err := up.request(ctx, readRights(req))
		if err != nil {
			return fmt.Errorf("ask what the consumer may read: %w", err)
		}
		judged = got.(*kmsg.FetchResponse)
		c.authority.authenticated.Store(true)
		return nil
	}
	ex.answer = func(context.Context) (net.Buffers, error) { return responseFrame(c.redirected(req, judged), r.header) }
	return ex
}

// readRights asks what of a Fetch a consumer may read, and for no records: no log has the offset.
func readRights(of *kmsg.FetchRequest) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = of.Version
	req.MaxBytes = 1
	req.SessionEpoch = -1 // no session
	for _, t := range of.Topics {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.Partition, math.MaxInt64, 1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// redirected is the answer to a consumer of whose Fetch the home broker has judged.
func (c *conn) redirected(req *kmsg.FetchRequest, judged *kmsg.FetchResponse) *kmsg.FetchResponse {
	type asked struct {
		topic     string
		id        ids.UUID
		partition int32
	}
	refused := make(map[asked]int16)
	for _, t := range judged.Topics {
		for _, p := range t.Partitions {
			switch p.ErrorCode {
			case errTopicAuthorization, errUnknownTopicID, errUnknownTopicOrPartition:
				refused[asked{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode
			}
		}
	}
	resp := refuseFetch(req, func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16 {
		if code := refused[asked{topic, id, out.Partition}]; code != errNone {
			return code
		}
		missing := errUnknownTopicID
		if req.Version < 13 {
			missing = errUnknownTopicOrPartition
			id, _ = c.p.deps.View.Topic(topic)
		}
		part := c.p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: out.Partition})
		if part == nil {
			return missing
		}
		return c.redirect(req.Version, part, out)
	})
	resp.ErrorCode, resp.ThrottleMillis = judged.ErrorCode, judged.ThrottleMillis
	if resp.ErrorCode != errNone {
		resp.Topics = nil
	}
	return resp
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

// refusedFetch answers for a partition without records. The record field is empty, not
// null, which some clients do not read.
func refusedFetch(partition int32, code int16) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
	p.RecordBatches = []byte{}
	return p
}

// refuseFetch makes a response without records, with the error that code returns for
// each partition.
func refuseFetch(req *kmsg.FetchRequest, code func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := refusedFetch(p.Partition, errNone)
			rp.ErrorCode = code(t.TopicID, t.Topic, &rp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
