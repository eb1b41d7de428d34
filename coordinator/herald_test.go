package coordinator

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// heard is what sinks were told, a line for each event.
type heard struct {
	mu    sync.Mutex // guards the following
	lines []string
	kept  map[string][]string
}

func (h *heard) Tell(q policy.Question, plugins []string, events []*policyv1.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range plugins {
		for _, e := range events {
			h.lines = append(h.lines, fmt.Sprintf("%s of %s: %s-%d %s>%s %s", p, q.Mirror, e.Topic, e.Partition, e.FromState, e.ToState, e.Detail+e.Error))
		}
	}
}

func (h *heard) Keep(plugins map[string][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = plugins
}

// take returns what was told since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return lines
}

// herald returns one that looks when it is told to, and hears of everything.
func (r *rig) herald() (*Herald, *heard) {
	told := &heard{}
	h := NewHerald(r.Coordinator, told, slog.New(slog.NewTextHandler(r.t.Output(), nil)))
	r.t.Cleanup(r.view.Subscribe(h.hear))
	return h, told
}

func (r *rig) tellTo(plugins string) {
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
		"bootstrap.servers": "east:9092", "mirror.policy.events": plugins,
	}}})
}

func (r *rig) record(t Topic, partition int32, s PartitionState) {
	r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: t.TopicID, Partition: partition}}, value: s})
}

func TestHeraldTellsEachChange(t *testing.T) {
	r := newRig(t)
	r.tellTo("hook")
	topic := r.mirrorTopic("t", Mirroring)
	h, told := r.herald()
	h.look(time.Now())
	if got := told.take(); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
	// Changes of one partition follow each other faster than they are looked at: each is told.
	r.record(topic, 0, PartitionState{State: Mirroring, LeaderEpoch: 1})
	r.record(topic, 0, PartitionState{State: Pausing, LeaderEpoch: 1})
	r.record(topic, 0, PartitionState{State: Paused, LeaderEpoch: 1})
	r.record(topic, 0, PartitionState{State: Paused, LeaderEpoch: 2}) // another leader: nothing new
	r.record(topic, 1, PartitionState{State: Failed, LeaderEpoch: 1, Detail: "D", ErrorMessage: "E"})
	r.record(topic, 1, PartitionState{State: Failed, LeaderEpoch: 1, Detail: "D2", ErrorMessage: "E"})
	r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}})
	h.look(time.Now())
	want := []string{
		"hook of m: t-0 >MIRRORING", "hook of m: t-0 MIRRORING>PAUSING", "hook of m: t-0 PAUSING>PAUSED",
		"hook of m: t-1 >FAILED DE", "hook of m: t-1 FAILED>FAILED D2E", "hook of m: t-0 PAUSED>",
	}
	if got := told.take(); !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h.look(time.Now())
	if got := told.take(); len(got) != 0 {
		t.Errorf("again: %q", got)
	}
}

// Who begins to tell repeats what has just changed, for it does not know what was told; each only once.
func TestHeraldBegins(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring, Paused)
	h, told := r.herald()
	h.look(time.Now())
	if got := told.take(); len(got) != 0 || len(told.kept) != 0 {
		t.Errorf("without anybody to tell: %q, %v", got, told.kept)
	}
	r.tellTo("a")
	r.record(topic, 0, PartitionState{State: Failed, Previous: Mirroring, LeaderEpoch: 3})
	h.look(time.Now())
	got := told.take()
	slices.Sort(got)
	if want := []string{"a of m: t-0 MIRRORING>FAILED", "a of m: t-1 MIRRORING>PAUSED"}; !slices.Equal(got, want) {
		t.Errorf("begun: %q", got)
	}
	// A second one begins later; the first is not told again.
	r.tellTo("a, b")
	h.look(time.Now())
	got = told.take()
	slices.Sort(got)
	if want := []string{"b of m: t-0 MIRRORING>FAILED", "b of m: t-1 MIRRORING>PAUSED"}; !slices.Equal(got, want) {
		t.Errorf("a second: %q", got)
	}
	// What has been so for long is no news.
	r.tellTo("a, b, c")
	h.look(time.Now().Add(2 * policy.HoldEvents))
	if got := told.take(); len(got) != 0 {
		t.Errorf("long after: %q", got)
	}
	if got := told.kept["m"]; !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("kept: %v", told.kept)
	}
}

// What another sidecar coordinates is told there.
func TestHeraldOfOthers(t *testing.T) {
	r := newRig(t)
	r.tellTo("a")
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	h, told := r.herald()
	h.look(time.Now())
	told.take()
	lead := func(broker int32) {
		r.change(Topic{TopicID: ids.UUID{255}}, func(p *metadata.Partition) {
			p.Replicas, p.ISR, p.Leader = []int32{broker}, []int32{broker}, broker
			p.LeaderEpoch++
		})
	}
	lead(2) // 10002 is beside it, and coordinates
	h.look(time.Now())
	if len(told.kept) != 0 {
		t.Errorf("kept: %v", told.kept)
	}
	// It is here again: what happened meanwhile is told.
	lead(1)
	r.record(topic, 0, PartitionState{State: Paused, Previous: Mirroring, LeaderEpoch: 3})
	h.look(time.Now())
	if got := told.take(); !slices.Equal(got, []string{"a of m: t-0 MIRRORING>PAUSED"}) {
		t.Errorf("back: %q", got)
	}
}

// A flood is bounded: what of it is so now is told.
func TestHeraldFlood(t *testing.T) {
	r := newRig(t)
	r.tellTo("a")
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	h, told := r.herald()
	h.look(time.Now())
	told.take()
	h.hear(Change{States: make([]StateChange, maxNews)})
	r.record(topic, 0, PartitionState{State: Paused, Previous: Mirroring, LeaderEpoch: 3})
	h.look(time.Now())
	if got := told.take(); !slices.Equal(got, []string{"a of m: t-0 MIRRORING>PAUSED"}) {
		t.Errorf("told: %q", got)
	}
}
