package leading

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// simAct is one step of a walk: who does what, and a number that any choice in it is
// taken from.
type simAct struct {
	kind simKind
	who  int
	n    int
}

type simKind int

const (
	actRealView simKind = iota
	actRealSend
	actRealAnswer
	actRealTake
	actRealTimeout
	actRealKill
	actRealStop
	actRealUp
	actRealFence
	actUnfenceReal
	actUnfenceVirt
	actVirtView
	actVirtMessage
	actVirtLose
	actVirtPull
	actVirtEvict
	actVirtFetch
	actVirtTick
	actVirtStart
	actVirtCrash
	actVirtFence
	actAppend
	actUnclean
	actEpoch
	actRetain
	actElect
	actStop
	actHandBack
	actPause
	actNotice
	actKinds
)

var simNames = [actKinds]string{
	"real views", "real sends", "real's request is answered", "real takes the answer", "real's request times out", "real is killed",
	"real stops cleanly", "real starts", "real is fenced", "real is unfenced", "virtual is unfenced", "virtual views", "message of virtual moves",
	"message of virtual is lost", "virtual pulls", "virtual evicts", "virtual fetches", "virtual ticks", "virtual starts", "virtual dies",
	"virtual is fenced", "source appends", "source elects uncleanly", "source elects", "source retains or compacts", "preferred election", "operator stops",
	"hand-back", "operator pauses or resumes", "virtual notices what is wanted",
}

var simWeights = [actKinds]int{
	18, 30, 30, 30, 2, 1,
	1, 8, 6, 12, 8, 14, 50,
	3, 20, 3, 8, 3, 8, 1,
	2, 16, 2, 2, 2, 2, 1,
	6, 2, 6,
}

// step does one act; false if there was nothing to do. Only then does no time pass, so that
// a walk replays without the acts that did nothing.
func (w *simWorld) step(a simAct) bool {
	before := w.now
	w.now = before.Add(time.Second)
	did := w.do(a)
	if !did {
		w.now = before
	}
	return did
}

func (w *simWorld) do(a simAct) bool {
	real, virt := w.real[a.who%len(w.real)], w.virt[a.who%len(w.virt)]
	switch a.kind {
	case actRealView:
		return w.realView(real)
	case actRealSend:
		return w.realSend(real)
	case actRealAnswer:
		return w.realAnswer(real)
	case actRealTake:
		return w.realTake(real)
	case actRealTimeout:
		had := real.req != nil || real.ans != nil
		real.req, real.ans = nil, nil
		return had
	case actRealKill:
		return w.realDown(real, false)
	case actRealStop:
		return w.realDown(real, true)
	case actRealUp:
		return w.realUp(real)
	case actRealFence:
		if real.up || !w.meta.active(real.id) {
			return false
		}
		w.fence(real.id)
		return true
	case actUnfenceReal:
		return w.unfence(real.id)
	case actUnfenceVirt:
		if w.giveUp && (w.meta.leader >= 0 || len(simVirtual.Real(w.meta.isr)) > 0) {
			return false
		}
		return w.unfence(virt.id)
	case actVirtView:
		return w.virtView(virt)
	case actVirtMessage:
		return w.message(virt, a.n, false)
	case actVirtLose:
		return w.message(virt, a.n, true)
	case actVirtPull:
		return w.pull(virt)
	case actVirtEvict:
		return w.evict(virt)
	case actVirtFetch:
		return w.fetchVirtual(virt)
	case actVirtTick:
		if !virt.up {
			return false
		}
		virt.m.Tick(w.now)
		w.act(virt)
		return true
	case actVirtStart:
		return w.virtStart(virt)
	case actVirtCrash:
		return w.virtCrash(virt)
	case actVirtFence:
		if !w.meta.active(virt.id) || virt.up && w.left.virt <= 0 {
			return false
		}
		if virt.up {
			w.left.virt--
		}
		w.fence(virt.id)
		return true
	case actAppend:
		if w.left.appends <= 0 {
			return false
		}
		w.left.appends--
		w.append(int64(a.n) % 2)
		return true
	case actUnclean:
		return w.unclean(a.n)
	case actEpoch:
		if w.left.unclean <= 0 {
			return false
		}
		w.left.unclean--
		w.sle++
		w.append(int64(a.n) % 2)
		return true
	case actRetain:
		return w.retain(a.n)
	case actElect:
		old := w.meta.leader
		w.change(w.meta.isr, nil, true)
		return old != w.meta.leader
	case actStop:
		if w.left.stop <= 0 || w.stopped != 0 {
			return false
		}
		w.left.stop--
		w.stopped = 1
		return true
	case actHandBack:
		return w.handBack(virt)
	case actPause:
		// Resumed is what is PAUSED, paused what is not on its way back from a pause.
		if w.left.pause <= 0 || w.paused != w.rests {
			return false
		}
		w.left.pause--
		w.paused = !w.paused
		return true
	case actNotice:
		return w.notice(virt)
	default:
		panic("no such act")
	}
}

