package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// inSync changes who is in sync of a topic's first partition, and what is known of others.
func (r *rig) inSync(topic string, change func(p *metadata.Partition)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.parts {
		if p.Topic == topic && p.Partition == 0 {
			next := *p
			change(&next)
			r.parts[i] = &next
		}
	}
	r.showLocked()
}

// TestGiveUp: a topic that waits for a replica can be recovered with AllowTruncate although
// nothing of it is FAILED, as long as there is a broker to go on with.
func TestGiveUp(t *testing.T) {
	r := newRig(t)
	try := func(topic string, allow, only bool) *Error {
		t.Helper()
		out, err := r.recoverTopics(t.Context(), verbRequest{mirror: "m", topics: []string{topic}, allowTruncate: allow, validateOnly: only})
		if err != nil || len(out) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		return out[0].Err
	}
	refused := func(e *Error, words ...string) {
		t.Helper()
		if e == nil || e.Code != protocol.InvalidClusterMirrorStates {
			t.Fatalf("answered %v", e)
		}
		for _, w := range words {
			if !strings.Contains(e.Error(), w) {
				t.Errorf("%q does not say %q", e.Error(), w)
			}
		}
	}
	for _, desired := range []State{Mirroring, Stopped} {
		topic := "waits-" + desired.String()
		r.mirrorTopic(topic, desired, Mirroring)
		refused(try(topic, true, false), "no failed partition")
		r.inSync(topic, func(p *metadata.Partition) {
			p.ISR, p.LastRealISR = []int32{10001, 10002}, []int32{2}
		})
		refused(try(topic, false, false), "bring back broker 2", "--allow-truncate")
		if e := try(topic, true, true); e != nil {
			t.Errorf("validated: %v", e)
		}
		before := r.topicT(topic)
		if before.AllowTruncate || before.GiveUp != nil {
			t.Error("ValidateOnly changed it")
		}
		if e := try(topic, true, false); e != nil {
			t.Fatal(e)
		}
		// A stop truncates nothing, and has not begun anew by it: it waits no longer than it was to.
		stops, now := desired == Stopped, r.topicT(topic)
		if now.Desired != desired || now.AllowTruncate == stops || (now.Since == before.Since) != stops || len(now.GiveUp) != 1 || now.GiveUp[0] == 0 {
			t.Errorf("given up: %+v", now)
		}
		if got := NewLeaders(r.Coordinator).GivenUp(ids.TopicPartition{TopicID: now.TopicID}); got != now.GiveUp[0] {
			t.Errorf("leaders are told %d, want %d", got, now.GiveUp[0])
		}
		// Nobody is there to go on with.
		r.inSync(topic, func(p *metadata.Partition) { p.Replicas = []int32{10001, 10002, 8, 9} })
		refused(try(topic, true, false), "start another one of 8, 9")
	}
	// Only what waits, by its number.
	r.mirrorTopic("two", Mirroring, Mirroring, Mirroring)
	r.inSync("two", func(p *metadata.Partition) { p.ISR, p.LastRealISR = []int32{10001}, []int32{2} })
	if e := try("two", true, false); e != nil || len(r.topicT("two").GiveUp) != 1 {
		t.Errorf("%v: %+v", e, r.topicT("two"))
	}
	r.mirrorTopic("paused", Paused, Paused)
	r.inSync("paused", func(p *metadata.Partition) { p.ISR = []int32{10001} })
	refused(try("paused", true, false))
}

// TestRecoverGivesUpNoWaitingReplica: leave to truncate what failed is no leave to give up the
// replica that another partition waits for. Who gave it is told.
func TestRecoverGivesUpNoWaitingReplica(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("t", Mirroring, Mirroring, Failed)
	r.inSync("t", func(p *metadata.Partition) { p.ISR, p.LastRealISR = []int32{10001, 10002}, []int32{2} })
	recovered := func() TopicResult {
		t.Helper()
		out, err := r.recoverTopics(t.Context(), verbRequest{mirror: "m", topics: []string{"t"}, allowTruncate: true})
		if err != nil || len(out) != 1 || out[0].Err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		return out[0]
	}
	note := recovered().Note
	for _, w := range []string{"partition 0", "bring back broker 2", "--allow-truncate"} {
		if !strings.Contains(note, w) {
			t.Errorf("%q does not say %q", note, w)
		}
	}
	if said := wireResult(TopicResult{Name: "t", Note: note}); said.ErrorCode != 0 || said.ErrorMessage == nil || *said.ErrorMessage != note {
		t.Errorf("answered %+v", said)
	}
	if now := r.topicT("t"); !now.AllowTruncate || now.GiveUp != nil {
		t.Errorf("%+v", now)
	}
	// Nothing is FAILED any more: now it is asked for by name.
	if note := recovered().Note; note != "" || len(r.topicT("t").GiveUp) != 1 {
		t.Errorf("%q, %+v", note, r.topicT("t"))
	}
}

