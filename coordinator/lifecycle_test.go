package coordinator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// life is one mirror topic with everything around it in its simplest form: operators,
// leaders old and new, the controller, and the coordinator's stop, which may crash after
// each of its steps. What decides is the real code: Next, verbState, check, reportWrites,
// fenceState, consent and mayHandBack.
type life struct {
	t *rapid.T
	v *View

	parts  []*lifePart
	locked bool // the write lock is on
	stops  int  // times a partition became STOPPED
	given  int  // times a client could write to what was mirrored
	back   int  // times a client could write to a topic whose start was refused
}

// lifePart is a partition, and what really happened to it.
type lifePart struct {
	key  partitionKey
	part metadata.Partition

	end      int64 // of what was mirrored
	mirrored bool  // in the run since the last start
	open     bool  // a mirrored transaction is open
}

const (
	lifeVirtual = ids.Virtual(10000)
	lifeV1      = int32(10001)
)

func newLife(t *rapid.T) *life {
	l := &life{t: t, v: NewView()}
	for p := range int32(2) {
		l.parts = append(l.parts, &lifePart{
			key:  partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{7}, Partition: p}},
			part: metadata.Partition{TopicID: ids.UUID{7}, Topic: "t", Partition: p, Leader: 1, LeaderEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}},
		})
	}
	return l
}

// any is the partition that something happens to.
func (l *life) any() *lifePart { return rapid.SampledFrom(l.parts).Draw(l.t, "partition") }

func (l *life) topic() (Topic, bool) { return l.v.Topic("m", "t") }

func (l *life) put(t Topic) {
	l.v.apply([]record{{kind: kindTopic, topic: topicKey{"m", "t"}, value: t}}, nil)
}

func (l *life) state(p *lifePart) PartitionState {
	s, _ := l.v.State(p.key.mirror, p.key.tp)
	return s
}

func (p *lifePart) assigned() bool { return slices.ContainsFunc(p.part.Replicas, lifeVirtual.Is) }

func (p *lifePart) elect(leader int32) {
	p.part.Leader = leader
	p.part.LeaderEpoch++
}

// refused counts the partitions whose start was refused, and of those the ones that are
// not handed back.
func (l *life) refused() (refused, assigned int) {
	for _, p := range l.parts {
		if refusedStart(l.state(p)) {
			refused++
			if p.assigned() {
				assigned++
			}
		}
	}
	return refused, assigned
}

// verbState is Coordinator.verbState.
func (l *life) verbState() State {
	t, known := l.topic()
	if !known {
		return Unknown
	}
	handedBack := len(t.Wanted) == 0
	var states []State
	for _, p := range l.parts {
		states = append(states, l.state(p).State)
		handedBack = handedBack && !p.assigned()
	}
	return verbState(t.Desired, states, handedBack)
}

// brokerTakes tells whether a broker takes what a client sends it around the proxies: one
// leads, and the write lock, which says that no batch fits, is off.
func (l *life) brokerTakes(p *lifePart) bool { return !lifeVirtual.Is(p.part.Leader) && !l.locked }

// proxyTakes tells whether a proxy lets it through (contract-additions §7).
func (l *life) proxyTakes(p *lifePart) bool {
	s, recorded := l.v.State(p.key.mirror, p.key.tp)
	refused, assigned := l.refused()
	switch {
	case p.assigned():
		return false
	case !recorded || s.State == Stopped:
		return true
	}
	t, _ := l.topic()
	return refusedStart(s) && refused == len(l.parts) && assigned == 0 && len(t.Wanted) == 0
}

// write is the coordinator's side of a write. It tells whether it was accepted.
func (l *life) write(p *lifePart, w stateWrite) bool {
	w.key = p.key
	before := l.state(p)
	records, err := check(l.v, w)
	if err != nil {
		return false
	}
	l.v.apply(records, nil)
	after := l.state(p)
	if before.State != after.State && !Transition(before.State, after.State) && !(before.State == Failed && after.State == before.Previous) {
		l.t.Fatalf("%s became %s", before.State, after.State)
	}
	switch {
	case after.State == Stopped && before.State == Stopping:
		l.stops++
	case after.State == Stopped && before.State != Stopped:
		l.t.Fatalf("STOPPED after %s", before.State)
	case before.State == Stopped && after.State != Stopped:
		p.mirrored = false // another run
	}
	return true
}

func (l *life) writeState(p *lifePart, epoch int32, s State) bool {
	return l.write(p, stateWrite{leaderEpoch: epoch, state: &PartitionState{State: s, StateEpoch: -1}})
}

