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

// life is one mirror partition with everything around it in its simplest form: operators,
// leaders old and new, the controller, and the coordinator's stop, which may crash after
// each of its steps. What decides is the real code: Next, verbState, check, reportWrites,
// fenceState, consent and mayHandBack.
type life struct {
	t   *rapid.T
	v   *View
	key partitionKey

	part   metadata.Partition
	locked bool // the write lock is on
	// Of the run since the last start.
	end      int64 // of what was mirrored
	mirrored bool
	open     bool // a mirrored transaction is open
	stops    int  // times it became STOPPED
}

const (
	lifeVirtual = ids.Virtual(10000)
	lifeV1      = int32(10001)
)

func newLife(t *rapid.T) *life {
	l := &life{t: t, v: NewView(), key: partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{7}}}}
	l.part = metadata.Partition{TopicID: ids.UUID{7}, Topic: "t", Leader: 1, LeaderEpoch: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}}
	return l
}

func (l *life) topic() (Topic, bool) { return l.v.Topic("m", "t") }

func (l *life) put(t Topic) {
	l.v.apply([]record{{kind: kindTopic, topic: topicKey{"m", "t"}, value: t}}, nil)
}

func (l *life) state() PartitionState {
	s, _ := l.v.State(l.key.mirror, l.key.tp)
	return s
}

func (l *life) assigned() bool { return slices.ContainsFunc(l.part.Replicas, lifeVirtual.Is) }

// readOnly is Coordinator.ReadOnly.
func (l *life) readOnly() bool {
	s, recorded := l.v.State(l.key.mirror, l.key.tp)
	return recorded && s.State != Stopped || l.assigned()
}

// write is the coordinator's side of a write. It tells whether it was accepted.
func (l *life) write(w stateWrite) bool {
	before := l.state()
	records, err := check(l.v, w)
	if err != nil {
		return false
	}
	l.v.apply(records, nil)
	after := l.state()
	if before.State != after.State && !Transition(before.State, after.State) && !(before.State == Failed && after.State == before.Previous) {
		l.t.Fatalf("%s became %s", before.State, after.State)
	}
	if after.State == Stopped && before.State != Stopped {
		l.stopped(before.State)
	}
	return true
}

// stopped checks what must be so when a partition becomes STOPPED.
func (l *life) stopped(before State) {
	l.stops++
	rec, _ := l.v.Lineage(l.key.mirror, l.key.tp)
	switch {
	case before != Stopping:
		l.t.Fatalf("STOPPED after %s", before)
	case l.assigned():
		l.t.Fatal("STOPPED with a virtual replica")
	case l.open:
		l.t.Fatal("STOPPED with an open transaction")
	case l.mirrored && (rec.LastMirrorOffset != l.end || rec.LastMirrorEpoch < 0):
		l.t.Fatalf("STOPPED with last mirror epoch %d and offset %d, mirrored up to %d", rec.LastMirrorEpoch, rec.LastMirrorOffset, l.end)
	}
	l.mirrored = false
}

func (l *life) writeState(epoch int32, s State) bool {
	return l.write(stateWrite{key: l.key, leaderEpoch: epoch, state: &PartitionState{State: s, StateEpoch: -1}})
}

