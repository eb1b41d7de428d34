package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

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
	if err := r.Unlock(ctx, "orphan"); err != nil {
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
