package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/placement"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// StateTopic is the name of the topic that holds all state.
const StateTopic = protocol.StateTopic

// maxRecordsPerPut bounds one Put, and with it what is in flight to the state topic.
const maxRecordsPerPut = 10000

// Controllers sends a request to the active controller.
type Controllers interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// StoreConfig says how the state topic is reached and how it is created.
type StoreConfig struct {
	Partitions        int32 // of a new state topic
	ReplicationFactor int16 // of a new state topic, capped at the number of real brokers
	Virtual           ids.Virtual
	Self              int32 // id of this sidecar's virtual broker, named in barriers
	// Opts reach the brokers: seeds and security. The state topic's leaders are real
	// brokers, found by the addresses they advertise on that listener.
	Opts []kgo.Opt
	// Listener is the one that brokers use among themselves: there operators reach them around the sidecars
	// with Kafka's own tools, for what they are told to do.
	Listener string
}

// Store reads all of the state topic into a View and writes to it. Nothing here decides
// who may write: that is the Coordinator's.
type Store struct {
	cfg  StoreConfig
	img  *metadata.Image
	ctl  Controllers
	log  *slog.Logger
	view *View

	nonce    atomic.Int64
	barriers *kgo.Client // writes barriers, which are no state and need no transaction
	writers  writers
	ready    chan struct{} // closed once the topic was read to the end seen at start
	once     sync.Once     // closes ready
	stop     context.CancelFunc
	done     chan struct{}
	misread  misread
	foreign  *foreign

	anew   chan struct{} // has an element once a partition of the topic has lost records that were read
	lostMu sync.Mutex    // guards the following
	lost   map[int32]int // by partition: which cut it was
	cuts   int
}

// NewStore returns a store that does nothing before Start.
func NewStore(cfg StoreConfig, img *metadata.Image, ctl Controllers, log *slog.Logger) (*Store, error) {
	s := &Store{
		cfg: cfg, img: img, ctl: ctl, log: log, view: NewView(), ready: make(chan struct{}), done: make(chan struct{}), anew: make(chan struct{}, 1), lost: map[int32]int{},
		writers: writers{held: map[int32]*kgo.Client{}}, foreign: newForeign(),
	}
	p, err := kgo.NewClient(s.writerOpts()...)
	if err != nil {
		return nil, fmt.Errorf("state topic: client: %w", err)
	}
	s.barriers = p
	return s, nil
}

// writerOpts are what everything that writes to the state topic has in common.
func (s *Store) writerOpts() []kgo.Opt {
	return append(slices.Clone(s.cfg.Opts),
		kgo.ClientID("mirror-state-writer"),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordDeliveryTimeout(30*time.Second),
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.DialTimeout(3*time.Second),
		kgo.UnknownTopicRetries(20),
		kgo.DisableClientMetrics(),
	)
}

// View returns what was read so far.
func (s *Store) View() *View { return s.view }

// Ready is closed once everything that was in the topic at start was read, or once the
// metadata log, read to its end, shows that there is no such topic.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Start begins to read. metadataCaughtUp is closed when the metadata log was read to its
// end; before that, a missing state topic means nothing.
func (s *Store) Start(ctx context.Context, metadataCaughtUp <-chan struct{}) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.run(ctx, metadataCaughtUp)
	}()
	return nil
}

// Stop ends reading and writing.
func (s *Store) Stop(ctx context.Context) error {
	if s.stop != nil {
		s.stop()
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("state topic: stop: %w", ctx.Err())
		}
	}
	s.writers.closeAll()
	s.barriers.Close()
	return nil
}

func (s *Store) run(ctx context.Context, metadataCaughtUp <-chan struct{}) {
	select {
	case <-metadataCaughtUp:
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		id, exists := s.img.Topic(StateTopic)
		if !exists {
			s.markReady()
			if s.img.Wait(ctx, func() bool { _, ok := s.img.Topic(StateTopic); return ok }) != nil {
				return
			}
			continue
		}
		if err := s.read(ctx, id); err != nil && ctx.Err() == nil {
			s.log.Error("state topic cannot be read, trying again", "topic", StateTopic, "err", err)
			pause(ctx, time.Second)
		}
		if now, ok := s.img.Topic(StateTopic); ctx.Err() == nil && (!ok || now != id) {
			s.log.Error("the state topic was deleted: what it held is lost, mirrors must be created again", "topic", StateTopic)
			s.misread.clear()
			s.foreign.clear()
			s.view.reset()
			s.noneLost()
		}
	}
}

