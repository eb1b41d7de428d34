package coordinator

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/placement"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestSweep: the next step of a partition that landed on virtual brokers.
func TestSweep(t *testing.T) {
	part := func(leader int32, replicas, isr []int32) *metadata.Partition {
		return &metadata.Partition{Leader: leader, Replicas: replicas, ISR: isr}
	}
	for name, c := range map[string]struct {
		p       *metadata.Partition
		e       stray
		dead    []int32
		racks   map[int32]string
		waited  bool
		minISR  int
		want    []int32
		waiting bool
	}{
		"led by a virtual one: the real ones in sync, whoever leads": {
			p: part(10001, []int32{10001, 2}, []int32{10001, 2}), e: stray{want: 2, had: []int32{2}}, want: []int32{2},
		},
		"the real leader comes first": {
			p: part(3, []int32{1, 10002, 3}, []int32{1, 3}), e: stray{want: 3, had: []int32{1, 3}}, want: []int32{3, 1},
		},
		"a laggard is waited for": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, waiting: true,
		},
		"a laggard is waited for, but not for ever": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, waited: true, want: []int32{3},
		},
		"a dead replica is not waited for": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, dead: []int32{1}, want: []int32{3},
		},
		"a virtual leader lets no laggard catch up": {
			p: part(10002, []int32{1, 10002, 3}, []int32{10002, 3}), e: stray{want: 3, had: []int32{1, 3}}, want: []int32{3},
		},
		"once mirrored, behind a virtual leader: a real one leads first": {
			p: part(10002, []int32{1, 10002, 3}, []int32{10002, 3}), e: stray{want: 3, had: []int32{1, 3}}, waited: true, minISR: 1, waiting: true,
		},
		"once mirrored: a laggard is waited for": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, minISR: 1, waiting: true,
		},
		"once mirrored: enough without the laggard": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, waited: true, minISR: 1, want: []int32{3},
		},
		"once mirrored: too few without the laggard": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, waited: true, minISR: 2, waiting: true,
		},
		"once mirrored: a dead replica is not waited for": {
			p: part(3, []int32{1, 10002, 3}, []int32{3}), e: stray{want: 3, had: []int32{1, 3}}, dead: []int32{1}, minISR: 2, want: []int32{3},
		},
		"nobody leads": {p: part(-1, []int32{1, 10002}, []int32{1}), e: stray{want: 2, had: []int32{1}}, waiting: true},
		"who is in sync is dead": {
			p: part(10002, []int32{1, 10002}, []int32{1, 10002}), e: stray{want: 2, had: []int32{1}}, dead: []int32{1}, waiting: true,
		},
		"a real one out of sync may have it all": {
			p: part(10002, []int32{1, 10002}, []int32{10002}), e: stray{want: 2, had: []int32{1}}, waiting: true,
		},
		"virtual ones only: one that can lead":  {p: part(10002, []int32{10002, 10001}, []int32{10002}), e: stray{want: 2}, want: []int32{1}},
		"virtual ones only and no broker":       {p: part(10002, []int32{10002}, []int32{10002}), e: stray{want: 1}, dead: []int32{1, 2, 3}, waiting: true},
		"none is left: those it had come first": {p: part(2, []int32{2}, []int32{2}), e: stray{want: 3, had: []int32{3, 2}}, want: []int32{2, 3, 1}},
		"no more than there are":                {p: part(2, []int32{2}, []int32{2}), e: stray{want: 3, had: []int32{2}}, dead: []int32{1}, want: []int32{2, 3}},
		"none is left and nobody to add":        {p: part(2, []int32{2}, []int32{2}), e: stray{want: 2, had: []int32{2}}, dead: []int32{1, 3}, waiting: true},
		"a rack that has none comes first": {
			p: part(1, []int32{1}, []int32{1}), e: stray{want: 2, had: []int32{1}}, racks: map[int32]string{1: "a", 2: "a", 3: "b"}, want: []int32{1, 3},
		},
		"a reassignment is pending": {
			p: &metadata.Partition{Leader: 2, Replicas: []int32{10001, 2}, ISR: []int32{2}, Removing: []int32{10001}}, e: stray{want: 2, had: []int32{2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			live := func(b int32) bool { return !slices.Contains(c.dead, b) }
			var brokers []placement.Broker
			for _, b := range []int32{1, 2, 3} {
				brokers = append(brokers, placement.Broker{ID: b, Rack: c.racks[b], Down: !live(b)})
			}
			got, wait := sweep(virtual, c.p, c.e, live, brokers, 0, careful{waited: c.waited, minISR: c.minISR})
			if !slices.Equal(got, c.want) || (wait != "") != c.waiting {
				t.Errorf("asks for %v and waits for %q, want %v, waiting: %t", got, wait, c.want, c.waiting)
			}
		})
	}
}

func TestMayDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		p    metadata.Partition
		want bool
	}{
		"led by a virtual one from the beginning": {metadata.Partition{Leader: 10001, ISR: []int32{10001, 1, 2}}, false},
		"led by a virtual one later":              {metadata.Partition{Leader: 10001, LeaderEpoch: 1, ISR: []int32{10001, 1, 2}}, true},
		"one real one":                            {metadata.Partition{Leader: 10001, LeaderEpoch: 1, ISR: []int32{10001, 1}}, false},
		"led by a real one":                       {metadata.Partition{Leader: 1, LeaderEpoch: 1, ISR: []int32{10001, 1, 2}}, false},
	} {
		if got := mayDiffer(virtual, &c.p); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestLacksReplicas(t *testing.T) {
	e := stray{want: 2, left: []int32{2}}
	for name, c := range map[string]struct {
		p    metadata.Partition
		want bool
	}{
		"as it was left":   {metadata.Partition{Replicas: []int32{2}}, true},
		"has them":         {metadata.Partition{Replicas: []int32{2, 1}}, false},
		"gets them":        {metadata.Partition{Replicas: []int32{2, 1}, Adding: []int32{1}}, false},
		"changed by hand":  {metadata.Partition{Replicas: []int32{3}}, false},
		"being changed":    {metadata.Partition{Replicas: []int32{2, 3}, Adding: []int32{3}, Removing: []int32{2}}, true},
		"as many, but two": {metadata.Partition{Replicas: []int32{1, 3}}, false},
	} {
		if got := lacksReplicas(&c.p, e); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// sweeper is the rig's, with a clock that the test moves.
func (r *rig) sweeper() (s *Sweeper, pass func(time.Duration)) {
	s, at := NewSweeper(r.Coordinator, r.log), time.Unix(1e9, 0)
	s.now = func() time.Time { return at }
	return s, func(d time.Duration) {
		at = at.Add(d)
		s.look(r.t.Context())
	}
}

// TestSweeper: what lands on virtual brokers goes to real ones at once, and has as many
// replicas as before.
func TestSweeper(t *testing.T) {
	r := newRig(t)
	r.topic("ordinary", idOf("ordinary"), []int32{10001, 2}, []int32{1, 2}, []int32{10002})
	s, pass := r.sweeper()
	tp := ids.TopicPartition{TopicID: idOf("ordinary")}
	if s.note(); s.Foreign(tp) || s.count != 2 {
		t.Errorf("verified at once, or %d found", s.count)
	}
	if stray, sure := r.Stray(tp); !stray || sure {
		t.Errorf("stray: %t, and certainly: %t", stray, sure)
	}
	pass(0)
	r.change(Topic{TopicID: tp.TopicID}, func(p *metadata.Partition) { // as if nothing had been done yet
		if p.Partition == 0 {
			p.Replicas = []int32{2, 10001}
		}
	})
	if stray, sure := r.Stray(tp); !stray || !sure {
		t.Errorf("stray: %t, and certainly: %t", stray, sure)
	}
	r.change(Topic{TopicID: tp.TopicID}, func(p *metadata.Partition) {
		if p.Partition == 0 {
			p.Replicas = []int32{2}
		}
	})
	if !s.Foreign(tp) || s.Foreign(ids.TopicPartition{TopicID: tp.TopicID, Partition: 1}) {
		t.Error("not known as foreign after the barriers")
	}
	parts := r.img.TopicPartitions(tp.TopicID)
	if !slices.Equal(parts[0].Replicas, []int32{2}) || len(virtual.Real(parts[2].Replicas)) != 1 || len(parts[2].Replicas) != 1 {
		t.Fatalf("after the first step: %v, %v", parts[0].Replicas, parts[2].Replicas)
	}
	if pass(0); len(r.reassigned()) != 1 {
		t.Error("the state topic is read at every look")
	}
	pass(readPause)
	parts = r.img.TopicPartitions(tp.TopicID)
	if !slices.Equal(parts[0].Replicas, []int32{2, 1}) {
		t.Errorf("after the second step: %v", parts[0].Replicas)
	}
	pass(sweepAgain)
	if len(s.found) != 0 || s.count != 0 || s.Foreign(tp) {
		t.Errorf("remembered: %v", s.found)
	}
	if n := r.asked(kmsg.AlterPartitionAssignments.Int16()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// TestSweeperNeedsNoStateForInternalTopics: what the state is written and read by may itself
// be on virtual brokers.
func TestSweeperNeedsNoStateForInternalTopics(t *testing.T) {
	r := newRig(t)
	// Somebody has moved it, and its virtual leader takes no barrier.
	r.change(Topic{TopicID: ids.UUID{255}}, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{10001, 1}, []int32{10001, 1}, 10001 })
	r.topic("__transaction_state", idOf("transactions"), []int32{10002, 2})
	r.topic("__consumer_offsets", idOf("groups"), []int32{10002})
	s, _ := r.sweeper()
	dead, cancel := context.WithCancel(t.Context())
	cancel() // nothing is read
	s.note()
	s.act(t.Context(), s.plan(s.internal()))
	for _, topic := range []string{StateTopic, "__transaction_state", "__consumer_offsets"} {
		id, _ := r.img.Topic(topic)
		if p := r.img.TopicPartitions(id)[0]; len(virtual.Only(p.Replicas)) > 0 {
			t.Errorf("%s is on %v", topic, p.Replicas)
		}
	}
	if s.barriers(dead) {
		t.Error("the state was read")
	}
}

// TestSweeperSparesMirrors: R19, the virtual replicas of a topic that is or may be a
// mirror's stay.
func TestSweeperSparesMirrors(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("mirrored", Mirroring, Mirroring)
	r.mirrorTopic("paused", Paused, Paused)
	stopping := r.mirrorTopic("stopping", Stopped, Stopping)
	// About to be taken, and created anew behind a mirror's back.
	r.put(record{kind: kindTopic, topic: topicKey{"m", "adopted"}, value: Topic{Mirror: "m", Name: "adopted", Desired: Mirroring}},
		record{kind: kindTopic, topic: topicKey{"m", "anew"}, value: Topic{Mirror: "m", Name: "anew", TopicID: idOf("old"), Desired: Mirroring}},
		record{kind: kindTopic, topic: topicKey{"m", "halfway"}, value: Topic{Mirror: "m", Name: "halfway", Desired: Stopped}},
		record{kind: kindTopic, topic: topicKey{"m", "free"}, value: Topic{Mirror: "m", Name: "free", TopicID: idOf("old free"), Desired: Stopped}})
	for _, name := range []string{"adopted", "anew", "halfway", "free"} {
		r.topic(name, idOf(name), []int32{10001, 1})
	}
	// Of a mirror that the lost state topic knew.
	r.configs["locked"] = map[string]string{configMaxMessageBytes: "0"}
	r.topic("locked", idOf("locked"), []int32{10001, 1})
	s, pass := r.sweeper()
	pass(0)
	pass(sweepAgain)
	for tp := range s.found {
		if tp.TopicID != idOf("free") {
			t.Errorf("%v was found", s.found[tp].topic)
		}
	}
	for _, q := range r.requests {
		if a, ok := q.(*kmsg.AlterPartitionAssignmentsRequest); ok && a.Topics[0].Topic != "free" {
			t.Errorf("%s was swept", a.Topics[0].Topic)
		}
	}
	if len(r.reassigned()) == 0 {
		t.Error("a topic that was created anew after a stop is an ordinary one")
	}
	if !s.ours(stopping.Name, stopping.TopicID) {
		t.Error("a topic that is being stopped is not left to the stop")
	}
}

// TestSweeperReadsTheStateFirst: what a mirror wrote before it assigned anything saves a
// partition that looks foreign, also if it was not read yet.
func TestSweeperReadsTheStateFirst(t *testing.T) {
	r := newRig(t)
	r.topic("late", idOf("late"), []int32{10001, 1})
	s, pass := r.sweeper()
	s.note()
	if len(s.found) != 1 {
		t.Fatalf("found %v", s.found)
	}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "late"}, value: Topic{Mirror: "m", Name: "late", TopicID: idOf("late"), Desired: Mirroring}})
	if s.Foreign(ids.TopicPartition{TopicID: idOf("late")}) {
		t.Error("a mirror's topic counts as foreign")
	}
	pass(0)
	if len(s.found) != 0 || r.reassigned() != nil {
		t.Errorf("found %v, asked for %v", s.found, r.reassigned())
	}
}

// TestOneSweeps: only the live virtual broker with the lowest id; another one goes on where
// it ended, also if the metadata has moved on before it looked.
func TestOneSweeps(t *testing.T) {
	for name, looks := range map[string]bool{"it looked in between": true, "it only saw the log": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cfg.Self = 10002
			s, pass := r.sweeper()
			defer r.img.Subscribe(func(d metadata.Delta) { s.noted(d) })()
			r.topic("t", idOf("t"), []int32{10001, 2})
			if looks {
				pass(0)
			}
			if got := r.reassigned(); got != nil {
				t.Fatalf("two sweep: %v", got)
			}
			r.change(Topic{TopicID: idOf("t")}, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{2}, []int32{2}, 2 })
			pass(sweepAgain)
			r.cfg.Self = 10001
			pass(sweepAgain)
			if got := r.reassigned(); len(got) != 1 || !slices.Equal(got[0], []int32{2, 1}) {
				t.Errorf("asked for %v", got)
			}
			pass(sweepAgain)
			if len(s.found) != 0 {
				t.Errorf("remembered: %v", s.found)
			}
		})
	}
}

