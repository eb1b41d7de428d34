package metadata

import (
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// SavedTopic is what of a topic another process can begin with before it has read the log: that
// it is there, and the partitions of those that have virtual replicas. Of all others nothing
// but the name is needed to know that they are ordinary topics.
type SavedTopic struct {
	Name       string       `json:"name"`
	ID         ids.UUID     `json:"id"`
	Partitions []*Partition `json:"partitions,omitempty"`
	// Held says that a partition of it was read only although that had no virtual replicas.
	Held bool `json:"held,omitempty"`
}

// Save returns what Restore takes, in the order of names. held is asked for the partitions of each
// topic that have no virtual replicas: those that have some are read only for everybody to see.
func (i *Image) Save(held func(partitions []*Partition) bool) []SavedTopic {
	i.mu.RLock()
	out := make([]SavedTopic, 0, len(i.st.topics))
	for id, t := range i.st.topics {
		// The partitions themselves are never changed.
		out = append(out, SavedTopic{Name: t.name, ID: id, Partitions: slices.Clone(t.partitions)})
	}
	i.mu.RUnlock()
	slices.SortFunc(out, func(a, b SavedTopic) int { return strings.Compare(a.Name, b.Name) })
	virtual := func(p *Partition) bool { return slices.ContainsFunc(p.Replicas, i.virtual.Is) }
	for n := range out {
		t := &out[n]
		bare := slices.DeleteFunc(slices.Clone(t.Partitions), virtual)
		t.Held = held(bare)
		if len(bare) == len(t.Partitions) {
			t.Partitions = nil
		}
	}
	return out
}

// Restore lets the image say what was saved, and of brokers, until an observer has read the
// log. Offset tells that nothing has been read.
func (i *Image) Restore(topics []SavedTopic, brokers ...Broker) {
	next := newState(i.virtual)
	for _, t := range topics {
		next.addTopic(t.ID, t.Name)
		next.topics[t.ID].partitions = t.Partitions
		next.partitions += len(t.Partitions)
	}
	for _, b := range brokers {
		next.brokers[b.ID] = b
	}
	i.replace(next)
}
