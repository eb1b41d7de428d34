package proxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Timestamps of ListOffsets that stand for something else.
const (
	latest       int64 = -1
	maxTimestamp int64 = -3
)

const (
	consumerReplica int32 = -1
	// debugReplica may ask a follower for offsets, and gets its log end.
	debugReplica int32 = -2
	// sidecarReplica marks OffsetForLeaderEpoch of another sidecar; brokers take it for a client's.
	sidecarReplica int32 = -2

	readCommitted int8 = 1
)

// clamped tells whether the answer to a timestamp must not pass what is committed. The
// earliest offsets need no clamp.
func clamped(timestamp int64) bool {
	return timestamp == latest || timestamp == maxTimestamp || timestamp >= 0
}

// listOffsets answers for mirror partitions from a real replica, clamped to what
// consumers may see; the rest of a request is the home broker's.
func (c *conn) listOffsets(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrListOffsetsRequest())
	if err != nil {
		return exchange{}, err
	}
	if req.ReplicaID >= 0 && c.p.cfg.Virtual {
		ex := relayed(r.header)
		c.followerOnly(&ex,
			func(ctx context.Context) (net.Buffers, error) {
				resp, err := c.p.deps.Replica.ListOffsets(ctx, req)
				if err != nil {
					return nil, err
				}
				return responseFrame(resp, r.header)
			},
			func(context.Context) (net.Buffers, error) {
				return responseFrame(listOffsetsErrors(req, errTopicAuthorization), r.header)
			})
		return ex, nil
	}
	denied, err := c.deniedState(r, slices.ContainsFunc(req.Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == stateTopic }))
	if err != nil {
		return exchange{}, err
	}
	forward := r.forward()
	if denied {
		forward.transform = func(body []byte) (kmsg.Response, error) {
			resp, err := decodeResponse(r.key, r.version, body)
			if err != nil {
				return nil, err
			}
			denyOffsets(resp.(*kmsg.ListOffsetsResponse))
			return resp, nil
		}
	}
	if req.ReplicaID != consumerReplica || r.version < 1 {
		return forward, nil
	}
	l := newOffsetLookup(c.p, req)
	if len(l.mirror) == 0 && len(l.late) == 0 {
		return forward, nil
	}
	ex := relayed(r.header)
	ex.converse = l.run
	ex.answer = func(context.Context) (net.Buffers, error) {
		resp := l.response()
		if denied {
			denyOffsets(resp)
		}
		return responseFrame(resp, r.header)
	}
	return ex, nil
}

// denyOffsets takes the answers about the state topic back.
func denyOffsets(resp *kmsg.ListOffsetsResponse) {
	for i := range resp.Topics {
		if resp.Topics[i].Topic != stateTopic {
			continue
		}
		for j := range resp.Topics[i].Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.ErrorCode, p.Timestamp, p.Offset = resp.Topics[i].Partitions[j].Partition, errTopicAuthorization, -1, -1
			resp.Topics[i].Partitions[j] = p
		}
	}
}

func listOffsetsErrors(req *kmsg.ListOffsetsRequest, code int16) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.Timestamp, rp.Offset = p.Partition, code, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// offsetLookup is one consumer's ListOffsets with mirror partitions in it.
type offsetLookup struct {
	p   *Proxy
	req *kmsg.ListOffsetsRequest
	// ordinary are the partitions that a real broker leads.
	ordinary []kmsg.ListOffsetsRequestTopic
	mirror   []*mirrorOffset
	// late are those that the home broker is behind with, see behind.go: its ends would lie
	// before what the client has read elsewhere.
	late     []*mirrorOffset
	answers  queuedAnswers
	throttle int32
}

// mirrorOffset is one mirror partition of a lookup.
type mirrorOffset struct {
	topic     string
	part      *metadata.Partition
	ask       kmsg.ListOffsetsRequestTopicPartition
	answer    kmsg.ListOffsetsResponseTopicPartition
	logEnd    int64 // of the replica that answers
	epoch     int32 // of the record at the log end
	committed int64 // what consumers may see ends here
	// unreadable: the caller may not fetch, so that it is not known what is committed; found
	// is the answer to its question.
	unreadable bool
	found      kmsg.ListOffsetsResponseTopicPartition
}

func (m *mirrorOffset) fail(code int16) {
	m.answer = kmsg.NewListOffsetsResponseTopicPartition()
	m.answer.Partition, m.answer.ErrorCode = m.ask.Partition, code
	m.answer.Timestamp, m.answer.Offset = -1, -1
}