// handBack is one step of a stop: quiesce, then remove the virtual replicas.
func (w *simWorld) handBack(v *simVirt) bool {
	if w.stopped != 1 {
		return false
	}
	target := func(ids []int32) bool {
		// What the coordinator re-reads before it sends: every live real replica is in it.
		for _, r := range w.real {
			if w.meta.active(r.id) && !slices.Contains(ids, r.id) {
				return false
			}
		}
		return len(ids) > 0
	}
	if w.meta.leader >= 0 && !simVirtual.Is(w.meta.leader) { // R18
		isr := simVirtual.Real(w.meta.isr)
		if !target(isr) {
			return false
		}
		w.stopped = 2
		w.change(isr, nil, false)
		return true
	}
	if !v.up {
		return false
	}
	if v.done != nil && v.done.Epoch == w.meta.le && w.meta.leader == v.id {
		// Members that joined since follow those that were there.
		isr := simVirtual.Real(w.meta.isr)
		order := slices.Concat(without(v.done.Order, without(v.done.Order, isr...)...), without(isr, v.done.Order...))
		switch {
		case target(order):
			w.stopped = 2
			w.change(order, nil, false)
			return true
		case !v.done.Complete: // a real broker leads first (R17)
			v.done, w.giveUp = nil, true
			w.fence(simV1)
			w.fence(simV2)
			return true
		}
		return false
	}
	if st := v.m.Status(); st.Phase == Off || st.Quiesced {
		return false
	}
	v.m.Quiesce(w.now)
	w.act(v)
	return true
}

func (w *simWorld) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "leader %d le %d pe %d isr %v elr %v last %v source [%d,%d)", w.meta.leader, w.meta.le, w.meta.pe, w.meta.isr, w.meta.elr, w.meta.lastReal, w.source.start, w.source.end)
	fmt.Fprintf(b, "\n      state %v", w.state.Chains)
	for _, r := range w.real {
		fmt.Fprintf(b, "\n      %d up=%v fenced=%v [%d,%d) hw %d cache %v:", r.id, r.up, w.meta.brokers[r.id].Fenced, r.log.start, r.log.end, r.hw, r.log.cache)
		for _, x := range r.log.batches {
			fmt.Fprintf(b, " #%d@%d/%d", x.id, x.base, x.epoch)
		}
	}
	for _, v := range w.virt {
		if st := v.m.Status(); v.up {
			fmt.Fprintf(b, "\n      %d fenced=%v %v epoch %d S %d hw %d buffer [%d,%d) durable %d chain %v", v.id, w.meta.brokers[v.id].Fenced, st.Phase, st.Epoch, st.Start, st.HighWatermark, st.BufferStart, st.End, st.Durable, v.m.Chain())
		}
	}
	return b.String()
}

// settle ends all faults and runs a fair schedule until nothing is left to do; then all logs
// equal the source (or, after a stop, each other).
func (w *simWorld) settle(trace func(string)) {
	do := func(k simKind, who, n int) bool {
		if w.failure != "" {
			return false
		}
		did := w.step(simAct{k, who, n})
		if did {
			if trace != nil {
				trace(fmt.Sprintf("~ %s %d", simNames[k], who))
			}
			w.check()
		}
		return did
	}
	w.left, w.paused = simBudget{}, false
	quiet := 0
	for round := 0; round < 400 && quiet < 6; round++ {
		before := w.snapshot()
		for i := range w.real {
			do(actRealFence, i, 0)
			do(actRealUp, i, 0)
			do(actUnfenceReal, i, 0)
		}
		for i := range w.virt {
			if w.stopped < 2 {
				do(actVirtStart, i, 0)
				do(actUnfenceVirt, i, 0)
			}
		}
		for k := 0; k < 3; k++ {
			for i := range w.real {
				for _, a := range []simKind{actRealView, actRealSend, actRealAnswer, actRealTake} {
					do(a, i, 0)
				}
			}
			for i, v := range w.virt {
				do(actVirtView, i, 0)
				do(actNotice, i, 0)
				for n := 0; len(v.msgs) > 0 && n < 20; n++ {
					do(actVirtMessage, i, 0)
					do(actVirtView, i, 0)
				}
				do(actVirtPull, i, 0)
				do(actVirtFetch, i, 0)
			}
		}
		for i := range w.virt {
			do(actHandBack, i, 0)
		}
		if w.failure != "" {
			return
		}
		for _, r := range w.real {
			if r.up && r.failed && w.meta.leader >= 0 { // cured by a new epoch
				w.fence(w.meta.leader)
				break
			}
		}
		if w.stopped < 2 && w.meta.leader >= 0 && !simVirtual.Is(w.meta.leader) {
			do(actElect, 0, 0)
		}
		if w.snapshot() == before {
			quiet++
		} else {
			quiet = 0
		}
	}
	w.settled()
}

