package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// tick is long enough for batches of several records at low rates.
	tick = 100 * time.Millisecond
	// maxBuffered bounds what waits in one producer while its brokers are away.
	maxBuffered = 5000
	// transactionLength is how long a transaction goes on, and clientLife how long one
	// producer id writes to a compacted topic.
	transactionLength = 350 * time.Millisecond
	clientLife        = 2 * time.Second
	// openTransactionTimeout is the longest that brokers grant by default.
	openTransactionTimeout = 15 * time.Minute
	// rotatingIDs is how many transactional ids a compacted topic is written by in turn.
	rotatingIDs = 3
	// openRecords is how many records per partition the open transaction has.
	openRecords = 5
)

// run produces to one topic until generate ends.
func (l *Load) run(generate, live context.Context, t *topic) error {
	switch t.kind {
	case Transactional, CompactedTransactional:
		return l.runTransactions(generate, live, t)
	case OpenTransaction:
		return l.runBehindOpen(generate, live, t)
	case Compacted:
		// Each client has a producer id of its own. When all records of its last batch have been
		// overwritten, the cleaner keeps the empty batch.
		for generate.Err() == nil {
			if err := l.runClient(generate, live, t, clientLife); err != nil {
				return err
			}
		}
		return nil
	default:
		return l.runClient(generate, live, t, 0)
	}
}

func (l *Load) producer(t *topic, opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(t.codec),
		kgo.MaxBufferedRecords(2 * maxBuffered),
		kgo.UnknownTopicRetries(-1), // a topic just created may be unknown for a moment
		kgo.ProducerLinger(10 * time.Millisecond),
	}
	if t.kind == Plain {
		// One request in flight: without idempotence a retry would otherwise change the order.
		base = append(base, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	return l.client(append(base, opts...)...)
}

// runClient produces with one client, for at most life if that is not 0.
func (l *Load) runClient(generate, live context.Context, t *topic, life time.Duration) error {
	cl, err := l.producer(t)
	if err != nil {
		return err
	}
	defer cl.Close()
	p := l.pace(t, cl)
	defer p.stop()
	start := time.Now()
	for p.wait(generate) && (life == 0 || time.Since(start) < life) {
		p.send(live, func(r *kgo.Record, n int64) {
			t.ledger.acked(r.Partition, n, true)
			if t.kind.compacted() {
				t.ledger.key(r.Partition, string(r.Key), n, r.Value == nil)
			}
		})
	}
	return cl.Flush(live)
}

// pacer gives a topic's producer its records at the wanted rate.
type pacer struct {
	load   *Load
	topic  *topic
	client *kgo.Client
	ticker *time.Ticker
	last   time.Time
	due    float64
	next   int32 // partition of the next record
}

func (l *Load) pace(t *topic, cl *kgo.Client) *pacer {
	return &pacer{load: l, topic: t, client: cl, ticker: time.NewTicker(tick), last: time.Now()}
}

func (p *pacer) stop() { p.ticker.Stop() }

// wait returns false when ctx has ended, else at the next tick.
func (p *pacer) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.ticker.C:
		return true
	}
}

// send hands over what is due since the last call; acked is called for every record that
// is acknowledged, on a goroutine of the client.
func (p *pacer) send(live context.Context, acked func(*kgo.Record, int64)) {
	now := time.Now()
	// What could not be sent in half a second is not made up for: a pause must not end in a burst.
	rate := float64(p.load.cfg.rate(p.topic.kind))
	p.due = min(p.due+now.Sub(p.last).Seconds()*rate, rate/2+1)
	p.last = now
	for ; p.due >= 1 && p.client.BufferedProduceRecords() < maxBuffered; p.due-- {
		p.load.sendOne(live, p.topic, p.client, p.next, acked)
		p.next = (p.next + 1) % p.load.cfg.Partitions
	}
}

func (l *Load) sendOne(live context.Context, t *topic, cl *kgo.Client, partition int32, acked func(*kgo.Record, int64)) {
	n := t.ledger.take(partition)
	r := l.filler.record(t.name, t.kind, partition, n, l.cfg.ValueBytes)
	cl.Produce(live, r, func(r *kgo.Record, err error) {
		if err == nil {
			acked(r, n)
			return
		}
		// The record may or may not be in the log: nothing is claimed of it.
		if live.Err() == nil {
			l.log.Warn("record not acknowledged", "topic", t.name, "partition", r.Partition, "number", n, "error", err)
		}
	})
}

