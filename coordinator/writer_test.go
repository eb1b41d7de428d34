package coordinator

import (
	"errors"
	"testing"
)

// TestWriteOfATenureThatEnded: a state partition that this sidecar gives up in the middle of a write
// is for another one to write to, or for this one anew; that is no answer for a client.
func TestWriteOfATenureThatEnded(t *testing.T) {
	r := newRig(t)
	p, ok := r.store.PartitionOf("m")
	if !ok {
		t.Fatal("no state topic")
	}
	r.store.writers.get(p).Close()
	err := r.store.Put(t.Context(), record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source"}})
	if !errors.Is(err, ErrNotCoordinator) {
		t.Errorf("the write ends with %v", err)
	}
	if r.store.Holds(p) {
		t.Error("the partition is held still")
	}
}
