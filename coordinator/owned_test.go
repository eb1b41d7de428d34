package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

func (r *rig) own(kind policy.Kind, add, remove []string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	return r.Own(ctx, "m", kind, add, remove)
}

// TestOwned writes down what a mirror has created, and finds all of it in what another reader makes
// of the same records.
func TestOwned(t *testing.T) {
	r := newRig(t)
	if err := r.own(policy.ACLs, []string{"a", "b", "c"}, nil); err != nil {
		t.Fatal(err)
	}
	was := r.Owned("m", policy.ACLs)
	if len(was) != 3 || was["a"] <= 0 {
		t.Fatalf("owned %v", was)
	}
	if err := r.own(policy.ACLs, []string{"a", "d"}, []string{"b", "unknown"}); err != nil {
		t.Fatal(err)
	}
	now := r.Owned("m", policy.ACLs)
	if len(now) != 3 || now["a"] != was["a"] || now["c"] != was["c"] || now["d"] == 0 {
		t.Fatalf("owned %v, before %v: what is known keeps its time", now, was)
	}
	if got := r.Owned("m", policy.Groups); len(got) != 0 {
		t.Errorf("of another kind: %v", got)
	}
	if got := r.OwnedElsewhere("m", policy.ACLs); len(got) != 0 {
		t.Errorf("of other mirrors: %v", got)
	}
	r.put(record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other"}},
		record{kind: kindOwned, owned: ownedKey{"other", policy.ACLs, 3}, value: owned{items: map[string]ownedItem{"x": {since: 1}}}},
		record{kind: kindOwned, owned: ownedKey{"gone", policy.ACLs, 3}, value: owned{items: map[string]ownedItem{"y": {since: 1}}}})
	if got := r.OwnedElsewhere("m", policy.ACLs); len(got) != 1 || got["x"] != "other" {
		t.Errorf("of other mirrors: %v", got)
	}
	r.put(record{kind: kindMirror, mirror: "b", value: Mirror{Name: "b"}}, record{kind: kindMirror, mirror: "ended", value: Mirror{Name: "ended"}},
		record{kind: kindTopic, topic: topicKey{"ended", "t"}, value: Topic{Mirror: "ended", Name: "t", Desired: Stopped}},
		record{kind: kindOwned, owned: ownedKey{"b", policy.ACLs, 3}, value: owned{items: map[string]ownedItem{"x": {since: 1}, "z": {since: 1}}}},
		record{kind: kindOwned, owned: ownedKey{"ended", policy.ACLs, 3}, value: owned{items: map[string]ownedItem{"z": {since: 1}}}})
	if got := r.OwnedFirst("m", policy.ACLs); len(got) != 2 || got["x"] != "b" || got["z"] != "b" {
		t.Errorf("the first of the other mirrors: %v", got)
	}
	if got := r.OwnedFirst("b", policy.ACLs); len(got) != 4 || got["x"] != "other" || got["a"] != "m" {
		t.Errorf("the first of the other mirrors: %v", got)
	}

	again := NewView()
	var records []record
	for k, o := range r.view.owned {
		key, value, err := encodeRecord(record{kind: kindOwned, owned: k, value: o})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := decodeRecord(key, value, 0)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	again.apply(records, nil)
	if got := again.Owned("m", policy.ACLs); !maps.Equal(got, now) {
		t.Errorf("read again: %v, want %v", got, now)
	}

	if err := r.own(policy.ACLs, nil, []string{"a", "c", "d"}); err != nil {
		t.Fatal(err)
	}
	if got := r.view.ownedKeys("m"); len(got) != 0 {
		t.Errorf("nothing is owned, and there are records %v", got)
	}
}

// TestOwnedIsBounded keeps 50,000 ACLs in records far below what a broker takes, writes only those
// that change, and refuses what would not fit.
func TestOwnedIsBounded(t *testing.T) {
	v := NewView()
	var items []string
	for i := range 50000 {
		items = append(items, fmt.Sprintf("TOPIC;PREFIXED;a-topic-name-of-the-usual-length-%d;User:CN=an-application,OU=a-department,O=a company;*;READ;ALLOW", i))
	}
	records := v.ownedChange("m", policy.ACLs, items, nil, 1)
	largest := 0
	for _, rec := range records {
		_, value, err := encodeRecord(rec)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(value))
	}
	t.Logf("%d records, the largest of %d bytes", len(records), largest)
	if len(records) != ownedBuckets || largest > maxOwnedRecord/4 {
		t.Errorf("%d records, the largest of %d bytes", len(records), largest)
	}
	v.apply(records, nil)
	if got := len(v.ownedChange("m", policy.ACLs, append(items, "one more"), items[:1], 2)); got != 2 {
		t.Errorf("%d records change for one that is added and one that is removed", got)
	}
	if got := v.ownedChange("m", policy.ACLs, items, []string{"unknown"}, 2); len(got) != 0 {
		t.Errorf("%d records change for nothing", len(got))
	}

	r := newRig(t)
	if err := r.own(policy.ACLs, []string{strings.Repeat("x", maxOwnedRecord)}, nil); err == nil || !strings.Contains(err.Error(), "too many acls, or too long") {
		t.Errorf("an item as long as a record: %v", err)
	}
}

