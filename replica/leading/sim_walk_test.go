package leading

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Random walks through the model. Each has a seed of its own, so that any of them can be
// walked again alone.

var (
	modelSteps  = flag.Int("model.steps", 0, "steps of the random walks over all configurations (default 1 million, 50,000 with -short)")
	modelSeed   = flag.Uint64("model.seed", 1, "seed of the random walks")
	modelReplay = flag.String("model.replay", "", "walk only this one: configuration/number")
	modelTrace  = flag.String("model.trace", "", "file with the acts of a walk, one a line; with -model.replay naming the configuration")
	modelFast   = flag.Bool("model.fast", false, "stop at the first violation and do not shrink it")
)

// modelFound ends all walks at the first violation, with -model.fast.
var modelFound atomic.Bool

var simConfigs = []*simConfig{
	{name: "virtual faults", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{virt: 6, appends: 8, lost: -1, twice: 3, moves: -1}},
	{name: "source elections", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{virt: 4, unclean: 3, elect: 1, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "replica faults", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 3, virt: 3, unclean: 1, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "no ELR", virt: 2, real: 2, min: 2, own: 1, source: 2, budget: simBudget{crash: 3, virt: 3, unclean: 1, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "three replicas, gate often shut", virt: 2, real: 3, min: 4, own: 2, elr: true, source: 2, budget: simBudget{crash: 3, virt: 3, unclean: 1, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "one virtual broker", virt: 1, real: 2, min: 2, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 4, unclean: 1, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "power and disks", virt: 2, real: 3, min: 4, own: 2, elr: true, source: 2, budget: simBudget{power: 2, crash: 1, virt: 3, appends: 6, lost: -1, twice: 2, moves: -1}},
	{name: "retention and compaction", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{virt: 3, unclean: 2, elect: 1, appends: 8, retain: 3, lost: -1, twice: 2, moves: -1}},
	{name: "compaction", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 5, budget: simBudget{virt: 4, crash: 1, elect: 2, appends: 8, retain: 6, lost: -1, twice: 2, moves: -1}},
	{name: "everything", virt: 2, real: 3, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 3, virt: 4, unclean: 2, elect: 1, appends: 8, retain: 2, lost: -1, twice: 3, moves: -1}},
	{name: "stop", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 3, unclean: 1, appends: 5, stop: 1, lost: -1, twice: 2, moves: -1, writes: 3}},
	{name: "stop, three replicas", virt: 2, real: 3, min: 4, own: 2, elr: true, source: 2, budget: simBudget{crash: 3, virt: 3, appends: 5, stop: 1, coord: 2, lost: -1, twice: 2, moves: -1, writes: 3}},
	{name: "stop, no ELR, coordinators die", virt: 2, real: 2, min: 3, own: 1, source: 2, budget: simBudget{crash: 2, virt: 4, appends: 4, stop: 1, coord: 4, lost: -1, twice: 3, moves: -1, writes: 3}},
	{name: "virtual brokers are replaced", virt: 2, spare: true, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 1, virt: 5, unclean: 1, appends: 6, coord: 2, lost: -1, twice: 2, moves: -1}},
	{name: "min.insync.replicas changes", virt: 2, spare: true, real: 3, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 3, virt: 4, appends: 6, min: 4, lost: -1, twice: 2, moves: -1}},
	{name: "write lock refused", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 1, virt: 4, appends: 5, rogue: 2, lost: -1, twice: 2, moves: -1}},
	{name: "write lock refused, minimum raised", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, raise: true, budget: simBudget{crash: 1, virt: 4, appends: 5, rogue: 2, lost: -1, twice: 2, moves: -1}},
	{name: "write lock refused, minimum raised, no ELR", virt: 2, real: 3, min: 4, own: 2, source: 2, raise: true, budget: simBudget{crash: 2, virt: 4, appends: 5, rogue: 3, lost: -1, twice: 2, moves: -1}},
	{name: "failback", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 4, unclean: 1, appends: 5, lost: -1, twice: 2, moves: -1}, failback: true},
	{name: "failback, three replicas", virt: 2, real: 3, min: 3, own: 1, source: 2, budget: simBudget{crash: 3, virt: 3, unclean: 2, appends: 5, stop: 1, lost: -1, twice: 2, moves: -1}, failback: true},
	{name: "pause", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 4, appends: 8, pause: 4, lost: -1, twice: 2, moves: -1}},
	{name: "pause, everything", virt: 2, real: 3, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 3, virt: 4, unclean: 2, appends: 8, retain: 2, pause: 5, lost: -1, twice: 2, moves: -1}},
	{name: "pause, stop", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 3, unclean: 1, appends: 5, stop: 1, pause: 3, lost: -1, twice: 2, moves: -1}},
	{name: "giving up", virt: 2, real: 3, min: 4, own: 2, elr: true, source: 2, budget: simBudget{crash: 4, power: 1, virt: 3, appends: 6, giveUp: 2, forever: 1, lost: -1, twice: 2, moves: -1}},
	{name: "giving up, no ELR", virt: 2, real: 2, min: 3, own: 1, source: 2, budget: simBudget{crash: 4, virt: 3, unclean: 1, appends: 6, giveUp: 3, forever: 1, lost: -1, twice: 2, moves: -1}},
	{name: "giving up, stop", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 4, virt: 2, appends: 5, giveUp: 2, stop: 1, lost: -1, twice: 2, moves: -1, writes: 2}},
	{name: "restored source", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 3, budget: simBudget{virt: 3, elect: 1, appends: 6, restore: 1, lost: -1, twice: 2, moves: -1}},
	{name: "restored source, replica faults", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 2, virt: 3, elect: 1, unclean: 1, appends: 6, restore: 2, lost: -1, twice: 2, moves: -1}},
	{name: "silent fetchers", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 2, budget: simBudget{crash: 1, virt: 3, unclean: 1, appends: 6, silent: 3, lost: -1, twice: 2, moves: -1}},
	{name: "transactions", virt: 2, real: 2, min: 3, own: 1, elr: true, source: 3, txn: true, budget: simBudget{crash: 2, virt: 3, unclean: 1, appends: 8, stop: 1, lost: -1, twice: 2, moves: -1}},
	{name: "transactions, three replicas", virt: 2, real: 3, min: 4, own: 2, source: 3, txn: true, budget: simBudget{crash: 3, virt: 3, appends: 8, stop: 1, coord: 2, lost: -1, twice: 2, moves: -1}},
	{name: "pause, no ELR", virt: 2, real: 2, min: 2, own: 1, source: 2, budget: simBudget{crash: 2, virt: 4, unclean: 1, appends: 6, pause: 4, lost: -1, twice: 2, moves: -1}},
}

