package leading

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// The simulated world: one partition, two virtual brokers that run the real Machine behind
// a driver of a few lines, stock followers, a controller, the state topic and a source.
// Everything that travels is a message that is handled and answered at some later step, or
// is lost. A walk is a list of acts, so that it replays exactly and can be shrunk.

const (
	simVirtual = ids.Virtual(10000)
	simV1      = int32(10001)
	simV2      = int32(10002)
)

type simBatch struct {
	base, last int64
	epoch      int32 // leader epoch in the batch: the source's in its log, this cluster's elsewhere
	id         int
}

type simLog struct {
	start, end int64
	batches    []simBatch
	cache      lineage.Chain // leader epoch cache; Epoch and Start only
}

func (l *simLog) append(b simBatch) {
	l.batches = append(l.batches, b)
	l.end = b.last + 1
	l.assign(b.epoch, b.base)
}

func (l *simLog) assign(epoch int32, start int64) {
	if n := len(l.cache); n > 0 && l.cache[n-1].Epoch == epoch {
		return
	}
	l.cache = l.cache.Append(lineage.Entry{Epoch: epoch, SourceEpoch: lineage.NoSource, Start: start})
}

func (l *simLog) truncate(end int64) {
	if end < l.start {
		l.restart(end)
		return
	}
	n := len(l.batches)
	for n > 0 && l.batches[n-1].last >= end {
		n--
	}
	l.batches = slices.Clone(l.batches[:n])
	l.end = min(l.end, end)
	l.cache = l.cache.Cut(l.end)
}

func (l *simLog) restart(at int64) {
	*l = simLog{start: at, end: at}
}

func (l *simLog) trim(start int64) {
	if start <= l.start {
		return
	}
	n := 0
	for n < len(l.batches) && l.batches[n].last < start {
		n++
	}
	l.start, l.batches, l.cache = start, slices.Clone(l.batches[n:]), l.cache.Trim(start)
}

// read returns up to n batches from offset on that end below limit.
func (l *simLog) read(offset, limit int64, n int) []simBatch {
	var out []simBatch
	for _, b := range l.batches {
		if b.last >= offset && b.last < limit && len(out) < n {
			out = append(out, b)
		}
	}
	return out
}

func (l *simLog) has(b simBatch) bool {
	return slices.ContainsFunc(l.batches, func(o simBatch) bool { return o.base == b.base && o.id == b.id })
}

// check is a stock leader's answer to a Fetch's position.
func (l *simLog) check(offset int64, last int32) (div bool, e int32, o int64, out bool) {
	if last != lineage.Undefined {
		e, o = l.cache.EndOffsetFor(last, l.end)
		if e == lineage.Undefined {
			return false, 0, 0, true
		}
		if e < last || o < offset {
			return true, e, o, false
		}
	}
	return false, 0, 0, offset < l.start || offset > l.end
}

// simMeta is what the metadata log says. A value is never changed once it was published.
type simMeta struct {
	leader, le, pe int32
	isr, elr       []int32
	lastReal       []int32
	lastLeader     int32 // last known leader of an empty ISR
	recovering     bool
	brokers        map[int32]BrokerView
}

func (m *simMeta) active(id int32) bool {
	b, ok := m.brokers[id]
	return ok && !b.Fenced
}

type simRequest struct {
	to, cur, last int32
	be            int64
	off, start    int64
}

type simAnswer struct {
	code           int16
	div            bool
	divEpoch       int32
	divEnd         int64
	from           int64
	batches        []simBatch
	hw, logStart   int64
	earliest, endA int64 // ListOffsets, as asked after OFFSET_OUT_OF_RANGE
	virtual        bool
}

type simReal struct {
	id         int32
	up, failed bool
	clean      bool
	be         int64
	log        simLog
	hw         int64
	view       *simMeta
	epochStart int64
	reps       map[int32]int64 // as leader: log ends seen
	req        *simRequest
	ans        *simAnswer
}

// simMsg is a request on its way, then its answer.
type simMsg struct {
	what    string
	handle  func() func() // at the other side; nil once handled
	deliver func()        // back home
	lost    func()
}

