package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestOwnMinISR: what a topic's own minimum is known to be without asking anybody.
func TestOwnMinISR(t *testing.T) {
	r := newRig(t)
	two := "2"
	own, none := Topic{Wanted: map[string]*string{configMinISR: &two}}, Topic{Wanted: map[string]*string{configMinISR: nil}}
	if got := r.ownMinISR(own); got != 2 {
		t.Errorf("a topic with its own: %d", got)
	}
	if got := r.ownMinISR(none); got != 0 {
		t.Errorf("a topic without, and no default is known: %d", got)
	}
	r.deps.Destination.known.Store(&map[string]string{configMinISR: "3"})
	if got := r.ownMinISR(none); got != 3 {
		t.Errorf("a topic without: %d", got)
	}
	if got := r.ownMinISR(own); got != 2 {
		t.Errorf("a topic with its own does not take the default: %d", got)
	}
}

// TestExposes: where nothing keeps clients from writing to a real leader, min.insync.replicas hides
// what they write, and is not lowered before a virtual broker leads (R21).
func TestExposes(t *testing.T) {
	real := &metadata.Partition{Replicas: []int32{10001, 1, 2}, Leader: 1}
	virtual := &metadata.Partition{Replicas: []int32{10001, 1, 2}, Leader: 10001}
	handedBack := &metadata.Partition{Replicas: []int32{1, 2}, Leader: 1}
	none := &metadata.Partition{Replicas: []int32{10001, 1, 2}, Leader: -1}
	for _, c := range []struct {
		name       string
		parts      []*metadata.Partition
		have, want string
		exposes    bool
	}{
		{"lower where a real broker leads", []*metadata.Partition{virtual, real}, "3", "2", true},
		{"higher", []*metadata.Partition{real}, "3", "4", false},
		{"the same", []*metadata.Partition{real}, "3", "3", false},
		{"a virtual broker leads", []*metadata.Partition{virtual}, "3", "2", false},
		{"nobody leads", []*metadata.Partition{none}, "3", "2", false},
		{"handed back", []*metadata.Partition{handedBack}, "3", "2", false},
		{"never set", []*metadata.Partition{real}, "", "2", false},
	} {
		if got := exposes(10000, c.parts, c.have, c.want); got != c.exposes {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
