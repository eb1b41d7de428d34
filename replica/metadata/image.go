package metadata

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Image is what the metadata log says, up to Offset. Any number of goroutines may
// read it while an Observer moves it forward; each method sees the log between two
// batches, never in the middle of one.
type Image struct {
	virtual ids.Virtual // never changes

	mu sync.RWMutex // guards the following
	st *state
	// moved is closed, and replaced, after each applied batch: it wakes Wait.
	moved chan struct{}

	subsMu  sync.Mutex // guards the following
	subs    map[int]func(Delta)
	nextSub int
}

// NewImage returns an empty image. v tells real brokers from virtual ones, which
// Partition.LastRealISR needs.
func NewImage(v ids.Virtual) *Image {
	return &Image{
		virtual: v,
		st:      newState(v),
		moved:   make(chan struct{}),
		subs:    make(map[int]func(Delta)),
	}
}

// Offset returns the offset of the last applied record, -1 before any.
func (i *Image) Offset() int64 {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.st.offset
}

// Partition returns a partition, nil if there is none.
func (i *Image) Partition(tp ids.TopicPartition) *Partition {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if t := i.st.topics[tp.TopicID]; t != nil {
		return t.partition(tp.Partition)
	}
	return nil
}

// Topic returns the id of the topic of this name.
func (i *Image) Topic(name string) (ids.UUID, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	id, ok := i.st.names[name]
	return id, ok
}

// TopicName returns the name of the topic with this id.
func (i *Image) TopicName(id ids.UUID) (string, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if t := i.st.topics[id]; t != nil {
		return t.name, true
	}
	return "", false
}

// TopicPartitions returns the partitions of a topic, ascending; none if the topic is
// not known.
func (i *Image) TopicPartitions(id ids.UUID) []*Partition {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if t := i.st.topics[id]; t != nil {
		return slices.Clone(t.partitions)
	}
	return nil
}

// AllPartitions returns every partition, by topic name and then ascending.
func (i *Image) AllPartitions() []*Partition {
	i.mu.RLock()
	defer i.mu.RUnlock()
	out := make([]*Partition, 0, i.st.partitions)
	for _, name := range slices.Sorted(maps.Keys(i.st.names)) {
		out = append(out, i.st.topics[i.st.names[name]].partitions...)
	}
	return out
}

// Broker returns the registration of a broker, real or virtual.
func (i *Image) Broker(id int32) (Broker, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	b, ok := i.st.brokers[id]
	return b, ok
}

// Brokers returns all registrations, ascending by id.
func (i *Image) Brokers() []Broker {
	i.mu.RLock()
	defer i.mu.RUnlock()
	out := make([]Broker, 0, len(i.st.brokers))
	for _, id := range slices.Sorted(maps.Keys(i.st.brokers)) {
		out = append(out, i.st.brokers[id])
	}
	return out
}

// TopicConfig returns a copy of the dynamic configs of a topic.
func (i *Image) TopicConfig(name string) map[string]string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return cloneConfig(i.st.topicConfigs[name])
}

// TopicSetting returns one dynamic config of a topic, "" if it has none. Unlike TopicConfig it
// copies nothing.
func (i *Image) TopicSetting(name, key string) string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.st.topicConfigs[name][key]
}

// BrokerDefaultConfig returns a copy of the dynamic cluster-wide broker defaults.
func (i *Image) BrokerDefaultConfig() map[string]string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return cloneConfig(i.st.brokerDefaults)
}

// BrokerDefault returns one dynamic cluster-wide broker default, "" if there is none.
func (i *Image) BrokerDefault(key string) string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.st.brokerDefaults[key]
}

// FeatureLevel returns the finalized level of a feature; false if it has none.
func (i *Image) FeatureLevel(name string) (int16, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	l, ok := i.st.features[name]
	return l, ok
}

// Subscribe calls fn after each applied batch or snapshot, on the observer's
// goroutine, with the image already updated and no lock held: fn may read the image
// but holds up the log while it runs. Batches that change nothing an Image holds are
// not reported. fn may still be running, for the last time, when cancel returns.
func (i *Image) Subscribe(fn func(Delta)) (cancel func()) {
	i.subsMu.Lock()
	defer i.subsMu.Unlock()
	n := i.nextSub
	i.nextSub++
	i.subs[n] = fn
	return func() {
		i.subsMu.Lock()
		defer i.subsMu.Unlock()
		delete(i.subs, n)
	}
}

// Wait returns nil as soon as cond holds, which it evaluates at once and again after
// each applied batch, on the caller's goroutine; or the error of ctx.
func (i *Image) Wait(ctx context.Context, cond func() bool) error {
	for {
		// The channel is taken before cond looks, so no move is missed between the two.
		i.mu.RLock()
		moved := i.moved
		i.mu.RUnlock()
		if cond() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apply runs change under the write lock, then wakes waiters and tells subscribers what
// it changed. After an error the image is not to be trusted, and nobody is told.
func (i *Image) apply(change func(*state, *changes) error) error {
	c := newChanges()
	i.mu.Lock()
	err := change(i.st, c)
	i.wake()
	i.mu.Unlock()
	if err == nil {
		i.publish(c)
	}
	return err
}

// replace puts another state in the place of the image's, and publishes what differs.
func (i *Image) replace(next *state) {
	c := newChanges()
	i.mu.Lock()
	diff(i.st, next, c)
	i.st = next
	i.wake()
	i.mu.Unlock()
	i.publish(c)
}

func (i *Image) wake() {
	close(i.moved)
	i.moved = make(chan struct{})
}

func (i *Image) publish(c *changes) {
	d, some := c.delta()
	if !some {
		return
	}
	i.subsMu.Lock()
	fns := make([]func(Delta), 0, len(i.subs))
	for _, n := range slices.Sorted(maps.Keys(i.subs)) {
		fns = append(fns, i.subs[n])
	}
	i.subsMu.Unlock()
	for _, fn := range fns {
		fn(d)
	}
}

func cloneConfig(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	maps.Copy(out, m)
	return out
}
