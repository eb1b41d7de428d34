package coordinator

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// A real broker that shall lead before a hand-back is elected as the first replica. When the
// one that came first has left the ISR since, the same replicas are asked for in another
// order, or nobody can be elected for ever.
func TestAskedForInAnOrderThatCanBeElected(t *testing.T) {
	pending := func(isr ...int32) *metadata.Partition {
		return &metadata.Partition{Replicas: []int32{1, 2, 10001, 10002}, Removing: []int32{10001, 10002}, ISR: isr, Leader: 10002}
	}
	first := handBack{realFirst: true, target: []int32{2, 1}}
	for _, c := range []struct {
		name string
		p    *metadata.Partition
		h    handBack
		want bool
	}{
		{"the first is in sync", pending(10002, 1), first, true},
		{"the first is not", pending(10002, 2), first, false},
		{"nobody is to be elected", pending(10002, 2), handBack{ready: true, target: []int32{2, 1}}, true},
		{"others are asked for", pending(10002, 1), handBack{realFirst: true, target: []int32{1}}, false},
		{"one is being added", &metadata.Partition{Replicas: []int32{1, 2, 10001}, Adding: []int32{2}, Removing: []int32{10001}, ISR: []int32{10001, 1}}, first, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := askedFor(c.p, c.h); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestRefusedStartInAnOrderThatCanBeElected: the hand-back of a refused start asks anew like a
// stop when the first real replica has left the ISR since.
func TestRefusedStartInAnOrderThatCanBeElected(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, LogTruncation)
	r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}, value: PartitionState{State: Failed, Previous: LogTruncation, LeaderEpoch: 3, Detail: DetailConsentNeeded}})
	r.change(topic, func(p *metadata.Partition) {
		p.Replicas, p.Removing, p.ISR, p.Leader = []int32{1, 2, 10001, 10002}, []int32{10001, 10002}, []int32{10001, 2}, 10001
	})
	if _, err := r.rec.handRefusedBack(t.Context(), r.topicT("t")); err != nil {
		t.Fatal(err)
	}
	if got := r.reassigned(); len(got) != 1 || !slices.Equal(virtual.Real(got[0]), []int32{2, 1}) {
		t.Errorf("asked for %v", got)
	}
}
