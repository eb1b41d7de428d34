package coordinator

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// alone makes the rig's coordinator that of a process without a virtual broker, in a cluster
// whose sidecars are all gone.
func (r *rig) alone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brokers = []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001, Fenced: true}}
	r.cfg.Self, r.cfg.Alone = -1, true
	r.showLocked()
}

// defaultMinISR sets what the brokers say that topics want in sync.
func (r *rig) defaultMinISR(n string) {
	d, m := r.deps.Destination, map[string]string{configMinISR: n}
	d.defaults, d.asked = m, time.Now()
	d.known.Store(&m)
}

// TestAlone: what no sidecar coordinates is coordinated by who is told to, and by nobody else.
func TestAlone(t *testing.T) {
	r := newRig(t)
	r.alone()
	if who, err := r.Of("m"); err != nil || who != -1 {
		t.Errorf("coordinated by %d, %v", who, err)
	}
	if err := r.act(t.Context(), "m", func() error { return nil }); err != nil {
		t.Errorf("does not act: %v", err)
	}
	r.mu.Lock()
	r.brokers = append(r.brokers, metadata.Broker{ID: 10002})
	r.showLocked()
	r.mu.Unlock()
	if who, err := r.Of("m"); err != nil || who != 10002 {
		t.Errorf("with a sidecar: coordinated by %d, %v", who, err)
	}
	if err := r.act(t.Context(), "m", func() error { return nil }); err == nil {
		t.Error("acts although a sidecar coordinates")
	}
	r.alone()
	r.cfg.Alone = false
	if who, err := r.Of("m"); err == nil {
		t.Errorf("coordinated by %d, who is not told to", who)
	}
}

