package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/builtin"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// Partitions tells what this sidecar knows of the mirror partitions that its virtual
// broker leads.
type Partitions interface {
	Status() []PartitionStatus
}

// PartitionStatus is one partition as its leading sidecar sees it. Offsets are -1 where
// they are not known.
type PartitionStatus struct {
	TopicPartition    ids.TopicPartition
	Topic             string
	State             State
	Detail            string
	SourceOffset      int64 // the source's high watermark
	DestinationOffset int64 // this cluster's log end
	SourceLogStart    int64
	LagMs             int64
	LeaderEpoch       int32
	ErrorMessage      string
}

// VirtualBroker is this sidecar's own virtual broker.
type VirtualBroker interface {
	// Uncordon lets the controller accept assignments to the virtual broker until release
	// is called.
	Uncordon(ctx context.Context) (release func(), err error)
}

// Config is what a Coordinator is told.
type Config struct {
	Self            int32 // id of this sidecar's virtual broker
	Virtual         ids.Virtual
	VirtualReplicas int
	StopReplicaWait time.Duration
	RefreshInterval time.Duration
	ReplicaLag      time.Duration // replica.lag.time.max.ms, Kafka's default 30 s
	ClusterID       string        // of this cluster
	// Keys encrypt secrets of mirrors in the state topic; nil for none.
	Keys *sealed.Keys
	// Alone says that this process is no sidecar, and coordinates what no sidecar does: an
	// uninstall. Self is then no virtual broker's id.
	Alone bool
}

// Deps are what a Coordinator works with.
type Deps struct {
	Image       *metadata.Image
	Store       *Store
	Destination *Destination
	Source      OpenSource
	Peers       Peers
	Broker      VirtualBroker
	Partitions  Partitions
	// Caller returns who sent the mirror request that is being handled. Without it
	// nothing is authorized, which is for tests.
	Caller func(ctx context.Context) (Caller, bool)
	// Policies decide what is mirrored; nil: those that are built in, in this process.
	Policies Policies
	// Fences hold clients' writes back at this sidecar's listeners; nil where there are none.
	Fences WriteFences
}

// Coordinator routes requests to the sidecar that coordinates their key, and answers
// those that are its own.
type Coordinator struct {
	cfg   Config
	deps  Deps
	log   *slog.Logger
	view  *View
	img   *metadata.Image
	store *Store

	mu       sync.Mutex            // guards the following
	acquired map[int32]tenure      // state partitions whose barrier was read, by partition
	locks    map[int32]*sync.Mutex // serialise read, check and write of a state partition
	queues   map[int32]*queue      // leaders' writes that wait for a state partition

	windows windows
	links   links // see failback.go
	rounds  rounds
	secrets secretsTold

	refresher atomic.Pointer[Refresher]
	sweeper   atomic.Pointer[Sweeper]
	syncs     Syncs // nil where nothing but records is mirrored

	cancelImage func()
}

// tenure identifies one time of being coordinator of a state partition.
type tenure struct {
	leader, leaderEpoch int32
	brokerEpoch         int64
}

// New returns a Coordinator.
func New(cfg Config, deps Deps, log *slog.Logger) (*Coordinator, error) {
	if deps.Image == nil || deps.Store == nil || deps.Peers == nil {
		return nil, errors.New("coordinator: image, store and peers are required")
	}
	if deps.Policies == nil {
		deps.Policies = policy.NewEngine(policy.InProcess{policy.BuiltIn: builtin.Policy("")}, log)
	}
	c := &Coordinator{
		cfg: cfg, deps: deps, log: log, view: deps.Store.View(), img: deps.Image, store: deps.Store,
		acquired: map[int32]tenure{}, locks: map[int32]*sync.Mutex{}, queues: map[int32]*queue{},
		windows: windows{leases: map[string]*lease{}, held: map[int32]int{}},
	}
	return c, nil
}

// Start begins to watch who coordinates what.
func (c *Coordinator) Start(context.Context) error {
	c.cancelImage = c.img.Subscribe(func(metadata.Delta) { c.forgetLost() })
	return nil
}

