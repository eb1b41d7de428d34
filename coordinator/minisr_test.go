package coordinator

import "testing"

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
