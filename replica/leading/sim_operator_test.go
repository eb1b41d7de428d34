package leading

import "slices"

// What the operator says beside stop and pause: whom not to wait for any longer, and that
// what only this side has may go.

// operatorGivesUp: no real replica is in sync, or none that is leads and nobody else can, and
// the one with all data is not waited for any more.
func (w *simWorld) operatorGivesUp() bool {
	m := w.meta
	alive := slices.ContainsFunc(w.real, func(r *simReal) bool { return m.active(r.id) && slices.Contains(m.replicas, r.id) })
	if w.left.giveUp <= 0 && !w.settling || w.giveUp > 0 && !w.settling || w.paused || w.stopped == stStopped || len(simVirtual.Only(m.replicas)) == 0 || len(simVirtual.Real(m.isr)) > 0 && m.leader >= 0 || !alive {
		return false
	}
	w.left.giveUp = max(0, w.left.giveUp-1)
	w.gaveUp++
	w.giveUp = w.gaveUp
	return true
}

// regained: with a real replica in sync again, whoever is lost next is waited for.
func (w *simWorld) regained() bool {
	if w.giveUp == 0 || len(simVirtual.Real(w.meta.isr)) == 0 || w.meta.leader < 0 {
		return false
	}
	w.giveUp = 0
	return true
}

// electGivenUp: where nobody leads, since the controller waits for the one that was given up, a
// virtual broker is elected all the same: it finds out who of those that live has most.
func (w *simWorld) electGivenUp() bool {
	m := w.meta
	if w.giveUp == 0 || m.leader >= 0 {
		return false
	}
	for _, id := range m.replicas {
		if !m.active(id) {
			continue
		}
		if !simVirtual.Is(id) {
			return false
		}
		w.publish(func(m *simMeta) {
			if r := simVirtual.Real(m.isr); len(r) > 0 {
				m.lastReal = r
			}
			m.leader, m.isr, m.elr, m.lastLeader, m.recovering = id, []int32{id}, nil, -1, true
			m.le++
			m.pe++
		})
		return true
	}
	return false
}

// goesOn is a takeover that does not wait for who has all data. What none of those that it
// knows to be alive has is given up; what one of them has is not.
func (w *simWorld) goesOn(v *simVirt) {
	m := v.m
	if !m.consent.GiveUp || m.phase <= Collecting || m.phase == Resigned || v.given == m.epoch || len(simVirtual.Real(m.view.ISR)) > 0 {
		return
	}
	v.given = m.epoch
	for base, id := range w.visible {
		b := simBatch{base: int64(base), id: int(id)}
		if id != 0 && !slices.ContainsFunc(w.real, func(r *simReal) bool { return !m.view.Brokers[r.id].Fenced && r.log.has(b) }) {
			w.visible[base] = 0
			w.stats.given++
		}
	}
}

// realForever: a broker dies and never comes back. One stays.
func (w *simWorld) realForever(r *simReal) bool {
	if w.left.forever <= 0 || !r.up || !slices.ContainsFunc(w.real, func(o *simReal) bool { return o != r && !o.gone }) {
		return false
	}
	w.left.forever--
	w.left.crash++
	r.gone = true
	return w.realDown(r, endKilled, 0)
}

// restore puts the source back to what it was before a batch. It goes on under the epoch that
// it had then, or the next one, which may have been used before.
func (w *simWorld) restore(n int) bool {
	if w.left.restore <= 0 || len(w.source.batches) == 0 {
		return false
	}
	w.left.restore--
	w.restored = true
	at, k := w.source.batches[n%len(w.source.batches)].base, n/len(w.source.batches)
	for _, b := range w.source.batches {
		if b.base >= at {
			w.unsaid = append(slices.Clone(w.unsaid), b)
		}
	}
	w.source.truncate(at)
	next := int32(k % 2)
	if c := w.source.cache; len(c) > 0 {
		next += c[len(c)-1].Epoch
	}
	// Under epochs that were used, nobody can tell another record from one that no replica shows yet
	// (see docs/safety/model.md): such a source has elected often enough since.
	if w.sle = max(next, w.sle+1); !w.hidden(at) {
		w.sle = next
	}
	w.said()
	n = k / 2 % 3
	if w.sle > next {
		n = max(n, 1)
	}
	for i := range n {
		w.append(int64(i))
	}
	return true
}

// hidden tells whether a batch from an offset on is on its way to the replicas, or with them but not
// shown by all, or whether a takeover has asked the source and has not read what it has to read again.
func (w *simWorld) hidden(from int64) bool {
	for _, v := range w.virt {
		if v.up && (v.m.phase == Probing || v.m.phase == Leading && v.m.end < v.m.s) {
			return true
		}
		if slices.ContainsFunc(v.buf, func(b simBatch) bool { return b.base >= from && w.visible[b.base] != uint8(b.id) }) {
			return true
		}
	}
	for _, r := range w.real {
		logs := slices.Clone(r.log.batches)
		if r.ans != nil {
			logs = append(logs, r.ans.batches...)
		}
		if slices.ContainsFunc(logs, func(b simBatch) bool { return b.base >= from && b.last >= r.hw }) {
			return true
		}
	}
	return false
}

// said lets go of what the source lost by being restored, once somebody has allowed it, or an
// election at the source makes it look like any unclean one.
func (w *simWorld) said() {
	var left []simBatch
	for _, b := range w.unsaid {
		if w.allow || b.epoch < w.sle {
			w.lose(b)
		} else {
			left = append(left, b)
		}
	}
	w.unsaid = left
}

func (w *simWorld) operatorAllows() bool {
	if w.allow || !w.restored {
		return false
	}
	w.allow = true
	w.said()
	return true
}

// virtRetry: what failed is tried again.
func (w *simWorld) virtRetry(v *simVirt) bool {
	if !v.up || !v.failed {
		return false
	}
	v.failed = false
	v.m.Retry(w.now, v.m.Status().Epoch)
	w.act(v)
	return true
}

// fail is what the driver does with an error of the source.
func (w *simWorld) failing(v *simVirt) {
	v.failed = true
	v.m.Fail(w.now, v.m.Status().Epoch)
}

// another is the driver's look at whether the source holds what replicas show.
func (w *simWorld) another(v *simVirt, a ProbeSource) bool {
	if a.LastFetchedEpoch < 0 {
		return false
	}
	var best simBatch
	at := int64(-1)
	for _, id := range v.m.Reference() {
		r := w.byID(id)
		if o := min(a.Offset, r.hw) - 1; r.up && o > at {
			if b, ok := r.log.at(o); ok && o >= w.source.start {
				best, at = b, o
			}
		}
	}
	there, ok := w.source.at(at)
	return at >= 0 && ok && there.id != best.id
}

// at returns the batch that covers an offset.
func (l *simLog) at(offset int64) (simBatch, bool) {
	for _, b := range l.batches {
		if b.base <= offset && offset <= b.last {
			return b, true
		}
	}
	return simBatch{}, false
}