func (s *Store) markReady() { s.once.Do(func() { close(s.ready) }) }

// pause waits without outliving ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// read follows one incarnation of the topic until it is another one, or has more
// partitions, or has lost records, or ctx ends. Partitions that have lost records are read anew
// beside the others.
func (s *Store) read(ctx context.Context, id ids.UUID) error {
	n := int32(len(s.img.TopicPartitions(id)))
	if n == 0 {
		return errors.New("the metadata log shows no partitions")
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		_ = s.img.Wait(ctx, func() bool {
			now, ok := s.img.Topic(StateTopic)
			return !ok || now != id || int32(len(s.img.TopicPartitions(id))) != n
		})
		cancel()
	})
	watch.Go(func() {
		select {
		case <-s.anew:
			cancel() // begins again, with the partition as a lost one
		case <-ctx.Done():
		}
	})
	at := make(map[int32]int64, n)
	var lost []int32
	for p := range n {
		if s.lostBy(p) > 0 {
			lost = append(lost, p)
		} else {
			at[p] = s.view.position(p)
		}
	}
	cl, err := s.reader(at)
	if err != nil {
		return err
	}
	defer cl.Close()
	watch.Go(func() {
		s.findAgain(ctx, cl, id, lost, n)
		select {
		case <-s.ready:
		default:
			s.readToEnd(ctx, cl, n)
		}
	})
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(_ string, p int32, err error) {
			s.log.Warn("state topic: fetch", "topic", StateTopic, "partition", p, "err", err)
			if lostData(err) {
				s.cut(p, err.Error())
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if next := s.view.position(r.Partition); r.Offset < next {
				s.cut(r.Partition, fmt.Sprintf("offset %d comes after %d", r.Offset, next-1))
			}
		})
		records, next := s.decoded(fetches, &s.misread)
		if len(next) > 0 {
			s.view.apply(records, next)
		}
	}
}

// reader is a client that reads partitions from the given positions on.
func (s *Store) reader(at map[int32]int64) (*kgo.Client, error) {
	offsets := make(map[int32]kgo.Offset, len(at))
	for p, o := range at {
		offsets[p] = kgo.NewOffset().At(o)
	}
	cl, err := kgo.NewClient(append(slices.Clone(s.cfg.Opts),
		kgo.ClientID("mirror-state-reader"),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{StateTopic: offsets}),
		// What a writer has not committed is not state (additions §1).
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.DialTimeout(3*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(), // they count for the position
		kgo.DisableClientMetrics(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return cl, nil
}

// decoded returns the records among what was read, and the positions behind it.
func (s *Store) decoded(fetches kgo.Fetches, misread *misread) (records []record, next map[int32]int64) {
	next = map[int32]int64{}
	fetches.EachRecord(func(r *kgo.Record) {
		next[r.Partition] = r.Offset + 1
		if r.Attrs.IsControl() {
			return
		}
		if isForeign(r) {
			s.foreign.note(r, s.Partitions(), s.log)
			return
		}
		s.foreign.written(r)
		rec, err := decodeRecord(r.Key, r.Value, r.Timestamp.UnixMilli())
		misread.note(r, err)
		if err != nil {
			// A newer sidecar's record, or not ours at all: what it means is not known here,
			// what else is there still is.
			s.log.Error("state topic: record not understood", "topic", StateTopic, "partition", r.Partition, "offset", r.Offset, "err", err)
			return
		}
		records = append(records, rec)
	})
	return records, next
}

// readToEnd marks the store as ready when the view has reached the ends that the
// partitions have now.
func (s *Store) readToEnd(ctx context.Context, cl *kgo.Client, n int32) {
	for ctx.Err() == nil {
		// Up to the first transaction under way. What comes of that is the business of its
		// coordinator, who waits for it before he acts.
		ends, err := s.ends(ctx, cl, n)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("state topic: end offsets", "topic", StateTopic, "err", err)
				pause(ctx, time.Second)
			}
			continue
		}
		for p, end := range ends {
			// A compacted tail leaves no gap at the end: the last record is always kept.
			if end > 0 && s.view.wait(ctx, p, end-1) != nil {
				return
			}
		}
		s.markReady()
		return
	}
}

// Partitions returns the number of partitions of the state topic, 0 while there is none.
func (s *Store) Partitions() int32 {
	id, ok := s.img.Topic(StateTopic)
	if !ok {
		return 0
	}
	return int32(len(s.img.TopicPartitions(id)))
}

// PartitionOf returns the state partition of a key's text; false while there is no state
// topic.
func (s *Store) PartitionOf(key string) (int32, bool) {
	n := s.Partitions()
	if n == 0 {
		return 0, false
	}
	return statePartition(key, n), true
}

// Create makes the state topic if it is missing, on real brokers only.
func (s *Store) Create(ctx context.Context) error {
	if s.Partitions() > 0 {
		return s.keep(ctx)
	}
	brokers := placement.Live(placement.Brokers(s.img.Brokers(), s.cfg.Virtual))
	if len(brokers) == 0 {
		return fmt.Errorf("create topic %s: no real broker is alive", StateTopic)
	}
	rf := min(int(s.cfg.ReplicationFactor), len(brokers))
	if rf < int(s.cfg.ReplicationFactor) {
		s.log.Warn("fewer replicas of the state topic than configured, since there are fewer brokers",
			"topic", StateTopic, "configured", s.cfg.ReplicationFactor, "replicas", rf)
	}
	minISR := 1
	if rf >= 3 { // with two replicas, two in sync would make every broker's restart an outage
		minISR = 2
	}
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = StateTopic, -1, -1
	for p, replicas := range placement.Spread(brokers, int(s.cfg.Partitions), rf, hashStart(StateTopic, len(brokers))) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for _, kv := range [][2]string{
		{"cleanup.policy", "compact"},
		{"compression.type", "producer"},
		{"retention.ms", "-1"},
		{"min.insync.replicas", strconv.Itoa(minISR)},
		{"unclean.leader.election.enable", "false"},
	} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[0], &kv[1]
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15000
	req.Topics = append(req.Topics, t)
	resp, err := s.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", StateTopic, err)
	}
	answer, ok := resp.(*kmsg.CreateTopicsResponse)
	if !ok || len(answer.Topics) != 1 {
		return fmt.Errorf("create topic %s: unexpected answer", StateTopic)
	}
	if e := kerr.ErrorForCode(answer.Topics[0].ErrorCode); e != nil && !errors.Is(e, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w%s", StateTopic, e, detail(answer.Topics[0].ErrorMessage))
	}
	s.log.Info("state topic created", "topic", StateTopic, "partitions", s.cfg.Partitions, "replicas", rf)
	if err := s.img.Wait(ctx, func() bool { return s.Partitions() > 0 }); err != nil {
		return fmt.Errorf("topic %s was created, but the metadata log does not show it: %w", StateTopic, err)
	}
	return nil
}