type simVirt struct {
	id     int32
	up     bool
	be     int64
	m      *Machine
	view   *simMeta
	buf    []simBatch
	msgs   []*simMsg
	read   bool
	readAt int64
	readLE int32
	done   *Quiesced
	fails  int // errors that would make the partition FAILED
	paused bool
	asItIs bool // the consent of the takeover under way
	probes int  // of the source: only the last one's answer counts
}

type simConfig struct {
	real   int
	min    int
	elr    bool
	budget simBudget
	// failback: the source has mirrored from here before, and both went on alone since.
	failback bool
}

type simBudget struct{ crash, virt, unclean, appends, retain, stop, pause int }

type simWorld struct {
	cfg     simConfig
	left    simBudget
	now     time.Time
	meta    *simMeta
	nextBE  int64
	real    []*simReal
	virt    []*simVirt
	source  simLog
	sle     int32
	nextID  int
	gone    map[int]bool // ids that the source lost: compacted, retained, truncated
	state   lineage.Record
	link    lineage.Link // what the source says of the mirror it was, with failback
	barrier int32        // epoch of the newest barrier in the state topic
	visible map[int64]int
	stopped int // 0 mirroring, 1 stopping, 2 stopped
	// paused is what the operator wants; rests, that PAUSED is on record, up to restsAt.
	paused, rests bool
	restsAt       int64
	giveUp        bool
	failure       string
	back          int // times a follower's visible high watermark went back, as in stock Kafka
	ready         int
	jumps         int
}

func newSim(cfg simConfig) *simWorld {
	w := &simWorld{
		cfg: cfg, left: cfg.budget, now: time.Unix(1e9, 0), gone: map[int]bool{}, visible: map[int64]int{},
		state: lineage.NewRecord(),
	}
	w.meta = &simMeta{leader: simV1, le: 1, pe: 1, lastLeader: -1, brokers: map[int32]BrokerView{}}
	for _, id := range w.replicas() {
		w.nextBE++
		w.meta.brokers[id] = BrokerView{Epoch: w.nextBE}
		w.meta.isr = append(w.meta.isr, id)
		if simVirtual.Is(id) {
			v := &simVirt{id: id, up: true, be: w.nextBE, m: w.machine(id)}
			w.virt = append(w.virt, v)
		} else {
			w.real = append(w.real, &simReal{id: id, up: true, be: w.nextBE, reps: map[int32]int64{}})
		}
	}
	w.append(0)
	w.append(1)
	if cfg.failback {
		w.failedOver()
	}
	return w
}

// failedOver: the source's records so far came from here, under two epochs of ours; then
// it went on, and so did clients here, whose records not all replicas got. A real broker
// leads, and the virtual ones have just been assigned.
func (w *simWorld) failedOver() {
	w.sle = 1
	w.append(0)
	w.link = lineage.Link{LastEpoch: 2, LastOffset: w.source.end, History: lineage.Chain{
		{Epoch: 0, SourceEpoch: 1, Start: 0}, {Epoch: 1, SourceEpoch: 2, Start: w.source.batches[2].base},
	}}
	ours := slices.Clone(w.source.batches)
	end := w.source.end
	w.sle = 2
	w.append(1)
	for i := range ours {
		ours[i].epoch++
	}
	for i := range int64(3) { // the last mirrored epoch went on, then there was another
		w.nextID++
		w.gone[w.nextID] = true
		ours = append(ours, simBatch{end + i, end + i, 2 + int32(i/2), w.nextID})
	}
	isr := int64(math.MaxInt64)
	for i, r := range w.real {
		for _, b := range ours[:len(ours)-i] {
			r.log.append(b)
		}
		isr = min(isr, r.log.end)
	}
	for _, r := range w.real {
		r.hw = isr
	}
	w.publish(func(m *simMeta) {
		m.leader, m.le = w.real[0].id, 4
		m.isr = simVirtual.Real(m.isr)
	})
}

func (w *simWorld) machine(id int32) *Machine {
	return New(Config{Self: id, Virtual: simVirtual, MaxLag: time.Minute})
}

