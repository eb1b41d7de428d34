package leading

import (
	"slices"
)

// The coordinator of the mirror: the only one who reassigns (R19). It sees the metadata log
// and the state topic, sends one request at a time, and may die with that on its way.

func (w *simWorld) coordinate() bool {
	if slices.ContainsFunc(w.reassigns, func(r simReassign) bool { return !r.late }) {
		return false // no answer yet
	}
	if w.regained() || w.electGivenUp() {
		return true
	}
	if w.stopped == stMirroring {
		return w.keepAssigned()
	}
	return w.handBack()
}

// ask sends what leads to target, or first the end of what stands in its way.
func (w *simWorld) ask(target []int32) bool {
	for _, id := range w.meta.adding {
		if !slices.Contains(target, id) {
			target = nil
			break
		}
	}
	w.reassigns = append(slices.Clone(w.reassigns), simReassign{target: target})
	return true
}

// coordinatorDies: what it has asked for arrives when it will.
func (w *simWorld) coordinatorDies() bool {
	if w.left.coord <= 0 || len(w.reassigns) == 0 {
		return false
	}
	w.left.coord--
	w.reassigns = slices.Clone(w.reassigns)
	for i := range w.reassigns {
		w.reassigns[i].late = true
	}
	return true
}

// reassignArrives moves request n; lost, it does not arrive.
func (w *simWorld) reassignArrives(n int, lost bool) bool {
	if len(w.reassigns) == 0 || lost && w.left.lost == 0 {
		return false
	}
	n %= len(w.reassigns)
	r := w.reassigns[n]
	w.reassigns = slices.Delete(slices.Clone(w.reassigns), n, n+1)
	if lost {
		if w.left.lost > 0 {
			w.left.lost--
		}
		return true
	}
	w.reassign(r.target)
	return true
}

// settledReplicas are those that the partition has once what is pending is done.
func (w *simWorld) settledReplicas() []int32 { return without(w.meta.replicas, w.meta.removing...) }

func sameMembers(a, b []int32) bool { return len(a) == len(b) && len(without(a, b...)) == 0 }

// keepAssigned keeps live virtual brokers in front, and the lock as wide as they are many.
func (w *simWorld) keepAssigned() bool {
	m := w.meta
	var live []int32
	for _, v := range w.virt {
		if m.active(v.id) {
			live = append(live, v.id)
		}
	}
	n := min(w.cfg.virt, len(live))
	if n == 0 {
		return false
	}
	if want := max(w.own+n, w.behindForeign()); (w.cfg.budget.min > 0 || w.cfg.raise && (want > m.min || simVirtual.Is(m.leader))) && w.mayChangeMin(want) && w.setMin(want) {
		return true
	}
	settled := w.settledReplicas()
	have := simVirtual.Only(settled)
	want := only(have, live)
	if len(want) > w.cfg.virt {
		want = want[:w.cfg.virt]
	}
	alive := len(want)
	for _, id := range live {
		if len(want) < w.cfg.virt {
			want = with(want, id)
		}
	}
	// A real leader with a dead virtual broker, or a real one, before a live one: only the
	// first replica can be elected.
	reorder := len(want) > 0 && want[0] != settled[0] && !simVirtual.Is(m.leader)
	if len(want) > alive || len(have) > max(n, min(len(have), w.cfg.virt)) || reorder {
		return w.ask(append(slices.Clone(want), simVirtual.Real(settled)...))
	}
	first := m.replicas[0]
	_, followed := w.state.Chains[m.le]
	if m.leader >= 0 && !simVirtual.Is(m.leader) && simVirtual.Is(first) && slices.Contains(m.isr, first) && m.active(first) && followed {
		w.change(m.isr, nil, true)
		return true
	}
	return false
}

// behindForeign is the number of replicas where clients have written behind what is mirrored and a
// real broker leads: with so many wanted in sync, who joins makes nothing of it visible (R21).
func (w *simWorld) behindForeign() int {
	if m := w.meta; w.cfg.raise && m.leader >= 0 && !simVirtual.Is(m.leader) && w.state.Written[m.le] {
		return len(m.replicas)
	}
	return 0
}

// mayChangeMin: the controller forgets with each change who is eligible to lead beside the
// ISR. That must not be all that is known.
func (w *simWorld) mayChangeMin(next int) bool {
	in := len(simVirtual.Real(w.meta.isr))
	return in > 0 && !(next < w.meta.min && in < w.own && len(simVirtual.Real(w.meta.elr)) > 0)
}

// handBack is one step of a stop, and of keeping stopped what is.
func (w *simWorld) handBack() bool {
	m := w.meta
	settled := w.settledReplicas()
	if len(simVirtual.Only(m.replicas)) == 0 {
		if w.stopped == stStopping && w.cfg.txn {
			if did, done := w.abortOpen(); did || !done {
				return did
			}
		}
		if w.stopped == stStopping {
			w.stopped, w.handedBack = stStopped, m.le
			return true
		}
		// Who was left out comes back.
		target := slices.Clone(settled)
		for _, r := range w.real {
			target = with(target, r.id)
		}
		if sameMembers(target, settled) {
			return false
		}
		return w.ask(target)
	}
	in := simVirtual.Real(m.isr)
	if len(in) == 0 || m.leader < 0 {
		return false
	}
	var behind []int32
	for _, id := range simVirtual.Real(m.replicas) {
		if m.active(id) && !slices.Contains(in, id) {
			behind = append(behind, id)
		}
	}
	target := in
	if !simVirtual.Is(m.leader) { // R18
		if len(behind) > 0 {
			return false
		}
		target = append([]int32{m.leader}, without(in, m.leader)...)
	} else {
		done := w.quiet
		if done != nil && done.Epoch != m.le {
			done = nil
		}
		again := w.stopped == stStopped
		switch {
		case len(behind) > 0 && (again || done != nil && !done.Complete):
			// A real broker leads first, and brings the others into sync (R17).
			target = append(slices.Clone(in), behind...)
			if !sameMembers(target, settled) || len(m.adding) > 0 || !slices.Contains(m.isr, m.replicas[0]) {
				return w.ask(target)
			}
			first := m.replicas[0]
			if !simVirtual.Is(first) && m.active(first) {
				w.change(m.isr, nil, true)
				return true
			}
			return false
		case len(behind) > 0 || done == nil && !again:
			return false
		}
		if done != nil {
			// Members that joined since follow those that were there.
			target = append(only(done.Order, in), without(in, done.Order...)...)
		}
	}
	if !w.open || m.min != w.own {
		w.open = true
		w.setMin(w.own)
		return true
	}
	if len(m.adding) == 0 && sameMembers(target, settled) {
		return false // asked for already
	}
	return w.ask(target)
}