// transaction collects what one transaction wrote. The client's callbacks fill it, and
// they are over when a flush has returned.
type transaction struct {
	numbers map[int32]*spans
	keys    []keyed
}

type keyed struct {
	partition int32
	key       string
	number    int64
	tombstone bool
}

// transactionalID is used by client number n of a topic.
func (l *Load) transactionalID(t *topic, n int) string {
	return fmt.Sprintf("%s-%s-%d", t.name, l.id, n%rotatingIDs)
}

// runTransactions writes transactions, three of four committed.
func (l *Load) runTransactions(generate, live context.Context, t *topic) error {
	round, client, life := 0, 0, time.Duration(0)
	if t.kind == CompactedTransactional {
		life = clientLife // for empty batches, as in run
	}
	for generate.Err() == nil {
		err := l.runTransactionalClient(generate, live, t, l.transactionalID(t, client), life, &round)
		if live.Err() != nil {
			return nil //nolint:nilerr // told to end, whatever else went wrong
		}
		if err == nil {
			client++
			continue
		}
		if !retriable(err) {
			return err
		}
		// A new client's first request ends what the old one left, whichever way.
		l.log.Warn("transaction failed, starting over with a new client", "topic", t.name, "error", err)
		select {
		case <-generate.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

func (l *Load) runTransactionalClient(generate, live context.Context, t *topic, id string, life time.Duration, round *int) error {
	cl, err := l.producer(t, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer cl.Close()
	p := l.pace(t, cl)
	defer p.stop()
	start := time.Now()
	for generate.Err() == nil && (life == 0 || time.Since(start) < life) {
		*round++
		if err := l.oneTransaction(generate, live, t, p, *round%4 != 3); err != nil {
			return err
		}
	}
	return nil
}

func (l *Load) oneTransaction(generate, live context.Context, t *topic, p *pacer, commit bool) error {
	if err := p.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var tx transaction
	start := time.Now()
	for p.wait(generate) && time.Since(start) < transactionLength {
		p.send(live, tx.note(t))
	}
	return l.endTransaction(live, t, p.client, &tx, commit)
}

// note returns the callback that books an acknowledged record into the transaction.
func (tx *transaction) note(t *topic) func(*kgo.Record, int64) {
	if tx.numbers == nil {
		tx.numbers = make(map[int32]*spans)
	}
	return func(r *kgo.Record, n int64) {
		t.ledger.acked(r.Partition, n, false)
		if tx.numbers[r.Partition] == nil {
			tx.numbers[r.Partition] = new(spans)
		}
		tx.numbers[r.Partition].add(n, n+1)
		if t.kind.compacted() {
			tx.keys = append(tx.keys, keyed{r.Partition, string(r.Key), n, r.Value == nil})
		}
	}
}

func (l *Load) endTransaction(live context.Context, t *topic, cl *kgo.Client, tx *transaction, commit bool) error {
	// Also what will be aborted is written first: a mirror must carry it.
	if err := cl.Flush(live); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := cl.EndTransaction(live, kgo.TransactionEndTry(commit)); err != nil {
		return fmt.Errorf("end, commit %t: %w", commit, err)
	}
	if !commit {
		t.ledger.end(tx.numbers, aborted)
		return nil
	}
	t.ledger.end(tx.numbers, committed)
	for _, k := range tx.keys {
		t.ledger.key(k.partition, k.key, k.number, k.tombstone)
	}
	return nil
}

// runBehindOpen commits one transaction, opens another one that it never ends, and then
// goes on without transactions.
func (l *Load) runBehindOpen(generate, live context.Context, t *topic) error {
	cl, err := l.producer(t, kgo.TransactionalID(l.transactionalID(t, 0)), kgo.TransactionTimeout(openTransactionTimeout))
	if err != nil {
		return err
	}
	// Closing a client does not end its transaction.
	defer cl.Close()
	for _, how := range []outcome{committed, leftOpen} {
		if err := cl.BeginTransaction(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		var tx transaction
		note := tx.note(t)
		for range openRecords {
			for partition := range l.cfg.Partitions {
				l.sendOne(live, t, cl, partition, note)
			}
		}
		if how == committed {
			err = l.endTransaction(live, t, cl, &tx, true)
		} else if err = cl.Flush(live); err == nil {
			t.ledger.end(tx.numbers, leftOpen)
		}
		if err != nil {
			return err
		}
	}
	return l.runClient(generate, live, t, 0)
}