// walkLength is how many acts a walk has before faults end.
const walkLength = 250

func walkTable(cfg *simConfig) (table []simKind) {
	for k := range actKinds {
		if cfg.possible(k) {
			table = slices.Concat(table, slices.Repeat([]simKind{k}, simKinds[k].weight))
		}
	}
	return table
}

// simWalk is walk number n of a configuration.
func simWalk(cfg *simConfig, table []simKind, seed uint64, n int) ([]simAct, *simWorld) {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	w := newSim(cfg)
	var acts []simAct
	for tries := 0; len(acts) < walkLength && tries < 4*walkLength && w.failure == ""; tries++ {
		a := simAct{table[rng.IntN(len(table))], rng.IntN(6), rng.IntN(64)}
		if w.step(a) {
			acts = append(acts, a)
			w.check()
		}
	}
	if w.failure == "" {
		w.settle(nil)
	}
	return acts, w
}

// simReplay walks what was walked before.
func simReplay(cfg *simConfig, acts []simAct, trace func(simAct, *simWorld)) string {
	w := newSim(cfg)
	for _, a := range acts {
		if !w.step(a) {
			continue
		}
		if trace != nil {
			trace(a, w)
		}
		w.check()
		if w.failure != "" {
			return w.failure
		}
	}
	if trace != nil {
		w.settle(func(a simAct) { trace(a, w) })
	} else {
		w.settle(nil)
	}
	return w.failure
}

func simKindOf(failure string) string { k, _, _ := strings.Cut(failure, ":"); return k }

// simShrink takes away what is not needed for the same kind of failure.
func simShrink(cfg *simConfig, acts []simAct, failure string) []simAct {
	for before := -1; before != len(acts); {
		before = len(acts)
		for n := max(1, len(acts)/2); n >= 1; n /= 2 {
			for i := 0; i+n <= len(acts); {
				c := slices.Concat(acts[:i], acts[i+n:])
				if simKindOf(simReplay(cfg, c, nil)) == simKindOf(failure) {
					acts = c
				} else {
					i += n
				}
			}
		}
	}
	return acts
}

