package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

const (
	// shortWait is the longest wait of a fetch that runs beside another one. It bounds
	// how long partitions without news wait to join the common poll.
	shortWait = 100 * time.Millisecond
	// idleWorker is how long a worker without partitions keeps its connections.
	idleWorker = 30 * time.Second
)

// workerKey names a worker. The address is part of it: a broker that moves to another
// one gets a new worker.
type workerKey struct {
	addr string
	n    int
}

// lane is one connection to the worker's broker, which serves one fetch at a time.
type lane struct {
	conn  *conn // nil: to be made; the fetch under way has it
	busy  bool
	short bool    // the fetch under way waits shortly
	asks  []*part // what it asks for
}

type result struct {
	lane   *lane
	conn   *conn // nil after a failure
	answer *reply
	err    error
}

// worker polls one source broker. Its fields belong to its goroutine.
type worker struct {
	f       *Fetcher
	key     workerKey
	dialer  *dialer
	wake    chan struct{}
	results chan result
	lanes   [2]lane
	running sync.WaitGroup // fetches under way

	incoming []*part // guarded by Fetcher.mu

	parts []*part
	index map[partKey]*part
	names map[ids.UUID]string
	turn  uint64

	ready []*part // scratch
}

func newWorker(f *Fetcher, key workerKey) *worker {
	return &worker{
		f: f, key: key, dialer: f.newDialer(key.n),
		wake:    make(chan struct{}, 1),
		results: make(chan result, 2),
		index:   map[partKey]*part{},
		names:   map[ids.UUID]string{},
	}
}

