package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// Error codes of Kafka that only the serving side uses.
const (
	codeUnknownTopicOrPartition int16 = 3
	codeFetchSessionNotFound    int16 = 70
	codeUnknownTopicID          int16 = 100
	codeInconsistentTopicID     int16 = 103
)

// maxPollWait bounds a follower's long poll, whatever it asks for.
const maxPollWait = 30 * time.Second

// question is one partition of a follower's Fetch, and its answer.
type question struct {
	p        *partition
	req      leading.FetchRequest
	max      int // bytes
	reply    *PartitionReply
	settled  bool
	laggard  leading.Decision // to be read from a real replica
	lagging  bool
	stalled  bool // nobody could be read from for it
	tp       ids.TopicPartition
	topic    string
	answered bool // Fetch was called once; from then on only Again
	asked    time.Time
	news     bool          // what answer said of it last
	hold     time.Duration // see holdLocked
}

// Fetch answers a real broker's (or the peer's) replica fetcher. It waits as the request
// says until there is data, a moved high watermark or an error for any partition. ctx
// ends with the connection.
func (m *Manager) Fetch(ctx context.Context, req *kmsg.FetchRequest) (*FetchReply, error) {
	replica, epoch := req.ReplicaID, int64(-1)
	if req.Version >= 15 {
		replica, epoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	if replica < 0 {
		return nil, fmt.Errorf("a Fetch without a replica id is not a follower's")
	}
	reply := &FetchReply{}
	if req.SessionEpoch > 0 {
		// No session was ever handed out: the follower forgets it and sends a full request.
		reply.ErrorCode = codeFetchSessionNotFound
		return reply, nil
	}
	qs := m.questions(req, reply, replica, epoch)

	wake := make(chan struct{}, 1)
	for _, q := range qs {
		if q.p != nil {
			q.p.listen(wake)
			defer q.p.unlisten(wake)
		}
	}
	wait := min(time.Duration(req.MaxWaitMillis)*time.Millisecond, maxPollWait)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	last := false
	for {
		ready, hold := m.answer(qs, int(req.MaxBytes), last)
		held := ready && hold > 0 && !last
		if (ready || last) && !held && (m.readLaggards(ctx, qs, int(req.MaxBytes)) || last) {
			break
		}
		// Nothing to write: whoever waits for that need not.
		resume(qs)
		var patience <-chan time.Time
		if held {
			patience = time.After(hold)
		}
		select {
		case <-wake:
		case <-patience:
		case <-deadline.C:
			last = true
		case <-ctx.Done():
			reply.Release()
			return nil, ctx.Err()
		}
	}
	for _, q := range qs {
		from := servedBuffer
		if q.lagging {
			from = servedReplica
		}
		m.cfg.Metrics.count(from, q.reply.Size)
		if q.p != nil && q.reply.ErrorCode == 0 && !q.reply.Diverging {
			q.p.told(replica, q.reply.HighWatermark)
		}
	}
	// Writing goes first: the follower waits for it, and reading on fills buffers for the
	// answer after this one.
	reply.sent = func() { resume(qs) }
	return reply, nil
}

// questions lays out the reply, one entry for each partition asked about and in the order
// asked: a full answer must name every one.
func (m *Manager) questions(req *kmsg.FetchRequest, reply *FetchReply, replica int32, epoch int64) []*question {
	var qs []*question
	reply.Topics = make([]TopicReply, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := &reply.Topics[i]
		rt.Name, rt.ID = t.Topic, t.TopicID
		rt.Partitions = make([]PartitionReply, len(t.Partitions))
		id, name := ids.UUID(t.TopicID), t.Topic
		var known bool
		if req.Version >= 13 {
			name, known = m.image.TopicName(id)
		} else {
			id, known = m.image.Topic(name)
		}
		for j := range t.Partitions {
			q := &t.Partitions[j]
			rp := &rt.Partitions[j]
			*rp = PartitionReply{Partition: q.Partition, HighWatermark: -1, LogStart: -1}
			tp := ids.TopicPartition{TopicID: id, Partition: q.Partition}
			entry := &question{
				tp: tp, topic: name, reply: rp, max: int(q.PartitionMaxBytes), asked: m.now(),
				req: leading.FetchRequest{
					Replica: replica, BrokerEpoch: epoch, CurrentLeaderEpoch: q.CurrentLeaderEpoch, Offset: q.FetchOffset,
					LastFetchedEpoch: q.LastFetchedEpoch, LogStart: q.LogStartOffset,
				},
			}
			switch {
			case !known && req.Version >= 13:
				rp.ErrorCode, entry.settled = codeUnknownTopicID, true
			case !known:
				rp.ErrorCode, entry.settled = codeUnknownTopicOrPartition, true
			default:
				if entry.p = m.partition(tp); entry.p == nil {
					rp.ErrorCode, entry.settled = leading.CodeNotLeaderOrFollower, true
				}
			}
			qs = append(qs, entry)
		}
	}
	return qs
}

// answer goes over all partitions once, and tells whether the reply is worth sending, and for
// how long it had better not be sent all the same.
func (m *Manager) answer(qs []*question, maxBytes int, last bool) (ready bool, hold time.Duration) {
	left, records := maxBytes, false
	for _, q := range qs {
		if q.settled {
			ready = true
			continue
		}
		q.news = q.p.answer(q, left, ready, last)
		ready = ready || q.news
		hold = max(hold, min(q.hold, answerPatience-q.p.m.now().Sub(q.asked)))
		left -= q.reply.Size
		records = records || q.reply.Size > 0 || q.lagging && q.news
	}
	if records {
		hold = 0
	}
	return ready, hold
}

const (
	// takeoverPatience is for how long after its beginning a takeover may hold back a whole answer.
	takeoverPatience = time.Second
	// answerPatience is how long one answer is held back for that, if there are no records in it.
	// While topics are started one after another, some takeover has always just begun, and each
	// waits for the followers' next Fetch.
	answerPatience = 200 * time.Millisecond
)

// holdLocked tells how long an answer waits for a partition that is about to be led here. The
// error that it would bring keeps the follower from asking for the partition for its back-off
// (replica.fetch.backoff.ms), which is longer than a takeover takes; and without a session no
// partition can be left out. That others wait meanwhile costs less. What takes longer than
// usual, since the source does not answer or replicas are missing, holds nobody up.
func (p *partition) holdLocked(q *question) time.Duration {
	since := p.began
	if p.machine.Status().Phase == leading.Off {
		since = q.asked // the metadata log is about to say that it is ours
	}
	return takeoverPatience - p.m.now().Sub(since)
}

func (p *partition) listen(w chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters[w] = struct{}{}
}

func (p *partition) unlisten(w chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, w)
}