func (w *simWorld) replicas() []int32 {
	out := []int32{simV1, simV2}
	if w.stopped == 2 {
		out = nil
	}
	for i := range w.cfg.real {
		out = append(out, int32(i+1))
	}
	return out
}

func (w *simWorld) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
}

// ---- source

func (w *simWorld) append(extra int64) {
	w.nextID++
	w.source.append(simBatch{w.source.end, w.source.end + extra, w.sle, w.nextID})
}

func (w *simWorld) lose(b simBatch) {
	w.gone[b.id] = true
	if w.visible[b.base] == b.id {
		delete(w.visible, b.base)
	}
}

func (w *simWorld) unclean(n int) bool {
	if w.left.unclean <= 0 || len(w.source.batches) == 0 {
		return false
	}
	w.left.unclean--
	at := w.source.batches[n%len(w.source.batches)].base
	if at < w.source.start {
		return false
	}
	for _, b := range w.source.batches {
		if b.base >= at {
			w.lose(b)
		}
	}
	w.source.truncate(at)
	w.sle++
	w.append(int64(n) % 2)
	return true
}

func (w *simWorld) retain(n int) bool {
	if w.left.retain <= 0 || len(w.source.batches) < 2 {
		return false
	}
	w.left.retain--
	if n%2 == 0 { // the log start moves
		n := 1 + n/2%len(w.source.batches)
		to := w.source.end
		if n < len(w.source.batches) {
			to = w.source.batches[n].base
		}
		for _, b := range w.source.batches[:min(n, len(w.source.batches))] {
			w.lose(b)
		}
		w.source.trim(to)
		return true
	}
	i := n / 2 % (len(w.source.batches) - 1) // compaction, never of the last batch
	w.lose(w.source.batches[i])
	w.source.batches = slices.Delete(slices.Clone(w.source.batches), i, i+1)
	return true
}

// ---- controller (PartitionChangeBuilder)

func with(list []int32, id int32) []int32 {
	if slices.Contains(list, id) {
		return list
	}
	return append(slices.Clone(list), id)
}

func without(list []int32, ids ...int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(id int32) bool { return slices.Contains(ids, id) })
}

func (w *simWorld) publish(f func(m *simMeta)) {
	m := *w.meta
	m.brokers = maps.Clone(m.brokers)
	f(&m)
	w.meta = &m
}

func (w *simWorld) change(isr, unclean []int32, prefer bool) {
	w.publish(func(m *simMeta) {
		old := *w.meta
		all := w.replicas()
		keep := func(id int32) bool { return !slices.Contains(all, id) }
		isr = slices.DeleteFunc(slices.Clone(isr), keep)
		least := min(w.cfg.min, len(all))
		elr := m.elr
		if w.cfg.elr {
			if len(isr) >= least {
				elr = nil
			} else {
				for _, id := range old.isr {
					elr = with(elr, id)
				}
				elr = without(slices.DeleteFunc(slices.Clone(elr), keep), append(slices.Clone(unclean), isr...)...)
			}
		} else if len(isr) == 0 {
			isr = slices.DeleteFunc(slices.Clone(old.isr), keep)
		}
		ok := func(id int32) bool { return slices.Contains(isr, id) && m.active(id) }
		leader := m.leader
		if leader < 0 || !ok(leader) || prefer {
			leader = -1
			for _, id := range all {
				if ok(id) {
					leader = id
					break
				}
			}
			if leader < 0 && w.cfg.elr && len(isr) == 0 {
				for _, id := range all {
					if slices.Contains(elr, id) && m.active(id) {
						leader, isr, elr, m.recovering = id, []int32{id}, without(elr, id), false
						break
					}
				}
				if leader < 0 && len(elr) == 0 && m.lastLeader >= 0 && m.active(m.lastLeader) && slices.Contains(all, m.lastLeader) {
					// Stock Kafka's unclean recovery by the last known leader.
					leader, isr, m.recovering = m.lastLeader, []int32{m.lastLeader}, true
					w.visible = map[int64]int{}
				}
			}
		}
		if w.cfg.elr && len(isr) == 0 && old.leader >= 0 {
			m.lastLeader = old.leader
		} else if leader >= 0 {
			m.lastLeader = -1
		}
		if len(simVirtual.Real(isr)) > 0 {
			m.lastReal = nil
		} else if r := simVirtual.Real(old.isr); len(r) > 0 {
			m.lastReal = r
		}
		m.isr, m.elr = isr, elr
		if leader != m.leader {
			m.leader = leader
			m.le++
		}
		m.pe++
	})
}