// Barrier writes a record to a partition and returns when the own view has read it: the
// view then holds everything that was committed before. It waits for the transaction that
// is under way in the partition, if there is one.
func (s *Store) Barrier(ctx context.Context, partition int32) error {
	k, v, err := encodeRecord(record{kind: kindBarrier, value: barrier{s.cfg.Self, s.nonce.Add(1)}})
	if err != nil {
		return fmt.Errorf("state topic: encode barrier: %w", err)
	}
	return s.produce(ctx, []*kgo.Record{{Topic: StateTopic, Partition: partition, Key: k, Value: v}})
}

func (s *Store) produce(ctx context.Context, records []*kgo.Record) error {
	at := s.positions(records)
	for _, r := range s.barriers.ProduceSync(ctx, records...) {
		if r.Err != nil {
			return s.because(fmt.Errorf("state topic: write to %s-%d: %w", StateTopic, r.Record.Partition, r.Err))
		}
	}
	if s.behind(records, at) {
		return fmt.Errorf("state topic: %w", errCut)
	}
	return s.readBack(ctx, records)
}

// readBack returns when the own view has records that were written.
func (s *Store) readBack(ctx context.Context, records []*kgo.Record) error {
	for _, r := range records {
		if err := s.view.wait(ctx, r.Partition, r.Offset); err != nil {
			return fmt.Errorf("state topic: %s-%d was written at offset %d but not read back: %w", StateTopic, r.Partition, r.Offset, err)
		}
	}
	return nil
}

// detail words an answer's own message for the end of an error.
func detail(msg *string) string {
	if msg == nil || *msg == "" {
		return ""
	}
	return " (" + *msg + ")"
}

// realBrokers returns the real brokers that are alive, ascending.
func realBrokers(img *metadata.Image, v ids.Virtual) []int32 {
	var out []int32
	for _, b := range img.Brokers() {
		if !v.Is(b.ID) && !b.Fenced && !b.ShuttingDown {
			out = append(out, b.ID)
		}
	}
	return out
}
