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
		never  bool // it is not on record that it ever had the lock
	}{
		{name: "by hand", state: Mirroring, want: Stopped},
		{name: "by hand while it was paused", state: Paused, want: Stopped},
		{name: "by hand while it had failed", state: Failed, want: Stopped},
		{name: "the lock is still on", locked: true, state: Mirroring, want: Mirroring},
		{name: "only one of two partitions", state: Mirroring, left: true, want: Mirroring},
		{name: "a start that has not come to the lock", state: Unknown, want: Mirroring, never: true},
		{name: "a recovery that has not come to the lock", state: LogTruncation, want: Mirroring},
		{name: "a recovery of what was mirrored before its records were refused", state: Mirroring, want: Mirroring, never: true},
		{name: "a new start", state: Stopped, want: Mirroring, never: true},
		{name: "a stop of which the topic's record is lost", state: Stopped, want: Stopped},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			desired := Mirroring
			if tc.state == Paused {
				desired = Paused
			}
			c := r.mirrorTopic("c", desired, tc.state, tc.state)
			c.Locked = !tc.never
			r.put(record{kind: kindTopic, topic: topicKey{"m", "c"}, value: c})
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

// TestHandedBackWhereTheLockIsRefused: a topic whose write lock a policy refuses never had it, and
// without its virtual replicas it is taken back, also by the next coordinator. One that had it is
// known by that, whoever looks.
func TestHandedBackWhereTheLockIsRefused(t *testing.T) {
	for name, refused := range map[string]bool{"locked": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if refused {
				r.policy = []string{configMaxMessageBytes}
			}
			topic := r.mirrorTopic("t", Mirroring, Mirroring)
			one := "1"
			topic.Wanted = map[string]*string{configMinISR: &one} // no default is asked for
			r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
			step := func() {
				t.Helper()
				if _, err := r.rec.mirrorTopic(t.Context(), mirrorT(r), r.topicT("t")); err != nil {
					t.Fatal(err)
				}
			}
			step()
			if got := r.topicT("t").Locked; got == refused {
				t.Errorf("on record as locked: %v", got)
			}
			r.mu.Lock()
			r.configs["t"] = map[string]string{}
			r.mu.Unlock()
			r.change(topic, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{1, 2}, []int32{1, 2}, 1 })
			r.rec = NewReconciler(r.Coordinator, r.rec.log) // another coordinator, who has refused nothing yet
			step()
			if got := r.topicT("t").Desired; (got == Stopped) == refused {
				t.Errorf("wanted %s", got)
			}
			if n := len(virtual.Only(r.img.TopicPartitions(topic.TopicID)[0].Replicas)); (n == 2) != refused {
				t.Errorf("%d virtual replicas", n)
			}
		})
	}
}

// TestLockThatARefusalEnds: a policy that comes later makes a topic one that has no lock.
func TestLockThatARefusalEnds(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	topic.Locked = true
	r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
	note := func() bool {
		t.Helper()
		if _, err := r.rec.noteLock(t.Context(), r.topicT("t")); err != nil {
			t.Fatal(err)
		}
		return r.topicT("t").Locked
	}
	if !note() {
		t.Error("it is not known that the lock is refused, and yet it is noted")
	}
	r.rec.lockRefused(topicKey{"m", "t"}, unlocked{keys: []string{configMinISR}})
	if !note() {
		t.Error("another part of it is refused")
	}
	r.rec.lockRefused(topicKey{"m", "t"}, unlocked{keys: []string{configMaxMessageBytes}})
	if note() {
		t.Error("it has no lock and cannot have one, and is noted as locked")
	}
	r.lockT("t")
	if !note() {
		t.Error("it has the lock")
	}
}

func mirrorT(r *rig) Mirror {
	m, _ := r.view.Mirror("m")
	return m
}
