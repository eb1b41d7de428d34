package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// This file serves followers that lag behind the buffer, from in-sync real replicas.

const (
	// laggardTry bounds one read from one replica, laggardTime all of them for one answer:
	// what else is in it waits meanwhile.
	laggardTry  = 2 * time.Second
	laggardTime = 5 * time.Second
	// shunFor is how long a replica that did not answer is passed over. A broker that died is
	// fenced by then.
	shunFor = 10 * time.Second
)

// shunned are brokers that did not answer a read, and replicas that they do not serve. The
// metadata log hears of a death late, and of a network that is parted perhaps never.
type shunned struct {
	mu    sync.Mutex // guards the following; a leaf
	until map[shunnedKey]time.Time
}

// shunnedKey is a broker's replica of one partition; the broker itself with the zero partition.
type shunnedKey struct {
	id int32
	tp ids.TopicPartition
}

// add notes what a read ended with. A refusal says nothing of the broker's other partitions.
func (s *shunned) add(id int32, tp ids.TopicPartition, err error, now time.Time) {
	if !errors.As(err, &refusal{}) {
		tp = ids.TopicPartition{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.until, func(_ shunnedKey, until time.Time) bool { return !now.Before(until) })
	if s.until == nil {
		s.until = map[shunnedKey]time.Time{}
	}
	s.until[shunnedKey{id, tp}] = now.Add(shunFor)
}

func (s *shunned) has(id int32, tp ids.TopicPartition, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[shunnedKey{id: id}]) || now.Before(s.until[shunnedKey{id, tp}])
}

// readLaggards reads what lies below the buffer, and tells whether the answer is worth
// sending: when there is nothing in it since nobody could be read from, the follower would
// only ask again at once.
func (m *Manager) readLaggards(ctx context.Context, qs []*question, maxBytes int) bool {
	ctx, cancel := context.WithTimeout(ctx, laggardTime)
	defer cancel()
	used, news, failed := 0, false, false
	for _, q := range qs {
		used += q.reply.Size
		news = news || q.reply.Size > 0 || q.reply.ErrorCode != 0 || q.reply.Diverging || q.news && !q.lagging
	}
	for _, q := range qs {
		switch {
		case !q.lagging || q.stalled:
			continue
		case used >= maxBytes || m.readLaggard(ctx, q, maxBytes-used):
			news = true
			used += q.reply.Size
		default:
			q.stalled, failed = true, true
		}
	}
	return news || !failed
}

// readLaggard reads for one partition from the first replica that answers, and tells whether
// one did.
func (m *Manager) readLaggard(ctx context.Context, q *question, left int) bool {
	d := q.laggard
	for _, from := range q.p.helpers(q) {
		if m.shunned.has(from, q.tp, m.now()) {
			continue
		}
		try, cancel := context.WithTimeout(ctx, laggardTry)
		got, err := m.fetchOne(try, m.calls, from, q.tp, q.topic, fetchArgs{
			replica: -1, epoch: -1, leaderEpoch: -1, offset: d.Offset, lastEpoch: -1,
			maxBytes: int32(max(1, min(q.max, left))),
		})
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return false
			}
			m.shunned.add(from, q.tp, err, m.now())
			m.log.Warn("reading for a lagging follower", "topic", q.topic, "partition", q.tp.Partition, "from", from,
				"follower", q.req.Replica, "offset", d.Offset, "error", err)
			continue
		}
		q.reply.Records, q.reply.Size = wholeBatches(got.RecordBatches, d.Offset, d.End, q.req.CurrentLeaderEpoch)
		if nothingBelow(got.RecordBatches, d.Offset, d.End) {
			q.p.pastGap(q, got.HighWatermark, left)
		}
		return true
	}
	return false
}

// helpers are the replicas that may be read from, the one that was chosen first.
func (p *partition) helpers(q *question) []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.machine.Candidates(q.req)
	return append([]int32{q.laggard.From}, slices.DeleteFunc(all, func(id int32) bool { return id == q.laggard.From })...)
}

// nothingBelow tells whether a replica that answered a read at offset with raw has no batch left
// that ends in [offset, end): the cleaner may have taken all of them, and what it sends instead lies
// behind.
func nothingBelow(raw []byte, offset, end int64) bool {
	if len(raw) == 0 {
		return true
	}
	for b, err := range batch.Iterate(raw) {
		if err != nil {
			return false
		}
		if b.LastOffset() >= offset {
			return b.BaseOffset() >= end
		}
	}
	return false // cut off before what was asked for
}

// pastGap goes on in the buffer when the replica has nothing up to there.
func (p *partition) pastGap(q *question, replicaHW int64, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.machine.PastGap(q.req, q.laggard, replicaHW); d.Serve == leading.ServeBuffer {
		r := q.reply
		r.Records, r.hold, r.Size = p.buf.read(d.Offset, d.End, min(q.max, left))
	}
}