func (w *worker) run() {
	ctx, cancel := context.WithCancel(w.f.ctx)
	defer func() {
		cancel()
		w.running.Wait()
		for len(w.results) > 0 {
			r := <-w.results
			r.answer.release()
			r.lane.conn = r.conn
		}
		for i := range w.lanes {
			if c := w.lanes[i].conn; c != nil {
				c.close()
			}
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.refill()
		next := w.launch(ctx)
		idle := len(w.parts) == 0
		if idle {
			next = idleWorker
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case r := <-w.results:
			w.take(ctx, r)
		case <-w.wake:
		case <-timer.C:
			if idle && w.retire() {
				return
			}
		}
	}
}

// retire takes the worker out of the Fetcher unless partitions are on their way to it.
func (w *worker) retire() bool {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if len(w.incoming) > 0 {
		return false
	}
	if w.f.workers[w.key] == w {
		delete(w.f.workers, w.key)
	}
	return true
}

// refill lets go of partitions that were removed or given away and takes new ones.
func (w *worker) refill() {
	w.parts = slices.DeleteFunc(w.parts, func(p *part) bool {
		gone := p.removed.Load() || p.owner.Load() != w
		if gone && w.index[p.partKey] == p {
			delete(w.index, p.partKey)
		}
		return gone
	})
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, p := range w.incoming {
		if p.removed.Load() {
			continue
		}
		p.lane, p.hot, p.readyAt = nil, true, time.Now()
		p.anchor.arm()
		if w.index[p.partKey] != p { // it may come back before we saw it go
			w.parts = append(w.parts, p)
			w.index[p.partKey] = p
		}
		w.names[p.topicID] = p.topic
	}
	w.incoming = w.incoming[:0]
}

// launch starts the fetches that can be started and returns how long until there may
// be more to start without anything else happening. doc.go says which partitions go
// on which lane and why.
func (w *worker) launch(ctx context.Context) time.Duration {
	next := time.Hour
	for {
		l, other := &w.lanes[0], &w.lanes[1]
		if l.busy {
			l, other = other, l
		}
		if l.busy {
			return next
		}
		now := time.Now()
		ready, backlog := w.candidates(now, &next)
		switch {
		case other.busy && other.short:
			// Everything can go together in a moment; only what has a reason not to wait
			// goes now.
			ready = slices.DeleteFunc(ready, func(p *part) bool {
				if p.hot {
					return false
				}
				wait := shortWait - now.Sub(p.readyAt)
				if wait > 0 {
					next = min(next, wait)
				}
				return wait > 0
			})
		case !other.busy && backlog > 1:
			// Two halves of the backlog on two lanes: one is transferred while the other
			// is worked on. The rest waits for the second lane, shortly.
			half := (backlog + 1) / 2
			ready = slices.DeleteFunc(ready, func(p *part) bool {
				if p.backlog && half > 0 {
					half--
					return false
				}
				return true
			})
			if !w.start(ctx, l, ready, true) {
				return next
			}
			continue
		}
		if !w.start(ctx, l, ready, other.busy) {
			return next
		}
	}
}

// candidates returns the partitions that may be fetched now, who waited longest first,
// and how many of them have a backlog.
func (w *worker) candidates(now time.Time, next *time.Duration) (ready []*part, backlog int) {
	w.ready = w.ready[:0]
	w.f.mu.Lock()
	for _, p := range w.parts {
		if p.owner.Load() != w || p.lane != nil {
			continue
		}
		if wait := p.retryAt.Sub(now); wait > 0 {
			*next = min(*next, wait)
			continue
		}
		w.ready = append(w.ready, p)
	}
	w.f.mu.Unlock()
	w.ready = slices.DeleteFunc(w.ready, func(p *part) bool {
		// In this order: a Wake after the sink was asked is seen the next time.
		if p.woken.Swap(false) {
			p.hot = true
		}
		room := p.room()
		if room <= 0 {
			return true
		}
		p.asked = max(int32(min(int64(w.f.cfg.MaxBytes), int64(room))), p.need)
		if p.backlog {
			backlog++
		}
		return false
	})
	slices.SortStableFunc(w.ready, func(a, b *part) int { return cmp.Compare(a.turn, b.turn) })
	return w.ready, backlog
}

// start sends a fetch for parts on lane l. It tells whether it did.
func (w *worker) start(ctx context.Context, l *lane, parts []*part, short bool) bool {
	if len(parts) == 0 {
		return false
	}
	l.busy, l.short = true, short
	l.asks = append(l.asks[:0], parts...)
	q, c := w.question(l), l.conn
	l.conn = nil
	w.f.stats.requests.Add(1)
	w.running.Go(func() {
		c, a, err := w.exchange(ctx, c, q)
		w.results <- result{lane: l, conn: c, answer: a, err: err} // has room for both lanes
	})
	return true
}

// errAnew says that the broker ended a connection while nobody looked, and that there is a new one.
// Who answers there has to show first what was read last.
var errAnew = errors.New("connected anew")

// exchange asks over c, or over a new connection if there is none. If the broker has ended it
// meanwhile, the error is errAnew and the connection a new one.
func (w *worker) exchange(ctx context.Context, c *conn, q *question) (*conn, *reply, error) {
	if c == nil {
		var err error
		if c, err = w.dialer.connect(ctx, w.key.addr); err != nil {
			return nil, nil, err
		}
	}
	used := c.answered
	a, err := c.fetch(ctx, q, w.f.cfg.Buffers, w.f.cfg.Tagger)
	if err == nil {
		c.answered = true
		return c, a, nil
	}
	if !used || !hungUp(err) || ctx.Err() != nil {
		return nil, nil, err
	}
	if c, err = w.dialer.connect(ctx, w.key.addr); err != nil {
		return nil, nil, err
	}
	return c, nil, errAnew
}

// question builds the fetch of a lane's partitions. It is a full request without a
// session: everything that incremental sessions (KIP-227) need to know, what was asked
// for last and what was answered, is in the lane and its parts.
func (w *worker) question(l *lane) *question {
	cfg := &w.f.cfg
	req := newFetch()
	q := &question{req: req, asks: make([]ask, 0, len(l.asks))}
	req.MaxWaitMillis = int32(cfg.MaxWait / time.Millisecond)
	if l.short {
		req.MaxWaitMillis = int32(min(cfg.MaxWait, shortWait) / time.Millisecond)
	}
	req.MinBytes, req.MaxBytes = cfg.MinBytes, cfg.ResponseMaxBytes
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, p := range l.asks {
		p.lane, p.hot = l, false
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != p.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, p.topicID
			req.Topics = append(req.Topics, t)
			q.noID = q.noID || p.topicID.IsZero()
			n++
		}
		t := &req.Topics[n-1]
		from := p.offset
		if p.anchor.due && p.anchor.ask {
			from = p.anchor.Last
		}
		t.Partitions = append(t.Partitions, fetchPartition(p.partition, p.leaderEpoch, from, p.lastEpoch, p.asked))
		q.asks = append(q.asks, ask{topic: p.topic, topicID: p.topicID, partition: p.partition, offset: from})
	}
	return q
}

