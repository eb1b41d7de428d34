package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestBothStarted: of two mirrors that start a topic at the same time one keeps it, the
// same at every sidecar, whatever is paused or recovered later. The other is FAILED, and its
// stop takes nothing.
func TestBothStarted(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	// By its name alone it would be another mirror's; but it is led already for m.
	a := topic
	a.Mirror, a.Since = "a", 99
	r.put(record{kind: kindMirror, mirror: "a", value: Mirror{Name: "a", SourceClusterID: "third"}}, record{kind: kindTopic, topic: topicKey{"a", "t"}, value: a})
	owner := func() string { o, _ := r.view.TopicByID(topic.TopicID); return o.Mirror }
	step := func(mirror string) {
		t.Helper()
		now, _ := r.view.Topic(mirror, "t")
		if _, err := r.rec.step(t.Context(), Mirror{Name: mirror}, now); err != nil {
			t.Fatal(err)
		}
	}
	if owner() != "m" {
		t.Fatalf("it belongs to %s, m leads it", owner())
	}
	step("a")
	lost, state := r.verbState("a", "t")
	if !strings.Contains(lost.Fault, "belongs to mirror m") || state != Failed || len(r.requests) != 0 {
		t.Fatalf("%s, fault %q, requests %v", state, lost.Fault, r.requests)
	}
	for _, e := range []Event{VerbStart, VerbRecover} {
		if _, _, refused := r.decide("a", "t", e); refused == nil || refused.Code != protocol.TopicAlreadyInClusterMirror {
			t.Errorf("%s: %v", e, refused)
		}
	}
	// Whoever has lost it stays so when the other one pauses, or stops.
	for _, desired := range []State{Paused, Stopped} {
		m := r.topicT("t")
		m.Desired, m.Since = desired, 1
		r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: m})
		if owner() != "m" {
			t.Fatalf("%s: it belongs to %s", desired, owner())
		}
		step("a")
	}
	if _, _, refused := r.decide("a", "t", VerbRecover); refused == nil {
		t.Error("it is recovered while the other mirror still stops it")
	}
	// Its stop takes nothing.
	lost.Desired, lost.Since = Stopped, 1000
	r.put(record{kind: kindTopic, topic: topicKey{"a", "t"}, value: lost})
	step("a")
	if now, state := r.verbState("a", "t"); state != Stopped || !r.rec.idle(now) || len(r.requests) != 0 || owner() != "m" {
		t.Errorf("%s, requests %v, it belongs to %s", state, r.requests, owner())
	}
}

// TestNeitherLeads: before anybody leads it, the name decides.
func TestNeitherLeads(t *testing.T) {
	v := NewView()
	for i, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		for n, m := range order {
			v.apply([]record{{kind: kindTopic, topic: topicKey{m, "t"}, value: Topic{Mirror: m, Name: "t", Desired: Mirroring, Since: int64(10*i + n)}}}, nil)
		}
		if o, _ := v.TopicByName("t"); o.Mirror != "a" {
			t.Errorf("it belongs to %s", o.Mirror)
		}
	}
}

// TestBeginLooksAgain: another mirror may have started a topic after it was checked.
func TestBeginLooksAgain(t *testing.T) {
	r := newRig(t)
	r.otherMirror(Topic{Name: "t", Desired: Mirroring}, func(*Topic) {})
	refused, err := r.begin(t.Context(), "m", []beginning{{topic: "t"}}, nil)
	if err != nil || refused["t"] == nil || refused["t"].Code != protocol.TopicAlreadyInClusterMirror {
		t.Errorf("%v, %v", refused, err)
	}
	if _, known := r.view.Topic("m", "t"); known {
		t.Error("it is in both mirrors")
	}
}

// TestRetryIsNotLost: a verb whose record is written and whose retry is not says so, and a
// refresh does what was allowed.
func TestRetryIsNotLost(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Failed)
	lead := func(home int32) {
		r.change(Topic{TopicID: ids.UUID{255}}, func(p *metadata.Partition) { p.Leader, p.Replicas = home, []int32{home} })
	}
	lead(2) // its sidecar does not answer
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.retryFailed(soon, topic, VerbRecover)
	lead(1)
	if e := notRetried(topic, "recover", err); err == nil || e.Code == 0 || !strings.Contains(e.Message, "recover it again") {
		t.Errorf("%v: %v", err, e)
	}
	refused := PartitionState{State: Failed, Previous: LogTruncation, Detail: DetailConsentNeeded, LeaderEpoch: 3}
	key := partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}
	for _, allowed := range []bool{false, true} {
		topic.AllowTruncate = allowed
		r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic}, record{kind: kindState, partition: key, value: refused})
		if _, err := r.refresh(); err != nil {
			t.Fatal(err)
		}
		if s := r.stateOf(topic, 0); (s.State == LogTruncation) != allowed {
			t.Errorf("allowed %v: %s", allowed, s.State)
		}
	}
}