// Stop ends everything that is under way.
func (c *Coordinator) Stop(context.Context) error {
	if c.cancelImage != nil {
		c.cancelImage()
	}
	c.windows.closeAll()
	c.links.close()
	return nil
}

// forgetLost drops the tenures that have ended: whoever was coordinator in between may
// have written, so the next act needs a new barrier.
func (c *Coordinator) forgetLost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, t := range c.acquired {
		if now, mine := c.tenure(p); !mine || now != t {
			delete(c.acquired, p)
			c.store.release(p, nil)
		}
	}
}

// tenure returns the current one of a state partition, and whether it is this sidecar's.
func (c *Coordinator) tenure(partition int32) (tenure, bool) {
	id, ok := c.img.Topic(StateTopic)
	if !ok {
		return tenure{}, false
	}
	p := c.img.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
	if p == nil {
		return tenure{}, false
	}
	who, ok := c.coordinates(p)
	if !ok || who != c.cfg.Self {
		return tenure{}, false
	}
	b, _ := c.img.Broker(c.cfg.Self)
	return tenure{leader: p.Leader, leaderEpoch: p.LeaderEpoch, brokerEpoch: b.Epoch}, true
}

// coordinates returns who coordinates a state partition.
func (c *Coordinator) coordinates(p *metadata.Partition) (int32, bool) {
	who, ok := coordinatorOf(c.img, c.cfg.Virtual, p)
	if !ok && c.cfg.Alone {
		return c.cfg.Self, true
	}
	return who, ok
}

// coordinatorOf returns the virtual broker whose sidecar coordinates a state partition:
// the one beside the leader; while that is not alive, the one beside the next replica in
// assignment order; with none of those, the live one with the lowest id.
func coordinatorOf(img *metadata.Image, v ids.Virtual, p *metadata.Partition) (int32, bool) {
	for _, home := range append([]int32{p.Leader}, p.Replicas...) {
		if home < 0 || v.Is(home) {
			continue
		}
		if alive(img, v.Of(home)) {
			return v.Of(home), true
		}
	}
	for _, id := range liveVirtual(img, v) {
		return id, true
	}
	return 0, false
}

func alive(img *metadata.Image, id int32) bool {
	b, ok := img.Broker(id)
	return ok && !b.Fenced && !b.ShuttingDown
}

// liveVirtual returns the virtual brokers that are alive, ascending.
func liveVirtual(img *metadata.Image, v ids.Virtual) []int32 {
	var out []int32
	for _, b := range img.Brokers() {
		if v.Is(b.ID) && !b.Fenced && !b.ShuttingDown {
			out = append(out, b.ID)
		}
	}
	return out
}

// Of returns the virtual broker whose sidecar coordinates a key.
func (c *Coordinator) Of(key string) (int32, error) {
	partition, ok := c.store.PartitionOf(key)
	if !ok {
		// Before the first mirror nothing is coordinated; whoever is asked may begin.
		return c.cfg.Self, nil
	}
	id, _ := c.img.Topic(StateTopic)
	p := c.img.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
	if p == nil {
		return 0, ErrNoCoordinator
	}
	who, ok := c.coordinates(p)
	if !ok {
		return 0, fmt.Errorf("%w: %s-%d", ErrNoCoordinator, StateTopic, partition)
	}
	return who, nil
}

// act runs fn as the coordinator of a key: the own view has everything that was written
// before, and nobody else here writes to the key's state partition meanwhile. A sidecar
// that wrongly believes to be the coordinator can read, but not write: whoever came after
// it has taken the partition's transactional id.
func (c *Coordinator) act(ctx context.Context, key string, fn func() error) error {
	partition, ok := c.store.PartitionOf(key)
	if !ok {
		return fmt.Errorf("%w: topic %s does not exist, create a mirror first", ErrNoCoordinator, StateTopic)
	}
	if err := c.store.led(ctx, partition); err != nil {
		return err
	}
	lock := c.lock(partition)
	lock.Lock()
	defer lock.Unlock()
	now, mine := c.tenure(partition)
	if !mine {
		return ErrNotCoordinator
	}
	c.mu.Lock()
	had, ok := c.acquired[partition]
	c.mu.Unlock()
	if !ok || had != now || !c.store.Holds(partition) {
		if err := c.store.Acquire(ctx, partition); err != nil {
			return fmt.Errorf("become coordinator of %s-%d: %w", StateTopic, partition, err)
		}
		still, mine := c.tenure(partition)
		if !mine || still != now {
			c.store.release(partition, nil)
			return ErrNotCoordinator
		}
		c.mu.Lock()
		c.acquired[partition] = now
		c.mu.Unlock()
	}
	return fn()
}

