package leading

import (
	"slices"
	"time"
)

// What must hold at every step, and what must hold in the end.
//
//	S1   nothing that was visible is dropped while it is the last copy of a real replica
//	S1b  two batches are never visible at one offset
//	S2   no two replicas hold different batches at one offset and epoch
//	S3   the high watermark does not pass a record that an in-sync replica lacks
//	S4   no virtual broker changes a log that is past the hand-back
//	S5   when faults end, the partition is mirrored again, or handed back
//	S6   the lineage is one that a log can have
//	T1   a transaction that one replica shows as committed no other shows as aborted
//	T2   a stop leaves no transaction open
//	P1   no in-sync replica gets anything while the partition is PAUSED
//	R4   nobody is answered before a takeover is complete
//	R10  no batch's epoch is above the request's or below the follower's last
//	F    no answer of a virtual leader makes a fetcher give up
//	D    what the machine wants to serve is in the buffer

func (w *simWorld) holders(b simBatch, except *simReal) bool {
	for _, r := range w.real {
		if r != except && r.log.has(b) {
			return true
		}
	}
	return false
}

// cut is a truncation that a leader's answer asked for; full, the log starts anew.
func (w *simWorld) cut(r *simReal, to int64, full bool) {
	for _, b := range r.log.batches {
		// A failback begins with chains that contradict each other; where two replicas crash
		// before that is over, what is visible may go and be read again.
		again := w.cfg.failback && w.source.has(b)
		// Without power a broker that was dead when it was left out may be all there is.
		again = again || w.cfg.budget.power > 0 && !r.assigned()
		// Whoever lets go what only this side has lets it go by whole epochs, and what the source has is read again.
		again = again || w.allow && w.source.has(b)
		if !again && w.source.has(b) && w.unknownTo(r.view.leader) {
			// The history of a log was on nobody's record, and nobody showed what is visible:
			// it is read again.
			again = true
			if (full || b.last >= to) && w.visible[b.base] == uint8(b.id) && !w.holders(b, r) {
				w.stats.reread++
			}
		}
		if (full || b.last >= to) && w.visible[b.base] == uint8(b.id) && !w.holders(b, r) && !again {
			w.fail("S1: %d drops the last copy of visible batch %d at %d", r.id, b.id, b.base)
		}
	}
	if full {
		r.log.restart(to)
		r.hw = to
		return
	}
	r.log.truncate(to)
	r.hw = min(r.hw, r.log.end)
}

// unknownTo tells whether the takeover of the leader met a log whose history is on nobody's
// record: one that ends with the epoch of a real leader that no virtual broker followed, as
// when the controller elects by itself.
func (w *simWorld) unknownTo(leader int32) bool {
	return simVirtual.Is(leader) && len(w.virtByID(leader).m.asked) > 0
}

func (w *simWorld) expose(r *simReal) {
	w.tellFates(r)
	for _, b := range r.log.batches {
		if b.last >= r.hw {
			break
		}
		if w.foreign.has(b.id) {
			if !w.shown.has(b.id) {
				w.shown.add(b.id)
				w.stats.leaked++
			}
			continue
		}
		if w.gone.has(b.id) {
			continue
		}
		if o := w.visible[b.base]; o != 0 && o != uint8(b.id) {
			w.fail("S1b: batches %d and %d were both visible at %d", o, b.id, b.base)
		}
		w.visible[b.base] = uint8(b.id)
	}
}

func (w *simWorld) check() {
	for i, r := range w.real {
		for _, q := range w.real[:i] {
			k := 0
			for _, b := range r.log.batches {
				for k < len(q.log.batches) && q.log.batches[k].base < b.base {
					k++
				}
				if k < len(q.log.batches) && q.log.batches[k].base == b.base && q.log.batches[k].epoch == b.epoch && q.log.batches[k].id != b.id {
					w.fail("S2: two batches at offset %d, epoch %d", b.base, b.epoch)
				}
			}
		}
		if w.paused && w.rests && w.stopped == stMirroring && w.insync(r) && r.log.end > w.restsAt {
			w.fail("P1: PAUSED at %d, but in-sync %d ends at %d", w.restsAt, r.id, r.log.end)
		}
	}
	for _, v := range w.virt {
		if !v.up || w.meta.leader != v.id || v.be != w.meta.brokers[v.id].Epoch || v.m.phase != Leading || v.m.epoch != w.meta.le {
			continue
		}
		if err := v.m.chain.Validate(); err != nil {
			w.fail("S6: %v", err)
		}
		for _, r := range w.real {
			if w.insync(r) && v.m.hw > r.log.end && v.m.hw > w.source.start && w.between(v, r.log.end, v.m.hw) {
				w.fail("S3: high watermark %d of %d above the end %d of in-sync %d", v.m.hw, v.id, r.log.end, r.id)
			}
		}
	}
}

// insync: r is in the ISR with its present process.
func (w *simWorld) insync(r *simReal) bool {
	return r.up && r.be == w.meta.brokers[r.id].Epoch && slices.Contains(w.meta.isr, r.id)
}

