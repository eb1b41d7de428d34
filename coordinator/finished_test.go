package coordinator

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// otherMirror gives a topic a record in mirror "other".
func (r *rig) otherMirror(t Topic, edit func(o *Topic)) {
	r.t.Helper()
	t.Mirror = "other"
	edit(&t)
	r.put(
		record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "third", Configs: config.Properties{"bootstrap.servers": "x:1"}}},
		record{kind: kindTopic, topic: topicKey{"other", t.Name}, value: t},
	)
}

// lockT gives a topic the values of the write lock.
func (r *rig) lockT(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configs[name] = lockConfigs(1, 2)
	r.showLocked()
}

// TestFinishedStaysSo: what an admin does to a topic that is STOPPED is not undone, be it a
// partition or a config. A stop that nobody has finished goes on, whatever states there are.
func TestFinishedStaysSo(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Stopping)
	r.change(topic, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{1, 2}, []int32{1, 2}, 1 })
	if err := r.rec.finish(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if now := r.topicT("t"); now.Wanted != nil || !r.rec.idle(now) || !r.stopped(now) {
		t.Errorf("finished: %+v", now)
	}
	r.topic("t", topic.TopicID, []int32{2, 1})
	now := r.topicT("t")
	if !r.rec.idle(now) || !r.stopped(now) {
		t.Error("a new partition opens the stop again")
	}
	r.lockT("t") // an admin wants these values, for a reason of his own
	if _, err := r.rec.stopTopic(t.Context(), now); err == nil {
		t.Log("the new partition was asked for its transactions")
	}
	if len(r.requests) != 0 || r.img.TopicConfig("t")[configMaxMessageBytes] != "0" {
		t.Errorf("asked for %v", r.requests)
	}

	// Stopped before the first leader wrote a state, with the lock set or virtual replicas
	// assigned: every step is to be done.
	locked := r.mirrorTopic("locked", Stopped, Unknown)
	r.change(locked, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{1, 2}, []int32{1, 2}, 1 })
	assigned := r.mirrorTopic("assigned", Stopped, Unknown)
	assigned.Wanted = nil
	r.put(record{kind: kindTopic, topic: topicKey{"m", "assigned"}, value: assigned})
	// Started once more, and stopped before that was led.
	again := r.mirrorTopic("again", Stopped, Stopped)
	again.Wanted = locked.Wanted
	r.put(record{kind: kindTopic, topic: topicKey{"m", "again"}, value: again})
	for _, n := range []string{"locked", "assigned", "again"} {
		if now := r.topicT(n); r.rec.idle(now) || r.stopped(now) {
			t.Errorf("%s: the stop counts as finished", n)
		}
	}
}

// TestStopOfAnothersTopic: nothing of a topic is touched by the stop of a mirror that it
// does not belong to: not the lock, nor the replicas, nor what was left out.
func TestStopOfAnothersTopic(t *testing.T) {
	for name, desired := range map[string]State{"runs there": Mirroring, "pauses there": Paused, "stops there": Stopped} {
		r := newRig(t)
		topic := r.mirrorTopic("t", Stopped, Stopped, Stopping, Unknown)
		topic.RealReplicas = map[int32][]int32{0: {1, 2, 3}}
		topic.Since = 5
		r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
		r.otherMirror(topic, func(o *Topic) { o.Desired, o.Since = desired, 9 })
		r.lockT("t")
		if r.rec.idle(r.topicT("t")) {
			t.Errorf("%s: its own states are left as they are", name)
		}
		if _, err := r.rec.step(t.Context(), Mirror{Name: "m"}, r.topicT("t")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		now := r.topicT("t")
		if len(r.requests) != 0 || r.img.TopicConfig("t")[configMaxMessageBytes] != "0" {
			t.Errorf("%s: asked for %v", name, r.requests)
		}
		if r.stateOf(now, 1).State != Stopped || !r.rec.idle(now) || now.Wanted != nil || now.RealReplicas != nil {
			t.Errorf("%s: %s, %+v", name, r.stateOf(now, 1).State, now)
		}
		other, _ := r.view.Topic("other", "t")
		if owner, _ := r.view.TopicByID(topic.TopicID); owner.Mirror != "other" || len(other.Wanted) == 0 || len(other.RealReplicas) == 0 {
			t.Errorf("%s: %+v", name, other)
		}
	}
}

// TestUnfinishedStopOwns: a stop that has something to give back is not put aside for
// another mirror's past, whatever the clocks say.
func TestUnfinishedStopOwns(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Stopping)
	r.otherMirror(topic, func(o *Topic) { o.Wanted, o.Since = nil, topic.Since+1000 })
	if o, elsewhere := r.elsewhere(r.topicT("t")); elsewhere {
		t.Errorf("it belongs to %s", o.Mirror)
	}
	if _, _, e := r.decide("other", "t", VerbStart); e == nil {
		t.Error("another mirror may start it meanwhile")
	}
}

// TestStopWaitIsOfOneStop: mirror.stop.replica.wait.ms counts from the stop that waits.
func TestStopWaitIsOfOneStop(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Stopping)
	key, aTime := topicKey{"m", "t"}, time.Unix(1000, 0)
	waits := func() bool {
		r.rec.mu.Lock()
		defer r.rec.mu.Unlock()
		_, stopping := r.rec.stopping[key]
		return stopping || r.rec.told[key] != ""
	}
	wait := func(t Topic) {
		r.rec.stoppingSince(t, aTime)
		r.rec.waiting(key, "a broker")
	}
	wait(topic)
	if r.rec.forgetOthers(); !waits() {
		t.Error("the stop that waits is forgotten")
	}
	later := topic
	later.Since++
	if at := r.rec.stoppingSince(later, aTime.Add(1)); !at.Equal(aTime.Add(1)) {
		t.Error("another stop counts from the former one")
	}
	wait(topic)
	topic.Desired = Mirroring
	r.put(record{kind: kindTopic, topic: key, value: topic})
	if r.rec.forgetOthers(); waits() {
		t.Error("it is wanted otherwise")
	}
	topic.Desired = Stopped
	r.put(record{kind: kindTopic, topic: key, value: topic})
	wait(topic)
	if err := r.rec.stopGone(t.Context(), topic); err != nil || waits() {
		t.Error("the topic is gone", err)
	}
	wait(topic)
	r.change(Topic{TopicID: ids.UUID{255}}, func(p *metadata.Partition) { p.Leader, p.Replicas = 2, []int32{2} })
	if r.rec.forgetOthers(); waits() {
		t.Error("another sidecar coordinates the mirror")
	}
}

// TestStoppedIsSaidOnce: a topic whose partitions were never led is not taken for STOPPED before that
// is on record: who deletes the mirror then would be refused a moment later.
func TestStoppedIsSaidOnce(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Unknown)
	r.change(topic, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{1, 2}, []int32{1, 2}, 1 })
	var seen []State
	var mu sync.Mutex
	said := make(chan struct{}, 1)
	cancel := r.view.Subscribe(func(Change) {
		_, s := r.verbState("m", "t")
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, s)
		if s == Stopped {
			select {
			case said <- struct{}{}:
			default:
			}
		}
	})
	if err := r.rec.finish(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	select {
	case <-said: // subscribers may hear of what was written after who has written it
	case <-time.After(30 * time.Second):
	}
	cancel()
	mu.Lock()
	defer mu.Unlock()
	first := slices.Index(seen, Stopped)
	if first < 0 || slices.Contains(seen[first:], Stopping) {
		t.Errorf("seen %v", seen)
	}
}
