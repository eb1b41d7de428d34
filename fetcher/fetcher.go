package fetcher

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Config is what a Fetcher needs to know. Zero values of the numbers mean Kafka-like
// defaults, which are those of the mirror's configuration keys.
type Config struct {
	Mirror   string
	BrokerID int32     // of the broker beside this sidecar; part of the client id
	Opts     []kgo.Opt // how to reach the source: seed brokers, security

	MaxWait          time.Duration // mirror.fetch.wait.max.ms, 1 s
	MinBytes         int32         // mirror.fetch.min.bytes, 1
	MaxBytes         int32         // mirror.fetch.max.bytes, per partition, 1 MiB
	ResponseMaxBytes int32         // mirror.fetch.response.max.bytes, 10 MiB
	Backoff          time.Duration // mirror.fetch.backoff.ms, 1 s
	Fetchers         int           // mirror.num.replica.fetchers per source broker, 1

	// Buffers is where answers are read into. All fetchers of a process share one; nil
	// makes one of the sidecar's default size.
	Buffers *pool.Pool
	Tagger  batch.Tagger
	Log     *slog.Logger
}

// defaultBuffers is the default of mirror.buffer.memory.bytes.
const defaultBuffers = 256 << 20

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	num := func(n *int32, v int32) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&c.MaxWait, time.Second)
	def(&c.Backoff, time.Second)
	num(&c.MinBytes, 1)
	num(&c.MaxBytes, 1<<20)
	num(&c.ResponseMaxBytes, 10<<20)
	c.Fetchers = max(c.Fetchers, 1)
	if c.Buffers == nil {
		c.Buffers = pool.New(defaultBuffers)
	}
	// One answer must find room beside what partitions hold.
	c.ResponseMaxBytes = int32(min(int64(c.ResponseMaxBytes), max(1<<20, c.Buffers.Budget()/8)))
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("mirror", c.Mirror)
	return c
}

// Fetched is one partition's part of an answer: batches, or an error, never both. An
// answer without batches is handed over too, for its high watermark and log start.
type Fetched struct {
	// Batches are whole and in order, their checksums verified, their producer ids
	// tagged, the source's leader epoch still in the header. The receiver may write to
	// them. They, but not the slice, stay valid after the call for who retains Buffer,
	// until it is released; nil means that the collector looks after them.
	Batches []batch.Batch
	Buffer  *pool.Buffer
	// HighWatermark and LogStart are the source's; -1 if it did not say.
	HighWatermark, LogStart int64
	// Err is *SourceError, *DivergingError or *CorruptError. After it nothing is
	// fetched for this partition until it is removed and added again.
	Err error
}

// Sink receives one partition. Its methods are called one at a time, on goroutines of
// the fetcher. They must not block, nor call Add or Remove of the same Fetcher; Wake
// and Health they may.
type Sink interface {
	Fetched(f Fetched)
	// Room is how many bytes may be asked for now; 0 or less pauses the partition
	// until Wake. At least one batch is fetched even if it is larger.
	Room() int
}

// Partition is where to begin with a partition.
type Partition struct {
	Topic     string
	Partition int32
	// TopicID is the topic's id at the source when it is known; another topic of the
	// same name is then an error. Zero takes the id that is found first.
	TopicID ids.UUID
	Offset  int64
	// LastFetchedEpoch is the source leader epoch of the last batch before Offset,
	// -1 if there is none.
	LastFetchedEpoch int32
	// Before is the batch that ends right before Offset, as it was handed over, if that is known.
	// The source must hold it still: an epoch alone does not tell its log from one that was restored
	// from a backup and written anew, under the same epochs.
	Before *batch.Anchor
	Sink   Sink
}

// Health is how a partition's fetching stands.
type Health struct {
	Leader   int32     // the source broker that is asked, -1 while it is looked for
	Err      error     // the last failure that is being retried, nil when all is well
	Attempts int       // failures since the last good answer
	Since    time.Time // of the first of them
	// Throttled is since when the source's quota slows the reading down, zero when it does not;
	// Throttle is what the last answer asked to wait.
	Throttled time.Time
	Throttle  time.Duration
}