func (p *partition) told(replica int32, hw int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machine.Told(replica, hw)
}

func resume(qs []*question) {
	for _, q := range qs {
		if q.p != nil {
			q.p.resume()
		}
	}
}

// resume reads on if followers have taken enough.
func (p *partition) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relieveLocked()
	p.resumeLocked()
}

// answer fills in the partition's part and tells whether it is news. left is what the
// whole answer may still hold; the first partition with data gets one batch whatever
// its size.
func (p *partition) answer(q *question, left int, ready, last bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.actLocked()
	q.max = min(q.max, p.segment)
	var d leading.Decision
	switch {
	case !q.answered:
		// The machine hears of it once, ready or not.
		q.answered = true
		d = p.machine.Fetch(p.m.now(), q.req)
	case last || p.machine.NewsFor(q.req.Replica, q.req.CurrentLeaderEpoch, q.req.Offset):
		d = p.machine.Again(q.req)
	default:
		if q.hold > 0 {
			q.hold = p.holdLocked(q)
		}
		return q.news && !q.stalled
	}
	r := q.reply
	r.ErrorCode, r.HighWatermark, r.LogStart = d.Code, d.HighWatermark, d.LogStart
	r.Diverging, r.DivergingEpoch, r.DivergingEnd = d.Diverging, d.DivergingTo.Epoch, d.DivergingTo.Start
	r.drop()
	q.lagging, q.hold = false, 0
	switch {
	case d.Code == leading.CodeUnknownLeaderEpoch && q.req.CurrentLeaderEpoch == p.machine.Status().Epoch && !last:
		// Ours, but not ready: wait. An error would cost the follower its back-off.
		q.hold = p.holdLocked(q)
		return false
	case d.Code == leading.CodeUnknownLeaderEpoch && p.machine.Status().Phase == leading.Off && !last:
		// An epoch that we have not heard of. It has not been heard by the machine either.
		q.hold, q.answered = p.holdLocked(q), false
		return q.hold <= 0
	case d.Code != 0 || d.Diverging:
		return true
	case d.Serve == leading.ServeReplica:
		q.lagging, q.laggard = true, d
		return !q.stalled
	case d.Serve == leading.ServeNothing:
		p.ranDryLocked()
	case d.Serve == leading.ServeBuffer && (left > 0 || !ready):
		r.Records, r.hold, r.Size = p.buf.read(d.Offset, d.End, min(q.max, max(left, 0)))
		return r.Size > 0
	}
	return p.machine.NewsFor(q.req.Replica, q.req.CurrentLeaderEpoch, q.req.Offset)
}