// TestCutShort: a mirror that takes a topic whose partition was just taken away from virtual brokers,
// and has not got its real replicas again, gives them to it.
func TestCutShort(t *testing.T) {
	r := newRig(t)
	topic := Topic{TopicID: idOf("landed"), Name: "landed", Mirror: "m", Desired: Mirroring}
	r.topic(topic.Name, topic.TopicID, []int32{10001, 2})
	s, _ := r.sweeper()
	s.note()
	r.change(topic, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{2}, []int32{2}, 2 })
	part := func() *metadata.Partition { return r.img.TopicPartitions(topic.TopicID)[0] }
	if got := s.cutShort(part()); got != nil {
		t.Errorf("nobody's: %v", got)
	}
	r.put(record{kind: kindTopic, topic: topicKey{"m", topic.Name}, value: topic})
	s.note()
	for range 2 { // an assignment that was refused is asked for again
		if got := s.cutShort(part()); !slices.Equal(got, []int32{1}) {
			t.Errorf("a mirror's: %v, want [1]", got)
		}
	}
	work := r.rec.seatingWork(topic, r.img.TopicPartitions(topic.TopicID))
	if got := virtual.Real(work.targets[0]); !slices.Equal(got, []int32{2, 1}) {
		t.Errorf("assigned %v", work.targets[0])
	}
	r.change(topic, func(p *metadata.Partition) { p.Replicas = []int32{10001, 2, 1} })
	s.note()
	if len(s.cut) != 0 {
		t.Errorf("remembered: %v", s.cut)
	}
}