// Stats are counters since the Fetcher began.
type Stats struct {
	Requests, Batches, Records, Bytes int64
	Retries                           int64         // failures that were or will be tried again
	Corrupt                           int64         // batches that failed verification
	Throttled                         time.Duration // what quotas of the source asked to wait
}

type partKey struct {
	topic     string
	partition int32
}

// part is one partition. mu in Fetcher guards it unless a field says otherwise.
type part struct {
	partKey
	sink Sink

	// calls is held while the sink is called, so that Remove can wait for it.
	calls   sync.Mutex
	removed atomic.Bool
	// woken says that Wake or Add was called since the worker last looked.
	woken atomic.Bool
	owner atomic.Pointer[worker] // the worker that has it, nil while the resolver does

	done        bool // an error was delivered
	topicID     ids.UUID
	leader      int32
	leaderEpoch int32
	replica     int32 // that the leader told us to read from, -1: the leader
	retryAt     time.Time
	attempts    int
	missing     int // metadata answers in a row without the topic
	stale       int // metadata answers in a row older than what is known
	failure     error
	failedSince time.Time
	throttle    time.Duration // that the last throttled answer asked for
	throttled   time.Time     // when the first of an unbroken row of them came
	throttledTo time.Time

	// What follows belongs to the worker that owns the part.
	offset    int64
	lastEpoch int32
	lane      *lane     // where it is being fetched
	asked     int32     // bytes asked for there
	turn      uint64    // when it last delivered: who waited longest is asked for first
	hot       bool      // fetch without waiting for the common poll
	backlog   bool      // the last answer was cut by size: there is more at once
	readyAt   time.Time // since when it could be fetched
	need      int32     // size of the next batch when it is known to be large
	strikes   int       // bad data, or out of range, at badOffset
	badOffset int64
	anchor    anchor
}

// Fetcher pulls the partitions of one mirror from its source cluster.
type Fetcher struct {
	cfg    Config
	log    *slog.Logger
	ctl    *kgo.Client // metadata, offsets, probes: never behind a long poll
	ctlErr error

	ctx    context.Context // ends everything; set in New so that Topics works before Start
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // wakes the resolver
	lookup chan struct{} // bounds concurrent look-ups of offsets

	// limbo owns the parts whose offsets are being looked up: neither a worker's nor the
	// resolver's. It never runs.
	limbo *worker

	mu      sync.Mutex
	started bool
	stopped bool
	parts   map[partKey]*part
	workers map[workerKey]*worker
	brokers map[int32]string // addresses by id
	leaders map[partKey]leader

	stats struct {
		requests, batches, records, bytes, retries, corrupt, throttled atomic.Int64
	}
}

type leader struct {
	topicID ids.UUID
	id      int32
	epoch   int32
}

