package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// ManagerConfig configures a Manager.
type ManagerConfig struct {
	ID      int32 // of the virtual broker
	Virtual ids.Virtual
	// MaxLag is replica.lag.time.max.ms, Kafka's default 30 s.
	MaxLag time.Duration
	// Segment is what brokers have for log.segment.bytes, Kafka's default 1 GiB. A topic's own
	// segment.bytes goes before it.
	Segment int
	// Buffers is the memory for records that are on their way (mirror.buffer.memory.bytes),
	// the same that the sources read into. nil makes a pool of 256 MiB.
	Buffers *pool.Pool
	// StopReplicaWait is mirror.stop.replica.wait.ms.
	StopReplicaWait time.Duration
	// Retries of a failed partition (mirror.failed.retry.*); no retries with
	// RetryMaxAttempts 0.
	RetryInitialBackoff, RetryMaxBackoff time.Duration
	RetryMaxAttempts                     int
	Metrics                              Metrics
}

// VirtualBroker is this sidecar's identity in the destination cluster.
type VirtualBroker interface {
	// Epoch is the broker epoch of the running registration.
	Epoch() int64
	// GiveUpLeadership lets every partition that is led here get a new leader epoch.
	GiveUpLeadership(ctx context.Context) error
}

// Manager leads and follows the mirror partitions that this sidecar's virtual broker is
// assigned to, and answers the real brokers' replica fetchers.
type Manager struct {
	cfg        ManagerConfig
	image      *metadata.Image
	broker     VirtualBroker
	controller *controller.Client
	state      State
	sources    Sources
	calls      *Brokers // single requests
	polls      *Brokers // long polls of the following side
	log        *slog.Logger
	now        func() time.Time
	spread     func() float64 // in [0, 1): jitter of further tries
	retries    retries

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	undo   []func()

	shunned  shunned
	followed chan struct{} // cap 1: what is to be followed may have changed

	mu         sync.RWMutex // guards the following; a leaf, taken under a partition's mu too
	partitions map[ids.TopicPartition]*partition
	leading    int // partitions led, for the shares of the buffer
}

// NewManager returns a Manager; it closes neither calls nor polls.
func NewManager(cfg ManagerConfig, image *metadata.Image, broker VirtualBroker, ctl *controller.Client,
	state State, sources Sources, calls, polls *Brokers, log *slog.Logger,
) (*Manager, error) {
	if !cfg.Virtual.Is(cfg.ID) {
		return nil, fmt.Errorf("node id %d is not a virtual broker's (offset %d)", cfg.ID, cfg.Virtual)
	}
	cfg.MaxLag, cfg.Segment = cmp.Or(cfg.MaxLag, 30*time.Second), cmp.Or(cfg.Segment, 1<<30)
	if cfg.Buffers == nil {
		cfg.Buffers = pool.New(256 << 20)
	}
	cfg.RetryInitialBackoff = cmp.Or(cfg.RetryInitialBackoff, time.Second)
	cfg.RetryMaxBackoff = cmp.Or(cfg.RetryMaxBackoff, 5*time.Minute)
	return &Manager{
		cfg: cfg, image: image, broker: broker, controller: ctl, state: state, sources: sources,
		calls: calls, polls: polls, log: log, now: time.Now, spread: rand.Float64,
		retries:  retries{initial: cfg.RetryInitialBackoff, max: cfg.RetryMaxBackoff, attempts: cfg.RetryMaxAttempts},
		followed: make(chan struct{}, 1), partitions: map[ids.TopicPartition]*partition{},
	}, nil
}

// Start begins to act on the metadata image. It returns at once.
func (m *Manager) Start(context.Context) error {
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.undo = append(m.undo, m.image.Subscribe(m.metadataChanged), m.state.Subscribe(m.stateChanged))
	for _, p := range m.image.AllPartitions() {
		m.update(p)
	}
	m.wg.Add(2)
	go m.tick()
	go m.follow()
	return nil
}

// Stop ends everything the Manager started and waits for it.
func (m *Manager) Stop(context.Context) error {
	if m.cancel == nil {
		return nil
	}
	for _, u := range m.undo {
		u()
	}
	m.cancel()
	m.wg.Wait()
	m.mu.Lock()
	all := m.partitions
	m.partitions = map[ids.TopicPartition]*partition{}
	m.mu.Unlock()
	for _, p := range all {
		p.close()
	}
	return nil
}

func (m *Manager) tick() {
	defer m.wg.Done()
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-t.C:
		}
		led := 0
		for _, p := range m.all() {
			p.mu.Lock()
			off := p.machine.Status().Phase == leading.Off
			p.mu.Unlock()
			if off {
				continue
			}
			led++
			p.step(func(now time.Time) {
				p.machine.Tick(now)
				p.relieveLocked()
				p.resumeLocked()
				p.retryLocked(now)
				p.giveUpAgainLocked(now)
				p.assertLocked(now)
				p.tellWaitLocked()
			})
		}
		m.mu.Lock()
		m.leading = led
		m.mu.Unlock()
		m.pokeFollower()
	}
}