// wholeBatches keeps the batches of raw that end above offset and at or below end. What a
// real replica holds was stamped when it was mirrored and goes on as it is, but never with
// an epoch that the follower does not know yet (R10).
func wholeBatches(raw []byte, offset, end int64, maxEpoch int32) (records [][]byte, size int) {
	for b, err := range batch.Iterate(raw) {
		if err != nil || b.LastOffset() >= end || b.LeaderEpoch() > maxEpoch {
			break
		}
		if b.LastOffset() < offset {
			continue
		}
		records = append(records, b)
		size += len(b)
	}
	return records, size
}

// ListOffsets answers a follower that starts or is out of range.
func (m *Manager) ListOffsets(_ context.Context, req *kmsg.ListOffsetsRequest) (*kmsg.ListOffsetsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, q := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Timestamp, rp.Offset, rp.LeaderEpoch = q.Partition, -1, -1, -1
			rp.ErrorCode = m.withLeader(t.Topic, q.Partition, q.CurrentLeaderEpoch, func(machine *leading.Machine, epoch int32) {
				rp.LeaderEpoch = epoch
				switch q.Timestamp {
				case -1: // latest
					rp.Offset = machine.LogEnd()
				case -2, -4: // earliest, earliest local
					rp.Offset = machine.LogStart()
				}
			})
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// OffsetForLeaderEpoch answers a follower.
func (m *Manager) OffsetForLeaderEpoch(_ context.Context, req *kmsg.OffsetForLeaderEpochRequest) (*kmsg.OffsetForLeaderEpochResponse, error) {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, q := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = q.Partition, -1, -1
			rp.ErrorCode = m.withLeader(t.Topic, q.Partition, q.CurrentLeaderEpoch, func(machine *leading.Machine, _ int32) {
				rp.LeaderEpoch, rp.EndOffset, _ = machine.EndOffsetFor(q.LeaderEpoch)
			})
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// withLeader runs f with the machine of a partition that is led here and ready, or
// returns the error that a stock leader would answer.
func (m *Manager) withLeader(topic string, partition, currentEpoch int32, f func(machine *leading.Machine, epoch int32)) int16 {
	id, ok := m.image.Topic(topic)
	if !ok {
		return codeUnknownTopicOrPartition
	}
	p := m.partition(ids.TopicPartition{TopicID: id, Partition: partition})
	if p == nil {
		return leading.CodeNotLeaderOrFollower
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if code := p.machine.EpochError(currentEpoch); code != 0 {
		return code
	}
	st := p.machine.Status()
	if st.Phase != leading.Leading {
		return leading.CodeUnknownLeaderEpoch
	}
	f(p.machine, st.Epoch)
	return 0
}

// WriteTxnMarkers answers a transaction coordinator of this cluster whose transaction was
// open when the mirror took the partition over. Its data is gone, so there is nothing to
// mark; NOT_LEADER would be retried for ever and hold the transactional id (S15).
func (m *Manager) WriteTxnMarkers(_ context.Context, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, marker := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = marker.ProducerID
		for _, t := range marker.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, partition := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition = partition
				rp.ErrorCode = leading.CodeNotLeaderOrFollower
				if m.ready(t.Topic, partition) {
					rp.ErrorCode = 0
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp, nil
}

func (m *Manager) ready(topic string, partition int32) bool {
	return m.withLeader(topic, partition, -1, func(*leading.Machine, int32) {}) == 0
}

// fetchArgs is a Fetch of one partition.
type fetchArgs struct {
	replica     int32
	epoch       int64
	leaderEpoch int32
	offset      int64
	lastEpoch   int32
	maxBytes    int32
}

// refusal is what a broker answered instead of one partition: it is there, but has none of that.
type refusal struct{ error }

// Unwrap returns the answer's error.
func (r refusal) Unwrap() error { return r.error }

// fetchOne sends a Fetch of one partition that does not wait, and returns its part of the
// answer if there is no error in it. What the broker answered is a refusal.
func (m *Manager) fetchOne(ctx context.Context, to *Brokers, id int32, tp ids.TopicPartition, topic string, a fetchArgs) (*kmsg.FetchResponseTopicPartition, error) {
	req := newFetch(a.replica, a.epoch, 0, max(a.maxBytes, 1))
	addPartition(req, tp, topic, a)
	resp, err := to.Request(ctx, id, req)
	if err != nil {
		return nil, err
	}
	fr := resp.(*kmsg.FetchResponse)
	if fr.ErrorCode != 0 {
		return nil, refusal{fmt.Errorf("fetch from broker %d: %w", id, kerr.ErrorForCode(fr.ErrorCode))}
	}
	for i := range fr.Topics {
		for j := range fr.Topics[i].Partitions {
			p := &fr.Topics[i].Partitions[j]
			if p.Partition != tp.Partition {
				continue
			}
			if p.ErrorCode != 0 {
				return nil, refusal{fmt.Errorf("fetch of %s-%d at %d from broker %d: %w", topic, tp.Partition, a.offset, id, kerr.ErrorForCode(p.ErrorCode))}
			}
			return p, nil
		}
	}
	return nil, refusal{fmt.Errorf("fetch of %s-%d from broker %d: not in the answer", topic, tp.Partition, id)}
}

// newFetch returns a full, sessionless Fetch.
func newFetch(replica int32, epoch int64, wait time.Duration, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = replica, replica, epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, maxBytes
	req.SessionEpoch = -1
	return req
}

func addPartition(req *kmsg.FetchRequest, tp ids.TopicPartition, topic string, a fetchArgs) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = tp.Partition, a.leaderEpoch, a.offset
	p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes = a.lastEpoch, -1, a.maxBytes
	if a.replica >= 0 {
		p.LogStartOffset = 0
	}
	i := slices.IndexFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool { return t.TopicID == tp.TopicID })
	if i < 0 {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, tp.TopicID
		req.Topics = append(req.Topics, t)
		i = len(req.Topics) - 1
	}
	req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
}

// listOffset asks a real replica, leader or not, for its log start (-2) or log end (-1):
// replica id -2 is Kafka's debugging consumer, which followers answer.
func (m *Manager) listOffset(ctx context.Context, id int32, tp ids.TopicPartition, topic string, timestamp int64) (int64, error) {
	return m.listOffsetAs(ctx, id, tp, topic, -2, timestamp)
}

func (m *Manager) listOffsetAs(ctx context.Context, id int32, tp ids.TopicPartition, topic string, replica int32, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = replica
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = tp.Partition, -1, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := m.calls.Request(ctx, id, req)
	if err != nil {
		return 0, err
	}
	topics := resp.(*kmsg.ListOffsetsResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("offsets of %s-%d at broker %d: not in the answer", topic, tp.Partition, id)
	}
	a := topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		return 0, fmt.Errorf("offsets of %s-%d at broker %d: %w", topic, tp.Partition, id, kerr.ErrorForCode(a.ErrorCode))
	}
	return a.Offset, nil
}
