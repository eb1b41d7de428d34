package offsets

import (
	"cmp"
	"slices"
	"strings"
)

// Partition is a partition by its topic's name, as offsets are committed for.
type Partition struct {
	Topic     string
	Partition int32
}

// Compare orders partitions by topic and number.
func (p Partition) Compare(o Partition) int {
	return cmp.Or(strings.Compare(p.Topic, o.Topic), cmp.Compare(p.Partition, o.Partition))
}

// Position is what a group has committed for a partition.
type Position struct {
	At       int64
	Metadata string
}

// Type is what kind of group one is.
type Type string

// The types of groups. Those that a broker does not tell the type of are classic: it is older
// than the others.
const (
	Classic  Type = "classic"
	Consumer Type = "consumer"
	Share    Type = "share"
	Streams  Type = "streams"
)

// Group is one group of a cluster.
type Group struct {
	Name string
	Type Type
	// State is Kafka's name of it; empty if the broker is too old to tell.
	State string
	// ProtocolType is what its members agreed on; empty for a classic group that never had any, and
	// only ever got its offsets from outside.
	ProtocolType string
	// Positions are what it has committed, once they were fetched.
	Positions map[Partition]Position
}

// Active tells whether it has members, or is about to: nobody else may commit for it then.
func (g Group) Active() bool {
	switch strings.ToLower(g.State) {
	case "", "empty", "dead":
		return false
	}
	return true
}

// Range is what can be committed for a partition: from the start of its log to its high
// watermark, both included.
type Range struct{ Start, End int64 }

// Sorted returns the partitions of a map in order.
func Sorted[V any](m map[Partition]V) []Partition {
	out := make([]Partition, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, Partition.Compare)
	return out
}