func (w *simWorld) fence(id int32) {
	w.publish(func(m *simMeta) {
		b := m.brokers[id]
		b.Fenced = true
		m.brokers[id] = b
	})
	w.change(without(w.meta.isr, id), nil, false)
}

func (w *simWorld) register(id int32, unclean bool) int64 {
	w.fence(id)
	w.nextBE++
	w.publish(func(m *simMeta) { m.brokers[id] = BrokerView{Epoch: w.nextBE, Fenced: true} })
	if w.cfg.elr && unclean {
		w.publish(func(m *simMeta) { m.elr = without(m.elr, id) })
		w.change(without(w.meta.isr, id), []int32{id}, false)
	}
	return w.nextBE
}

func (w *simWorld) unfence(id int32) bool {
	b := w.meta.brokers[id]
	if !b.Fenced {
		return false
	}
	for _, r := range w.real {
		if r.id == id && (!r.up || r.be != b.Epoch) {
			return false
		}
	}
	for _, v := range w.virt {
		if v.id == id && (!v.up || v.be != b.Epoch) {
			return false
		}
	}
	w.publish(func(m *simMeta) {
		b.Fenced = false
		m.brokers[id] = b
	})
	w.change(w.meta.isr, nil, false)
	return true
}

func (w *simWorld) alter(from int32, be int64, a AlterPartition) int16 {
	m := w.meta
	switch {
	case be != m.brokers[from].Epoch:
		return codeStaleBrokerEpoch
	case m.leader != from || a.LeaderEpoch > m.le:
		return codeNewLeaderElected
	case a.LeaderEpoch < m.le:
		return CodeFencedLeaderEpoch
	case a.PartitionEpoch != m.pe:
		return codeInvalidUpdateVer
	}
	var isr []int32
	self := false
	for _, p := range a.ISR {
		b := m.brokers[p.ID]
		if b.Fenced || p.Epoch != lineage.Undefined && p.Epoch != b.Epoch || !slices.Contains(w.replicas(), p.ID) {
			return codeIneligibleReplica
		}
		isr = append(isr, p.ID)
		self = self || p.ID == from
	}
	if !self {
		return 42
	}
	w.change(isr, nil, false)
	w.publish(func(m *simMeta) { m.recovering = false })
	return CodeNone
}

// ---- ghosts

func (w *simWorld) holders(b simBatch, except *simReal) bool {
	for _, r := range w.real {
		if r != except && r.log.has(b) {
			return true
		}
	}
	return false
}