// between tells whether there is a record in [from, to), as far as the leader v, the source
// or a replica knows. Where there is none, a log that ends there lacks nothing.
func (w *simWorld) between(v *simVirt, from, to int64) bool {
	logs := [][]simBatch{v.buf, w.source.batches}
	for _, r := range w.real {
		logs = append(logs, r.log.batches)
	}
	for _, l := range logs {
		for _, b := range l {
			if b.last >= from && b.last < to {
				return true
			}
		}
	}
	return false
}

// settle ends all faults and runs a fair schedule until nothing is left to do; then all logs
// equal the source (or, after a stop, each other).
func (w *simWorld) settle(trace func(simAct)) {
	do := func(k simKind, who, n int) bool {
		if w.failure != "" {
			return false
		}
		a := simAct{k, who, n}
		did := w.step(a)
		if did {
			if trace != nil {
				trace(a)
			}
			w.check()
		}
		return did
	}
	w.left, w.paused, w.frozen, w.settling = simBudget{moves: -1}, false, false, true
	quiet := 0
	for round := 0; round < 400 && quiet < 6; round++ {
		before := sum(w)
		for i := range w.real {
			do(actRealFence, i, 0)
			do(actRealUp, i, 0)
			do(actUnfenceReal, i, 0)
		}
		for i := range w.virt {
			do(actVirtStart, i, 0)
			do(actUnfenceVirt, i, 0)
		}
		for k := 0; k < 3; k++ {
			for i := range w.real {
				for _, a := range []simKind{actRealView, actRealSend, actRealAnswer, actRealTake} {
					do(a, i, 2)
				}
			}
			for i, v := range w.virt {
				do(actVirtView, i, 0)
				do(actNotice, i, 0)
				for n := 0; len(v.msgs) > 0 && n < 20; n++ {
					do(actVirtMessage, i, 0)
					do(actVirtView, i, 0)
				}
				do(actVirtPull, i, 2)
				do(actVirtFetch, i, 0)
				do(actVirtTick, i, 0)
			}
		}
		do(actReassign, 0, 0)
		do(actCoordinate, 0, 0)
		if w.failure != "" {
			return
		}
		w.cureFetchers()
		if sum(w) != before {
			quiet = 0
			continue
		}
		// What only people can decide, and what has been waited for.
		if quiet++; do(actGiveUp, 0, 0) || do(actAllow, 0, 0) || w.waitForSilent() {
			quiet = 0
		}
	}
	w.settled()
}

// cureFetchers: a stock fetcher that has given up begins anew with a new epoch. A virtual leader
// finds out by itself, in worlds where that is looked at.
func (w *simWorld) cureFetchers() {
	for _, r := range w.real {
		if r.up && r.failed && w.meta.leader >= 0 && (w.cfg.budget.silent == 0 || !simVirtual.Is(w.meta.leader)) {
			w.fence(w.meta.leader)
			return
		}
	}
}

// waitForSilent lets so much time pass that a leader notices who does not fetch. Whom new epochs
// have not cured people look after, who then ask the leaders to go on.
func (w *simWorld) waitForSilent() bool {
	waits := func(v *simVirt) bool {
		return v.up && w.now.Sub(v.behind.since) < simRaiseWait && v.view != nil && v.behind.epoch == v.view.le
	}
	if !slices.ContainsFunc(w.real, func(r *simReal) bool { return r.up && r.failed }) && !slices.ContainsFunc(w.virt, waits) {
		return false
	}
	w.now = w.now.Add(2 * time.Minute)
	for _, v := range w.virt {
		if len(v.m.LeftToPeople()) > 0 {
			v.m.Forgive(w.now)
			w.act(v)
		}
	}
	return true
}

func (w *simWorld) settled() {
	if w.stopped != stMirroring {
		w.settledStop()
		return
	}
	for _, r := range w.real {
		if r.gone {
			continue
		}
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
	if hw := w.virtByID(w.meta.leader).m.Status().HighWatermark; hw != w.source.end {
		w.fail("S5: the high watermark is %d, the source ends at %d", hw, w.source.end)
	}
}

func (w *simWorld) settledStop() {
	if w.stopped == stStopping {
		w.fail("S5: the stop does not end")
		return
	}
	l := w.byID(w.meta.leader)
	if l == nil {
		w.fail("S5: no real leader after the stop, but %d", w.meta.leader)
		return
	}
	if !sameMembers(w.meta.replicas, simVirtual.Real(w.meta.replicas)) || len(w.meta.replicas) != len(w.real) || len(w.meta.adding)+len(w.meta.removing) > 0 {
		w.fail("S5: after the stop the replicas are %v, adding %v, removing %v", w.meta.replicas, w.meta.adding, w.meta.removing)
	}
	for _, r := range w.real {
		if r.log.end != l.log.end {
			w.fail("S5: after the stop %d ends at %d, leader %d at %d", r.id, r.log.end, l.id, l.log.end)
		}
	}
	l.log.open(func(pid int8) { w.fail("T2: after the stop a transaction of producer %d is open at %d", pid, l.id) })
	for base, id := range w.visible {
		if id != 0 && int64(base) >= l.log.start && !l.log.has(simBatch{base: int64(base), id: int(id)}) {
			w.fail("S1: after the stop leader %d has not got visible batch %d at %d", l.id, id, base)
		}
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
	return w.gone.has(b.id)
}