func (w *simWorld) snapshot() string {
	b := &strings.Builder{}
	fmt.Fprint(b, w.meta.leader, w.meta.le, w.meta.pe, w.stopped)
	for _, r := range w.real {
		fmt.Fprint(b, " ", r.up, r.failed, r.log.start, r.log.end, r.hw)
	}
	for _, v := range w.virt {
		st := v.m.Status()
		fmt.Fprint(b, " ", v.up, st.Phase, st.Epoch, st.HighWatermark, st.End, st.Durable, len(v.msgs))
	}
	return b.String()
}

func (w *simWorld) settled() {
	if w.stopped > 0 {
		if w.stopped == 1 {
			w.fail("S5: the stop does not end")
			return
		}
		l := w.byID(w.meta.leader)
		if l == nil {
			w.fail("S5: no real leader after the stop")
			return
		}
		for _, r := range w.real {
			if r.log.end != l.log.end {
				w.fail("S5: after the stop %d ends at %d, leader %d at %d", r.id, r.log.end, l.id, l.log.end)
			}
		}
		return
	}
	for _, r := range w.real {
		if r.log.end != w.source.end {
			w.fail("S5: %d ends at %d, the source at %d", r.id, r.log.end, w.source.end)
			return
		}
		for _, b := range w.source.batches {
			if !r.log.has(b) {
				w.fail("S5: %d has not got batch %d at %d", r.id, b.id, b.base)
			}
		}
		for _, b := range r.log.batches {
			if b.base >= w.source.start && !w.source.has(b) && !w.compacted(b) {
				w.fail("S5: %d holds batch %d at %d, which is not the source's", r.id, b.id, b.base)
			}
		}
	}
	if !simVirtual.Is(w.meta.leader) {
		w.fail("S5: %d leads", w.meta.leader)
		return
	}
	if hw := w.virt[w.meta.leader-simV1].m.Status().HighWatermark; hw != w.source.end {
		w.fail("S5: the high watermark is %d, the source ends at %d", hw, w.source.end)
	}
}

// compacted: the source lost b from its middle, not by a truncation: nothing was written
// over it.
func (w *simWorld) compacted(b simBatch) bool {
	for _, s := range w.source.batches {
		if s.base <= b.last && s.last >= b.base {
			return false
		}
	}
	return w.gone[b.id]
}

func simReplay(cfg simConfig, acts []simAct, trace func(string)) string {
	w := newSim(cfg)
	for _, a := range acts {
		if !w.step(a) {
			continue
		}
		if trace != nil {
			trace(fmt.Sprintf("%s %d (%d)\n    %v", simNames[a.kind], a.who, a.n, w))
		}
		w.check()
		if w.failure != "" {
			return w.failure
		}
	}
	if trace != nil {
		w.settle(func(s string) { trace(fmt.Sprintf("%s\n    %v", s, w)) })
	} else {
		w.settle(nil)
	}
	return w.failure
}

func simKindOf(failure string) string { k, _, _ := strings.Cut(failure, ":"); return k }