func (m *mirrorOffset) ok() bool { return m.answer.ErrorCode == errNone }

type topicPartition struct {
	topic     string
	partition int32
}

type queuedAnswers map[topicPartition]kmsg.ListOffsetsResponseTopicPartition

func newOffsetLookup(p *Proxy, req *kmsg.ListOffsetsRequest) *offsetLookup {
	l := &offsetLookup{p: p, req: req, answers: make(queuedAnswers)}
	for _, t := range req.Topics {
		rest := t
		rest.Partitions = nil
		for _, ask := range t.Partitions {
			part, ok := p.mirrorLed(t.Topic, ask.Partition)
			switch {
			case !ok:
				rest.Partitions = append(rest.Partitions, ask)
			case !p.cfg.Virtual && p.deps.Leaders.IsBehind(p.cfg.Home, ids.TopicPartition{TopicID: part.TopicID, Partition: part.Partition}):
				m := &mirrorOffset{topic: t.Topic, part: part, ask: ask}
				m.fail(errNotLeaderOrFollower)
				l.late = append(l.late, m)
			default:
				l.mirror = append(l.mirror, &mirrorOffset{topic: t.Topic, part: part, ask: ask})
			}
		}
		if len(rest.Partitions) > 0 {
			l.ordinary = append(l.ordinary, rest)
		}
	}
	return l
}

// asker sends a request to some broker.
type asker func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)

func (l *offsetLookup) run(ctx context.Context, up *conversation) error {
	if len(l.ordinary) > 0 {
		req := *l.req
		req.Topics = l.ordinary
		resp, err := up.request(ctx, &req)
		if err != nil {
			return fmt.Errorf("ordinary partitions: %w", err)
		}
		l.collect(resp.(*kmsg.ListOffsetsResponse))
	}
	if len(l.mirror) > 0 {
		if err := l.lookup(ctx, l.mirror, up.request); err != nil {
			return fmt.Errorf("mirror partitions: %w", err)
		}
	}
	l.elsewhere(ctx)
	return nil
}

func (l *offsetLookup) collect(resp *kmsg.ListOffsetsResponse) {
	l.throttle = max(l.throttle, resp.ThrottleMillis)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			l.answers[topicPartition{t.Topic, p.Partition}] = p
		}
	}
}

// elsewhere asks other real replicas for the partitions that the home broker has no
// replica of. At a client listener a consumer is not sent to such a broker, and gets
// NOT_LEADER_OR_FOLLOWER if its metadata is old. At a virtual listener it cannot go
// elsewhere: the virtual broker is the leader it sees. The home broker has looked at
// the caller's rights by then.
func (l *offsetLookup) elsewhere(ctx context.Context) {
	by := make(map[int32][]*mirrorOffset)
	for _, m := range l.mirror {
		code := m.answer.ErrorCode
		if code != errNotLeaderOrFollower && code != errUnknownTopicOrPartition {
			continue
		}
		m.fail(errNotLeaderOrFollower)
		if !l.p.cfg.Virtual || l.p.deps.Brokers == nil {
			continue
		}
		if leader, ok := l.p.shownLeader(m.part); ok && leader != l.p.cfg.Home {
			by[leader] = append(by[leader], m)
		}
	}
	for broker, ms := range by {
		ask := func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
			return l.p.deps.Brokers.Request(ctx, broker, req)
		}
		if err := l.lookup(ctx, ms, ask); err != nil {
			l.p.log.Warn("offsets of mirror partitions cannot be looked up at their replica", "broker", broker, "err", err)
			for _, m := range ms {
				m.fail(errNotLeaderOrFollower)
			}
		}
	}
}

// lookup answers mirror partitions from one broker that has real replicas of them.
func (l *offsetLookup) lookup(ctx context.Context, ms []*mirrorOffset, ask asker) error {
	answers, err := l.list(ctx, ms, ask, func(m *mirrorOffset) int64 { return m.ask.Timestamp })
	if err != nil {
		return err
	}
	var clamp []*mirrorOffset
	for i, m := range ms {
		m.answer = answers[i]
		if m.ok() && clamped(m.ask.Timestamp) {
			clamp = append(clamp, m)
		}
	}
	if len(clamp) == 0 {
		return nil
	}
	// The end of the log is an offset that a consumer may fetch at without an error
	// and without getting records, wherever the high watermark is.
	ends, err := l.list(ctx, clamp, ask, func(*mirrorOffset) int64 { return latest })
	if err != nil {
		return err
	}
	for i, m := range clamp {
		if ends[i].ErrorCode != errNone {
			m.fail(ends[i].ErrorCode)
			continue
		}
		m.logEnd, m.epoch = ends[i].Offset, ends[i].LeaderEpoch
	}
	if err := l.committed(ctx, clamp, ask); err != nil {
		return err
	}
	if err := l.unreadable(ctx, clamp); err != nil {
		return err
	}
	for _, m := range clamp {
		if m.ok() {
			m.clamp()
		}
	}
	return nil
}