// New returns a Fetcher that is not fetching yet. Topics, ClusterID and Probe work at
// once. An invalid Config.Opts is reported by Start and by each of them.
func New(cfg Config) *Fetcher {
	cfg = cfg.withDefaults()
	f := &Fetcher{
		cfg: cfg, log: cfg.Log,
		kick:    make(chan struct{}, 1),
		lookup:  make(chan struct{}, 8),
		parts:   map[partKey]*part{},
		workers: map[workerKey]*worker{},
		brokers: map[int32]string{},
		leaders: map[partKey]leader{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.limbo = newWorker(f, workerKey{})
	f.ctl, f.ctlErr = f.newClient("control")
	if f.ctlErr != nil {
		f.ctlErr = fmt.Errorf("mirror %s: source client: %w", cfg.Mirror, f.ctlErr)
	}
	return f
}

// clientID is the id of our connections to the source, for its quotas.
func (f *Fetcher) clientID(suffix string) string {
	return fmt.Sprintf("mirror-%s-broker-%d-%s", f.cfg.Mirror, f.cfg.BrokerID, suffix)
}

// newDialer returns what makes the connections of fetcher n of a broker.
func (f *Fetcher) newDialer(n int) *dialer {
	if f.ctl == nil {
		return nil // never started
	}
	return newDialer(f.ctl, f.clientID(fmt.Sprintf("fetcher-%d", n)), maxAnswer(f.cfg.ResponseMaxBytes))
}

// newClient returns a client of the source whose id ends in suffix.
func (f *Fetcher) newClient(suffix string) (*kgo.Client, error) {
	opts := append([]kgo.Opt(nil), f.cfg.Opts...)
	return kgo.NewClient(append(
		opts,
		kgo.ClientID(f.clientID(suffix)),
		// An answer may exceed what was asked for by one batch.
		kgo.FetchMaxBytes(f.cfg.ResponseMaxBytes),
		kgo.BrokerMaxReadBytes(maxAnswer(f.cfg.ResponseMaxBytes)),
		// A telemetry request would sit in front of fetches.
		kgo.DisableClientMetrics(),
	)...)
}

// maxAnswer bounds the size of an answer that is read at all, and so the memory that a
// broken source can make us allocate.
func maxAnswer(asked int32) int32 { return int32(min(int64(asked)+(256<<20), 1<<31-1)) }

// Start begins to fetch. ctx bounds nothing but the start itself; Stop ends it.
func (f *Fetcher) Start(context.Context) error {
	if f.ctlErr != nil {
		return f.ctlErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.stopped {
		return fmt.Errorf("mirror %s: the fetcher was started before", f.cfg.Mirror)
	}
	f.started = true
	f.wg.Go(f.resolve)
	return nil
}

// Stop ends all fetching and closes the connections. When it returns nil no goroutine
// is left and no sink is called again; if ctx ends first, they are on their way.
func (f *Fetcher) Stop(ctx context.Context) error {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.wg.Wait()
		if f.ctl != nil {
			f.ctl.Close()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mirror %s: stop the fetcher: %w", f.cfg.Mirror, ctx.Err())
	}
}

// Close is Stop without a bound. What it waits for ends with the connections.
func (f *Fetcher) Close() { _ = f.Stop(context.WithoutCancel(f.ctx)) }

// Add begins to fetch a partition. One that was added before is removed first.
func (f *Fetcher) Add(p Partition) {
	f.Remove(p.Topic, p.Partition)
	x := &part{
		partKey: partKey{p.Topic, p.Partition}, sink: p.Sink,
		topicID: p.TopicID, leader: -1, leaderEpoch: -1, replica: -1,
		offset: p.Offset, lastEpoch: p.LastFetchedEpoch, anchor: newAnchor(p.Before),
	}
	f.mu.Lock()
	f.parts[x.partKey] = x
	f.mu.Unlock()
	signal(f.kick)
}

// Remove ends the fetching of a partition. After it returns the sink is not called
// again. It waits for a call that is under way, so a caller must hold no lock that
// the sink takes.
func (f *Fetcher) Remove(topic string, partition int32) {
	f.mu.Lock()
	p := f.parts[partKey{topic, partition}]
	delete(f.parts, partKey{topic, partition})
	f.mu.Unlock()
	if p == nil {
		return
	}
	p.removed.Store(true)
	p.calls.Lock()   // waits for a call that began before
	p.calls.Unlock() //nolint:staticcheck // the critical section is the wait
	if w := p.owner.Load(); w != nil {
		signal(w.wake) // so that it lets go of the part
	}
}

// Wake says that a partition's sink may have room again. It never blocks.
func (f *Fetcher) Wake(topic string, partition int32) {
	f.mu.Lock()
	p := f.parts[partKey{topic, partition}]
	f.mu.Unlock()
	if p == nil {
		return
	}
	p.woken.Store(true)
	if w := p.owner.Load(); w != nil {
		signal(w.wake)
	}
}

// Health tells how a partition's fetching stands, and whether it is known at all.
func (f *Fetcher) Health(topic string, partition int32) (Health, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[partKey{topic, partition}]
	if p == nil {
		return Health{}, false
	}
	h := Health{Leader: -1, Err: p.failure, Attempts: p.attempts, Since: p.failedSince}
	if p.owner.Load() != nil {
		h.Leader = p.target()
	}
	if p.throttledNow(time.Now()) {
		h.Throttled, h.Throttle = p.throttled, p.throttle
	}
	return h, true
}

// Stats returns the counters.
func (f *Fetcher) Stats() Stats {
	s := &f.stats
	return Stats{
		Requests: s.requests.Load(), Batches: s.batches.Load(), Records: s.records.Load(),
		Bytes: s.bytes.Load(), Retries: s.retries.Load(), Corrupt: s.corrupt.Load(),
		Throttled: time.Duration(s.throttled.Load()),
	}
}

// target is the broker to fetch from.
func (p *part) target() int32 {
	if p.replica >= 0 {
		return p.replica
	}
	return p.leader
}

// deliver hands fd to the sink unless the part was removed.
func (p *part) deliver(fd Fetched) {
	p.calls.Lock()
	defer p.calls.Unlock()
	if !p.removed.Load() {
		p.sink.Fetched(fd)
	}
}

// room asks the sink how much it takes, 0 when the part was removed.
func (p *part) room() int {
	p.calls.Lock()
	defer p.calls.Unlock()
	if p.removed.Load() {
		return 0
	}
	return p.sink.Room()
}

// finish delivers an error that waiting does not cure. The part rests afterwards.
func (f *Fetcher) finish(p *part, err error) {
	f.mu.Lock()
	p.done = true
	p.owner.Store(nil)
	f.mu.Unlock()
	f.log.Error("partition cannot be fetched", "topic", p.topic, "partition", p.partition, "error", err)
	p.deliver(Fetched{HighWatermark: -1, LogStart: -1, Err: err})
}

// lost gives a part back to the resolver after a failure that can be cured: at once
// the first time, since the usual cause is a leader that moved, later after a pause.
func (f *Fetcher) lost(p *part, err error) { f.giveBack(p, err, slog.LevelWarn) }

// giveBack is lost with a level for the log: lower for a failure that many partitions
// share, which whoever saw it logs once.
func (f *Fetcher) giveBack(p *part, err error, level slog.Level) {
	f.mu.Lock()
	f.fail(p, err, level)
	if p.attempts > 1 {
		p.retryAt = time.Now().Add(f.cfg.Backoff)
	}
	p.replica = -1
	p.owner.Store(nil)
	delete(f.leaders, p.partKey)
	f.mu.Unlock()
	signal(f.kick)
}

// fail notes a failure; mu is held. It logs the first one and then fewer and fewer.
func (f *Fetcher) fail(p *part, err error, level slog.Level) {
	if p.attempts == 0 {
		p.failedSince = time.Now()
	}
	p.attempts++
	p.failure = err
	f.stats.retries.Add(1)
	if n := p.attempts; n&(n-1) == 0 && !errors.Is(err, context.Canceled) {
		f.log.Log(f.ctx, level, "fetching from the source failed, trying again", "topic", p.topic, "partition", p.partition,
			"leader", p.leader, "leader epoch", p.leaderEpoch, "attempt", n, "error", err)
	}
}

// well notes a good answer.
func (f *Fetcher) well(p *part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.attempts > 0 {
		f.log.Debug("fetching from the source works again", "topic", p.topic, "partition", p.partition,
			"leader", p.leader, "leader epoch", p.leaderEpoch, "after", time.Since(p.failedSince).Round(time.Millisecond))
	}
	p.attempts, p.failure, p.failedSince, p.retryAt = 0, nil, time.Time{}, time.Time{}
}

// throttleGap is how long after a throttle's end the next one still belongs to it: the answer to
// the fetch between the two.
const throttleGap = 2 * time.Second

// throttledNow tells whether a quota of the source slows a part down; mu is held.
func (p *part) throttledNow(now time.Time) bool {
	return !p.throttledTo.IsZero() && now.Before(p.throttledTo.Add(throttleGap))
}

// slowed notes that an answer to a fetch of parts asks to wait.
func (f *Fetcher) slowed(parts []*part, wait time.Duration) {
	if wait <= 0 {
		return
	}
	f.stats.throttled.Add(int64(wait))
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range parts {
		if !p.throttledNow(now) {
			p.throttled = now
			f.log.Info("a quota of the source slows the reading down", "topic", p.topic, "partition", p.partition, "wait", wait)
		}
		p.throttle, p.throttledTo = wait, now.Add(wait)
	}
}

// fetcherOf spreads partitions over the fetchers of a broker.
func (f *Fetcher) fetcherOf(k partKey) int {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s-%d", k.topic, k.partition)
	return int(h.Sum32() % uint32(f.cfg.Fetchers))
}

// signal wakes the one who waits on c, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
