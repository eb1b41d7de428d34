package leading

import (
	"flag"
	"slices"
	"testing"
	"time"
)

// Every world that few faults can lead to, in every order of everything that travels.

var (
	modelStates = flag.Int("model.states", 10_000_000, "largest number of states of one exhaustive configuration")
	modelLong   = flag.Bool("model.long", false, "the large exhaustive configurations too, and liveness from every fifth state")
)

// Sizes of exhaustive configurations: short ones are gone through with -short too, long ones
// when asked for.
const (
	ordinary = iota
	short
	long
)

var exhaustiveConfigs = []*simConfig{
	{name: "1 virtual, 1 real, virtual fault, loss", virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1, lost: 1}},
	{name: "1 virtual, 1 real, virtual fault, late request", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1, twice: 1}},
	{name: "1 virtual, 1 real, virtual and real fault", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1, crash: 1}},
	{name: "1 virtual, 1 real, unclean source", virt: 1, real: 1, min: 2, own: 1, elr: true, source: 2, frozen: true, budget: simBudget{unclean: 1}},
	{name: "1 virtual, 1 real, virtual fault, unclean source", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1, unclean: 1}},
	{name: "1 virtual, 1 real, source elects", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1, elect: 1}},
	{name: "1 virtual, 1 real, retention", virt: 1, real: 1, min: 2, own: 1, elr: true, source: 3, frozen: true, budget: simBudget{retain: 1}},
	{name: "1 virtual, 1 real, stop", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{stop: 1, virt: 1}},
	{name: "1 virtual, 1 real, pause", size: short, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{pause: 1}},
	{name: "1 virtual, 1 real, lag", size: short, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{ticks: 1}},
	{name: "1 virtual, 2 real, no fault", size: short, virt: 1, real: 2, min: 2, own: 1, elr: true, source: 2, frozen: true},
	{name: "1 virtual, 2 real, virtual fault", size: long, virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1}},
	{name: "1 virtual, 2 real, real fault", size: long, virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{crash: 1}},
	{name: "1 virtual, 2 real, no ELR, real fault", size: long, virt: 1, real: 2, min: 2, own: 1, source: 1, frozen: true, budget: simBudget{crash: 1}},
	{name: "1 virtual, 2 real, unclean source", virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{unclean: 1}},
	{name: "1 virtual, 2 real, stop", virt: 1, real: 2, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{stop: 1}},
	{name: "2 virtual, 1 real, virtual fault", size: long, virt: 2, real: 1, min: 3, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 1}},
	{name: "2 virtual, 2 real, no fault", size: short, virt: 2, real: 2, min: 3, own: 1, elr: true, source: 1, frozen: true},
	{name: "1 virtual, 1 real, 2 virtual faults", size: long, virt: 1, real: 1, min: 2, own: 1, elr: true, source: 1, frozen: true, budget: simBudget{virt: 2}},
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
	sum     uint64
	act     simAct // that led here
	choices []simAct
}

func (e *exhaustive) run(cfg *simConfig) {
	root := newSim(cfg)
	e.seen[sum(root)] = struct{}{}
	stack := []simNode{{w: root, sum: sum(root), choices: root.choices(nil)}}
	for len(stack) > 0 && !modelFound.Load() {
		top := &stack[len(stack)-1]
		if len(top.choices) == 0 {
			if top.sum%16 == 0 && sum(top.w) != top.sum {
				e.failure = "X: a world was changed by one that was cloned from it"
				return
			}
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
		stack = append(stack, simNode{w: w, sum: s, act: a, choices: w.choices(nil)})
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
	for _, cfg := range exhaustiveConfigs {
		t.Run(cfg.name, func(t *testing.T) {
			if cfg.size == long && !*modelLong || cfg.size != short && testing.Short() {
				t.Skip("takes longer; -model.long has it")
			}
			t.Parallel()
			start := time.Now()
			e := &exhaustive{seen: map[uint64]struct{}{}, limit: *modelStates, settles: 50}
			if *modelLong {
				e.settles = 5
			}
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
