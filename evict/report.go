package evict

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Report says what an eviction found, did and left. Its JSON is read by scripts: fields may be
// added, none is renamed or removed.
type Report struct {
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dryRun"`
	One     *int32 `json:"broker,omitempty"` // the only virtual broker that was to be evicted
	// Topics are the mirror topics that were not ordinary topics at the beginning.
	Topics []Topic `json:"topics"`
	// Partitions are those of topics that no mirror has, with virtual replicas.
	Partitions []Partition `json:"partitions"`
	Brokers    []Broker    `json:"brokers"`
	// Left says in words what is still to be done, and by whom. Empty after a whole success.
	Left []string `json:"left"`
}

// Topic is a mirror topic.
type Topic struct {
	Mirror string `json:"mirror"`
	Topic  string `json:"topic"`
	// State is TO_STOP in a dry run, STOPPED or STOPPING.
	State string `json:"state"`
	Waits string `json:"waits,omitempty"`
}

// Partition is one of a topic that no mirror has.
type Partition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"` // as they were
	// Locked: the topic has the write lock of a mirror that nobody knows of any more.
	Locked bool `json:"locked,omitempty"`
	// State is TO_REMOVE in a dry run, REMOVED or ASSIGNED.
	State string `json:"state"`
}

// Broker is a virtual broker.
type Broker struct {
	ID   int32 `json:"id"`
	Home int32 `json:"home"` // the broker beside its sidecar
	// State is TO_UNREGISTER in a dry run, UNREGISTERED or REGISTERED.
	State string `json:"state"`
	Waits string `json:"waits,omitempty"`
}

// States in a report.
const (
	ToStop, Stopped, Stopping              = "TO_STOP", "STOPPED", "STOPPING"
	ToRemove, Removed, Assigned            = "TO_REMOVE", "REMOVED", "ASSIGNED"
	ToUnregister, Unregistered, Registered = "TO_UNREGISTER", "UNREGISTERED", "REGISTERED"
)

// Done tells whether nothing is left.
func (r *Report) Done() bool { return len(r.Left) == 0 }

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "cluster %s\n", r.Cluster)
	for _, t := range r.Topics {
		fmt.Fprintf(w, "mirror %s, topic %s: %s\n", t.Mirror, t.Topic, words(t.State))
	}
	for _, p := range r.Partitions {
		lock := ""
		if p.Locked {
			lock = " (of a mirror that is not on record; its min.insync.replicas and max.message.bytes become the cluster's)"
		}
		fmt.Fprintf(w, "partition %s-%d%s: %s\n", p.Topic, p.Partition, lock, words(p.State))
	}
	for _, b := range r.Brokers {
		fmt.Fprintf(w, "virtual broker %d: %s\n", b.ID, words(b.State))
	}
	switch {
	case len(r.Left) > 0:
		fmt.Fprintln(w, "left to do:")
		for _, l := range r.Left {
			fmt.Fprintf(w, "  %s\n", l)
		}
	case r.DryRun:
		fmt.Fprintln(w, "nothing was changed")
	case len(r.Topics)+len(r.Partitions)+len(r.Brokers) == 0 && r.One == nil:
		fmt.Fprintln(w, "there are no virtual brokers here, and nothing is mirrored: nothing to do")
	case r.One != nil:
		fmt.Fprintf(w, "nothing is left of virtual broker %d\n", *r.One)
	default:
		fmt.Fprintln(w, "nothing is left: the cluster is as without mirrors")
	}
}

func words(state string) string {
	switch state {
	case ToStop:
		return "would be stopped and handed back to real brokers"
	case Stopped:
		return "stopped, an ordinary topic led by real brokers"
	case Stopping:
		return "being stopped"
	case ToRemove:
		return "virtual replicas would be removed"
	case Removed:
		return "virtual replicas removed"
	case Assigned:
		return "still has virtual replicas"
	case ToUnregister:
		return "would be unregistered"
	case Unregistered:
		return "unregistered"
	case Registered:
		return "still registered"
	}
	return strings.ToLower(state)
}

// leave notes what is still to be done, each thing once.
func (r *Report) leave(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Left, text) {
		r.Left = append(r.Left, text)
	}
}
