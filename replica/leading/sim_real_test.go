package leading

import (
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Stock brokers: replica fetchers that truncate on divergence, and leaders.

func (r *simReal) assigned() bool { return slices.Contains(r.view.replicas, r.id) }

func (r *simReal) follows() bool {
	return r.up && r.view != nil && r.view.leader >= 0 && r.view.leader != r.id && r.assigned() && !r.failed
}

func (w *simWorld) realView(r *simReal) bool {
	if !r.up || r.view == w.meta {
		return false
	}
	old := r.view
	r.view, r.joining = w.meta, nil
	if !r.assigned() {
		// The log of a replica that was reassigned away is deleted.
		w.cut(r, 0, true)
		r.req, r.ans, r.failed = nil, nil, false
		return true
	}
	if old == nil || old.le != r.view.le || old.leader != r.view.leader {
		r.req, r.ans, r.failed = nil, nil, false
		r.reps = map[int32]int64{}
		if r.view.leader == r.id {
			r.epochStart = r.log.end
			r.log.assign(r.view.le, r.log.end)
		}
	}
	if r.leads() {
		w.leaderMark(r)
		w.expose(r)
	}
	return true
}

func (w *simWorld) realSend(r *simReal) bool {
	if !r.follows() || r.req != nil || r.ans != nil {
		return false
	}
	last := int32(lineage.Undefined)
	if n := len(r.log.cache); n > 0 {
		last = r.log.cache[n-1].Epoch
	}
	r.req = &simRequest{to: r.view.leader, cur: r.view.le, last: last, be: r.be, off: r.log.end, start: r.log.start}
	return true
}

func (w *simWorld) leaderMark(l *simReal) {
	if len(l.view.isr) < min(l.view.min, len(l.view.replicas)) {
		return
	}
	hw := l.log.end
	for _, id := range append(slices.Clone(l.view.isr), l.joining...) {
		if id == l.id {
			continue
		}
		end, ok := l.reps[id]
		if !ok {
			return
		}
		hw = min(hw, end)
	}
	l.hw = max(l.hw, hw)
}

// leaderSees is a stock leader taking a follower's position.
func (w *simWorld) leaderSees(l *simReal, id int32, be, end int64) {
	l.reps[id] = end
	if l.view == w.meta && slices.Contains(l.view.replicas, id) && !slices.Contains(l.view.isr, id) && end >= l.hw && end >= l.epochStart && be == w.meta.brokers[id].Epoch && !w.meta.brokers[id].Fenced {
		var members []Member
		for _, m := range with(l.view.isr, id) {
			members = append(members, Member{m, lineage.Undefined})
		}
		if w.alter(l.id, l.be, AlterPartition{l.view.le, l.view.pe, members}) == CodeNone {
			if w.meta.le == l.view.le {
				l.view = w.meta
			} else {
				l.joining = with(l.joining, id) // in the maximal ISR until the change is seen
			}
		}
	}
	w.leaderMark(l)
	w.expose(l)
}

// leads tells whether a real broker acts as the leader that it knows it is.
func (r *simReal) leads() bool { return r.up && r.view != nil && r.view.leader == r.id }

// realAnswer: the leader, real or virtual, takes the follower's request.
func (w *simWorld) realAnswer(r *simReal, n int) bool {
	q := r.req
	if q == nil {
		return false
	}
	if simVirtual.Is(q.to) {
		return w.virtAnswer(w.virtByID(q.to), r, n)
	}
	l := w.byID(q.to)
	if !l.leads() {
		return false
	}
	a := &simAnswer{from: q.off, earliest: l.log.start, endA: l.log.end}
	r.req, r.ans = nil, a
	switch {
	case q.cur < l.view.le:
		a.code = CodeFencedLeaderEpoch
		return true
	case q.cur > l.view.le:
		a.code = CodeUnknownLeaderEpoch
		return true
	}
	div, e, o, out := l.log.check(q.off, q.last)
	switch {
	case div:
		a.div, a.divEpoch, a.divEnd = true, e, o
		return true
	case out:
		a.code = CodeOffsetOutOfRange
		return true
	}
	w.leaderSees(l, r.id, q.be, q.off)
	a.batches, a.hw, a.logStart = l.log.read(q.off, l.log.end, 1+n%3), l.hw, l.log.start
	return true
}

func (w *simWorld) realTake(r *simReal) bool {
	a := r.ans
	if a == nil || !r.up {
		return false
	}
	r.ans = nil
	if a.virtual && w.handedBack > 0 && r.view.le >= w.handedBack && (a.div || a.code == CodeOffsetOutOfRange || len(a.batches) > 0) {
		w.fail("S4: a virtual broker changes the log of %d after the hand-back: %+v", r.id, *a)
	}
	switch {
	case a.code == CodeFencedLeaderEpoch:
		r.failed = true
	case a.code == CodeOffsetOutOfRange:
		if a.endA < r.log.end {
			w.cut(r, a.endA, false)
		} else if a.earliest > r.log.end {
			w.cut(r, a.earliest, true)
			w.stats.jumps++
		}
	case a.code != CodeNone:
	case a.div:
		e, o := r.log.cache.EndOffsetFor(a.divEpoch, r.log.end)
		to := min(o, r.log.end)
		switch {
		case e == lineage.Undefined:
			to = min(a.divEnd, r.log.end)
		case e == a.divEpoch:
			to = min(to, a.divEnd)
		}
		w.cut(r, to, false)
		r.log.cache = r.log.cache.Cut(r.log.end)
	default:
		if a.from != r.log.end {
			return true
		}
		for _, b := range a.batches {
			if b.epoch > r.view.le {
				break // KAFKA-18723
			}
			if b.base < r.log.end {
				switch {
				case r.log.start == r.log.end:
					r.log.restart(b.base)
				case a.virtual:
					w.fail("F: %d gets batch [%d, %d] at its end %d", r.id, b.base, b.last, r.log.end)
					return true
				default:
					// It was truncated within a batch that this real leader has whole. A stock
					// fetcher gives up until the next epoch.
					r.failed = true
					w.stats.failed++
					return true
				}
			}
			r.log.append(b)
		}
		hw := max(min(a.hw, r.log.end), r.log.start)
		if hw < r.hw {
			w.stats.back++
		}
		r.hw = hw
		if a.logStart > r.log.start {
			if a.logStart > r.hw {
				r.failed = true
				w.fail("F: log start %d above the high watermark %d of %d", a.logStart, r.hw, r.id)
			} else {
				r.log.trim(a.logStart)
			}
		}
		w.expose(r)
	}
	return true
}

// How a real broker ends.
const (
	endClean = iota
	endKilled
	endPower // the log's end goes
	endWiped
)

func (w *simWorld) realDown(r *simReal, how, n int) bool {
	if !r.up {
		return false
	}
	switch how {
	case endClean, endKilled:
		if w.left.crash <= 0 {
			return false
		}
		w.left.crash--
	default:
		if w.left.power <= 0 {
			return false
		}
		w.left.power--
	}
	r.up, r.req, r.ans, r.failed, r.clean, r.view, r.joining = false, nil, nil, false, how == endClean, nil, nil
	r.reps = map[int32]int64{}
	switch how {
	case endKilled:
		if n%2 == 1 && w.cfg.budget.restore == 0 {
			r.hw = r.log.start // the checkpoint of the high watermark is older
		}
	case endPower:
		if k := len(r.log.batches); k > 0 {
			r.log.truncate(r.log.batches[n%k].base)
		}
		r.hw = min(r.hw, r.log.end)
	case endWiped:
		r.log.restart(0)
		r.hw = 0
	}
	return true
}

func (w *simWorld) realUp(r *simReal) bool {
	if r.up || r.gone || w.meta.active(r.id) {
		return false
	}
	r.be = w.register(r.id, !r.clean)
	r.up = true
	return true
}

// write is a client that writes to the leader, which is the end of a stop, or what the
// write lock is there against.
func (w *simWorld) write(r *simReal) bool {
	if !r.leads() {
		return false
	}
	foreign := !w.open
	switch {
	case foreign && w.left.rogue > 0:
		w.left.rogue--
	case !foreign && w.left.writes > 0:
		w.left.writes--
	default:
		return false
	}
	w.nextID++
	if foreign {
		w.foreign.add(w.nextID)
	} else {
		w.local.add(w.nextID)
	}
	r.log.append(simBatch{base: r.log.end, last: r.log.end, epoch: r.view.le, id: w.nextID})
	w.leaderMark(r)
	w.expose(r)
	return true
}