// share is the part of the buffer that one partition may fill, in bytes. A quarter of all is
// left for answers that are being read, so that partitions that hold theirs do not hold up
// the others.
func (m *Manager) share() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return max(m.cfg.Buffers.Budget()*3/4/int64(max(m.leading, 1)), 64<<10)
}

func (m *Manager) all() []*partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*partition, 0, len(m.partitions))
	for _, p := range m.partitions {
		out = append(out, p)
	}
	return out
}

func (m *Manager) partition(tp ids.TopicPartition) *partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.partitions[tp]
}

// metadataChanged runs on the observer's goroutine.
func (m *Manager) metadataChanged(d metadata.Delta) {
	for _, tp := range d.Partitions {
		if p := m.image.Partition(tp); p != nil {
			m.update(p)
		}
	}
	for _, id := range d.RemovedTopics {
		m.removeTopic(id)
	}
	if len(d.Brokers) > 0 || len(d.Configs) > 0 || d.BrokerDefaults {
		for _, p := range m.all() {
			if img := m.image.Partition(p.tp); img != nil && concerns(d, img) {
				m.update(img)
			}
		}
	}
	m.pokeFollower()
}

// concerns tells whether what a partition's machine is told of brokers and configs may have
// changed. With many partitions the observer has no time for the others: behind the log the
// virtual broker is fenced.
func concerns(d metadata.Delta, img *metadata.Partition) bool {
	return d.BrokerDefaults || slices.Contains(d.Configs, img.Topic) ||
		slices.ContainsFunc(d.Brokers, func(id int32) bool { return slices.Contains(img.Replicas, id) })
}

func (m *Manager) removeTopic(id ids.UUID) {
	m.mu.Lock()
	var gone []*partition
	for tp, p := range m.partitions {
		if tp.TopicID == id {
			gone = append(gone, p)
			delete(m.partitions, tp)
		}
	}
	m.mu.Unlock()
	m.closeAll(gone)
}

// closeAll ends partitions in the background: the caller may be the observer, which must
// not wait for anybody.
func (m *Manager) closeAll(gone []*partition) {
	for _, p := range gone {
		p.step(func(now time.Time) { p.machine.Metadata(now, leading.View{Leader: lineage.Undefined}) })
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			p.close()
		}()
	}
}

// update hands the metadata log's view of a partition to its machine.
func (m *Manager) update(img *metadata.Partition) {
	tp := ids.TopicPartition{TopicID: img.TopicID, Partition: img.Partition}
	assigned := slices.Contains(img.Replicas, m.cfg.ID)
	m.mu.Lock()
	p := m.partitions[tp]
	switch {
	case p == nil && !assigned:
		m.mu.Unlock()
		return
	case p == nil:
		if m.ctx.Err() != nil {
			m.mu.Unlock()
			return
		}
		p = newPartition(m, tp, img.Topic)
		m.partitions[tp] = p
	case !assigned:
		delete(m.partitions, tp)
		m.mu.Unlock()
		m.closeAll([]*partition{p})
		return
	}
	m.mu.Unlock()
	v, segment := m.view(img), m.setting(img.Topic, "segment.bytes", "log.segment.bytes", m.cfg.Segment)
	p.step(func(now time.Time) {
		p.segment = segment
		p.machine.Metadata(now, v)
	})
}

func (m *Manager) view(img *metadata.Partition) leading.View {
	v := leading.View{
		Leader: img.Leader, LeaderEpoch: img.LeaderEpoch, PartitionEpoch: img.PartitionEpoch,
		Replicas: img.Replicas, ISR: img.ISR, ELR: img.ELR, LastRealISR: img.LastRealISR,
		Recovering: img.RecoveryState != 0,
		MinISR:     m.minISR(img.Topic),
		Brokers:    make(map[int32]leading.BrokerView, len(img.Replicas)),
	}
	if !m.registered() {
		// Whoever the metadata log means is a former process with our id. Leading under an
		// epoch that it led would make (offset, epoch) ambiguous: the registration of this
		// process ends that epoch, and only what comes after is ours (B5).
		v.Leader = lineage.Undefined
	}
	list := m.image.TopicSetting(img.Topic, "follower.replication.throttled.replicas")
	for _, id := range img.Replicas {
		if b, ok := m.image.Broker(id); ok {
			v.Brokers[id] = leading.BrokerView{Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.ShuttingDown, Excused: !img.Online(b) || throttled(list, img.Partition, id)}
		}
	}
	return v
}

// throttled tells whether a list names a follower's replication of a partition as throttled
// (KIP-73): then it fetches seldom, as tools that move partitions ask for.
func throttled(list string, partition, id int32) bool {
	if list == "" || list == "*" {
		return list != ""
	}
	return slices.Contains(strings.Split(list, ","), fmt.Sprintf("%d:%d", partition, id))
}

// registered tells whether the image shows the registration of this very process.
func (m *Manager) registered() bool {
	b, ok := m.image.Broker(m.cfg.ID)
	return ok && b.Epoch == m.broker.Epoch()
}

