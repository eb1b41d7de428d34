package leading

import (
	"flag"
	"slices"
	"testing"
	"time"
)

// Every world that few faults can lead to, in every order of everything that travels.

var modelStates = flag.Int("model.states", 0, "largest number of states of one exhaustive configuration (default 400,000; 20,000 with -short)")

var exhaustiveConfigs = []*simConfig{
	{name: "1 virtual, 1 real", virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1}},
	{name: "1 virtual, 2 real, no fault", virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{}},
	{name: "1 virtual, 2 real", virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1}},
	{name: "2 virtual, 1 real", virt: 2, real: 1, min: 3, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1}},
}

// choices are the acts that may do something in a world. What differs only in a number that
// nothing depends on is listed once.
func (w *simWorld) choices(out []simAct) []simAct {
	add := func(k simKind, who, n int) { out = append(out, simAct{k, who, n}) }
	for k := range actKinds {
		if !w.cfg.possible(k) {
			continue
		}
		switch k {
		case actRealView, actRealSend, actRealTake, actRealTimeout, actRealStop, actRealUp, actRealFence, actUnfenceReal, actWrite, actRealWipe:
			for i := range w.real {
				add(k, i, 0)
			}
		case actRealKill:
			for i := range w.real {
				add(k, i, 0)
				add(k, i, 1)
			}
		case actRealAnswer:
			for i := range w.real {
				add(k, i, 0) // one batch
				if w.cfg.source > 2 {
					add(k, i, 4) // two
				}
			}
		case actRealPower:
			for i, r := range w.real {
				for n := range max(1, len(r.log.batches)) {
					add(k, i, n)
				}
			}
		case actUnfenceVirt, actVirtView, actVirtEvict, actVirtFetch, actVirtTick, actVirtStart, actVirtCrash, actVirtFence, actNotice, actMoment:
			for i := range w.virt {
				add(k, i, 0)
			}
		case actVirtPull:
			for i := range w.virt {
				add(k, i, 0)
			}
		case actVirtMessage, actVirtLose, actVirtTwice:
			for i, v := range w.virt {
				for n := range v.msgs {
					add(k, i, n)
				}
			}
		case actUnclean:
			for n := range w.source.batches {
				add(k, 0, n)
			}
		case actRetain:
			for n := range 2 * len(w.source.batches) {
				add(k, 0, n)
			}
		case actReassign, actReassignLost:
			for n := range w.reassigns {
				add(k, 0, n)
			}
		default:
			add(k, 0, 0)
		}
	}
	return out
}

// exhaustive is a depth-first search. A state that was seen is not gone through again.
type exhaustive struct {
	seen    map[uint64]struct{}
	limit   int
	settles int // every so many states the world is settled
	moves   int
	settled int
	deepest int
	full    bool
	failure string
	acts    []simAct // to the failure
}

type simNode struct {
	w       *simWorld
	act     simAct // that led here
	choices []simAct
}

func (e *exhaustive) run(cfg *simConfig) {
	root := newSim(cfg)
	e.seen[sum(root)] = struct{}{}
	stack := []simNode{{w: root, choices: root.choices(nil)}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.choices) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		a := top.choices[len(top.choices)-1]
		top.choices = top.choices[:len(top.choices)-1]
		w := top.w.clone()
		if !w.step(a) {
			continue
		}
		e.moves++
		w.check()
		if w.failure != "" {
			e.found(stack, a, w.failure)
			return
		}
		s := sum(w)
		if _, ok := e.seen[s]; ok {
			continue
		}
		if len(e.seen) >= e.limit {
			e.full = true
			return
		}
		e.seen[s] = struct{}{}
		if e.settles > 0 && s%uint64(e.settles) == 0 {
			c := w.clone()
			c.settle(nil)
			e.settled++
			if c.failure != "" {
				e.found(stack, a, c.failure)
				return
			}
		}
		stack = append(stack, simNode{w: w, act: a, choices: w.choices(nil)})
		e.deepest = max(e.deepest, len(stack))
	}
}

func (e *exhaustive) found(stack []simNode, last simAct, failure string) {
	e.failure = failure
	for _, n := range stack[1:] {
		e.acts = append(e.acts, n.act)
	}
	e.acts = append(e.acts, last)
}

// TestModelExhaustive goes through every state that a few small worlds can be in.
func TestModelExhaustive(t *testing.T) {
	limit := *modelStates
	switch {
	case limit > 0:
	case testing.Short():
		limit = 20_000
	default:
		limit = 400_000
	}
	for _, cfg := range exhaustiveConfigs {
		t.Run(cfg.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			e := &exhaustive{seen: map[uint64]struct{}{}, limit: limit, settles: 50}
			e.run(cfg)
			if e.failure != "" {
				report(t, cfg, "this test", slices.Clone(e.acts), e.failure)
				return
			}
			end := "the frontier is empty"
			if e.full {
				end = "NOT all: the limit was reached"
			}
			t.Logf("%d states, %d moves, at most %d acts deep, settled from %d: %s (%.1f s)", len(e.seen), e.moves, e.deepest, e.settled, end, time.Since(start).Seconds())
		})
	}
}
