package coordinator

import (
	"strings"
	"testing"
	"time"

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
		if before.AllowTruncate {
			t.Error("ValidateOnly changed it")
		}
		if e := try(topic, true, false); e != nil {
			t.Fatal(e)
		}
		if now := r.topicT(topic); !now.AllowTruncate || now.Desired != desired || now.Since == before.Since {
			t.Errorf("given up: %+v", now)
		}
		// Nobody is there to go on with.
		r.inSync(topic, func(p *metadata.Partition) { p.Replicas = []int32{10001, 10002, 8, 9} })
		refused(try(topic, true, false), "start another one of 8, 9")
	}
	r.mirrorTopic("paused", Paused, Paused)
	r.inSync("paused", func(p *metadata.Partition) { p.ISR = []int32{10001} })
	refused(try("paused", true, false))
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