// verb is what an operator asks for, as the mirror APIs do it.
func (l *life) verb(e Event) {
	t, _ := l.topic()
	if _, r := Next(l.verbState(), Unknown, e); r != None {
		return
	}
	switch e {
	case VerbStart, VerbRecover:
		allow := rapid.Bool().Draw(l.t, "allow truncate")
		if e == VerbStart {
			if t.Desired == Stopped {
				t.Wanted = nil
			}
			t.Mirror, t.Name, t.TopicID, t.Desired, t.AllowTruncate = "m", "t", ids.UUID{7}, Mirroring, allow
		}
		t.Fault, t.AllowTruncate = "", t.AllowTruncate || allow
		l.put(t)
		for _, p := range l.parts[:l.most(len(l.parts))] {
			if now := l.state(p); now.State == Failed {
				next, _ := Next(now.State, now.Previous, e)
				l.writeState(p, max(now.LeaderEpoch, p.part.LeaderEpoch), next)
			}
		}
		return
	case VerbPause:
		t.Desired = Paused
	case VerbResume:
		t.Desired = Mirroring
	case VerbStop:
		t.Desired = Stopped
	}
	l.put(t)
}

// epoch is that of the leader, or of one before it whose message comes late.
func (l *life) epoch(p *lifePart) int32 {
	return p.part.LeaderEpoch - rapid.Int32Range(0, 1).Draw(l.t, "late")
}

// leads tells whether a virtual leader has read the state, and may go by what is wanted.
func (l *life) leads(p *lifePart) bool {
	t, _ := l.topic()
	s := l.state(p)
	return lifeVirtual.Is(p.part.Leader) && s.LeaderEpoch == p.part.LeaderEpoch && t.Desired == Mirroring && t.Fault == "" && !refusedStart(s) && consent(s, t, 0).Truncate
}

// serve is a leader that persists its lineage and serves a batch.
func (l *life) serve() {
	p := l.any()
	if !l.leads(p) {
		return
	}
	rec, _ := l.v.Lineage(p.key.mirror, p.key.tp)
	rec = rec.With(p.part.LeaderEpoch, lineage.Chain{{Epoch: p.part.LeaderEpoch, SourceEpoch: 3, Start: p.end}})
	rec.LastMirrorEpoch, rec.LastMirrorOffset = lineage.Undefined, lineage.Undefined
	if l.write(p, stateWrite{leaderEpoch: p.part.LeaderEpoch, lineage: &rec}) {
		p.end += 10
		p.mirrored = true
		p.open = rapid.Bool().Draw(l.t, "open")
	}
}

// refuse is a leader that finds records which nobody has allowed to drop.
func (l *life) refuse() {
	t, _ := l.topic()
	for _, p := range l.parts[:l.most(len(l.parts))] {
		if s := l.state(p); l.leads(p) && !p.mirrored && !consent(s, t, 0).AllowLoss {
			l.write(p, stateWrite{leaderEpoch: p.part.LeaderEpoch, state: &PartitionState{State: Failed, StateEpoch: -1, Detail: DetailConsentNeeded}})
		}
	}
}

// report is any report, on time or late, whose delivery may break off.
func (l *life) report() {
	p := l.any()
	r := replica.Report{Kind: rapid.SampledFrom(reportKinds()).Draw(l.t, "kind")}
	epoch := l.epoch(p)
	t, known := l.topic()
	if !known {
		return
	}
	if r.Kind == replica.Note {
		r.Detail = DetailSourceUnavailable
	}
	if r.Kind == replica.Quiet {
		// A leader that has read the state and quiesced: it knows where the mirror ends.
		epoch = p.part.LeaderEpoch
		if _, needed := fenceState(l.state(p), t, epoch); needed || t.Desired != Stopped || !lifeVirtual.Is(p.part.Leader) {
			return
		}
		r.Detail = rapid.SampledFrom([]string{DetailQuiesced, DetailSourceUnavailable}).Draw(l.t, "how")
		r.LastMirrorEpoch, r.LastMirrorOffset = 3, p.end
		if !p.mirrored {
			r.LastMirrorEpoch = -1
		}
	}
	rec, _ := l.v.Lineage(p.key.mirror, p.key.tp)
	writes := reportWrites(l.state(p).State, rec, t, p.key, epoch, r)
	for _, w := range writes[:rapid.IntRange(0, len(writes)).Draw(l.t, "delivered")] {
		if !l.write(p, w) {
			return
		}
	}
}

