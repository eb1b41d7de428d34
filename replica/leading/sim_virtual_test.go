package leading

import (
	"fmt"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Virtual brokers: the driver of the Machine, as small as it can be.

// simRaiseWait is how long a virtual broker waits for a higher min.insync.replicas.
const simRaiseWait = time.Minute

// simMsg is a request of a leading virtual broker, then its answer.
type simMsg struct {
	asked   Action
	be      int64 // the sender's broker epoch
	seq     int   // of a probe
	orphan  bool  // nobody waits for the answer
	handled bool
	answer  simReply
}

type simReply struct {
	code      int16
	ambiguous bool
	known     map[int32]int64
	records   map[int32]lineage.Entry
	probe     ProbeAnswer
	record    lineage.Record
	consent   Consent
	paused    bool
	gaveUp    int
	allow     bool
}

func (g *simMsg) String() string {
	what := "?"
	if g.handled {
		what = "!"
	}
	return fmt.Sprintf("%T%v%s", g.asked, g.asked, what)
}

func (w *simWorld) virtStart(v *simVirt) bool {
	if v.up {
		return false
	}
	v.be = w.register(v.id, true)
	*v = simVirt{id: v.id, be: v.be, up: true, m: w.machine(v.id), msgs: v.msgs}
	return true
}

func (w *simWorld) virtCrash(v *simVirt) bool {
	if !v.up || w.left.virt <= 0 {
		return false
	}
	w.left.virt--
	w.virtDown(v)
	return true
}

func (w *simWorld) virtDown(v *simVirt) {
	v.up = false
	// What was sent may still arrive; what comes back is for nobody.
	var left []simMsg
	for _, g := range v.msgs {
		if !g.handled && effective(g.asked) {
			g.orphan = true
			left = append(left, g)
		}
	}
	v.msgs = left
	for _, r := range w.real {
		if r.req != nil && r.req.waits && r.req.to == v.id {
			r.req = nil // the connection is gone
		}
	}
}

// effective tells whether a request changes anything where it arrives.
func effective(a Action) bool {
	switch a.(type) {
	case AskHighWatermarks, ProbeSource:
		return false
	}
	return true
}

func (w *simWorld) virtView(v *simVirt) bool {
	if !v.up || v.view == w.meta {
		return false
	}
	v.view = w.meta
	if v.view.brokers[v.id].Epoch != v.be {
		w.virtDown(v) // unregistered by somebody else: the process ends
		return true
	}
	v.m.Metadata(w.now, View{
		Leader: v.view.leader, LeaderEpoch: v.view.le, PartitionEpoch: v.view.pe, Replicas: v.view.replicas, ISR: v.view.isr, ELR: v.view.elr,
		LastRealISR: v.view.lastReal, Recovering: v.view.recovering, MinISR: v.view.min, Brokers: v.view.brokers,
	})
	w.act(v)
	return true
}

func (w *simWorld) virtAnswer(v *simVirt, r *simReal, n int) bool {
	if !v.up {
		return false
	}
	q := r.req
	again := FetchRequest{Replica: r.id, BrokerEpoch: q.be, CurrentLeaderEpoch: q.cur, Offset: q.off, LastFetchedEpoch: q.last, LogStart: q.start}
	var d Decision
	switch {
	case !q.waits:
		d = v.m.Fetch(w.now, again)
		if d.Code == CodeNone && !d.Diverging && d.Serve == ServeNothing && n%2 == 1 {
			wait := *q
			wait.waits = true
			r.req = &wait
			w.act(v)
			return true
		}
	case n%4 != 3 && !w.settling && !v.m.NewsFor(r.id, q.cur, q.off):
		return false // it is not over yet
	default:
		d = v.m.Again(again)
	}
	a := &simAnswer{
		code: d.Code, div: d.Diverging, divEpoch: d.DivergingTo.Epoch, divEnd: d.DivergingTo.Start, from: q.off,
		hw: d.HighWatermark, logStart: d.LogStart, earliest: v.m.LogStart(), endA: v.m.LogEnd(), virtual: true,
	}
	r.req, r.ans = nil, a
	if d.Code == CodeNone && v.m.phase < Leading {
		w.fail("R4: %d answers %d before it is ready", v.id, r.id)
	}
	if d.Code == CodeNone && !d.Diverging {
		if d.Serve == ServeReplica {
			if g := w.byID(d.From); g.up {
				a.batches = g.log.read(d.Offset, min(g.hw, d.End), 1+n%3)
				if len(a.batches) == 0 {
					d = v.m.PastGap(again, d, g.hw)
				}
			}
		}
		if d.Serve == ServeBuffer {
			for _, b := range v.buf {
				if b.last >= d.Offset && b.base < d.End && len(a.batches) < 1+n%3 {
					a.batches = append(a.batches, b)
				}
			}
			if len(a.batches) == 0 {
				w.fail("D: nothing in the buffer of %d for [%d, %d), it has %v", v.id, d.Offset, d.End, v.buf)
			}
		}
		v.m.Told(r.id, d.HighWatermark)
		for _, b := range a.batches {
			if b.epoch > q.cur || q.last != lineage.Undefined && b.epoch < q.last {
				w.fail("R10: epoch %d given to a follower of epoch %d whose log ends with %d", b.epoch, q.cur, q.last)
			}
		}
	}
	w.act(v)
	return true
}

// act carries out what the machine asks for.
func (w *simWorld) act(v *simVirt) {
	w.goesOn(v)
	for _, a := range v.m.Take() {
		switch a := a.(type) {
		case ReadState:
			v.failed, v.last = false, simBatch{}
			v.msgs = append(v.msgs, simMsg{asked: a, be: v.be})
		case AskHighWatermarks, Persist, AlterPartition, Resign, Rested, Quiesced:
			v.msgs = append(v.msgs, simMsg{asked: a, be: v.be})
		case ProbeSource:
			v.probes++
			v.msgs = append(v.msgs, simMsg{asked: a, seq: v.probes})
		case StartReading:
			v.read, v.readAt, v.readLE = true, a.Offset, a.LastFetchedEpoch
			v.buf = slices.DeleteFunc(slices.Clone(v.buf), func(b simBatch) bool { return b.base >= a.Offset })
		case StopReading:
			v.read = false
		case Drop:
			v.buf = nil
		case Ready:
			w.stats.ready++
			w.begun = true
		case RefusedLoss:
			if !v.asItIs && !v.noLoss {
				w.fail("refused with consent: %v", a)
			}
		}
	}
}

// handle is a request at the other side. It tells whether there will be an answer.
func (w *simWorld) handle(v *simVirt, g *simMsg) bool {
	switch a := g.asked.(type) {
	case ReadState:
		// The barrier fences: a late write of an earlier leader would be lost to
		// this one, though a log may hold what that leader served after it.
		w.barrier = max(w.barrier, a.Epoch)
		w.rests = w.rests && w.paused // resumed
		g.answer = simReply{
			record: w.state, paused: w.paused, gaveUp: w.giveUp, allow: w.allow,
			consent: Consent{Truncate: true, AllowLoss: true, AllowUnknown: w.allow, GiveUp: w.giveUp > 0, Runs: w.begun || !w.cfg.failback},
		}
		switch {
		case w.stopped != stMirroring:
			g.answer.consent = Consent{GiveUp: w.giveUp > 0}
		case w.rests:
			g.answer.consent = Consent{AsItIs: true}
		}
	case AskHighWatermarks:
		g.answer.known, g.answer.records = map[int32]int64{}, map[int32]lineage.Entry{}
		for id := range a.Replicas {
			r := w.byID(id)
			if !r.up {
				continue
			}
			g.answer.known[id] = r.hw
			if seen := r.log.read(r.hw-1, r.hw, 1); len(seen) > 0 && slices.Contains(a.Records, id) {
				g.answer.records[id] = lineage.Entry{Epoch: seen[0].epoch, Start: r.hw - 1}
			}
		}
	case ProbeSource:
		p := ProbeAnswer{SourceStart: w.source.start, SourceEnd: w.source.end}
		p.Diverging, p.DivergesAt.SourceEpoch, p.DivergesAt.Start, p.OutOfRange = w.source.check(a.Offset, a.LastFetchedEpoch)
		if w.restored {
			// A leader loses nothing that was visible in its own epoch.
			p.Another = p.Diverging && w.sle <= a.LastFetchedEpoch || !p.Diverging && !p.OutOfRange && w.another(v, a)
		}
		g.answer.probe = p
	case Persist:
		return w.persist(a.Epoch, a.Record)
	case AlterPartition:
		g.answer.code = w.alter(v.id, g.be, a)
	case Resign:
		if w.meta.brokers[v.id].Epoch == g.be && w.meta.le == a.Epoch && w.meta.leader == v.id {
			w.fence(v.id)
		}
		return false
	case Rested:
		if w.paused && a.Epoch >= w.barrier {
			w.rests, w.restsAt = true, a.End
		}
		return false
	case Quiesced:
		if w.stopped == stStopping && a.Epoch >= w.barrier {
			w.quiet = &a
		}
		return false
	}
	return true
}

// persist is a write to the state topic, fenced by the leader epoch (R20). What is read
// later is merged as the coordinator's view does.
func (w *simWorld) persist(epoch int32, rec lineage.Record) bool {
	if newest, _ := w.state.Newest(); max(newest, w.barrier) > epoch || w.stopped == stStopped {
		return false
	}
	newest, chain := rec.Newest()
	if old, ok := w.state.Chains[newest]; ok {
		later := lineage.Record{Chains: map[int32]lineage.Chain{newest: chain}}.
			Merge(lineage.Record{Chains: map[int32]lineage.Chain{newest: old}})
		rec = rec.With(newest, later.Chains[newest])
	}
	w.state = rec
	return true
}

// deliver is an answer that has come home.
func (w *simWorld) deliver(v *simVirt, g *simMsg) {
	m, r := v.m, &g.answer
	switch a := g.asked.(type) {
	case ReadState:
		if st := m.Status(); st.Epoch != a.Epoch || st.Phase != ReadingState {
			return
		}
		if w.paused != r.paused {
			// What the state allows was read under another wish.
			v.msgs = append(v.msgs, simMsg{asked: a, be: v.be})
			return
		}
		v.paused, v.asItIs, v.noLoss, v.gaveUp, v.allow = r.paused, r.consent.AsItIs, !r.consent.Truncate, r.gaveUp, r.allow
		m.StateRead(w.now, a.Epoch, r.record, r.consent)
		if r.paused {
			m.Pause(w.now)
		}
	case AskHighWatermarks:
		m.HighWatermarks(w.now, a.Epoch, a.Seq, r.known, r.records)
	case ProbeSource:
		if g.seq == v.probes && m.Probed(w.now, a.Epoch, r.probe) != nil {
			if w.restored {
				w.failing(v)
				break
			}
			m.Retry(w.now, a.Epoch) // the source moves on; ask again
		}
	case Persist:
		m.Persisted(w.now, a.Epoch, a.Seq)
	case AlterPartition:
		m.Altered(w.now, a.LeaderEpoch, a.PartitionEpoch, r.code, r.ambiguous)
	}
	w.act(v)
}

// message moves message n of v: it arrives, or its answer does.
func (w *simWorld) message(v *simVirt, n int) bool {
	if len(v.msgs) == 0 {
		return false
	}
	n %= len(v.msgs)
	g := v.msgs[n]
	if !g.handled {
		g.handled = true
		if w.handle(v, &g) && !g.orphan {
			v.msgs[n] = g
			return true
		}
		v.msgs = slices.Delete(slices.Clone(v.msgs), n, n+1)
		return true
	}
	v.msgs = slices.Delete(slices.Clone(v.msgs), n, n+1)
	if v.up {
		w.deliver(v, &g)
	}
	return true
}

// loseMessage loses message n, the request or the answer: its sender tries again. With
// twice the request was only late, and arrives all the same.
func (w *simWorld) loseMessage(v *simVirt, n int, twice bool) bool {
	left := &w.left.lost
	if twice {
		left = &w.left.twice
	}
	if len(v.msgs) == 0 || *left == 0 {
		return false
	}
	n %= len(v.msgs)
	g := v.msgs[n]
	if twice && (g.handled || g.orphan || !effective(g.asked)) {
		return false
	}
	if *left > 0 {
		*left--
	}
	v.msgs = slices.Clone(v.msgs)
	if twice {
		v.msgs[n].orphan = true
	} else {
		v.msgs = slices.Delete(v.msgs, n, n+1)
	}
	if g.orphan || !v.up {
		return true
	}
	if a, ok := g.asked.(AlterPartition); ok {
		v.m.Altered(w.now, a.LeaderEpoch, a.PartitionEpoch, 0, true)
		w.act(v)
		return true
	}
	g.handled, g.answer = false, simReply{}
	v.msgs = append(v.msgs, g)
	return true
}

// notice: a leader sees what is wanted of it.
func (w *simWorld) notice(v *simVirt) bool {
	st := v.m.Status()
	if !v.up || st.Phase == Off || st.Phase == ReadingState {
		return false
	}
	if v.gaveUp != w.giveUp {
		told := v.gaveUp
		if v.gaveUp = w.giveUp; v.gaveUp > 0 && !w.paused {
			if v.m.GiveUp(w.now) {
				w.act(v)
				return true
			}
			v.gaveUp = told
		}
	}
	if w.stopped != stMirroring {
		if v.m.quiescing {
			return false
		}
		v.m.Quiesce(w.now)
		w.act(v)
		return true
	}
	if v.allow != w.allow {
		if v.allow = w.allow; v.allow {
			if v.failed {
				v.failed = false
				v.m.Retry(w.now, st.Epoch)
			}
			v.m.Reconsider(w.now)
			v.m.Consented(w.now)
			w.act(v)
			return true
		}
	}
	if v.paused == w.paused {
		return false
	}
	if v.paused = w.paused; v.paused {
		v.m.Pause(w.now)
	} else {
		v.m.Resume(w.now)
		// The newest report supersedes an older one that is not delivered yet.
		v.msgs = slices.DeleteFunc(slices.Clone(v.msgs), func(g simMsg) bool { _, rests := g.asked.(Rested); return rests && !g.handled })
		if st.Phase == Leading && st.Epoch >= w.barrier {
			w.rests = false
		}
	}
	w.act(v)
	return true
}

// pull is one Fetch of the reader at the source.
func (w *simWorld) pull(v *simVirt, n int) bool {
	if !v.up || !v.read {
		return false
	}
	epoch := v.m.Status().Epoch
	div, _, _, out := w.source.check(v.readAt, v.readLE)
	switch {
	case div:
		v.m.SourceDiverged(w.now, epoch)
		w.act(v)
		return true
	case out:
		err := v.m.SourceOutOfRange(w.now, epoch, w.source.start, w.source.end)
		switch {
		case err == nil:
		case v.allow:
			v.m.SourceDiverged(w.now, epoch)
		case w.restored && !v.failed:
			w.failing(v)
		default:
			w.act(v)
			return false
		}
		w.act(v)
		return true
	case v.last.id > 0 && v.last.last == v.readAt-1:
		// With each new leader the source must show that it has what was read last.
		if b, ok := w.source.at(v.last.last); ok && b.id != v.last.id {
			v.m.SourceDiverged(w.now, epoch)
			w.act(v)
			return true
		}
	}
	got := w.source.read(v.readAt, w.source.end, 1+n%3)
	if len(got) == 0 {
		return false
	}
	infos := make([]BatchInfo, len(got))
	for i, b := range got {
		infos[i] = BatchInfo{b.base, b.last, b.epoch}
	}
	stamps, err := v.m.Ingest(w.now, epoch, infos, w.source.start)
	if err != nil && w.restored {
		w.failing(v)
		w.act(v)
		return true
	}
	if err != nil {
		w.fail("Ingest: %v", err)
		return true
	}
	for i, b := range got {
		if stamps != nil && stamps[i] != lineage.Undefined {
			v.last = b
			b.epoch = stamps[i]
			v.buf = append(v.buf, b)
		}
		v.readAt, v.readLE = b.last+1, got[i].epoch
	}
	w.act(v)
	return true
}

func (w *simWorld) evict(v *simVirt) bool {
	if !v.up || v.m.Status().Phase != Leading {
		return false
	}
	below := v.m.EvictBelow()
	if below <= v.m.Status().BufferStart {
		return false
	}
	v.buf = slices.DeleteFunc(slices.Clone(v.buf), func(b simBatch) bool { return b.last < below })
	v.m.Evicted(below)
	return true
}

// fetchVirtual: the virtual broker v fetches from its peer or from a real leader.
func (w *simWorld) fetchVirtual(v *simVirt) bool {
	if !v.up || v.view == nil || v.view.leader == v.id || v.view.leader < 0 || !slices.Contains(v.view.replicas, v.id) || w.stopped != stMirroring {
		return false
	}
	if simVirtual.Is(v.view.leader) {
		l := w.virtByID(v.view.leader)
		if !l.up {
			return false
		}
		l.m.Fetch(w.now, FetchRequest{Replica: v.id, BrokerEpoch: v.be, CurrentLeaderEpoch: v.view.le, LastFetchedEpoch: lineage.Undefined})
		w.act(l)
		return true
	}
	l := w.byID(v.view.leader)
	if !l.leads() || l.view.le != v.view.le || v.be != w.meta.brokers[v.id].Epoch {
		return false
	}
	b := &v.behind
	live := func(id int32) bool { return simVirtual.Is(id) && v.view.active(id) }
	if b.epoch != l.view.le {
		// R11: the real leader's history is read and kept under its epoch before joining.
		w.barrier = max(w.barrier, l.view.le)
		chain := w.state.Seed(l.log.cache, l.log.end)
		if w.cfg.failback && !w.begun { // a start; later the source is not asked
			chain = w.state.SeedLinked(l.log.cache, l.log.end, w.link)
		}
		chain = chain.Cut(l.log.end)
		written := chain.WrittenBehind() && (w.begun || !w.cfg.failback)
		if l.epochStart >= l.log.end {
			chain = append(chain, lineage.Entry{Epoch: l.view.le, SourceEpoch: lineage.NoSource, Start: l.epochStart})
		}
		*b = simBehind{epoch: l.view.le, read: w.state, chain: chain, written: written, claim: max(l.hw, l.epochStart)}
		return true
	}
	if !b.ready {
		next := b.read.With(b.epoch, b.chain)
		if b.written {
			next = next.WithWritten(b.epoch)
		}
		if !w.persist(b.epoch, next) {
			*b = simBehind{}
			return false
		}
		b.ready = true
		return true
	}
	if w.cfg.raise && b.written && Shows(v.view.isr, v.view.replicas, v.id, v.view.min, live) && !Inevitable(v.view.isr, v.view.replicas, v.id, live) {
		if b.since.IsZero() {
			b.since = w.now
			return true
		}
		if w.now.Sub(b.since) < simRaiseWait {
			return false // until min.insync.replicas is higher
		}
	}
	b.claim = max(b.claim, l.hw)
	w.leaderSees(l, v.id, v.be, b.claim)
	return true
}