// newFetch returns a consumer's sessionless Fetch request, read uncommitted.
func newFetch() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.SessionEpoch = -1
	return req
}

func fetchPartition(partition, leaderEpoch int32, offset int64, lastEpoch, maxBytes int32) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch = partition, leaderEpoch
	p.FetchOffset, p.LastFetchedEpoch, p.PartitionMaxBytes = offset, lastEpoch, maxBytes
	return p
}

// versioned holds a request at v12, the last that names topics, when a topic of it has
// no id: a source whose brokers are newer than its metadata version has none.
func versioned(req *kmsg.FetchRequest, noID bool) kmsg.Request {
	if noID {
		return &namedFetch{req}
	}
	return req
}

type namedFetch struct{ *kmsg.FetchRequest }

func (*namedFetch) MaxVersion() int16 { return 12 }

// take works on the answer to a lane's fetch.
func (w *worker) take(ctx context.Context, r result) {
	l := r.lane
	l.busy, l.conn = false, r.conn
	// Sinks that keep what they get hold it by now.
	defer r.answer.release()
	err := r.err
	if errors.Is(err, errAnew) {
		for _, p := range l.asks {
			if !p.removed.Load() && p.owner.Load() == w && p.lane == l {
				p.lane, p.hot = nil, true
				p.anchor.arm()
			}
		}
		return
	}
	if err == nil && r.answer.resp.ErrorCode != 0 {
		err = fmt.Errorf("broker %s answers a fetch with %s", w.key.addr, codeName(r.answer.resp.ErrorCode))
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("fetch from %s: %w", w.key.addr, err)
		// Every poll of a broker that is gone fails: once per backoff, so not too often.
		w.f.log.Warn("a fetch from a source broker failed, looking for the leaders", "partitions", len(l.asks), "error", err)
		for _, p := range l.asks {
			w.release(l, p, err, slog.LevelDebug)
		}
		return
	}
	w.f.slowed(l.asks, time.Duration(r.answer.resp.ThrottleMillis)*time.Millisecond)
	n := 0
	for i := range r.answer.resp.Topics {
		t := &r.answer.resp.Topics[i]
		topic := t.Topic
		if topic == "" {
			topic = w.names[t.TopicID]
		}
		for j := range t.Partitions {
			data := &r.answer.data[n]
			n++
			p := w.index[partKey{topic, t.Partitions[j].Partition}]
			// Given away, removed, or removed and added again.
			if p == nil || p.owner.Load() != w || p.lane != l {
				continue
			}
			p.lane, p.readyAt = nil, time.Now()
			w.partition(p, &t.Partitions[j], data, r.answer.resp.Brokers)
		}
	}
	for _, p := range l.asks {
		w.release(l, p, errAbsent, slog.LevelWarn)
	}
}

// release gives back a part that a lane asked for and got no answer for.
func (w *worker) release(l *lane, p *part, err error, level slog.Level) {
	// The owner first: the rest of the part is another's if that is not us.
	if p.removed.Load() || p.owner.Load() != w || p.lane != l {
		return
	}
	p.lane = nil
	w.f.giveBack(p, err, level)
}