// cut is a truncation that a leader's answer asked for.
func (w *simWorld) cut(r *simReal, to int64, full bool) {
	for _, b := range r.log.batches {
		// A failback begins with chains that contradict each other; where two replicas crash
		// before that is over, what is visible may go and be read again.
		again := w.cfg.failback && w.source.has(b)
		if (full || b.last >= to) && w.visible[b.base] == b.id && !w.holders(b, r) && !again {
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

func (w *simWorld) expose(r *simReal) {
	for _, b := range r.log.batches {
		if b.last >= r.hw {
			break
		}
		if w.gone[b.id] {
			continue
		}
		if o, ok := w.visible[b.base]; ok && o != b.id {
			w.fail("S1b: batches %d and %d were both visible at %d", o, b.id, b.base)
		}
		w.visible[b.base] = b.id
	}
}

func (w *simWorld) check() {
	seen := map[[2]int64]int{}
	for _, r := range w.real {
		for _, b := range r.log.batches {
			k := [2]int64{b.base, int64(b.epoch)}
			if o, ok := seen[k]; ok && o != b.id {
				w.fail("S2: two batches at offset %d, epoch %d", b.base, b.epoch)
			}
			seen[k] = b.id
		}
	}
	for _, r := range w.real {
		if w.paused && w.rests && r.up && slices.Contains(w.meta.isr, r.id) && r.be == w.meta.brokers[r.id].Epoch && r.log.end > w.restsAt {
			w.fail("P1: PAUSED at %d, but in-sync %d ends at %d", w.restsAt, r.id, r.log.end)
		}
	}
	for _, v := range w.virt {
		if !v.up || w.meta.leader != v.id || v.be != w.meta.brokers[v.id].Epoch {
			continue
		}
		st := v.m.Status()
		if st.Phase != Leading || st.Epoch != w.meta.le {
			continue
		}
		if err := v.m.Chain().Validate(); err != nil {
			w.fail("S6: %v", err)
		}
		for _, r := range w.real {
			if r.up && r.be == w.meta.brokers[r.id].Epoch && slices.Contains(w.meta.isr, r.id) && st.HighWatermark > r.log.end && st.HighWatermark > w.source.start {
				w.fail("S3: high watermark %d of %d above the end %d of in-sync %d", st.HighWatermark, v.id, r.log.end, r.id)
			}
		}
	}
}

// ---- stock brokers

func (r *simReal) follows() bool {
	return r.up && r.view != nil && r.view.leader >= 0 && r.view.leader != r.id && !r.failed
}

func (w *simWorld) realView(r *simReal) bool {
	if !r.up || r.view == w.meta {
		return false
	}
	old := r.view
	r.view = w.meta
	if old == nil || old.le != r.view.le || old.leader != r.view.leader {
		r.req, r.ans, r.failed = nil, nil, false
		r.reps = map[int32]int64{}
		if r.view.leader == r.id {
			r.epochStart = r.log.end
			r.log.assign(r.view.le, r.log.end)
		}
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
	if len(l.view.isr) < min(w.cfg.min, len(w.replicas())) {
		return
	}
	hw := l.log.end
	for _, id := range l.view.isr {
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
	if l.view == w.meta && !slices.Contains(l.view.isr, id) && end >= l.hw && end >= l.epochStart && be == w.meta.brokers[id].Epoch && !w.meta.brokers[id].Fenced {
		var members []Member
		for _, m := range with(l.view.isr, id) {
			members = append(members, Member{m, lineage.Undefined})
		}
		if w.alter(l.id, l.be, AlterPartition{l.view.le, l.view.pe, members}) == CodeNone && w.meta.le == l.view.le {
			l.view = w.meta
		}
	}
	w.leaderMark(l)
	w.expose(l)
}

func (w *simWorld) byID(id int32) *simReal {
	for _, r := range w.real {
		if r.id == id {
			return r
		}
	}
	return nil
}

// realAnswer: the leader, real or virtual, takes the follower's request.
func (w *simWorld) realAnswer(r *simReal) bool {
	q := r.req
	if q == nil {
		return false
	}
	if simVirtual.Is(q.to) {
		return w.virtAnswer(w.virt[q.to-simV1], r)
	}
	l := w.byID(q.to)
	if !l.up || l.view == nil || l.view.leader != l.id {
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
	a.batches, a.hw, a.logStart = l.log.read(q.off, l.log.end, 2), l.hw, l.log.start
	return true
}

func (w *simWorld) virtAnswer(v *simVirt, r *simReal) bool {
	if !v.up {
		return false
	}
	q := r.req
	d := v.m.Fetch(w.now, FetchRequest{
		Replica: r.id, BrokerEpoch: q.be, CurrentLeaderEpoch: q.cur, Offset: q.off, LastFetchedEpoch: q.last, LogStart: q.start,
	})
	a := &simAnswer{
		code: d.Code, div: d.Diverging, divEpoch: d.DivergingTo.Epoch, divEnd: d.DivergingTo.Start, from: q.off,
		hw: d.HighWatermark, logStart: d.LogStart, earliest: v.m.LogStart(), endA: v.m.LogEnd(), virtual: true,
	}
	r.req, r.ans = nil, a
	if d.Code == CodeNone && !d.Diverging {
		again := FetchRequest{Replica: r.id, CurrentLeaderEpoch: q.cur, LastFetchedEpoch: q.last, Offset: q.off}
		if d.Serve == ServeReplica {
			if g := w.byID(d.From); g.up {
				a.batches = g.log.read(d.Offset, min(g.hw, d.End), 2)
				if len(a.batches) == 0 {
					d = v.m.PastGap(again, d, g.hw)
				}
			}
		}
		if d.Serve == ServeBuffer {
			for _, b := range v.buf {
				if b.last >= d.Offset && b.base < d.End && len(a.batches) < 2 {
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

func (w *simWorld) realTake(r *simReal) bool {
	a := r.ans
	if a == nil || !r.up {
		return false
	}
	r.ans = nil
	switch {
	case a.code == CodeFencedLeaderEpoch:
		r.failed = true
	case a.code == CodeOffsetOutOfRange:
		if a.endA < r.log.end {
			w.cut(r, a.endA, false)
		} else if a.earliest > r.log.end {
			w.cut(r, a.earliest, true)
			w.jumps++
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
				if r.log.start != r.log.end {
					w.fail("F: %d gets batch [%d, %d] at its end %d", r.id, b.base, b.last, r.log.end)
					return true
				}
				r.log.restart(b.base)
			}
			r.log.append(b)
		}
		hw := max(min(a.hw, r.log.end), r.log.start)
		if hw < r.hw {
			w.back++
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

func (w *simWorld) realDown(r *simReal, clean bool) bool {
	if !r.up || w.left.crash <= 0 {
		return false
	}
	w.left.crash--
	r.up, r.req, r.ans, r.failed, r.clean, r.view = false, nil, nil, false, clean, nil
	return true
}

func (w *simWorld) realUp(r *simReal) bool {
	if r.up || w.meta.active(r.id) {
		return false
	}
	r.be = w.register(r.id, !r.clean)
	r.up = true
	return true
}

// ---- virtual brokers: the driver

func (w *simWorld) virtStart(v *simVirt) bool {
	if v.up {
		return false
	}
	v.be = w.register(v.id, true)
	v.up, v.m, v.view, v.buf, v.read, v.done, v.paused = true, w.machine(v.id), nil, nil, false, nil, false
	return true
}

func (w *simWorld) virtCrash(v *simVirt) bool {
	if !v.up || w.left.virt <= 0 {
		return false
	}
	w.left.virt--
	v.up = false
	return true
}

func (w *simWorld) virtView(v *simVirt) bool {
	if !v.up || v.view == w.meta {
		return false
	}
	v.view = w.meta
	if v.view.brokers[v.id].Epoch != v.be {
		v.up = false // unregistered by somebody else: the process ends
		return true
	}
	v.m.Metadata(w.now, View{
		Leader: v.view.leader, LeaderEpoch: v.view.le, PartitionEpoch: v.view.pe, Replicas: w.replicas(), ISR: v.view.isr, ELR: v.view.elr,
		LastRealISR: v.view.lastReal, Recovering: v.view.recovering, MinISR: w.cfg.min, Brokers: v.view.brokers,
	})
	w.act(v)
	return true
}

func (w *simWorld) send(v *simVirt, what string, handle func() func(), lost func()) {
	v.msgs = append(v.msgs, &simMsg{what: what, handle: handle, lost: lost})
}

func (w *simWorld) act(v *simVirt) {
	m := v.m
	// What comes back to a process that died is for nobody.
	home := func(f func()) func() {
		return func() {
			if v.up && v.m == m {
				f()
				w.act(v)
			}
		}
	}
	for _, a := range m.Take() {
		switch a := a.(type) {
		case ReadState:
			w.readState(v, a, home)
		case AskHighWatermarks:
			w.again(v, "ask for high watermarks", func() func() {
				known, last := map[int32]int64{}, map[int32]lineage.Entry{}
				for id := range a.Replicas {
					r := w.byID(id)
					if !r.up {
						continue
					}
					known[id] = r.hw
					if seen := r.log.read(r.hw-1, r.hw, 1); len(seen) > 0 && slices.Contains(a.Records, id) {
						last[id] = lineage.Entry{Epoch: seen[0].epoch, Start: r.hw - 1}
					}
				}
				return home(func() { m.HighWatermarks(w.now, a.Epoch, known, last) })
			})
		case ProbeSource:
			v.probes++
			seq := v.probes
			w.again(v, "probe the source", func() func() {
				p := ProbeAnswer{SourceStart: w.source.start, SourceEnd: w.source.end}
				var e int32
				p.Diverging, e, p.DivergesAt.Start, p.OutOfRange = w.source.check(a.Offset, a.LastFetchedEpoch)
				p.DivergesAt.SourceEpoch = e
				return home(func() {
					if seq == v.probes && m.Probed(w.now, a.Epoch, p) != nil {
						v.fails++
						// The source moves on; ask again.
						m.Retry(w.now, a.Epoch)
					}
				})
			})
		case Persist:
			w.again(v, "persist the lineage", func() func() {
				if newest, _ := w.state.Newest(); max(newest, w.barrier) > a.Epoch || w.stopped == 2 {
					return nil
				}
				w.state = a.Record
				return home(func() { m.Persisted(w.now, a.Epoch, a.Seq) })
			})
		case AlterPartition:
			be := v.be
			w.send(v, fmt.Sprintf("AlterPartition %v", a.ISR), func() func() {
				code := w.alter(v.id, be, a)
				return home(func() { m.Altered(w.now, a.LeaderEpoch, a.PartitionEpoch, code, false) })
			}, home(func() { m.Altered(w.now, a.LeaderEpoch, a.PartitionEpoch, 0, true) }))
		case StartReading:
			v.read, v.readAt, v.readLE = true, a.Offset, a.LastFetchedEpoch
			v.buf = slices.DeleteFunc(slices.Clone(v.buf), func(b simBatch) bool { return b.base >= a.Offset })
		case StopReading:
			v.read = false
		case Drop:
			v.buf = nil
		case Resign:
			be := v.be
			w.again(v, "resign", func() func() {
				if w.meta.brokers[v.id].Epoch == be && w.meta.le == a.Epoch && w.meta.leader == v.id {
					w.fence(v.id)
				}
				return nil
			})
		case Ready:
			w.ready++
		case RefusedLoss:
			if !v.asItIs {
				w.fail("refused with consent: %v", a)
			}
		case Rested:
			w.again(v, reportsRest, func() func() {
				if w.paused && a.Epoch >= w.barrier {
					w.rests, w.restsAt = true, a.End
				}
				return nil
			})
		case Quiesced:
			v.done = &a
		}
	}
}

// readState reads what the state allows, and what is wanted: if that has changed by the
// time the answer is there, it is read anew.
func (w *simWorld) readState(v *simVirt, a ReadState, home func(func()) func()) {
	m := v.m
	w.again(v, "read state", func() func() {
		// The barrier fences: a late write of an earlier leader would be lost to
		// this one, though a log may hold what that leader served after it.
		w.barrier = max(w.barrier, a.Epoch)
		rec, paused := w.state, w.paused
		w.rests = w.rests && paused // resumed
		c := Consent{Truncate: true, AllowLoss: true}
		if w.rests {
			c = Consent{AsItIs: true}
		}
		return home(func() {
			if st := m.Status(); st.Epoch != a.Epoch || st.Phase != ReadingState {
				return
			}
			if w.paused != paused {
				w.readState(v, a, home)
				return
			}
			v.paused, v.asItIs = paused, c.AsItIs
			m.StateRead(w.now, a.Epoch, rec, c)
			if paused {
				m.Pause(w.now)
			}
		})
	})
}

const reportsRest = "report that it rests"

// notice: a leader sees what is wanted of it.
func (w *simWorld) notice(v *simVirt) bool {
	st := v.m.Status()
	if !v.up || st.Phase == Off || st.Phase == ReadingState || v.paused == w.paused {
		return false
	}
	if v.paused = w.paused; v.paused {
		v.m.Pause(w.now)
	} else {
		v.m.Resume(w.now)
		// The newest report supersedes an older one that is not delivered yet.
		v.msgs = slices.DeleteFunc(v.msgs, func(g *simMsg) bool { return g.what == reportsRest && g.handle != nil })
		if st.Phase == Leading && st.Epoch >= w.barrier {
			w.rests = false
		}
	}
	w.act(v)
	return true
}

// again sends a request that is repeated until it arrives.
func (w *simWorld) again(v *simVirt, what string, handle func() func()) {
	m := v.m
	w.send(v, what, handle, func() {
		if v.up && v.m == m {
			w.again(v, what, handle)
		}
	})
}

// step moves message n of v: handled, answered, or lost.
func (w *simWorld) message(v *simVirt, n int, lose bool) bool {
	if len(v.msgs) == 0 {
		return false
	}
	n %= len(v.msgs)
	g := v.msgs[n]
	drop := func() { v.msgs = slices.Delete(v.msgs, n, n+1) }
	switch {
	case lose:
		drop()
		g.lost()
	case g.handle != nil:
		g.deliver, g.handle = g.handle(), nil
		if g.deliver == nil {
			drop()
		}
	default:
		drop()
		g.deliver()
	}
	return true
}

// pull is one Fetch of the reader at the source.
func (w *simWorld) pull(v *simVirt) bool {
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
		w.act(v)
		if err != nil {
			v.fails++
			return false
		}
		return true
	}
	got := w.source.read(v.readAt, w.source.end, 2)
	if len(got) == 0 {
		return false
	}
	infos := make([]BatchInfo, len(got))
	for i, b := range got {
		infos[i] = BatchInfo{b.base, b.last, b.epoch}
	}
	stamps, err := v.m.Ingest(w.now, epoch, infos, w.source.start)
	if err != nil {
		w.fail("Ingest: %v", err)
		return true
	}
	for i, b := range got {
		if stamps != nil && stamps[i] != lineage.Undefined {
			v.buf = append(v.buf, simBatch{b.base, b.last, stamps[i], b.id})
		}
		v.readAt, v.readLE = b.last+1, b.epoch
	}
	w.act(v)
	return true
}

func (w *simWorld) evict(v *simVirt) bool {
	if !v.up || v.m.Status().Phase != Leading {
		return false
	}
	below := v.m.EvictBelow()
	n := len(v.buf)
	v.buf = slices.DeleteFunc(slices.Clone(v.buf), func(b simBatch) bool { return b.last < below })
	v.m.Evicted(below)
	return n != len(v.buf)
}

// fetchVirtual: the virtual broker v fetches from its peer or from a real leader.
func (w *simWorld) fetchVirtual(v *simVirt) bool {
	if !v.up || v.view == nil || v.view.leader == v.id || v.view.leader < 0 || w.stopped == 2 {
		return false
	}
	if simVirtual.Is(v.view.leader) {
		l := w.virt[v.view.leader-simV1]
		if !l.up {
			return false
		}
		l.m.Fetch(w.now, FetchRequest{Replica: v.id, BrokerEpoch: v.be, CurrentLeaderEpoch: v.view.le, LastFetchedEpoch: lineage.Undefined})
		w.act(l)
		return true
	}
	l := w.byID(v.view.leader)
	if !l.up || l.view == nil || l.view.leader != l.id || l.view.le != v.view.le || v.be != w.meta.brokers[v.id].Epoch {
		return false
	}
	// R11: the real leader's history is kept under its epoch before joining.
	if newest, _ := w.state.Newest(); newest <= l.view.le {
		chain := w.state.Seed(l.log.cache, l.log.end)
		if w.cfg.failback && w.ready == 0 { // a start; later the source is not asked
			chain = w.state.SeedLinked(l.log.cache, l.log.end, w.link)
		}
		w.state = w.state.With(l.view.le, chain)
	}
	w.leaderSees(l, v.id, v.be, max(l.hw, l.epochStart))
	return true
}