// late is a lineage that somebody writes who does not know how far the mirror came: a leader
// that was replaced, a replica that gets ready to lead while the topic stops, or the leader
// itself by a write that was long on its way.
func (l *life) late() {
	p := l.any()
	epoch := l.epoch(p)
	if epoch < p.part.LeaderEpoch && l.state(p).LeaderEpoch != p.part.LeaderEpoch {
		return // it is on record before the new leader has read the state
	}
	rec, had := l.v.Lineage(p.key.mirror, p.key.tp)
	if !had {
		return
	}
	rec.LastMirrorEpoch, rec.LastMirrorOffset = lineage.Undefined, lineage.Undefined
	l.write(p, stateWrite{leaderEpoch: epoch, lineage: &rec})
}

func (l *life) takeOver() {
	t, known := l.topic()
	for _, p := range l.parts[:l.most(len(l.parts))] {
		if next, ok := fenceState(l.state(p), t, p.part.LeaderEpoch); ok && known && lifeVirtual.Is(p.part.Leader) {
			l.write(p, stateWrite{leaderEpoch: p.part.LeaderEpoch, state: &next})
		}
	}
}

// assign is what the coordinator does for a topic that shall be a mirror. It may die once
// the lock is set.
func (l *life) assign() {
	t, known := l.topic()
	if refused, _ := l.refused(); !known || t.Desired == Stopped || refused == len(l.parts) {
		return
	}
	if len(t.Wanted) == 0 {
		if l.locked {
			l.t.Fatal("the lock is taken for the topic's own configs")
		}
		t.Wanted = map[string]*string{configMaxMessageBytes: nil}
		l.put(t)
	}
	l.locked = true
	for _, p := range l.parts[:l.most(len(l.parts))] {
		if !p.assigned() && !refusedStart(l.state(p)) {
			p.part.Replicas, p.part.ISR = []int32{lifeV1, 1, 2}, []int32{lifeV1, 1, 2}
			p.elect(lifeV1)
		}
	}
}

func (p *lifePart) handBack() {
	if p.assigned() {
		p.part.Replicas, p.part.ISR = []int32{1, 2}, []int32{1, 2}
		if lifeVirtual.Is(p.part.Leader) {
			p.elect(1)
		}
	}
}

// perform does the first steps, up to one that ends it or that the coordinator dies after.
func (l *life) perform(steps []func() bool) {
	for _, step := range steps[:l.most(len(steps))] {
		if !step() {
			return
		}
	}
}

// most is all of n more often than not, else fewer.
func (l *life) most(n int) int {
	if rapid.IntRange(0, 2).Draw(l.t, "all") > 0 {
		return n
	}
	return rapid.IntRange(0, n).Draw(l.t, "of them")
}

// each does something to every partition.
func (l *life) each(do func(p *lifePart) bool) (steps []func() bool) {
	for _, p := range l.parts {
		steps = append(steps, func() bool { return do(p) })
	}
	return steps
}

// unlock gives the topic its own configs back; forget is the end of that.
func (l *life) unlock() bool {
	if t, _ := l.topic(); len(t.Wanted) > 0 {
		l.locked = false
	}
	return true
}

func (l *life) forget() bool {
	t, _ := l.topic()
	t.Wanted = nil
	l.put(t)
	return true
}

// stop is the coordinator's stop in the order of stopTopic, up to a step that it dies after.
func (l *life) stop() {
	t, known := l.topic()
	if !known || t.Desired != Stopped || l.verbState() == Stopped {
		return
	}
	live := func(int32) bool { return true }
	end := func(p *lifePart) bool { // recordEnd
		rec, had := l.v.Lineage(p.key.mirror, p.key.tp)
		s := l.state(p)
		if !l.locked || lifeVirtual.Is(p.part.Leader) || !had || s.State == Stopped || rec.LastMirrorOffset >= 0 && rec.LastMirrorOffset <= p.end {
			return true
		}
		epoch := max(p.part.LeaderEpoch, s.LeaderEpoch)
		if s.State != Stopping && !l.writeState(p, epoch, Stopping) {
			return false
		}
		rec.LastMirrorEpoch, rec.LastMirrorOffset = 3, p.end
		return l.write(p, stateWrite{leaderEpoch: epoch, lineage: &rec})
	}
	enter := func(next State) func(p *lifePart) bool {
		return func(p *lifePart) bool {
			s := l.state(p)
			return s.State == Stopped || s.State == next || l.writeState(p, max(p.part.LeaderEpoch, s.LeaderEpoch), next)
		}
	}
	l.perform(slices.Concat(
		l.each(func(p *lifePart) bool { // may the virtual replicas go?
			return !p.assigned() || mayHandBack(lifeVirtual, &p.part, l.state(p), live, true, 1).ready
		}),
		l.each(end),
		[]func() bool{l.unlock},
		l.each(func(p *lifePart) bool { p.handBack(); return true }),
		l.each(func(p *lifePart) bool { // markers
			p.open = p.open && l.state(p).State == Stopped
			return true
		}),
		[]func() bool{l.forget},
		l.each(enter(Stopping)),
		l.each(enter(Stopped)),
	))
}