// partition works on one partition's part of an answer.
func (w *worker) partition(p *part, rp *kmsg.FetchResponseTopicPartition, data *partData, brokers []kmsg.FetchResponseBroker) {
	f := w.f
	serr := &SourceError{Topic: p.topic, Partition: p.partition, Code: rp.ErrorCode, LogStart: -1, LogEnd: -1}
	switch code := rp.ErrorCode; {
	case code == kerr.OffsetOutOfRange.Code && p.anchor.due && p.anchor.ask:
		// The source begins behind it, or ends before it: asked for what is due, it tells which.
		p.anchor.due, p.hot = false, true
		return
	case code == kerr.OffsetOutOfRange.Code:
		again, offset, fromReplica := w.strike(p), p.offset, p.replica >= 0
		// Off this goroutine: it asks the source, and other partitions need not wait.
		p.owner.Store(f.limbo)
		f.wg.Go(func() { f.outOfRange(p, offset, fromReplica, again) })
		return
	case code == kerr.CorruptMessage.Code && !w.strike(p):
		f.lost(p, serr)
		return
	case transient(code):
		news := f.learn(p, leader{id: rp.CurrentLeader.LeaderID, epoch: rp.CurrentLeader.LeaderEpoch}, brokers)
		if news {
			w.moved(p, serr)
		} else {
			f.lost(p, serr)
		}
		return
	case code != 0:
		f.finish(p, serr)
		return
	}
	if rp.DivergingEpoch.Epoch >= 0 || rp.DivergingEpoch.EndOffset >= 0 {
		f.finish(p, &DivergingError{Topic: p.topic, Partition: p.partition, Diverging: Diverging{
			Epoch: rp.DivergingEpoch.Epoch, EndOffset: rp.DivergingEpoch.EndOffset,
		}})
		return
	}
	if rp.PreferredReadReplica >= 0 && rp.PreferredReadReplica != p.target() && data.size == 0 {
		// The leader sends its readers elsewhere: a mirror does, whose leader has no data.
		f.mu.Lock()
		p.replica = rp.PreferredReadReplica
		p.owner.Store(nil)
		f.mu.Unlock()
		signal(f.kick)
		return
	}

	in := &data.in
	whole := len(in.batches) > 0
	switch p.anchor.look(in, data.size) {
	case another:
		f.finish(p, &DivergingError{Topic: p.topic, Partition: p.partition, Anew: true, Diverging: Diverging{
			Epoch: p.lastEpoch, EndOffset: p.anchor.Base,
		}})
		return
	case discard:
		p.hot = true
		return
	case incomplete, asUsual:
	}
	if in.err == nil || whole {
		f.well(p)
	}
	p.backlog = in.size > 0 && in.size >= int(p.asked)/2
	if len(in.batches) > 0 {
		w.turn++
		p.offset, p.lastEpoch, p.turn = in.next, in.epoch, w.turn
		p.hot, p.need = true, 0
		p.anchor.set(in.batches[len(in.batches)-1])
		f.stats.batches.Add(int64(len(in.batches)))
		f.stats.records.Add(in.records)
		f.stats.bytes.Add(int64(in.size))
	} else if whole && in.err == nil {
		p.hot, p.need = true, 0 // what was seen before came, and nothing behind it
	} else if in.err == nil && data.size > 0 {
		// A broker that cuts batches sent only a part: ask for all of it. Asking is
		// bounded by what would be read at all.
		p.need = int32(min(max(in.partial, 2*int64(p.asked)), int64(maxAnswer(f.cfg.ResponseMaxBytes))))
		p.hot = true
	}
	if in.err == nil || len(in.batches) > 0 {
		p.deliver(Fetched{Batches: in.batches, Buffer: data.buf, HighWatermark: rp.HighWatermark, LogStart: rp.LogStartOffset})
	}
	if in.err == nil {
		return
	}
	f.stats.corrupt.Add(1)
	bad := &CorruptError{Topic: p.topic, Partition: p.partition, Offset: p.offset, Err: in.err}
	if w.strike(p) {
		f.finish(p, bad)
		return
	}
	// Fetched once more at once: what was damaged on the way comes intact.
	f.log.Warn("bad data from the source, fetching it once more", "topic", p.topic, "partition", p.partition, "offset", p.offset, "error", in.err)
	f.stats.retries.Add(1)
	p.hot = true
}

// strike notes that the fetch at the part's offset failed and tells whether it did
// before.
func (w *worker) strike(p *part) bool {
	if p.strikes > 0 && p.badOffset == p.offset {
		p.strikes++
		return true
	}
	p.strikes, p.badOffset = 1, p.offset
	return false
}

// moved gives a part to a leader that an answer named, without asking for metadata.
func (w *worker) moved(p *part, err error) {
	f := w.f
	f.mu.Lock()
	f.fail(p, err, slog.LevelInfo)
	p.replica = -1
	p.owner.Store(nil)
	f.mu.Unlock()
	signal(f.kick)
}