// minISR is the topic's min.insync.replicas as the metadata log knows it. The write lock
// sets it on every mirror topic, so a default in a broker's file does not matter here.
func (m *Manager) minISR(topic string) int {
	return m.setting(topic, "min.insync.replicas", "min.insync.replicas", 1)
}

// setting is a topic's own value of a config, else the cluster-wide dynamic one, else def.
func (m *Manager) setting(topic, key, brokerKey string, def int) int {
	if n, err := strconv.Atoi(m.image.TopicSetting(topic, key)); err == nil {
		return n
	}
	if n, err := strconv.Atoi(m.image.BrokerDefault(brokerKey)); err == nil {
		return n
	}
	return def
}

// ownMinISR is what min.insync.replicas is without the virtual replicas that the write lock
// adds.
func (m *Manager) ownMinISR(tp ids.TopicPartition, topic string) int {
	if mt, ok := m.state.MirrorTopic(tp.TopicID); ok && mt.MinISR > 0 {
		return mt.MinISR
	}
	n := m.minISR(topic)
	if img := m.image.Partition(tp); img != nil {
		n -= len(m.cfg.Virtual.Only(img.Replicas))
	}
	return max(n, 1)
}

// OwnMinISR is a topic's min.insync.replicas as it would be without the mirror.
func (m *Manager) OwnMinISR(tp ids.TopicPartition, topic string) int { return m.ownMinISR(tp, topic) }

// stateChanged hands on what is wanted of the topics led here.
func (m *Manager) stateChanged() {
	for _, p := range m.all() {
		mt, ok := m.state.MirrorTopic(p.tp.TopicID)
		if !ok {
			continue
		}
		p.step(func(now time.Time) {
			if p.foreign {
				p.oursLocked(now)
			}
			// Before the state was read at a takeover, that reads it anew.
			if p.mirror != (MirrorTopic{}) && p.machine.Status().Phase != leading.Off && p.machine.Status().Phase != leading.ReadingState {
				p.topicLocked(now, mt)
			}
		})
	}
	m.pokeFollower()
}

// PartitionStatus is what a leader knows of its partition, for describe.
type PartitionStatus struct {
	TP          ids.TopicPartition
	Topic       string
	Mirror      string
	LeaderEpoch int32
	Leading     bool // the takeover is done
	Detail      string
	// SourceOffset is the source's high watermark, DestinationOffset the mirror's log
	// end, -1 if not known.
	SourceOffset, DestinationOffset int64
	SourceLogStart                  int64
	HighWatermark                   int64
	LagMs                           int64 // 0 when the mirror has all that the source shows, -1 if not known
	ErrorMessage                    string
}

// Status returns the partitions led here, by topic and partition.
func (m *Manager) Status() []PartitionStatus {
	var out []PartitionStatus
	for _, p := range m.all() {
		p.mu.Lock()
		st := p.machine.Status()
		s := PartitionStatus{
			TP: p.tp, Topic: p.topic, Mirror: p.mirror.Mirror, LeaderEpoch: st.Epoch, Leading: st.Phase == leading.Leading,
			SourceOffset: p.sourceHW, DestinationOffset: -1, SourceLogStart: p.sourceStart, HighWatermark: st.HighWatermark,
			LagMs: -1, ErrorMessage: cmp.Or(p.failMessage, p.silentLocked()),
		}
		if s.Leading {
			s.DestinationOffset = p.machine.LogEnd()
			if p.sourceHW >= 0 && s.DestinationOffset >= p.sourceHW {
				s.LagMs = 0
			} else if !p.caughtUp.IsZero() {
				s.LagMs = p.m.now().Sub(p.caughtUp).Milliseconds()
			}
		}
		switch {
		case st.Waiting:
			s.Detail = DetailWaiting
			if s.ErrorMessage == "" {
				s.ErrorMessage = p.waitsForLocked()
			}
		case st.Phase == leading.Probing:
			s.Detail = DetailSourceUnavailable
		case st.Quiesced:
			s.Detail = DetailQuiesced
		}
		p.mu.Unlock()
		if st.Phase != leading.Off {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.TP.Partition, b.TP.Partition))
	})
	return out
}

// EndOffset answers a client's OffsetForLeaderEpoch from the lineage. ready is false when
// the leader does not know yet what real replicas have. Where another sidecar leads, the newest epoch
// is open: its end is math.MaxInt64, which no position is above.
func (m *Manager) EndOffset(tp ids.TopicPartition, epoch int32) (e int32, end int64, ready bool) {
	if p := m.partition(tp); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.machine.Status().Phase != leading.Off {
			return p.machine.ClientEndOffsetFor(epoch)
		}
	}
	mt, ok := m.state.MirrorTopic(tp.TopicID)
	if !ok {
		return lineage.Undefined, lineage.Undefined, false
	}
	img := m.image.Partition(tp)
	_, chain := m.state.Lineage(mt.Mirror, tp).Newest()
	if img == nil || len(chain) == 0 {
		return lineage.Undefined, lineage.Undefined, img != nil
	}
	e, end = chain.EndOffsetFor(epoch, 1<<63-1)
	return e, end, true
}