// giveBack is what the coordinator does about starts that were refused (handRefusedBack).
func (l *life) giveBack() {
	t, known := l.topic()
	refused, _ := l.refused()
	if !known || t.Desired == Stopped || refused == 0 {
		return
	}
	steps := l.each(func(p *lifePart) bool {
		if refusedStart(l.state(p)) {
			p.handBack()
		}
		return true
	})
	if refused == len(l.parts) {
		steps = append(steps, l.unlock, l.forget)
	}
	l.perform(steps)
}

// check is what must be so at all times, by what really happened.
func (l *life) check(t *rapid.T) {
	for _, p := range l.parts {
		s := l.state(p)
		rec, _ := l.v.Lineage(p.key.mirror, p.key.tp)
		recorded := rec.LastMirrorOffset == p.end && rec.LastMirrorEpoch >= 0
		if l.brokerTakes(p) && p.mirrored && !recorded {
			t.Fatalf("%d: %s and open to writes around the proxies with last mirror epoch %d and offset %d, mirrored up to %d", p.key.tp.Partition, s.State, rec.LastMirrorEpoch, rec.LastMirrorOffset, p.end)
		}
		if !l.brokerTakes(p) || !l.proxyTakes(p) {
			continue
		}
		refused, assigned := l.refused()
		switch {
		case p.open:
			t.Fatalf("%d: %s and written to behind an open transaction", p.key.tp.Partition, s.State)
		case p.mirrored && s.State != Stopped:
			t.Fatalf("%d: %s and written to behind what was mirrored", p.key.tp.Partition, s.State)
		case p.mirrored:
			l.given++
		case refusedStart(s) && (refused < len(l.parts) || assigned > 0):
			t.Fatalf("%d: written to, and another partition's start was not refused", p.key.tp.Partition)
		case refusedStart(s):
			l.back++
		}
	}
	if l.verbState() == Stopped {
		for _, p := range l.parts {
			if !l.brokerTakes(p) || !l.proxyTakes(p) {
				t.Fatalf("%d: STOPPED and nobody can write to it", p.key.tp.Partition)
			}
		}
	}
}

// events are what may happen next; what is needed on the way to a stop comes more often.
func (l *life) events() []func() {
	verb := func(e Event) func() { return func() { l.verb(e) } }
	often := []func(){l.assign, l.takeOver, l.serve, l.report, l.stop}
	return append(slices.Concat(often, often, often),
		l.late, l.refuse, l.refuse, l.refuse, l.giveBack, l.giveBack, verb(VerbStart), verb(VerbStart), verb(VerbStop), verb(VerbPause), verb(VerbResume), verb(VerbRecover),
		func() { // the source is another
			if t, ok := l.topic(); ok {
				t.Fault = "another topic"
				l.put(t)
			}
		},
		func() { // the virtual replicas die
			if p := l.any(); p.assigned() && lifeVirtual.Is(p.part.Leader) {
				p.elect(1)
			}
		},
		func() { // one comes back
			if p := l.any(); p.assigned() {
				p.elect(lifeV1)
			}
		},
	)
}

// TestLifecycle: whatever happens in whatever order, clients can write only to what was
// never mirrored, to what is STOPPED with all that a stop has to record and to end, and to
// a topic whose start was refused; and what is STOPPED they can write to.
func TestLifecycle(t *testing.T) {
	stops, given, back := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		events := l.events()
		for range 2000 {
			events[rapid.IntRange(0, len(events)-1).Draw(t, "event")]()
			l.check(t)
		}
		stops, given, back = stops+l.stops, given+l.given, back+l.back
	})
	t.Logf("%d stops; open after a stop %d times, after a refused start %d", stops, given, back)
	if stops == 0 || given == 0 || back == 0 && !testing.Short() {
		t.Error("nothing was ever stopped or refused: the model does nothing")
	}
}
