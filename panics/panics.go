// Package panics decides how far a mistake in the program reaches.
//
// A mistake in reading what a peer sent costs that peer its connection, and nobody else theirs. A
// mistake in what leads mirror partitions, or in what knows who does, ends the process: what it holds may be half
// changed then, or its locks not given back, and a sidecar that goes on leading by it is worse than one
// that has gone, whose partitions others take over.
//
// So whoever owns a peer's connection recovers from panics, unless InState.
package panics

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// module is before the name of each function of this project.
const module = "github.com/cluster-mirroring/mirror-sidecar/"

// statePackages hold what must not go on after a panic in it, with their sub-packages.
func statePackages() []string { return []string{"replica", "coordinator", "syncs", "fetcher"} }

// codecs are functions of statePackages that decode what a peer sent, and encode what it is answered, before and
// after they touch anything.
func codecs() []string {
	return []string{"coordinator.(*Coordinator).Handle", "coordinator.NotYet"}
}

// InState tells, in a deferred function, whether what panicked was called by what the process must not go on after. It
// does not recover: a panic that is left alone ends the process, and says where it happened.
func InState() bool { return touchesState(frames()) }

// End ends the process with a panic that was recovered, where a library would recover from it once more.
func End(value any, stack []byte) {
	go func() { panic(fmt.Sprintf("%v\n\n%s", value, stack)) }()
	select {}
}

// frames returns the names of the functions that have been called, the last one first.
func frames() []string {
	pcs := make([]uintptr, 256)
	pcs = pcs[:runtime.Callers(3, pcs)]
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
		name, ours := strings.CutPrefix(f, module)
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