// TestOwnedGoesWithItsMirror deletes a mirror: a later one of its name owns nothing.
func TestOwnedGoesWithItsMirror(t *testing.T) {
	r := newRig(t)
	if err := r.own(policy.Quotas, []string{"a", "b"}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.deleteMirror(ctx, "m", false); err != nil {
		t.Fatal(err)
	}
	if got := r.view.ownedKeys("m"); len(got) != 0 {
		t.Errorf("still there: %v", got)
	}
	if err := r.own(policy.Quotas, []string{"a"}, nil); err == nil || !strings.Contains(err.Error(), "there is no mirror") {
		t.Errorf("a mirror that is deleted owns something: %v", err)
	}
}

// TestMirrorForSyncs tells syncs which topics are mirrored now.
func TestMirrorForSyncs(t *testing.T) {
	r := newRig(t)
	runs := r.mirrorTopic("runs", Mirroring, Mirroring)
	r.mirrorTopic("paused", Paused, Paused)
	r.mirrorTopic("stopped", Stopped, Stopped)
	faulty := r.mirrorTopic("faulty", Mirroring, Failed)
	faulty.Fault = "gone"
	r.put(record{kind: kindTopic, topic: topicKey{"m", "faulty"}, value: faulty},
		record{kind: kindTopic, topic: topicKey{"m", "to come"}, value: Topic{Mirror: "m", Name: "to come", Desired: Mirroring}})
	r.put(record{kind: kindMirror, mirror: "broken", value: Mirror{Name: "broken", Configs: config.Properties{"no such key": "1"}}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if m, err := r.Mirror(ctx, "m"); err != nil || m.Ended {
		t.Errorf("it has topics that are not stopped: %+v %v", m, err)
	}
	if got := r.Coordinated(); len(got) != 2 || got["m"]["bootstrap.servers"] != "east:9092" {
		t.Errorf("coordinated: %v", got)
	}
	m, err := r.Mirror(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.Stopped, []string{"stopped"}) {
		t.Errorf("stopped are %v", m.Stopped)
	}
	if len(m.Topics) != 1 || m.Topics[0].Name != "runs" || m.Topics[0].ID != runs.TopicID || m.SourceClusterID != "source" || m.Config == nil {
		t.Errorf("%+v", m)
	}
	if _, err := r.Mirror(ctx, "broken"); err == nil || !strings.Contains(err.Error(), "bootstrap.servers") {
		t.Errorf("a configuration of no use: %v", err)
	}
	if _, err := r.Mirror(ctx, "nobody"); err == nil {
		t.Error("a mirror that does not exist")
	}
	woken := make(chan struct{}, 10)
	stop := r.Changed(func() { woken <- struct{}{} })
	defer stop()
	r.put(record{kind: kindTopic, topic: topicKey{"m", "new"}, value: Topic{Mirror: "m", Name: "new", TopicID: ids.UUID{9}, Desired: Mirroring}})
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Error("nobody was told of a new topic")
	}
}

// TestMirrorHasEnded: all that it had is stopped. One that never had topics has not.
func TestMirrorHasEnded(t *testing.T) {
	r := newRig(t)
	ended := func() bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		m, err := r.Mirror(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		return m.Ended
	}
	if ended() {
		t.Error("before it had a topic")
	}
	r.mirrorTopic("a", Stopped, Stopped)
	if !ended() {
		t.Error("not when all is stopped")
	}
	r.mirrorTopic("b", Paused, Paused)
	if ended() {
		t.Error("while one is paused")
	}
}