// TestStopAll: everything is stopped, nothing is found anew, and what waits says for whom.
func TestStopAll(t *testing.T) {
	r := newRig(t)
	running := r.mirrorTopic("t", Mirroring, Mirroring)
	r.mirrorTopic("past", Stopped, Stopped)
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
		"bootstrap.servers": "east:9092", config.TopicsIncludeKey: "t.*,u.*",
	}}})
	orphan := idOf("orphan")
	r.topic("orphan", orphan, []int32{10001, 1, 2})
	r.mu.Lock()
	r.configs["orphan"] = map[string]string{configMaxMessageBytes: "0", configMinISR: "3", "retention.ms": "7"}
	r.mu.Unlock()
	r.alone()
	r.change(running, func(p *metadata.Partition) { p.Leader, p.ISR = -1, []int32{10001} })

	if u := r.Unstopped(nil); len(u) != 1 || u[0].Topic != "t" || len(u[0].Partitions) != 1 {
		t.Errorf("unstopped: %+v", u)
	}
	if o := r.Orphans(); len(o) != 1 || o[0].Topic != "orphan" || !o[0].Locked {
		t.Errorf("orphans: %+v", o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 2 { // it may be repeated
		if err := r.StopAll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if d := r.topicT("t").Desired; d != Stopped {
		t.Errorf("wanted %s", d)
	}
	m, _ := r.view.Mirror("m")
	if in := m.Configs[config.TopicsIncludeKey]; in != "" {
		t.Errorf("patterns that find topics: %q", in)
	}
	if u := r.Unstopped(r.rec); len(u) != 1 || !strings.Contains(u[0].Waits, "bring back broker") {
		t.Errorf("unstopped: %+v", u)
	}
	if err := r.Unlock(ctx, "orphan", false); err != nil {
		t.Fatal(err)
	}
	if have := r.img.TopicConfig("orphan"); len(have) != 1 || have["retention.ms"] != "7" {
		t.Errorf("configs of the orphan: %v", have)
	}

	// The broker is back: the reconciler does the rest.
	r.change(running, func(p *metadata.Partition) { p.Leader, p.ISR = 1, []int32{1, 2} })
	if _, err := r.rec.stopTopic(ctx, r.topicT("t")); err != nil && !strings.Contains(err.Error(), "producers of") { // the fake cluster tells of none
		t.Fatal(err)
	}
	tp := ids.TopicPartition{TopicID: running.TopicID}
	if p := r.img.Partition(tp); len(p.Replicas) != 2 {
		t.Errorf("replicas %v", p.Replicas)
	}
}

// TestUnlockWaitsForLaggards: a mirror topic whose record is lost is nobody's once it is unlocked,
// and then a live replica that lags is soon left out.
func TestUnlockWaitsForLaggards(t *testing.T) {
	r := newRig(t)
	r.topic("orphan", idOf("orphan"), []int32{1, 10001, 2})
	r.mu.Lock()
	r.configs["orphan"] = map[string]string{configMaxMessageBytes: "0"}
	r.mu.Unlock()
	r.alone()
	r.defaultMinISR("1")
	topic := Topic{TopicID: idOf("orphan")}
	for _, c := range []struct {
		name   string
		leader int32
		isr    []int32
		waited bool
		want   string // what is waited for
	}{
		{"behind a virtual leader", 10001, []int32{10001, 1}, true, "a real broker to lead"},
		{"not for long enough", 1, []int32{10001, 1}, false, "broker 2 to get in sync"},
		{"for long enough", 1, []int32{10001, 1}, true, ""},
	} {
		r.change(topic, func(p *metadata.Partition) { p.Leader, p.ISR = c.leader, c.isr })
		err := r.Unlock(t.Context(), "orphan", c.waited)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if _, still := r.img.TopicConfig("orphan")[configMaxMessageBytes]; still != (c.want != "") {
			t.Errorf("%s: locked: %t", c.name, still)
		}
	}
}

// TestSweepAlone: what an uninstall sweeps may have been mirrored, so laggards are waited for as a stop
// does.
func TestSweepAlone(t *testing.T) {
	r := newRig(t)
	r.topic("t", idOf("t"), []int32{1, 10001, 2})
	r.change(Topic{TopicID: idOf("t")}, func(p *metadata.Partition) { p.ISR = []int32{1} })
	r.alone()
	r.cfg.StopReplicaWait = time.Minute
	r.defaultMinISR("1")
	_, pass := r.sweeper()
	pass(0)
	pass(laggardWait)
	pass(time.Minute - laggardWait - time.Second)
	if got := r.reassigned(); got != nil {
		t.Fatalf("left out: %v", got)
	}
	pass(time.Second)
	if got := r.reassigned(); len(got) == 0 || len(got[0]) != 1 {
		t.Errorf("asked for %v after the wait", got)
	}
}

// TestAloneOnlyStops: a process without virtual brokers places none, also if sidecars come meanwhile.
func TestAloneOnlyStops(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	r.alone()
	r.mu.Lock()
	r.brokers = []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10002}}
	r.showLocked()
	r.mu.Unlock()
	r.change(topic, func(p *metadata.Partition) { p.Replicas = []int32{10001, 1, 2} })
	m, _ := r.view.Mirror("m")
	before := len(r.requests)
	if _, err := r.rec.step(t.Context(), m, r.topicT("t")); err != nil {
		t.Error(err)
	}
	if got := r.requests[before:]; len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

// TestMisread: a record that is not understood may be a mirror, until another one replaces it.
func TestMisread(t *testing.T) {
	r := newRig(t)
	if err := r.Understood(); err != nil {
		t.Error(err)
	}
	key := []byte{0x7f, 0, 1}
	for _, c := range []struct {
		value []byte
		want  bool
	}{{[]byte{0, 0}, false}, {nil, true}} {
		// By a sidecar, of another version.
		err := r.act(t.Context(), "m", func() error {
			return transact(t.Context(), r.store.writers.get(0), []*kgo.Record{{Topic: StateTopic, Key: key, Value: c.value}}, r.log)
		})
		if err == nil {
			err = r.store.Barrier(t.Context(), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Understood(); (err == nil) != c.want {
			t.Errorf("value %v: %v", c.value, err)
		}
	}
	m := misread{}
	for i := range misreadKeys + 1 {
		m.note(&kgo.Record{Key: []byte(strconv.Itoa(i)), Value: []byte{}}, errors.New("newer"))
	}
	for i := range misreadKeys + 1 {
		m.note(&kgo.Record{Key: []byte(strconv.Itoa(i)), Value: []byte{}}, nil)
	}
	if m.err() == nil {
		t.Error("one beyond the bound is forgotten")
	}
	if m.clear(); m.err() != nil {
		t.Error("what a deleted topic held is remembered")
	}
}