// unreadable asks again, under the sidecar's own identity, about what the caller may not
// read. ListOffsets takes DESCRIBE only, which the broker has found the caller to have when it
// gave him the ends of these partitions.
func (l *offsetLookup) unreadable(ctx context.Context, ms []*mirrorOffset) error {
	if l.p.deps.Brokers == nil {
		return nil
	}
	var again []*mirrorOffset
	for _, m := range ms {
		if m.unreadable {
			m.unreadable = false
			m.answer = m.found
			again = append(again, m)
		}
	}
	return l.committed(ctx, again, func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
		return l.p.deps.Brokers.Request(ctx, l.p.cfg.Home, req)
	})
}

// clamp changes an answer about the replica's whole log into one about what consumers
// may see, as a leader would give it.
func (m *mirrorOffset) clamp() {
	a := &m.answer
	switch {
	case m.ask.Timestamp == latest:
		a.Offset = min(a.Offset, m.committed)
	case a.Offset >= m.committed:
		// A record that is there but not visible yet: none.
		a.Offset, a.Timestamp, a.LeaderEpoch = -1, -1, -1
	}
}

// list asks for one timestamp of each partition, as the debugging replica, and returns
// the answers in the same order.
func (l *offsetLookup) list(ctx context.Context, ms []*mirrorOffset, ask asker, timestamp func(*mirrorOffset) int64) ([]kmsg.ListOffsetsResponseTopicPartition, error) {
	req := *l.req
	req.ReplicaID = debugReplica
	req.Topics = nil
	for _, m := range ms {
		p := m.ask
		p.Timestamp = timestamp(m)
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != m.topic {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = m.topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := ask(ctx, &req)
	if err != nil {
		return nil, err
	}
	lr := resp.(*kmsg.ListOffsetsResponse)
	l.throttle = max(l.throttle, lr.ThrottleMillis)
	got := make(map[topicPartition]kmsg.ListOffsetsResponseTopicPartition)
	for _, t := range lr.Topics {
		for _, p := range t.Partitions {
			got[topicPartition{t.Topic, p.Partition}] = p
		}
	}
	out := make([]kmsg.ListOffsetsResponseTopicPartition, len(ms))
	for i, m := range ms {
		a, ok := got[topicPartition{m.topic, m.ask.Partition}]
		if !ok {
			return nil, fmt.Errorf("no answer for %s-%d", m.topic, m.ask.Partition)
		}
		out[i] = a
	}
	return out, nil
}

// committed fetches at the end of the log, as a consumer: the answer has the high
// watermark and the last stable offset, and no records.
func (l *offsetLookup) committed(ctx context.Context, ms []*mirrorOffset, ask asker) error {
	req := kmsg.NewPtrFetchRequest()
	req.Version = fetchFlexible // by name, and followers answer
	req.MaxBytes = 1
	req.SessionEpoch = -1 // no session
	req.IsolationLevel = l.req.IsolationLevel
	index := make(map[topicPartition]*mirrorOffset)
	names := make(map[ids.UUID]string)
	for _, m := range ms {
		if !m.ok() {
			continue
		}
		index[topicPartition{m.topic, m.ask.Partition}] = m
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = m.ask.Partition
		p.FetchOffset = m.logEnd
		p.CurrentLeaderEpoch = m.ask.CurrentLeaderEpoch
		p.PartitionMaxBytes = 1
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != m.topic {
			t := kmsg.NewFetchRequestTopic()
			// The home broker is asked with the version above; another broker with its newest,
			// which knows ids only.
			t.Topic, t.TopicID = m.topic, m.part.TopicID
			names[m.part.TopicID] = m.topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	if len(index) == 0 {
		return nil
	}
	resp, err := ask(ctx, req)
	if err != nil {
		return err
	}
	fr := resp.(*kmsg.FetchResponse)
	l.throttle = max(l.throttle, fr.ThrottleMillis)
	if fr.ErrorCode != errNone {
		return fmt.Errorf("fetch of high watermarks: error %d", fr.ErrorCode)
	}
	for _, t := range fr.Topics {
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			m := index[topicPartition{name, p.Partition}]
			if m == nil {
				continue
			}
			delete(index, topicPartition{name, p.Partition})
			switch {
			case p.ErrorCode == errOffsetOutOfRange: // the log was truncated in between
				m.fail(errNotLeaderOrFollower)
			case p.ErrorCode == errTopicAuthorization:
				m.unreadable, m.found = true, m.answer
				m.fail(p.ErrorCode)
			case p.ErrorCode != errNone:
				m.fail(p.ErrorCode)
			case l.req.IsolationLevel == readCommitted:
				m.committed = p.LastStableOffset
			default:
				m.committed = p.HighWatermark
			}
		}
	}
	for _, m := range index {
		m.fail(errNotLeaderOrFollower)
	}
	return nil
}

// response merges the answers in the order of the request.
func (l *offsetLookup) response() *kmsg.ListOffsetsResponse {
	for _, m := range slices.Concat(l.mirror, l.late) {
		l.answers[topicPartition{m.topic, m.ask.Partition}] = m.answer
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.ThrottleMillis = l.throttle
	for _, t := range l.req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			if a, ok := l.answers[topicPartition{t.Topic, p.Partition}]; ok {
				rt.Partitions = append(rt.Partitions, a)
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// offsetForLeaderEpoch answers consumers for mirror partitions from the lineage. The
// request goes to the home broker as it is: it follows the partition, so it checks the
// caller's rights and epoch and then says that it does not lead, which is what is
// replaced.
func (c *conn) offsetForLeaderEpoch(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrOffsetForLeaderEpochRequest())
	if err != nil {
		return exchange{}, err
	}
	if r.version >= 3 && req.ReplicaID >= 0 && c.p.cfg.Virtual {
		ex := relayed(r.header)
		c.followerOnly(&ex,
			func(ctx context.Context) (net.Buffers, error) {
				resp, err := c.p.deps.Replica.OffsetForLeaderEpoch(ctx, req)
				if err != nil {
					return nil, err
				}
				return responseFrame(resp, r.header)
			},
			func(context.Context) (net.Buffers, error) {
				return responseFrame(epochErrors(req, errTopicAuthorization), r.header)
			})
		return ex, nil
	}
	denied, err := c.deniedState(r, slices.ContainsFunc(req.Topics, func(t kmsg.OffsetForLeaderEpochRequestTopic) bool { return t.Topic == stateTopic }))
	if err != nil {
		return exchange{}, err
	}
	asked := make(map[topicPartition]int32)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if _, ok := c.p.mirrorLed(t.Topic, p.Partition); ok {
				asked[topicPartition{t.Topic, p.Partition}] = p.LeaderEpoch
			}
		}
	}
	ex := r.forward()
	if len(asked) > 0 || denied {
		ex.transform = func(body []byte) (kmsg.Response, error) {
			resp, err := decodeResponse(r.key, r.version, body)
			if err != nil {
				return nil, err
			}
			epochs := resp.(*kmsg.OffsetForLeaderEpochResponse)
			c.p.answerEpochs(c.ctx, asked, r.version >= 3 && req.ReplicaID == sidecarReplica, epochs)
			if denied {
				denyEpochs(epochs)
			}
			return resp, nil
		}
	}
	return ex, nil
}

// epochPatience bounds the question to another sidecar's virtual broker. A consumer that gets
// no answer asks again.
const epochPatience = 5 * time.Second

// answerEpochs answers for mirror partitions in the place of the home broker, which has found
// the caller entitled to it and says that it does not lead. The virtual broker that leads is
// asked, since nobody else knows where the newest epoch ends, nor which epochs it has begun a
// moment ago: "unknown" would make a consumer begin at the start or the end of the log. A sidecar
// that asks is not sent on: two that believe of each other that it leads would wait for each other.
func (p *Proxy) answerEpochs(ctx context.Context, asked map[topicPartition]int32, bySidecar bool, resp *kmsg.OffsetForLeaderEpochResponse) {
	ctx, cancel := context.WithTimeout(ctx, epochPatience)
	defer cancel()
	elsewhere := map[int32]*epochQuestion{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			a := &t.Partitions[j]
			tp := topicPartition{t.Topic, a.Partition}
			epoch, ok := asked[tp]
			if !ok || (a.ErrorCode != errNotLeaderOrFollower && a.ErrorCode != errUnknownTopicOrPartition) {
				continue
			}
			a.ErrorCode, a.LeaderEpoch, a.EndOffset = errNotLeaderOrFollower, -1, -1
			part, ok := p.mirrorLed(t.Topic, a.Partition)
			if !ok {
				continue // a real broker leads by now
			}
			if part.Leader != p.cfg.IDs.Of(p.cfg.Home) && p.deps.Brokers != nil {
				if bySidecar {
					continue
				}
				if elsewhere[part.Leader] == nil {
					elsewhere[part.Leader] = newEpochQuestion()
				}
				elsewhere[part.Leader].add(tp, epoch, a)
				continue
			}
			found, end, ready := p.deps.Lineage.EndOffset(ids.TopicPartition{TopicID: part.TopicID, Partition: a.Partition}, epoch)
			if !ready {
				continue // asked again; "unknown" would make the consumer reset
			}
			a.ErrorCode, a.LeaderEpoch, a.EndOffset = errNone, found, end
		}
	}
	for leader, q := range elsewhere {
		got, err := p.deps.Brokers.Request(ctx, leader, q.req)
		if err != nil {
			p.log.Warn("the leader of mirror partitions cannot be asked where epochs end", "broker", leader, "err", err)
			continue
		}
		q.take(got.(*kmsg.OffsetForLeaderEpochResponse))
	}
}

// epochQuestion is what one virtual broker is asked, as by a client that came to its listener.
type epochQuestion struct {
	req     *kmsg.OffsetForLeaderEpochRequest
	answers map[topicPartition]*kmsg.OffsetForLeaderEpochResponseTopicPartition
}

func newEpochQuestion() *epochQuestion {
	q := &epochQuestion{kmsg.NewPtrOffsetForLeaderEpochRequest(), map[topicPartition]*kmsg.OffsetForLeaderEpochResponseTopicPartition{}}
	q.req.ReplicaID = sidecarReplica
	return q
}

func (q *epochQuestion) add(tp topicPartition, epoch int32, answer *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	if n := len(q.req.Topics); n == 0 || q.req.Topics[n-1].Topic != tp.topic {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = tp.topic
		q.req.Topics = append(q.req.Topics, t)
	}
	part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	part.Partition, part.LeaderEpoch = tp.partition, epoch
	t := &q.req.Topics[len(q.req.Topics)-1]
	t.Partitions = append(t.Partitions, part)
	q.answers[tp] = answer
}

func (q *epochQuestion) take(resp *kmsg.OffsetForLeaderEpochResponse) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if a := q.answers[topicPartition{t.Topic, p.Partition}]; a != nil && p.ErrorCode == errNone {
				a.ErrorCode, a.LeaderEpoch, a.EndOffset = errNone, p.LeaderEpoch, p.EndOffset
			}
		}
	}
}

