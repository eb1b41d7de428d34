package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

const (
	// stateTransactions begins the transactional ids that state partitions are written
	// under; the partition's number ends them.
	stateTransactions = protocol.StateTransactions
	// transactionTimeout is how long the transaction of a process that died may hold back
	// readers where nobody takes over.
	transactionTimeout = 10 * time.Second
	// writeTimeout bounds one transaction.
	writeTimeout = 15 * time.Second
)

// writers are the state partitions that this process may write to, each by a producer
// with the partition's transactional id. Who initialises that id fences whoever had it
// before: what that one has not committed is aborted, and what it still sends is refused
// by the brokers, also when it was only paused and knows of nothing (additions §1).
type writers struct {
	mu     sync.Mutex // guards the following
	held   map[int32]*kgo.Client
	ended  bool
	ending sync.WaitGroup // clients being closed
}

// Acquire makes this process the only writer of a state partition, and returns when the
// own view has everything that was written before.
func (s *Store) Acquire(ctx context.Context, partition int32) error {
	s.release(partition, nil)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// The transactions of before KIP-890's second part: a partition is added by a request of
	// its own, where otherwise the broker adds it and makes every second write wait for 20 ms
	// (12 ms instead of 34 for one write, measured). What that part is for, a late write of
	// an earlier transaction, does not happen to who gives the producer up after any error.
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.Produce.Int16(), 11)
	v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 4)
	cl, err := kgo.NewClient(append(s.writerOpts(),
		kgo.TransactionalID(stateTransactions+itoa(partition)), kgo.TransactionTimeout(transactionTimeout), kgo.MaxVersions(v),
		// A takeover of leading waits for it. The brokers ask for a moment between two
		// transactions, and for a little more while a coordinator of transactions moves.
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(20*time.Millisecond<<min(tries, 5), 250*time.Millisecond) }),
	)...)
	if err != nil {
		return fmt.Errorf("state topic: client: %w", err)
	}
	if err := initialise(ctx, cl); err != nil {
		s.writers.end(cl)
		return s.because(fmt.Errorf("state topic: transactional id %s%d is not to be had (it needs topic %s, and WRITE on the id): %w", stateTransactions, partition, transactionTopic, err))
	}
	if err := s.Barrier(ctx, partition); err != nil {
		s.writers.end(cl)
		return err
	}
	s.writers.mu.Lock()
	ended := s.writers.ended
	if !ended {
		s.writers.held[partition] = cl
	}
	s.writers.mu.Unlock()
	if ended {
		s.writers.end(cl)
		return kgo.ErrClientClosed
	}
	return nil
}

// initialise initialises a client's transactional id. The client asks any broker who
// coordinates it, and may meet a sidecar's virtual broker that has just died and is listed
// until its session ends: another try asks another one.
func initialise(ctx context.Context, cl *kgo.Client) error {
	wait := 20 * time.Millisecond
	var last error
	for {
		_, _, err := cl.ProducerID(ctx)
		if err != nil && ctx.Err() != nil && last != nil {
			return fmt.Errorf("%w (last: %w)", err, last)
		}
		var unreachable *net.OpError
		if err == nil || ctx.Err() != nil || !errors.As(err, &unreachable) && !kerr.IsRetriable(err) {
			return err
		}
		last = err
		pause(ctx, wait)
		wait = min(2*wait, time.Second)
	}
}

// Holds tells whether this process may write to a state partition, as far as it knows.
func (s *Store) Holds(partition int32) bool { return s.writers.get(partition) != nil }

// release gives up the right to write to a partition; with cl only if it is that one's.
func (s *Store) release(partition int32, cl *kgo.Client) {
	s.writers.mu.Lock()
	now := s.writers.held[partition]
	if now == nil || cl != nil && now != cl {
		s.writers.mu.Unlock()
		return
	}
	delete(s.writers.held, partition)
	s.writers.mu.Unlock()
	s.writers.end(now)
}

func (w *writers) get(partition int32) *kgo.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[partition]
}

// end closes a client, which may wait for what it has under way, without waiting for it.
func (w *writers) end(cl *kgo.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		cl.Close()
		return
	}
	w.ending.Add(1)
	go func() {
		defer w.ending.Done()
		cl.Close()
	}()
}

// closeAll gives up everything, for good.
func (w *writers) closeAll() {
	w.mu.Lock()
	all := w.held
	w.held, w.ended = map[int32]*kgo.Client{}, true
	w.mu.Unlock()
	for _, cl := range all {
		cl.Close()
	}
	w.ending.Wait()
}

