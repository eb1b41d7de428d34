package proxy

import (
	"slices"
	"sync"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Leaders chooses the real replica that clients are told leads a mirror partition, and
// keeps the choice for the life of a leader epoch: some clients do not follow a leader
// that moves within one (facts/design-review.md S7c).
//
// It chooses when the metadata log shows the epoch, by the order of the log, so that
// all proxies choose the same; one that starts later, from a snapshot, may choose
// another in-sync replica, which serves as well.
type Leaders struct {
	view    View
	virtual ids.Virtual
	cancel  func()

	mu sync.RWMutex // guards the following
	// topics holds the partitions that have a virtual replica.
	topics map[ids.UUID]map[int32]*shown
	// behind holds those that a real broker must not answer clients for, see behind.go.
	behind map[int32]*behind
}

// shown is the leader shown for one epoch.
type shown struct {
	epoch  int32
	leader int32 // -1 before the first choice
}

// NewLeaders follows view until Close.
func NewLeaders(view View, virtual ids.Virtual) *Leaders {
	l := &Leaders{view: view, virtual: virtual, topics: make(map[ids.UUID]map[int32]*shown), behind: make(map[int32]*behind)}
	// Subscribed first, so that no change is missed; applying one twice is harmless.
	l.cancel = view.Subscribe(l.apply)
	for _, p := range view.AllPartitions() {
		l.update(p)
	}
	return l
}

// Close ends the following of the view.
func (l *Leaders) Close() { l.cancel() }

func (l *Leaders) apply(d metadata.Delta) {
	for _, tp := range d.Partitions {
		if p := l.view.Partition(tp); p != nil {
			l.update(p)
		}
	}
	if len(d.RemovedTopics) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range d.RemovedTopics {
		for partition := range l.topics[id] {
			l.keepUp(ids.TopicPartition{TopicID: id, Partition: partition}, nil)
		}
		delete(l.topics, id)
	}
}

func (l *Leaders) update(p *metadata.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepUp(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}, p)
	if !slices.ContainsFunc(p.Replicas, l.virtual.Is) {
		if t := l.topics[p.TopicID]; t != nil {
			delete(t, p.Partition)
			if len(t) == 0 {
				delete(l.topics, p.TopicID)
			}
		}
		return
	}
	t := l.topics[p.TopicID]
	if t == nil {
		t = make(map[int32]*shown)
		l.topics[p.TopicID] = t
	}
	if t[p.Partition] == nil {
		t[p.Partition] = &shown{epoch: -1, leader: -1}
	}
	if l.virtual.Is(p.Leader) {
		l.choose(t[p.Partition], p.LeaderEpoch, p.Replicas, p.ISR)
	}
}

// assigned tells whether a partition has a virtual replica.
func (l *Leaders) assigned(tp ids.TopicPartition) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.topics[tp.TopicID][tp.Partition]
	return ok
}

// none tells whether no partition at all has a virtual replica.
func (l *Leaders) none() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.topics) == 0
}

// Shown returns the leader to show for an epoch of a partition that a virtual broker
// leads: the one shown before, while it is in sync, else the first real in-sync replica
// in the order of the assignment. ok is false if no real replica is in sync.
func (l *Leaders) Shown(tp ids.TopicPartition, epoch int32, replicas, isr []int32) (leader int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.topics[tp.TopicID][tp.Partition]
	if s == nil || epoch < s.epoch {
		// Not in the metadata log yet, or history there: nothing to remember.
		s = &shown{epoch: -1, leader: -1}
	}
	l.choose(s, epoch, replicas, isr)
	return s.leader, s.leader >= 0
}

func (l *Leaders) choose(s *shown, epoch int32, replicas, isr []int32) {
	if s.epoch == epoch && s.leader >= 0 && slices.Contains(isr, s.leader) {
		return
	}
	s.epoch, s.leader = epoch, -1
	for _, r := range replicas {
		if !l.virtual.Is(r) && slices.Contains(isr, r) {
			s.leader = r
			return
		}
	}
}