func (c *Coordinator) lock(partition int32) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.locks[partition]
	if l == nil {
		l = &sync.Mutex{}
		c.locks[partition] = l
	}
	return l
}

// retryRouted calls fn with the coordinator of a key until it is the right one and
// answers, or ctx ends. Who coordinates may change between the look and the call.
func (c *Coordinator) retryRouted(ctx context.Context, key string, fn func(who int32) error) error {
	wait := 20 * time.Millisecond
	for {
		who, err := c.Of(key)
		if err == nil {
			err = fn(who)
		}
		if err == nil || !(errors.Is(err, ErrNotCoordinator) || errors.Is(err, ErrNoCoordinator) || errors.Is(err, errPeer)) {
			return err
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		}
		wait = min(2*wait, time.Second)
	}
}

// WriteState records the state of a partition on behalf of its leader. leaderEpoch
// fences earlier leaders (R20). The state epoch of s is checked against the recorded one
// unless it is negative. Errors wrap ErrFencedLeaderEpoch, ErrFencedStateEpoch or
// ErrTransition where the coordinator refuses.
func (c *Coordinator) WriteState(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, s PartitionState) error {
	s.LeaderEpoch = leaderEpoch
	return c.write(ctx, stateWrite{key: partitionKey{mirror, tp}, state: &s, leaderEpoch: leaderEpoch})
}

// WriteLineage records the lineage of a partition on behalf of its leader (R9, R11).
func (c *Coordinator) WriteLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, r lineage.Record) error {
	return c.write(ctx, stateWrite{key: partitionKey{mirror, tp}, lineage: &r, leaderEpoch: leaderEpoch})
}

// ReadLineage returns the lineage of a partition, everything read that was written before
// the call.
func (c *Coordinator) ReadLineage(ctx context.Context, mirror string, tp ids.TopicPartition) (lineage.Record, error) {
	if err := c.barrierAt(ctx, partitionKey{mirror, tp}); err != nil {
		return lineage.Record{}, fmt.Errorf("mirror %s, partition %s: read lineage: %w", mirror, tp, err)
	}
	r, _ := c.view.Lineage(mirror, tp)
	return r, nil
}

// ReadState returns the recorded state of a partition, everything read that was written
// before the call (R20).
func (c *Coordinator) ReadState(ctx context.Context, mirror string, tp ids.TopicPartition) (PartitionState, error) {
	if err := c.barrierAt(ctx, partitionKey{mirror, tp}); err != nil {
		return PartitionState{}, fmt.Errorf("mirror %s, partition %s: read state: %w", mirror, tp, err)
	}
	s, _ := c.view.State(mirror, tp)
	return s, nil
}

func (c *Coordinator) barrier(ctx context.Context, key string) error {
	partition, ok := c.store.PartitionOf(key)
	if !ok {
		return nil // nothing was ever written
	}
	return c.store.Barrier(ctx, partition)
}

// MirrorTopic returns the mirror topic of one of this cluster's topics, and the mirror.
func (c *Coordinator) MirrorTopic(id ids.UUID) (Topic, Mirror, bool) {
	t, ok := c.view.TopicByID(id)
	if !ok {
		return Topic{}, Mirror{}, false
	}
	m, ok := c.view.Mirror(t.Mirror)
	return t, m, ok
}

// View returns the state as this sidecar has read it.
func (c *Coordinator) View() *View { return c.view }