// denyEpochs takes the answers about the state topic back.
func denyEpochs(resp *kmsg.OffsetForLeaderEpochResponse) {
	for i := range resp.Topics {
		if resp.Topics[i].Topic != stateTopic {
			continue
		}
		for j := range resp.Topics[i].Partitions {
			a := &resp.Topics[i].Partitions[j]
			a.ErrorCode, a.LeaderEpoch, a.EndOffset = errTopicAuthorization, -1, -1
		}
	}
}

func epochErrors(req *kmsg.OffsetForLeaderEpochRequest, code int16) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rp.LeaderEpoch, rp.EndOffset = -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// writeTxnMarkers lets the virtual broker answer a transaction coordinator.
func (c *conn) writeTxnMarkers(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrWriteTxnMarkersRequest())
	if err != nil {
		return exchange{}, err
	}
	ex := relayed(r.header)
	c.followerOnly(&ex,
		func(ctx context.Context) (net.Buffers, error) {
			resp, err := c.p.deps.Replica.WriteTxnMarkers(ctx, req)
			if err != nil {
				return nil, err
			}
			return responseFrame(resp, r.header)
		},
		func(context.Context) (net.Buffers, error) {
			return responseFrame(markerErrors(req, errClusterAuthorization), r.header)
		})
	return ex, nil
}

func markerErrors(req *kmsg.WriteTxnMarkersRequest, code int16) *kmsg.WriteTxnMarkersResponse {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, m := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = p, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp
}