// simStory is the shrunk walk with what changes at each act; the acts of the end, which are
// always the same, are told only where something changes.
func simStory(cfg *simConfig, acts []simAct) string {
	var b strings.Builder
	seen, settled := map[string]bool{}, false
	end := simReplay(cfg, acts, func(a simAct, w *simWorld) {
		story, changed := "", false
		for line := range strings.SplitSeq(w.String(), "\n") {
			if !seen[line] {
				seen[line], changed = true, true
				story += "\n      " + strings.TrimSpace(line)
			}
		}
		switch {
		case !w.settling:
			fmt.Fprintf(&b, "  %v%s\n", a, story)
		case changed:
			if !settled {
				fmt.Fprintf(&b, "  -- faults end\n")
				settled = true
			}
			fmt.Fprintf(&b, "  ~ %v%s\n", a, story)
		}
	})
	out := b.String()
	if len(out) > 60000 {
		out = out[:60000] + "\n  ...\n"
	}
	return out + "  " + end
}

func report(t *testing.T, cfg *simConfig, again string, acts []simAct, failure string) {
	t.Helper()
	if *modelFast {
		modelFound.Store(true)
		t.Fatalf("%s violation: %s", again, failure)
	}
	acts = simShrink(cfg, acts, failure)
	t.Errorf("%s\nagain: %s\nshrunk to %d acts:\n%s", failure, again, len(acts), simStory(cfg, acts))
}

// TestModelWalks walks at random through faults and checks what must hold at every step,
// then that the world settles (see sim_check_test.go).
func TestModelWalks(t *testing.T) {
	steps := *modelSteps
	switch {
	case steps > 0:
	case testing.Short():
		steps = 50_000
	default:
		steps = 1_000_000
	}
	if *modelReplay != "" {
		replay(t)
		return
	}
	results := make([]struct {
		walks int
		stats simStats
	}, len(simConfigs))
	t.Run("all", func(t *testing.T) {
		for i, cfg := range simConfigs {
			t.Run(cfg.name, func(t *testing.T) {
				t.Parallel()
				r, found, start := &results[i], map[string]int{}, time.Now()
				for table := walkTable(cfg); r.stats.steps < steps/len(simConfigs) && !modelFound.Load(); r.walks++ {
					acts, w := simWalk(cfg, table, *modelSeed, r.walks)
					r.stats.add(w.stats)
					if w.failure == "" {
						continue
					}
					if kind := simKindOf(w.failure); found[kind] == 0 {
						report(t, cfg, fmt.Sprintf("-model.seed=%d -model.replay='%s/%d'", *modelSeed, cfg.name, r.walks), acts, w.failure)
					}
					found[simKindOf(w.failure)]++
				}
				if len(found) > 0 {
					t.Logf("violations: %v", found)
				}
				t.Logf("%d walks, %+v, %.0f steps a second", r.walks, r.stats, float64(r.stats.steps)/time.Since(start).Seconds())
			})
		}
	})
	walks, all := 0, simStats{}
	for _, r := range results {
		walks += r.walks
		all.add(r.stats)
	}
	t.Logf("seed %d: %d walks, %d steps, %d takeovers, %d jumps over a hole; %d times a follower's high watermark went back, %d times a follower gave up at a real leader, %d times a foreign record was visible, %d batches visible in a log of unknown history were read again, %d visible ones were given up",
		*modelSeed, walks, all.steps, all.ready, all.jumps, all.back, all.failed, all.leaked, all.reread, all.given)
}

func (s *simStats) add(o simStats) {
	s.steps += o.steps
	s.back += o.back
	s.ready += o.ready
	s.jumps += o.jumps
	s.leaked += o.leaked
	s.failed += o.failed
	s.reread += o.reread
	s.given += o.given
}

// replay walks again what a run has told.
func replay(t *testing.T) {
	name, number, _ := strings.Cut(*modelReplay, "/")
	for _, cfg := range slices.Concat(simConfigs, exhaustiveConfigs) {
		if cfg.name != name {
			continue
		}
		var acts []simAct
		var failure string
		if *modelTrace != "" {
			text, err := os.ReadFile(*modelTrace)
			if err != nil {
				t.Fatal(err)
			}
			acts = parseActs(string(text))
			failure = simReplay(cfg, acts, nil)
		} else {
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil {
				t.Fatalf("-model.replay=%s: %v", *modelReplay, err)
			}
			var w *simWorld
			acts, w = simWalk(cfg, walkTable(cfg), *modelSeed, n)
			failure = w.failure
		}
		if failure != "" {
			report(t, cfg, *modelReplay, acts, failure)
		} else {
			t.Log(simStory(cfg, acts))
		}
		return
	}
	t.Fatalf("-model.replay=%s: no such configuration", *modelReplay)
}