// verb is what an operator asks for, as the mirror APIs do it.
func (l *life) verb(e Event) {
	t, known := l.topic()
	s := Unknown
	if known {
		s = verbState(t.Desired, []State{l.state().State}, !l.assigned())
	}
	if _, r := Next(s, Unknown, e); r != None {
		return
	}
	switch e {
	case VerbStart, VerbRecover:
		if e == VerbStart {
			t = Topic{Mirror: "m", Name: "t", TopicID: ids.UUID{7}, Desired: Mirroring}
		}
		t.Fault = ""
		l.put(t)
		if now := l.state(); now.State == Failed {
			next, _ := Next(now.State, now.Previous, e)
			l.writeState(max(now.LeaderEpoch, l.part.LeaderEpoch), next)
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

func (l *life) elect(leader int32) {
	l.part.Leader = leader
	l.part.LeaderEpoch++
}

// epoch is that of the leader, or of one before it whose message comes late.
func (l *life) epoch() int32 {
	return l.part.LeaderEpoch - rapid.Int32Range(0, 1).Draw(l.t, "late")
}

// serve is a leader that persists its lineage and serves a batch.
func (l *life) serve() {
	t, _ := l.topic()
	s := l.state()
	c := consent(s, t)
	if !lifeVirtual.Is(l.part.Leader) || s.LeaderEpoch != l.part.LeaderEpoch || t.Desired != Mirroring || t.Fault != "" || !c.Truncate {
		return
	}
	rec, _ := l.v.Lineage(l.key.mirror, l.key.tp)
	rec = rec.With(l.part.LeaderEpoch, lineage.Chain{{Epoch: l.part.LeaderEpoch, SourceEpoch: 3, Start: l.end}})
	rec.LastMirrorEpoch, rec.LastMirrorOffset = lineage.Undefined, lineage.Undefined
	if l.write(stateWrite{key: l.key, leaderEpoch: l.part.LeaderEpoch, lineage: &rec}) {
		l.end += 10
		l.mirrored = true
		l.open = rapid.Bool().Draw(l.t, "open")
	}
}

// report is any report, on time or late, whose delivery may break off.
func (l *life) report() {
	r := replica.Report{Kind: rapid.SampledFrom(reportKinds()).Draw(l.t, "kind")}
	epoch := l.epoch()
	t, known := l.topic()
	if !known {
		return
	}
	if r.Kind == replica.Note {
		r.Detail = DetailSourceUnavailable
	}
	if r.Kind == replica.Quiet {
		// A leader that has read the state and quiesced: it knows where the mirror ends.
		epoch = l.part.LeaderEpoch
		if _, needed := fenceState(l.state(), t, epoch); needed || t.Desired != Stopped || !lifeVirtual.Is(l.part.Leader) {
			return
		}
		r.Detail = rapid.SampledFrom([]string{DetailQuiesced, DetailSourceUnavailable}).Draw(l.t, "how")
		r.LastMirrorEpoch, r.LastMirrorOffset = 3, l.end
		if !l.mirrored {
			r.LastMirrorEpoch = -1
		}
	}
	rec, _ := l.v.Lineage(l.key.mirror, l.key.tp)
	writes := reportWrites(l.state().State, rec, t, l.key, epoch, r)
	for _, w := range writes[:rapid.IntRange(0, len(writes)).Draw(l.t, "delivered")] {
		if !l.write(w) {
			return
		}
	}
}

// late is a lineage that somebody writes who does not know how far the mirror came: a leader
// that was replaced, a replica that gets ready to lead while the topic stops, or the leader
// itself by a write that was long on its way.
func (l *life) late() {
	epoch := l.epoch()
	if epoch < l.part.LeaderEpoch && l.state().LeaderEpoch != l.part.LeaderEpoch {
		return // it is on record before the new leader has read the state
	}
	rec, had := l.v.Lineage(l.key.mirror, l.key.tp)
	if !had {
		return
	}
	rec.LastMirrorEpoch, rec.LastMirrorOffset = lineage.Undefined, lineage.Undefined
	l.write(stateWrite{key: l.key, leaderEpoch: epoch, lineage: &rec})
}

func (l *life) takeOver() {
	t, known := l.topic()
	if !known || !lifeVirtual.Is(l.part.Leader) {
		return
	}
	if next, ok := fenceState(l.state(), t, l.part.LeaderEpoch); ok {
		l.write(stateWrite{key: l.key, leaderEpoch: l.part.LeaderEpoch, state: &next})
	}
}

// assign is what the coordinator does for a topic that shall be a mirror.
func (l *life) assign() {
	t, known := l.topic()
	if !known || t.Desired == Stopped || l.assigned() {
		return
	}
	l.locked = true
	l.part.Replicas, l.part.ISR = []int32{lifeV1, 1, 2}, []int32{lifeV1, 1, 2}
	l.elect(lifeV1)
}

// stop is the coordinator's stop in the order of stopTopic, up to a step that it dies after.
func (l *life) stop() {
	t, known := l.topic()
	if !known || t.Desired != Stopped {
		return
	}
	steps := []func() bool{
		func() bool { // may the virtual replicas go?
			if !l.assigned() {
				return true
			}
			return mayHandBack(lifeVirtual, &l.part, l.state(), func(int32) bool { return true }, true, 1).ready
		},
		func() bool { // recordEnd
			rec, had := l.v.Lineage(l.key.mirror, l.key.tp)
			s := l.state()
			if !l.locked || lifeVirtual.Is(l.part.Leader) || !had || s.State == Stopped || rec.LastMirrorOffset >= 0 && rec.LastMirrorOffset <= l.end {
				return true
			}
			epoch := max(l.part.LeaderEpoch, s.LeaderEpoch)
			if s.State != Stopping && !l.writeState(epoch, Stopping) {
				return false
			}
			rec.LastMirrorEpoch, rec.LastMirrorOffset = 3, l.end
			return l.write(stateWrite{key: l.key, leaderEpoch: epoch, lineage: &rec})
		},
		func() bool { l.locked = false; return true },
		func() bool {
			if l.assigned() {
				l.part.Replicas, l.part.ISR = []int32{1, 2}, []int32{1, 2}
				if lifeVirtual.Is(l.part.Leader) {
					l.elect(1)
				}
			}
			return true
		},
		func() bool { l.open = false; return true }, // markers
		func() bool {
			s := l.state()
			epoch := max(l.part.LeaderEpoch, s.LeaderEpoch)
			return s.State == Stopped || s.State == Stopping || l.writeState(epoch, Stopping)
		},
		func() bool {
			s := l.state()
			return s.State == Stopped || l.writeState(max(l.part.LeaderEpoch, s.LeaderEpoch), Stopped)
		},
	}
	for _, step := range steps[:rapid.IntRange(1, len(steps)).Draw(l.t, "done")] {
		if !step() {
			return
		}
	}
}

// check is what must be so at all times.
func (l *life) check(t *rapid.T) {
	s := l.state()
	rec, _ := l.v.Lineage(l.key.mirror, l.key.tp)
	switch {
	case !l.readOnly() && s.State != Stopped && s.State != Unknown:
		t.Fatalf("%s is writable", s.State)
	case l.readOnly() && s.State == Stopped && !l.assigned():
		t.Fatal("STOPPED and handed back is read only")
	case !l.locked && !l.assigned() && l.mirrored && rec.LastMirrorOffset != l.end:
		// From here on brokers take writes that come around the proxies.
		t.Fatalf("given away with last mirror offset %d, mirrored up to %d", rec.LastMirrorOffset, l.end)
	}
}

// events are what may happen next; what is needed on the way to a stop comes more often.
func (l *life) events() []func() {
	verb := func(e Event) func() { return func() { l.verb(e) } }
	often := []func(){l.assign, l.takeOver, l.serve, l.report, l.stop}
	return append(slices.Concat(often, often, often),
		l.late, verb(VerbStart), verb(VerbStop), verb(VerbPause), verb(VerbResume), verb(VerbRecover),
		func() { // the source is another
			if t, ok := l.topic(); ok {
				t.Fault = "another topic"
				l.put(t)
			}
		},
		func() { // the virtual replicas die
			if l.assigned() && lifeVirtual.Is(l.part.Leader) {
				l.elect(1)
			}
		},
		func() { // one comes back
			if l.assigned() {
				l.elect(lifeV1)
			}
		},
	)
}

// TestLifecycle: no sequence of events makes a partition writable that is not STOPPED, or
// STOPPED without what a stop has to record and to end.
func TestLifecycle(t *testing.T) {
	stops := 0
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		events := l.events()
		for range 200 {
			events[rapid.IntRange(0, len(events)-1).Draw(t, "event")]()
			l.check(t)
		}
		stops += l.stops
	})
	t.Logf("%d stops", stops)
	if stops == 0 {
		t.Error("nothing was ever stopped: the model does nothing")
	}
}