// Put writes records, all under one coordinator's key, and returns when the own view has
// them.
func (s *Store) Put(ctx context.Context, records ...record) error {
	if len(records) == 0 {
		return nil
	}
	return s.PutAs(ctx, records[0].coordinatorKey(), records...)
}

// PutAs writes records as the coordinator of a key, all or none of them, and returns when
// the own view has them. An error wraps ErrNotCoordinator if somebody else has become it,
// or this process has not. After any other error it is not known whether the records are
// written; whoever acts as the coordinator next will have seen.
func (s *Store) PutAs(ctx context.Context, key string, records ...record) error {
	if len(records) > maxRecordsPerPut {
		return fmt.Errorf("state topic: %d records in one write, at most %d", len(records), maxRecordsPerPut)
	}
	n := s.Partitions()
	if n == 0 {
		return fmt.Errorf("topic %s does not exist", StateTopic)
	}
	out := make([]*kgo.Record, 0, len(records))
	for _, r := range records {
		k, v, err := encodeRecord(r)
		if err != nil {
			return fmt.Errorf("state topic: encode: %w", err)
		}
		out = append(out, &kgo.Record{Topic: StateTopic, Partition: statePartition(r.coordinatorKey(), n), Key: k, Value: v})
	}
	partition := statePartition(key, n)
	cl := s.writers.get(partition)
	if cl == nil {
		return fmt.Errorf("%w: %s-%d", ErrNotCoordinator, StateTopic, partition)
	}
	at := s.positions(out)
	if err := transact(ctx, cl, out, s.log); err != nil {
		// What this producer could still do is not worth finding out: the next one takes the
		// transactional id anew.
		s.release(partition, cl)
		if fenced(err) {
			return fmt.Errorf("%w: another sidecar writes to %s-%d now: %w", ErrNotCoordinator, StateTopic, partition, err)
		}
		if errors.Is(err, kgo.ErrClientClosed) { // given up in the middle of it: its broker does not lead the partition any more
			return fmt.Errorf("%w: this sidecar has just given up %s-%d: %w", ErrNotCoordinator, StateTopic, partition, err)
		}
		return s.because(fmt.Errorf("state topic: write to %s-%d: %w", StateTopic, partition, err))
	}
	if s.behind(out, at) {
		s.release(partition, cl)
		return fmt.Errorf("state topic: %w", errCut)
	}
	return s.own(ctx, partition, cl, out)
}

// own returns when the own view has what cl has committed. While it has not, nothing may be
// checked against it: the partition is given up, so that who acts next reads it to its end.
func (s *Store) own(ctx context.Context, partition int32, cl *kgo.Client, committed []*kgo.Record) error {
	err := s.readBack(ctx, committed)
	if err != nil {
		s.release(partition, cl)
	}
	return err
}

// transact produces records in one transaction. Once begun it is brought to its end,
// whatever becomes of who asked for it.
func transact(ctx context.Context, cl *kgo.Client, records []*kgo.Record, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	err := cl.ProduceSync(ctx, records...).FirstErr()
	// Nothing is buffered any more. This waits for the client to have stored the topic's partitions,
	// which it does a moment after it has sent what waited for them: a transaction that ends before
	// looks empty to it, and stays open at the brokers until its timeout (franz-go 1.22.3).
	if unstored := cl.AbortBufferedRecords(ctx); unstored != nil {
		return errors.Join(err, unstored)
	}
	if err == nil {
		return cl.EndTransaction(ctx, kgo.TryCommit)
	}
	if !fenced(err) {
		// Not left to its timeout, which would hold back readers.
		if aborted := cl.EndTransaction(ctx, kgo.TryAbort); aborted != nil {
			log.Debug("state topic: a transaction that failed was not aborted", "err", aborted)
		}
	}
	return err
}

// fenced tells whether an error means that somebody else has taken the transactional id.
func fenced(err error) bool {
	return slices.ContainsFunc([]error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping}, func(e error) bool { return errors.Is(err, e) })
}

// barrierPatience is how long a barrier may take before something is done about it.
const barrierPatience = time.Second

// barrierAt is a barrier in the state partition of a key. A transaction whose writer has
// died in the middle of it holds the barrier up; then whoever coordinates the key by now
// takes the partition over, which ends it, instead of the brokers doing so when they have
// waited long enough.
func (c *Coordinator) barrierAt(ctx context.Context, key partitionKey) error {
	soon, cancel := context.WithTimeout(ctx, barrierPatience)
	err := c.barrier(soon, key.text())
	cancel()
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	take, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = c.retryRouted(take, key.text(), func(who int32) error {
		if who == c.cfg.Self {
			return c.act(take, key.text(), func() error { return nil })
		}
		req := protocol.NewReadMirrorStatesRequest()
		req.MirrorName = key.mirror
		t := protocol.NewReadStateTopic()
		t.TopicID, t.Partitions = key.tp.TopicID, []int32{key.tp.Partition}
		req.Topics = append(req.Topics, t)
		_, err := c.deps.Peers.Request(take, who, &req)
		return err
	})
	if err != nil {
		c.log.Warn("state topic: a barrier is held up, and the coordinator does not act", "topic", StateTopic, "key", key.text(), "err", err)
	}
	return c.barrier(ctx, key.text())
}

