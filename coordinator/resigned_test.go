package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestHeldAfterLosses: a preferred leader that was elected again and has lost the partition again is
// not elected a third time before its silences are forgotten, unless it is a new process.
func TestHeldAfterLosses(t *testing.T) {
	const lag = 10 * time.Second
	const memory = resignMemory * lag
	type look struct {
		at     time.Duration
		leader int32
		epoch  int64 // of the registration of 10001, which comes first
		want   time.Duration
	}
	for name, c := range map[string]struct {
		first int32
		looks []look
	}{
		"it leads":                        {looks: []look{{0, 10001, 1, 0}, {lag, 10001, 1, 0}}},
		"the other one led all the time":  {looks: []look{{0, 10002, 1, 0}, {lag, 10002, 1, 0}}},
		"lost once":                       {looks: []look{{0, 10001, 1, 0}, {lag, 10002, 1, 0}}},
		"lost twice":                      {looks: []look{{0, 10001, 1, 0}, {lag, 10002, 1, 0}, {2 * lag, 10001, 1, 0}, {3 * lag, 10002, 1, memory}, {4 * lag, 10002, 1, memory - lag}, {3*lag + memory, 10002, 1, 0}}},
		"and a third time when it may":    {looks: []look{{0, 10001, 1, 0}, {1, 10002, 1, 0}, {2, 10001, 1, 0}, {3, 10002, 1, memory}, {memory + 3, 10001, 1, 0}, {memory + lag, 10002, 1, 2 * memory}}},
		"two losses that are far between": {looks: []look{{0, 10001, 1, 0}, {lag, 10002, 1, 0}, {2 * lag, 10001, 1, 0}, {lag + memory + 1, 10002, 1, 0}}},
		"well for long after two":         {looks: []look{{0, 10001, 1, 0}, {1, 10002, 1, 0}, {2, 10001, 1, 0}, {3, 10002, 1, memory}, {memory + 3, 10001, 1, 0}, {2*memory + 4, 10002, 1, 0}}},
		"restarted in between":            {looks: []look{{0, 10001, 1, 0}, {lag, 10002, 1, 0}, {2 * lag, 10001, 2, 0}, {3 * lag, 10002, 2, 0}}},
		"restarted since":                 {looks: []look{{0, 10001, 1, 0}, {1, 10002, 1, 0}, {2, 10001, 1, 0}, {3, 10002, 1, memory}, {4, 10002, 2, 0}}},
		"a real broker takes over":        {looks: []look{{0, 10001, 1, 0}, {1, 1, 1, 0}, {2, 10001, 1, 0}, {3, 1, 1, 0}}},
		"it was to go":                    {first: 10002, looks: []look{{0, 10001, 1, 0}, {1, 10002, 1, 0}, {2, 10001, 1, 0}, {3, 10002, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var l led
			for i, at := range c.looks {
				now := time.Unix(1000, 0).Add(at.at)
				p := &metadata.Partition{Replicas: []int32{10001, 10002, 1}, Leader: at.leader}
				if c.first == 10002 {
					p.Replicas = []int32{10002, 10001, 1}
				}
				registration := at.epoch
				if at.leader != 10001 {
					registration = 7
				}
				l = l.see(now, i > 0, virtual, p, registration, lag)
				if got := l.held(now, 10001, at.epoch, lag); got != at.want {
					t.Errorf("look %d: held for %v, want %v", i, got, at.want)
				}
			}
		})
	}
}

// TestElectedBackOnlyOnce: the first time a preferred leader that has given up is elected again when
// it has been there for a while; the second time it is not.
func TestElectedBackOnlyOnce(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	r.lockT("t")
	topic.Wanted = map[string]*string{configMinISR: ptr("1")}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
	step := func() int32 {
		t.Helper()
		// Its history is on record and everybody is there for long.
		r.rec.look(time.Now())
		r.rec.mu.Lock()
		for id, p := range r.rec.seen {
			p.since, p.returns = time.Now().Add(-time.Hour), nil
			r.rec.seen[id] = p
		}
		r.rec.mu.Unlock()
		if _, err := r.rec.mirrorTopic(t.Context(), mirrorT(r), r.topicT("t")); err != nil {
			t.Fatal(err)
		}
		return r.img.TopicPartitions(topic.TopicID)[0].Leader
	}
	giveUp := func() {
		r.change(topic, func(p *metadata.Partition) { p.Leader, p.LeaderEpoch = 10002, p.LeaderEpoch+1 })
	}
	step()
	for i, want := range []int32{10001, 10002} {
		giveUp()
		if got := step(); got != want {
			t.Errorf("after it gave up %d times %d leads, want %d", i+1, got, want)
		}
		step()
	}
}

// TestAssignable: an assignment names nobody who is not alive.
func TestAssignable(t *testing.T) {
	p := func(removing ...int32) *metadata.Partition { return &metadata.Partition{Removing: removing} }
	for name, c := range map[string]struct {
		p         *metadata.Partition
		want, out []int32
		dead      []int32
		there     bool // the dead ones were a moment ago
		ok        bool
	}{
		"all alive":               {p: p(), want: []int32{10001, 10002}, out: []int32{10001, 10002}, ok: true},
		"one dead":                {p: p(), want: []int32{10001, 10002}, dead: []int32{10001}, out: []int32{10002}, ok: true},
		"one gone for a moment":   {p: p(), want: []int32{10001, 10002}, dead: []int32{10001}, there: true},
		"its removal does not":    {p: p(10001, 10002), want: []int32{10001, 10002}, dead: []int32{10001}, there: true, out: []int32{10002}, ok: true},
		"none alive":              {p: p(), want: []int32{10001, 10002}, dead: []int32{10001, 10002}},
		"none alive, and removed": {p: p(10001), want: []int32{10001, 10002}, dead: []int32{10001, 10002}, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			dead := func(id int32) bool { return slices.Contains(c.dead, id) }
			out, ok := assignable(c.p, c.want, func(id int32) bool { return !dead(id) }, func(id int32) bool { return !dead(id) || c.there })
			if ok != c.ok || !slices.Equal(out, c.out) {
				t.Errorf("%v %v, want %v %v", out, ok, c.out, c.ok)
			}
		})
	}
}

// TestDeadOneBehindARealOne: a virtual replica that stays assigned although it is dead does not keep
// the living one from its place in front of the real ones, nor other partitions from theirs.
func TestDeadOneBehindARealOne(t *testing.T) {
	for name, c := range map[string]struct {
		now  func(p *metadata.Partition)
		dead []int32
		want []int32
	}{
		"a real one in front": {func(p *metadata.Partition) { p.Replicas = []int32{10001, 1, 10002, 2} }, []int32{10002}, []int32{10001, 1, 2}},
		"the living one is removed, the dead one stays": {func(p *metadata.Partition) {
			p.Replicas, p.Removing = []int32{10001, 10002, 1, 2}, []int32{10001, 10002}
		}, []int32{10002}, []int32{10001, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.brokers = []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10002, Fenced: true}}
			topic := r.mirrorTopic("t", Mirroring, Mirroring)
			r.lockT("t")
			r.change(topic, c.now)
			r.rec.mu.Lock()
			r.rec.seen[10002] = presence{epoch: 0, since: time.Now().Add(-time.Hour)}
			r.rec.mu.Unlock()
			parts := r.img.TopicPartitions(topic.TopicID)
			work := r.rec.seatingWork(topic, parts)
			if got := work.targets[0]; !slices.Equal(got, c.want) || work.windows[10002] {
				t.Errorf("asks for %v, want %v; opens %v", got, c.want, work.windows)
			}
		})
	}
}