// simShrink takes away what is not needed for the same kind of failure.
func simShrink(cfg simConfig, acts []simAct, failure string) []simAct {
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

func simWalk(rng *rand.Rand, cfg simConfig, steps int, table []simKind) ([]simAct, *simWorld) {
	w := newSim(cfg)
	var acts []simAct
	for tries := 0; len(acts) < steps && tries < 4*steps && w.failure == ""; tries++ {
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

var simConfigs = []struct {
	name string
	cfg  simConfig
}{
	{"virtual faults", simConfig{2, 3, true, simBudget{virt: 6, appends: 8}, false}},
	{"source elections", simConfig{2, 3, true, simBudget{virt: 4, unclean: 3, appends: 6}, false}},
	{"replica faults", simConfig{2, 3, true, simBudget{crash: 3, virt: 3, unclean: 1, appends: 6}, false}},
	{"no ELR", simConfig{2, 2, false, simBudget{crash: 3, virt: 3, unclean: 1, appends: 6}, false}},
	{"three replicas, gate often shut", simConfig{3, 4, true, simBudget{crash: 3, virt: 3, unclean: 1, appends: 6}, false}},
	{"retention and compaction", simConfig{2, 3, true, simBudget{virt: 3, unclean: 2, appends: 8, retain: 3}, false}},
	{"everything", simConfig{3, 3, true, simBudget{crash: 3, virt: 4, unclean: 2, appends: 8, retain: 2}, false}},
	{"stop", simConfig{2, 3, true, simBudget{crash: 2, virt: 3, unclean: 1, appends: 5, stop: 1}, false}},
	{"failback", simConfig{2, 3, true, simBudget{crash: 2, virt: 4, unclean: 1, appends: 5}, true}},
	{"failback, three replicas", simConfig{3, 3, false, simBudget{crash: 3, virt: 3, unclean: 2, appends: 5, stop: 1}, true}},
	{"pause", simConfig{2, 3, true, simBudget{crash: 2, virt: 4, appends: 8, pause: 4}, false}},
	{"pause, everything", simConfig{3, 3, true, simBudget{crash: 3, virt: 4, unclean: 2, appends: 8, retain: 2, pause: 5}, false}},
	{"pause, stop", simConfig{2, 3, true, simBudget{crash: 2, virt: 3, unclean: 1, appends: 5, stop: 1, pause: 3}, false}},
	{"pause, no ELR", simConfig{2, 2, false, simBudget{crash: 2, virt: 4, unclean: 1, appends: 6, pause: 4}, false}},
}

// TestSimulation walks at random through faults and checks the invariants of safety-rules.md
// at each step, then that the world settles. LEADING_SIM_TIME walks for that long (a
// duration), LEADING_SIM_SEED from another seed.
func TestSimulation(t *testing.T) {
	seed := uint64(1)
	if s := os.Getenv("LEADING_SIM_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	walks, limit := 400, time.Duration(0)
	if !testing.Short() {
		walks = 1500
	}
	if s := os.Getenv("LEADING_SIM_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		limit = d / time.Duration(len(simConfigs))
	}
	for i, c := range simConfigs {
		t.Run(c.name, func(t *testing.T) {
			var table []simKind
			for k, n := range simWeights {
				if c.cfg.budget.pause == 0 && (simKind(k) == actPause || simKind(k) == actNotice) {
					continue
				}
				for range n {
					table = append(table, simKind(k))
				}
			}
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			start, done, steps, found := time.Now(), 0, 0, map[string]int{}
			var back, ready, jumps int
			for ; limit == 0 && done < walks || limit > 0 && time.Since(start) < limit; done++ {
				acts, w := simWalk(rng, c.cfg, 250, table)
				steps += len(acts)
				back, ready, jumps = back+w.back, ready+w.ready, jumps+w.jumps
				if w.failure == "" {
					continue
				}
				kind := simKindOf(w.failure)
				if found[kind]++; found[kind] > 1 {
					continue
				}
				first := w.failure
				acts = simShrink(c.cfg, acts, w.failure)
				var b strings.Builder
				seen := map[string]bool{}
				end := simReplay(c.cfg, acts, func(s string) {
					act, state, _ := strings.Cut(s, "\n")
					changed := false
					for line := range strings.SplitSeq(state, "\n") {
						if !seen[line] {
							seen[line], changed = true, true
							act += "\n    " + line
						}
					}
					if changed || !strings.HasPrefix(act, "~") {
						fmt.Fprintf(&b, "  %s\n", act)
					}
				})
				out := b.String()
				if len(out) > 60000 {
					out = out[:60000]
				}
				t.Errorf("walk %d: %s; shrunk: %s\n%s", done, first, end, out)
			}
			d := time.Since(start)
			t.Logf("%d walks, %.0f a second, %d steps, %d takeovers, %d jumps, %d times a follower's high watermark went back; violations: %v",
				done, float64(done)/d.Seconds(), steps, ready, jumps, back, found)
		})
	}
}