// known is what a write is checked against: a View, or one with what is about to be
// written.
type known interface {
	State(mirror string, tp ids.TopicPartition) (PartitionState, bool)
	Lineage(mirror string, tp ids.TopicPartition) (lineage.Record, bool)
}

// ahead is a View with records on top that are about to be written.
type ahead struct {
	*View
	states   map[partitionKey]PartitionState
	lineages map[partitionKey]lineage.Record
}

func newAhead(v *View) ahead {
	return ahead{View: v, states: map[partitionKey]PartitionState{}, lineages: map[partitionKey]lineage.Record{}}
}

func (a ahead) State(mirror string, tp ids.TopicPartition) (PartitionState, bool) {
	if s, ok := a.states[partitionKey{mirror, tp}]; ok {
		return s, true
	}
	return a.View.State(mirror, tp)
}

func (a ahead) Lineage(mirror string, tp ids.TopicPartition) (lineage.Record, bool) {
	if l, ok := a.lineages[partitionKey{mirror, tp}]; ok {
		return l, true
	}
	return a.View.Lineage(mirror, tp)
}

// add puts records on top, as View.apply will.
func (a ahead) add(records []record) {
	for _, r := range records {
		switch v := r.value.(type) {
		case PartitionState:
			a.states[r.partition] = v
		case lineage.Record:
			before, _ := a.Lineage(r.partition.mirror, r.partition.tp)
			a.lineages[r.partition] = mergeLineage(before, v)
		}
	}
}

// queue are the writes of leaders that wait for one state partition. Whoever gets the
// partition's lock writes for all of them in one transaction: after a sidecar's death
// hundreds of leaders want to write at once.
type queue struct {
	mu      sync.Mutex // guards the following
	waiting []*queuedWrite
}

type queuedWrite struct {
	write stateWrite
	done  bool // err is the result; written and read under the partition's lock
	err   error
}

// maxWritesAtOnce bounds one transaction of leaders' writes.
const maxWritesAtOnce = 500

func (q *queue) add(w *queuedWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, w)
}

func (q *queue) take() []*queuedWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxWritesAtOnce)
	out := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return out
}

func (q *queue) remove(w *queuedWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(x *queuedWrite) bool { return x == w })
}

// writeLocal is the coordinator's side of a leader's write.
func (c *Coordinator) writeLocal(ctx context.Context, w stateWrite) error {
	partition, ok := c.store.PartitionOf(w.key.text())
	if !ok {
		return fmt.Errorf("%w: topic %s does not exist, create a mirror first", ErrNoCoordinator, StateTopic)
	}
	c.mu.Lock()
	q := c.queues[partition]
	if q == nil {
		q = &queue{}
		c.queues[partition] = q
	}
	c.mu.Unlock()
	mine := &queuedWrite{write: w}
	q.add(mine)
	lock := c.lock(partition)
	err := c.act(ctx, w.key.text(), func() error {
		for !mine.done { // others were before it
			c.writeAll(ctx, q.take())
		}
		return nil
	})
	lock.Lock()
	defer lock.Unlock()
	if mine.done { // maybe by somebody who had the lock before
		return mine.err
	}
	q.remove(mine)
	return err
}

// writeAll checks writes one after the other and writes what they come to. The
// partition's lock is held. What was checked against a write of the same transaction, and
// changes nothing or is refused by it, shares its fate.
func (c *Coordinator) writeAll(ctx context.Context, writes []*queuedWrite) {
	known := newAhead(c.view)
	var records []record
	var wrote []*queuedWrite
	pending := map[partitionKey]bool{}
	for _, w := range writes {
		out, err := check(known, w.write)
		nothing := err != nil || len(out) == 0
		if nothing && !pending[w.write.key] {
			w.done, w.err = true, err
			continue
		}
		wrote, w.err = append(wrote, w), err
		if nothing {
			continue
		}
		pending[w.write.key] = true
		known.add(out)
		records = append(records, out...)
	}
	// Not ended by the one whose turn it is: the others wait for it as well.
	put, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*writeTimeout)
	defer cancel()
	err := c.store.Put(put, records...)
	for _, w := range wrote {
		w.done = true
		if err != nil {
			w.err = err
		}
	}
}