// TestGivenUpIsTakenBack: giving up is for the replica that was lost then.
func TestGivenUpIsTakenBack(t *testing.T) {
	r := newRig(t)
	alone := func(p *metadata.Partition) { p.ISR, p.LastRealISR = []int32{10001}, []int32{2} }
	given := func(topic string, desired State) Topic {
		now := r.mirrorTopic(topic, desired, Mirroring, LogTruncation, Mirroring)
		now.AllowTruncate, now.GiveUp = true, map[int32]int64{0: 5, 1: 6, 2: 7}
		r.put(record{kind: kindTopic, topic: topicKey{"m", topic}, value: now})
		return r.topicT(topic)
	}
	// Partition 0 still waits; another that is not MIRRORING keeps none of the marks.
	for _, desired := range []State{Mirroring, Paused, Stopped} {
		now := given("t"+desired.String(), desired)
		r.inSync(now.Name, alone)
		next, err := r.rec.regained(t.Context(), now)
		if err != nil || len(next.GiveUp) != 1 || next.GiveUp[0] != 5 || next.Since != now.Since {
			t.Errorf("%s: %+v, %v", desired, next, err)
		}
		r.inSync(now.Name, func(p *metadata.Partition) { p.ISR = []int32{10001, 1} })
		if next, err = r.rec.regained(t.Context(), next); err != nil || next.GiveUp != nil || r.topicT(now.Name).GiveUp != nil {
			t.Errorf("%s: %+v, %v", desired, next, err)
		}
	}
	// What was said again meanwhile stays.
	old := given("again", Mirroring)
	now := old
	now.GiveUp = map[int32]int64{0: 5, 1: 60, 2: 7}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "again"}, value: now})
	if next, err := r.rec.regained(t.Context(), old); err != nil || len(next.GiveUp) != 1 || next.GiveUp[1] != 60 {
		t.Errorf("%+v, %v", next, err)
	}
	// A stop takes back all that was said of the mirror that ran.
	given("stops", Mirroring)
	if _, err := r.stopTopics(t.Context(), stopRequest{mirror: "m", topics: []string{"stops"}}); err != nil {
		t.Fatal(err)
	}
	if now := r.topicT("stops"); now.Desired != Stopped || now.AllowTruncate || now.GiveUp != nil {
		t.Errorf("%+v", now)
	}
	if now := (beginning{topic: "stops", allowTruncate: true}).apply("m", given("starts", Stopped)); !now.AllowTruncate || now.GiveUp != nil {
		t.Errorf("%+v", now)
	}
}

// TestAllowTruncateIsSpent: what an operator allowed does not stand for ever.
func TestAllowTruncateIsSpent(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name   string
		state  State
		age    time.Duration
		change func(p *metadata.Partition)
		spent  bool
	}{
		{"mirrored", Mirroring, 2 * spendAfter, nil, true},
		{"just-allowed", Mirroring, 0, nil, false},
		{"not-aligned", LogTruncation, 2 * spendAfter, nil, false},
		{"failed", Failed, 2 * spendAfter, nil, false},
		{"waiting", Mirroring, 2 * spendAfter, func(p *metadata.Partition) { p.ISR = []int32{10001} }, false},
		{"led-by-a-real-broker", Mirroring, 2 * spendAfter, func(p *metadata.Partition) { p.Leader = 1 }, false},
	} {
		topic := r.mirrorTopic(c.name, Mirroring, Mirroring, c.state)
		topic.AllowTruncate, topic.Since = true, time.Now().Add(-c.age).UnixMilli()
		r.put(record{kind: kindTopic, topic: topicKey{"m", c.name}, value: topic})
		if c.change != nil {
			r.inSync(c.name, c.change)
		}
		if err := r.rec.spend(t.Context(), r.topicT(c.name)); err != nil {
			t.Fatal(err)
		}
		if now := r.topicT(c.name); now.AllowTruncate == c.spent || now.Since != topic.Since || now.Desired != Mirroring {
			t.Errorf("%s: %+v", c.name, now)
		}
	}
}

// TestGivenUpIsLed: where nobody leads, since the controllers wait for the very replica that was given
// up, a virtual broker is elected: nobody else would begin.
func TestGivenUpIsLed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *metadata.Partition)
		given  bool
		elects bool
	}{
		{"the last one is eligible, and dead", func(p *metadata.Partition) { p.Leader, p.ISR, p.ELR = -1, nil, []int32{9} }, true, true},
		{"the last one is in the ISR, and dead", func(p *metadata.Partition) { p.Leader, p.ISR = -1, []int32{9} }, true, true},
		{"nobody has given it up", func(p *metadata.Partition) { p.Leader, p.ISR = -1, []int32{9} }, false, false},
		{"somebody leads", func(p *metadata.Partition) { p.Leader, p.ISR = 10001, []int32{10001} }, true, false},
		{"a real broker would be elected", func(p *metadata.Partition) { p.Leader, p.ISR, p.Replicas = -1, nil, []int32{1, 10001, 9} }, true, false},
		{"no virtual broker is alive", func(p *metadata.Partition) { p.Leader, p.ISR, p.Replicas = -1, nil, []int32{10008, 8} }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			now := r.mirrorTopic("t", Mirroring, Mirroring)
			r.inSync("t", func(p *metadata.Partition) {
				p.Replicas = []int32{10001, 1, 9}
				c.change(p)
			})
			if c.given {
				now.GiveUp = map[int32]int64{0: 5}
			}
			r.requests = nil
			if err := r.rec.leadGivenUp(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			elected := false
			for _, q := range r.requests {
				e, ok := q.(*kmsg.ElectLeadersRequest)
				elected = elected || ok && e.ElectionType == electionUnclean
			}
			if elected != c.elects {
				t.Errorf("asked for %v", r.requests)
			}
			if waits := len(r.waiting(now)) == 1; !waits {
				t.Error("it does not wait")
			}
		})
	}
}
