package netfaults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// beyond is longer than a session: whoever is silent for so long is fenced.
const beyond = session + 6*time.Second

// fault is one thing that happens to the mirror.
type fault struct {
	name string
	// do starts it; victim leads a partition at that moment. It returns what ends the fault.
	do func(t *testing.T, e *env, victim *stack.Sidecar) (end func(t *testing.T))
	// holds is how long it lasts.
	holds time.Duration
	// goesOn: records are mirrored when it has lasted that long, maybe by somebody else.
	goesOn bool
	// short: part of the short form.
	short bool
}

// between makes a fault of the links from and to, where VICTIM stands for the victim's name and HOME
// for its home broker's.
func between(from, to string, what func(l *links.Link) error) func(*testing.T, *env, *stack.Sidecar) func(*testing.T) {
	return func(t *testing.T, e *env, victim *stack.Sidecar) func(*testing.T) {
		t.Helper()
		names := strings.NewReplacer("VICTIM", victim.Party(), "HOME", fmt.Sprintf("dest-%d", victim.Broker))
		ls, err := e.net.Between(names.Replace(from), names.Replace(to))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			if l.From == l.To {
				continue
			}
			if err := what(l); err != nil {
				t.Fatal(err)
			}
		}
		return func(t *testing.T) {
			t.Helper()
			var opened int64
			for _, l := range ls {
				opened += l.Stats().Opened + l.Stats().Refused
				l.Restore()
			}
			if opened == 0 {
				t.Errorf("nobody ever used the links of %s to %s", from, to)
			}
		}
	}
}

func blackhole(l *links.Link) error { l.Blackhole(); return nil }

func cut(l *links.Link) error { l.Cut(); return nil }

func slow(l *links.Link) error { return l.Latency(300*time.Millisecond, 200*time.Millisecond) }

// paused stops the processes that pick gives.
func paused(pick func(e *env, victim *stack.Sidecar) []*stack.Sidecar) func(*testing.T, *env, *stack.Sidecar) func(*testing.T) {
	return func(t *testing.T, e *env, victim *stack.Sidecar) func(*testing.T) {
		t.Helper()
		all := pick(e, victim)
		for _, c := range all {
			if err := c.Process().Pause(); err != nil {
				t.Fatal(err)
			}
		}
		return func(t *testing.T) {
			t.Helper()
			for _, c := range all {
				if err := c.Process().Resume(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func faults() []fault {
	return []fault{
		{name: "controllers do not reach", do: between("VICTIM", "controller.dest-*", blackhole), holds: beyond, goesOn: true, short: true},
		{name: "controllers refuse", do: between("VICTIM", "controller.dest-*", cut), holds: beyond, goesOn: true},
		{name: "controllers far away", do: between("VICTIM", "controller.dest-*", slow), holds: beyond, goesOn: true},
		{name: "home broker does not reach", do: between("VICTIM", "HOME", blackhole), holds: beyond, goesOn: true},
		{name: "home broker refuses", do: between("VICTIM", "HOME", cut), holds: beyond, goesOn: true},
		{name: "home broker far away", do: between("VICTIM", "HOME", slow), holds: beyond, goesOn: true},
		{name: "no real broker reaches", do: between("VICTIM", "dest-*", blackhole), holds: beyond},
		{name: "other sidecars do not reach", do: between("VICTIM", "sidecar-*", blackhole), holds: beyond, goesOn: true},
		{name: "not reached by other sidecars", do: between("sidecar-*", "VICTIM", blackhole), holds: beyond, goesOn: true},
		{name: "all sidecars apart", do: between("sidecar-*", "sidecar-*", blackhole), holds: beyond, goesOn: true},
		{name: "all sidecars far apart", do: between("sidecar-*", "sidecar-*", slow), holds: beyond, goesOn: true},
		{name: "source does not reach", do: between("VICTIM", "source-*", blackhole), holds: beyond},
		{name: "source refuses", do: between("VICTIM", "source-*", cut), holds: beyond},
		{name: "source far away", do: between("VICTIM", "source-*", slow), holds: beyond, goesOn: true},
		{name: "followers do not reach", do: between("dest-*", "VICTIM", blackhole), holds: beyond, short: true},
		{name: "followers are refused", do: between("dest-*", "VICTIM", cut), holds: beyond},
		{name: "one follower does not reach", do: between("HOME", "VICTIM", blackhole), holds: beyond},
		{name: "followers far away", do: between("dest-*", "VICTIM", slow), holds: beyond, goesOn: true},
		{name: "cut off from everybody", do: between("VICTIM", "*", blackhole), holds: beyond},
		{name: "leader paused", do: paused(func(_ *env, victim *stack.Sidecar) []*stack.Sidecar {
			return []*stack.Sidecar{victim}
		}), holds: beyond, goesOn: true, short: true},
		{name: "all sidecars paused", do: paused(func(e *env, _ *stack.Sidecar) []*stack.Sidecar {
			return e.dst.Sidecars
		}), holds: beyond, short: true},
	}
}

// TestFaults lets the faults happen one after the other to one mirror.
func TestFaults(t *testing.T) {
	e := start(t)
	for _, f := range faults() {
		if !f.short && !harness.Full() {
			continue
		}
		ok := t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) { e.test(t, f) })
		if !ok {
			return // what follows would say nothing
		}
	}
	e.equal(t)
}

func (e *env) test(t *testing.T, f fault) {
	harness.AwaitT(t, patience, "whole before the fault", e.whole)
	victim := e.leader(t)
	end := f.do(t, e, victim)
	select {
	case <-time.After(f.holds):
	case <-t.Context().Done():
	}
	if f.goesOn {
		t.Logf("mirroring goes on within %v", e.goesOn(t, "mirroring goes on meanwhile").Round(time.Millisecond))
	}
	end(t)
	ended := time.Now()
	e.revive(t)
	e.goesOn(t, "mirroring goes on afterwards")
	t.Logf("records flow %v after the end of the fault", time.Since(ended).Round(time.Millisecond))
	harness.AwaitT(t, patience, "whole after the fault", e.whole)
	t.Logf("whole %v after the end of the fault", time.Since(ended).Round(time.Millisecond))
	if err := e.load.Err(); err != nil {
		t.Fatal(err)
	}
}

// revive starts a sidecar that has ended, as a supervisor does: one that finds itself fenced by a
// later process of its own ends.
func (e *env) revive(t *testing.T) {
	t.Helper()
	if err := e.dst.StartSidecars(t.Context()); err != nil {
		t.Fatal(err)
	}
}