// ReadOnly tells whether clients may not write to a partition, and whose mirror it is
// (contract-additions §7): a virtual replica is assigned, or a state other than STOPPED
// is recorded.
func (c *Coordinator) ReadOnly(tp ids.TopicPartition) (mirror string, readOnly bool) {
	t, known := c.view.TopicByID(tp.TopicID)
	if known {
		mirror = t.Mirror
		if s, ok := c.view.State(t.Mirror, tp); ok && s.State != Stopped && !(refusedStart(s) && c.ordinary(t)) {
			return mirror, true
		}
	}
	p := c.img.Partition(tp)
	return mirror, p != nil && slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is)
}

// stateWrite is one write to records of type 1 or 2.
type stateWrite struct {
	key         partitionKey
	leaderEpoch int32
	state       *PartitionState
	lineage     *lineage.Record
}

func (c *Coordinator) write(ctx context.Context, w stateWrite) error {
	err := c.retryRouted(ctx, w.key.text(), func(who int32) error {
		if who == c.cfg.Self {
			return c.writeLocal(ctx, w)
		}
		return c.writeAtPeer(ctx, who, w)
	})
	if err != nil {
		return fmt.Errorf("mirror %s, partition %s: write state: %w", w.key.mirror, w.key.tp, err)
	}
	return nil
}

// check decides whether a write may be done and returns the records to write. It is a
// pure function of what is known.
func check(v known, w stateWrite) ([]record, error) {
	old, _ := v.State(w.key.mirror, w.key.tp)
	if w.leaderEpoch < old.LeaderEpoch {
		return nil, fmt.Errorf("%w: epoch %d, recorded is %d", ErrFencedLeaderEpoch, w.leaderEpoch, old.LeaderEpoch)
	}
	var out []record
	if w.lineage != nil {
		known, has := v.Lineage(w.key.mirror, w.key.tp)
		merged := mergeLineage(known, *w.lineage)
		if !has {
			merged = *w.lineage
		}
		switch {
		case w.lineage.LastMirrorOffset >= 0:
			// Who knows how far the mirror came has ended it. Its view may be behind the chain
			// that it wrote itself: that must not make an older write of this one.
			merged.LastMirrorEpoch, merged.LastMirrorOffset = w.lineage.LastMirrorEpoch, w.lineage.LastMirrorOffset
		case (old.State == Stopping || old.State == Stopped) && merged.LastMirrorOffset < 0:
			// A replica that still persists a chain does not know how far the mirror came. Only a
			// start forgets that.
			merged.LastMirrorEpoch, merged.LastMirrorOffset = known.LastMirrorEpoch, known.LastMirrorOffset
		}
		out = append(out, record{kind: kindLineage, partition: w.key, value: merged})
	}
	if w.state != nil {
		s := *w.state
		if s.StateEpoch >= 0 && s.StateEpoch != old.StateEpoch {
			return nil, fmt.Errorf("%w: epoch %d, recorded is %d", ErrFencedStateEpoch, s.StateEpoch, old.StateEpoch)
		}
		if !Transition(old.State, s.State) && !recovers(old, s) {
			return nil, fmt.Errorf("%w: %s to %s", ErrTransition, old.State, s.State)
		}
		s.LeaderEpoch, s.StateEpoch, s.tags = w.leaderEpoch, old.StateEpoch+1, old.tags
		s.Previous = old.Previous
		if old.State != s.State {
			s.Previous = old.State
		}
		if same := old; same.State == s.State && same.Detail == s.Detail && same.ErrorMessage == s.ErrorMessage &&
			same.LeaderEpoch == s.LeaderEpoch && same.RetryAttempt == s.RetryAttempt {
			return out, nil // written again: nothing new to keep
		}
		out = append(out, record{kind: kindState, partition: w.key, value: s})
	}
	return out, nil
}

// recovers tells whether a failed partition returns to the state that it failed in.
func recovers(old, s PartitionState) bool { return old.State == Failed && s.State == old.Previous }

// source opens the source of a mirror.
func (c *Coordinator) source(m Mirror) (Source, *config.Mirror, error) {
	cfg, err := m.stored()
	if err != nil {
		return nil, nil, fmt.Errorf("mirror %s: configuration: %w", m.Name, err)
	}
	s, err := c.deps.Source(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("mirror %s: source: %w", m.Name, err)
	}
	return s, cfg, nil
}
