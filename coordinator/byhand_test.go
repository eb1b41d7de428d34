package coordinator

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestHandedBackByHand: what was handed back with Kafka's own tools stays so, since its users may
// have written to it. Without its virtual replicas but with the write lock it is taken back.
func TestHandedBackByHand(t *testing.T) {
	for _, tc := range []struct {
		name   string
		locked bool
		state  State
		left   bool // a partition that still has its virtual replicas
		want   State
	}{
		{"by hand", false, Mirroring, false, Stopped},
		{"by hand while it was paused", false, Paused, false, Stopped},
		{"the lock is still on", true, Mirroring, false, Mirroring},
		{"only one of two partitions", false, Mirroring, true, Mirroring},
		{"a start that has not come to the lock", false, Unknown, false, Mirroring},
		{"a new start", false, Stopped, false, Mirroring},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			desired := Mirroring
			if tc.state == Paused {
				desired = Paused
			}
			c := r.mirrorTopic("c", desired, tc.state, tc.state)
			r.mu.Lock()
			r.configs["c"] = map[string]string{"retention.ms": "7"}
			if tc.locked {
				r.configs["c"][configMaxMessageBytes] = "0"
			}
			r.mu.Unlock()
			r.change(c, func(p *metadata.Partition) {
				if p.Partition == 0 || !tc.left {
					p.Replicas, p.ISR, p.Leader = []int32{1, 2}, []int32{1, 2}, 1
				}
			})
			if _, err := r.rec.mirrorTopic(t.Context(), mirrorT(r), r.topicT("c")); err != nil && tc.want == Stopped {
				t.Fatal(err)
			}
			got := r.topicT("c")
			if (got.Desired == Stopped) != (tc.want == Stopped) {
				t.Errorf("wanted %s", got.Desired)
			}
			if n := r.asked(kmsg.NewPtrAlterPartitionAssignmentsRequest().Key()) + r.asked(kmsg.NewPtrIncrementalAlterConfigsRequest().Key()); tc.want == Stopped && n != 0 {
				t.Errorf("%d changes of a topic that is its users'", n)
			}
		})
	}
}

func mirrorT(r *rig) Mirror {
	m, _ := r.view.Mirror("m")
	return m
}
