package proxy

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A mistake in reading what a peer sent costs that peer its connection, and nobody else theirs. A
// mistake in what leads mirror partitions, or in what knows who does, ends the process: what it holds may be half
// changed then, or its locks not given back, and a sidecar that goes on leading by it is worse than one
// that has gone, whose partitions others take over.

// modulePath is before the name of each function of this project.
const modulePath = "github.com/cluster-mirroring/mirror-sidecar/"

// statePackages hold what must not go on after a panic in it, with their sub-packages.
func statePackages() []string { return []string{"replica", "coordinator", "syncs", "fetcher"} }

// codecs are functions of statePackages that decode what a peer sent, and encode what it is answered, before and
// after they touch anything.
func codecs() []string {
	return []string{"coordinator.(*Coordinator).Handle", "coordinator.NotYet"}
}

// guarded runs a goroutine of the connection. A panic becomes the reason why the connection ends, unless it
// was in what all connections stand on.
func (c *conn) guarded(run func() error) (err error) {
	ended := false
	defer func() {
		// Without recover the process ends with the stack of where it happened.
		if ended || touchesState(frames()) {
			return
		}
		value := recover()
		err = because(reasonPanic, "panic: %v", value)
		if others, ok := c.p.panics.allow(time.Now()); ok {
			c.log.Error("a mistake in the sidecar ended a connection, please report it", "panic", value, "not logged before", others, "stack", string(debug.Stack()))
		}
	}()
	err = run()
	ended = true
	return err
}

// frames returns the names of the functions that have been called, the last one first.
func frames() []string {
	pcs := make([]uintptr, 256)
	pcs = pcs[:runtime.Callers(2, pcs)]
	var out []string
	for each := runtime.CallersFrames(pcs); ; {
		f, more := each.Next()
		out = append(out, f.Function)
		if !more {
			return out
		}
	}
}

// touchesState tells whether any of the functions is one of statePackages.
func touchesState(functions []string) bool {
	for _, f := range functions {
		name, ours := strings.CutPrefix(f, modulePath)
		if !ours || slices.Contains(codecs(), name) {
			continue
		}
		for _, p := range statePackages() {
			if rest, ok := strings.CutPrefix(name, p); ok && (rest[0] == '.' || rest[0] == '/') {
				return true
			}
		}
	}
	return false
}
