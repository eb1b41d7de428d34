package coordinator

import (
	"testing"
)

// A topic whose stop comes while it is being created is described as being stopped, though it has no
// partitions that could say so.
func TestDescribeOfATopicOnItsWay(t *testing.T) {
	r := newRig(t)
	topic := Topic{Mirror: "m", Name: "t", Desired: Stopped, Wanted: map[string]*string{configMinISR: nil}}
	described := func() bool {
		r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
		d := r.describeMirror("m", nil, false)
		if len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 0 {
			t.Fatalf("described: %+v", d.Topics)
		}
		return d.Topics[0].BeingStopped
	}
	if !described() {
		t.Error("with the lock taken it is not said to be being stopped")
	}
	topic.Wanted = nil
	if described() {
		t.Error("with nothing left to undo it is said to be being stopped")
	}
	topic.Desired, topic.Wanted = Mirroring, map[string]*string{configMinISR: nil}
	if described() {
		t.Error("wanted, it is said to be being stopped")
	}
}
