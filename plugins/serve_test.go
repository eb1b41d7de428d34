package plugins

import (
	"testing"
	"time"
)

// A plugin ends with its sidecar, also where the operating system does not see to that.
func TestOrphaned(t *testing.T) {
	t.Parallel()
	ticks, served := make(chan time.Time, 3), make(chan struct{})
	parents := []int{7, 7, 7, 1}
	parent := func() int {
		p := parents[0]
		parents = parents[1:]
		return p
	}
	for range 3 {
		ticks <- time.Time{}
	}
	if !orphaned(ticks, parent, served) || len(parents) != 0 {
		t.Errorf("left: %v", parents)
	}
	close(served)
	if orphaned(nil, func() int { return 7 }, served) {
		t.Error("it has ended by itself")
	}
}
