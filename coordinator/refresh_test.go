package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestFaultOf(t *testing.T) {
	id, other := idOf("one"), idOf("other")
	for name, c := range map[string]struct {
		recorded ids.UUID
		source   SourceTopic
		exists   bool
		here     int
		want     string
	}{
		"as it was":                    {id, SourceTopic{ID: id, Partitions: 2}, true, 2, ""},
		"grown":                        {id, SourceTopic{ID: id, Partitions: 3}, true, 2, ""},
		"deleted":                      {id, SourceTopic{}, false, 2, "deleted at the source"},
		"created anew":                 {id, SourceTopic{ID: other, Partitions: 2}, true, 2, "created anew"},
		"fewer, by a late broker":      {id, SourceTopic{ID: id, Partitions: 1}, true, 2, ""},
		"no ids":                       {ids.UUID{}, SourceTopic{Partitions: 2}, true, 2, ""},
		"no ids, fewer partitions":     {ids.UUID{}, SourceTopic{Partitions: 1}, true, 2, "created anew"},
		"ids since an upgrade":         {ids.UUID{}, SourceTopic{ID: id, Partitions: 2}, true, 2, ""},
		"no ids, not created here yet": {ids.UUID{}, SourceTopic{Partitions: 2}, true, 0, ""},
	} {
		got := faultOf(Mirror{Name: "m"}, Topic{Name: "t", SourceTopicID: c.recorded}, c.source, c.exists, c.here)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFaults: what is another topic, or none, at the source fails once it was seen twice;
// what cannot be asked does not.
func TestFaults(t *testing.T) {
	r := newRig(t)
	gone, fine, paused := r.mirrorTopic("gone", Mirroring, Mirroring, LogTruncation), r.mirrorTopic("fine", Mirroring, Mirroring), r.mirrorTopic("paused", Paused, Paused)
	if again, err := r.refresh(); err != nil || again != 0 {
		t.Fatal(again, err)
	}
	r.src.set(func(s *fakeSource) { s.err = errors.New("no route") })
	if _, err := r.refresh(); err == nil || !strings.Contains(err.Error(), "no route") || r.stateOf(gone, 0).State != Mirroring {
		t.Errorf("unreachable: %v, %s", err, r.stateOf(gone, 0).State)
	}
	r.src.set(func(s *fakeSource) {
		s.err = nil
		delete(s.topics, "gone")
		delete(s.topics, "paused")
	})
	if again, err := r.refresh(); err != nil || again != secondLook || r.topicT("gone").Fault != "" {
		t.Errorf("seen once: %v, %v, %q", again, err, r.topicT("gone").Fault)
	}
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if f := r.topicT("gone").Fault; !strings.Contains(f, "deleted at the source") {
		t.Errorf("fault %q", f)
	}
	for p := range int32(2) {
		if s := r.stateOf(gone, p); s.State != Failed || s.Detail != DetailSourceChanged || s.RetryAttempt != notRetryable || s.ErrorMessage == "" {
			t.Errorf("partition %d: %+v", p, s)
		}
	}
	if r.stateOf(fine, 0).State != Mirroring || r.stateOf(paused, 0).State != Paused || r.topicT("paused").Fault != "" {
		t.Error("another topic failed too")
	}
	// It is asserted: a leader may have written in between.
	tp := ids.TopicPartition{TopicID: gone.TopicID}
	if err := r.WriteState(t.Context(), "m", tp, 4, PartitionState{State: Mirroring, StateEpoch: -1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.refresh(); err != nil || r.stateOf(gone, 0).State != Failed {
		t.Errorf("%v, %s", err, r.stateOf(gone, 0).State)
	}
	// Created anew there: another fault, at once, since it has failed already.
	r.src.set(func(s *fakeSource) { s.topics["gone"] = SourceTopic{ID: idOf("anew"), Partitions: 2} })
	if _, err := r.refresh(); err != nil || !strings.Contains(r.topicT("gone").Fault, "created anew") || !strings.Contains(r.stateOf(gone, 1).ErrorMessage, "created anew") {
		t.Errorf("%v, %q", err, r.topicT("gone").Fault)
	}
	// It was there all the time after all.
	r.src.set(func(s *fakeSource) { s.topics["gone"] = SourceTopic{ID: gone.SourceTopicID, Partitions: 2} })
	if _, err := r.refresh(); err != nil || r.topicT("gone").Fault != "" || r.stateOf(gone, 0).State != Mirroring {
		t.Errorf("%v, %q, %s", err, r.topicT("gone").Fault, r.stateOf(gone, 0).State)
	}
}

func TestOtherCluster(t *testing.T) {
	r := newRig(t)
	a, b := r.mirrorTopic("a", Mirroring, Mirroring), r.mirrorTopic("b", Paused, Paused)
	r.mirrorTopic("c", Stopped, Stopped)
	r.src.set(func(s *fakeSource) { s.id, s.topics = "another", nil })
	if again, err := r.refresh(); err != nil || again != secondLook || r.topicT("a").Fault != "" {
		t.Errorf("seen once: %v, %v", again, err)
	}
	if _, err := r.refresh(); err == nil {
		t.Error("no error")
	}
	for _, x := range []Topic{a, b} {
		if f := r.topicT(x.Name).Fault; !strings.Contains(f, "cluster another") || r.stateOf(x, 0).State != Failed {
			t.Errorf("%s: fault %q, %s", x.Name, f, r.stateOf(x, 0).State)
		}
	}
	// The operator says when it goes on.
	r.src.set(func(s *fakeSource) {
		s.id, s.topics = "source", map[string]SourceTopic{"a": {ID: a.SourceTopicID, Partitions: 1}, "b": {ID: b.SourceTopicID, Partitions: 1}}
	})
	if _, err := r.refresh(); err != nil || r.topicT("a").Fault == "" {
		t.Errorf("%v, fault %q", err, r.topicT("a").Fault)
	}
	if _, err := r.recoverTopics(t.Context(), verbRequest{mirror: "m", topics: []string{".*"}}); err != nil || r.topicT("a").Fault != "" || r.stateOf(b, 0).State != Paused {
		t.Errorf("%v, fault %q, %s", err, r.topicT("a").Fault, r.stateOf(b, 0).State)
	}
	if _, err := r.refresh(); err != nil || r.stateOf(a, 0).State != Mirroring {
		t.Error(err, r.stateOf(a, 0).State)
	}
}

func TestDiscovery(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("d-running", Mirroring, Mirroring)
	r.mirrorTopic("d-stopped", Stopped, Stopped)
	r.topic("d-wide", idOf("wide"), []int32{1}, []int32{1})
	r.put(
		record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
			"bootstrap.servers": "east:9092", config.TopicsIncludeKey: "d-.*,__.*", config.TopicsExcludeKey: "d-no.*,__h.*",
		}}},
		record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "third"}},
		record{kind: kindTopic, topic: topicKey{"other", "d-other"}, value: Topic{Mirror: "other", Name: "d-other", Desired: Mirroring}},
	)
	r.src.set(func(s *fakeSource) {
		for _, n := range []string{"d-new", "d-no", "d-other", "d-wide", "d-denied", "e", "__consumer_offsets", "__hidden"} {
			s.topics[n] = SourceTopic{ID: idOf(n), Partitions: 1}
		}
		s.topics["d-denied"] = SourceTopic{Err: errors.New("not yours")}
	})
	for range 2 {
		if _, err := r.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	n := r.topicT("d-new")
	if n.Desired != Mirroring || n.SourceTopicID != idOf("d-new") || n.AllowTruncate {
		t.Errorf("discovered: %+v", n)
	}
	var have []string
	for _, x := range r.view.Topics("m") {
		have = append(have, x.Name)
	}
	if want := []string{"d-new", "d-running", "d-stopped"}; !slices.Equal(have, want) || r.topicT("d-stopped").Desired != Stopped {
		t.Errorf("topics %v, want %v", have, want)
	}
	for n, words := range map[string]string{
		"d-no": `pattern "d-no.*"`, "d-other": "belongs to mirror other", "d-wide": "2 partitions here", "d-denied": "not yours",
		"__consumer_offsets": "internal", "__hidden": `pattern "__h.*"`, "d-stopped": "stopped here",
	} {
		if !strings.Contains(r.look.skipped[n], words) {
			t.Errorf("%s: skipped for %q, want %q", n, r.look.skipped[n], words)
		}
	}
	if len(r.look.skipped) != 7 {
		t.Errorf("skipped %v", r.look.skipped)
	}
	if r.src.opened != 1 {
		t.Errorf("%d connections for two looks", r.src.opened)
	}
}

// TestGrowth: new partitions have as many replicas as the first one, virtual ones first, and
// are read only before they are there. Nothing shrinks.
func TestGrowth(t *testing.T) {
	r := newRig(t)
	g := r.mirrorTopic("g", Mirroring, Mirroring)
	r.src.set(func(s *fakeSource) { s.topics["g"] = SourceTopic{ID: g.SourceTopicID, Partitions: 3} })
	if _, err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	parts := r.img.TopicPartitions(g.TopicID)
	if len(parts) != 3 {
		t.Fatalf("%d partitions", len(parts))
	}
	leaders := map[int32]int{parts[0].Replicas[0]: 1}
	for _, p := range parts[1:] {
		if len(virtual.Only(p.Replicas[:2])) != 2 || !slices.Equal(slices.Sorted(slices.Values(p.Replicas[2:])), []int32{1, 2}) {
			t.Errorf("partition %d has replicas %v", p.Partition, p.Replicas)
		}
		leaders[p.Replicas[0]]++
		if s := r.stateOf(g, p.Partition); s.State != LogTruncation {
			t.Errorf("partition %d is %s", p.Partition, s.State)
		}
		if _, ro := r.ReadOnly(ids.TopicPartition{TopicID: g.TopicID, Partition: p.Partition}); !ro {
			t.Errorf("partition %d is not read only", p.Partition)
		}
	}
	if len(leaders) != 2 {
		t.Errorf("leaders %v", leaders)
	}
	r.src.set(func(s *fakeSource) { s.topics["g"] = SourceTopic{ID: g.SourceTopicID, Partitions: 2} })
	if _, err := r.refresh(); err != nil || r.asked(kmsg.NewPtrCreatePartitionsRequest().Key()) != 1 {
		t.Errorf("%v, %d requests", err, r.asked(kmsg.NewPtrCreatePartitionsRequest().Key()))
	}
}

func TestGrowthWaits(t *testing.T) {
	all := []metadata.Broker{{ID: 1}, {ID: 2, Fenced: true}, {ID: 10001}, {ID: 10002}}
	for name, c := range map[string]struct {
		first   metadata.Partition
		brokers []metadata.Broker
		want    string
	}{
		"a reassignment is pending":    {metadata.Partition{Replicas: []int32{10001, 1, 2}, Adding: []int32{2}}, all, "pending"},
		"not assigned yet":             {metadata.Partition{Replicas: []int32{1, 2}}, all, "no virtual replica"},
		"too few sidecars":             {metadata.Partition{Replicas: []int32{10001, 10002, 1}}, all[:3], "1 virtual brokers are alive"},
		"too few brokers":              {metadata.Partition{Replicas: []int32{10001, 1, 2, 3}}, all, "2 brokers are registered"},
		"a broker that is down counts": {metadata.Partition{Replicas: []int32{10001, 1, 2}}, all, ""},
	} {
		img := metadata.NewImage(virtual)
		c.first.Topic = "t"
		img.Set([]*metadata.Partition{&c.first}, c.brokers, nil)
		got, err := growth(virtual, img, "t", img.TopicPartitions(c.first.TopicID), 2, func(more []ids.TopicPartition) [][]int32 {
			return make([][]int32, len(more)) // whoever is alive is taken
		})
		if c.want == "" {
			if err != nil || len(got) != 1 || len(got[0]) != 3 {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestConfigSync: what differs is set, nothing is removed, what the lock holds is kept for
// later.
func TestConfigSync(t *testing.T) {
	r := newRig(t)
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.configs["c"] = map[string]string{"retention.ms": "1", "segment.ms": "7", configMaxMessageBytes: "0", "cleanup.policy": "compact"}
	r.topic("x", idOf("x"), []int32{1}) // shows the configs
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{
			"retention.ms": "5", "cleanup.policy": "compact", configMaxMessageBytes: "100", configMinISR: "2", configRemoteStorage: "true", "local.retention.ms": "3",
		}}
	})
	for range 2 {
		if _, err := r.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	have := r.img.TopicConfig("c")
	if have["retention.ms"] != "5" || have["segment.ms"] != "7" || have[configMaxMessageBytes] != "0" || len(have) != 4 {
		t.Errorf("configs %v", have)
	}
	if n := r.asked(kmsg.NewPtrIncrementalAlterConfigsRequest().Key()); n != 1 {
		t.Errorf("%d changes", n)
	}
	wanted := r.topicT("c").Wanted
	if v := wanted[configMaxMessageBytes]; v == nil || *v != "100" || wanted[configMinISR] != nil || wanted[configRemoteStorage] != nil {
		t.Errorf("wanted %v", wanted)
	}
	shown, ok := r.WantedConfigs("c")
	if v := shown[configMaxMessageBytes]; !ok || v == nil || *v != "100" {
		t.Errorf("shown %v", shown)
	}
}

// TestRefusedIsLeftAlone: a topic whose start was refused belongs to this cluster's users.
func TestRefusedIsLeftAlone(t *testing.T) {
	r := newRig(t)
	c := Topic{Mirror: "m", Name: "c", TopicID: idOf("c"), SourceTopicID: idOf("there"), Desired: Mirroring}
	tp := ids.TopicPartition{TopicID: c.TopicID}
	r.topic("c", c.TopicID, []int32{1, 2})
	r.put(record{kind: kindTopic, topic: topicKey{"m", "c"}, value: c},
		record{kind: kindState, partition: partitionKey{"m", tp}, value: PartitionState{State: Failed, Detail: DetailConsentNeeded, LeaderEpoch: 3}})
	for _, source := range []map[string]SourceTopic{{"c": {ID: idOf("there"), Partitions: 3, Configs: map[string]string{"retention.ms": "5"}}}, {}, {}} {
		r.src.set(func(s *fakeSource) { s.topics = source })
		if again, err := r.refresh(); err != nil || again != 0 {
			t.Error(again, err)
		}
	}
	if s := r.stateOf(c, 0); s.Detail != DetailConsentNeeded || r.topicT("c").Fault != "" || len(r.requests) != 0 {
		t.Errorf("%+v, fault %q, requests %v", s, r.topicT("c").Fault, r.requests)
	}
}

// TestRefresherRuns: a change of filters is looked at at once, on the connection that there
// is; one of the address needs another. A mirror without anything to look at has none.
func TestRefresherRuns(t *testing.T) {
	r := newRig(t)
	if err := r.ref.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stopWithin(t, r.ref.Stop)
		if r.src.open != 0 {
			t.Errorf("%d connections left", r.src.open)
		}
	}()
	r.src.set(func(s *fakeSource) {
		for _, n := range []string{"a", "b", "c"} {
			s.topics[n] = SourceTopic{ID: idOf(n), Partitions: 1}
		}
	})
	alter := func(ops ...ConfigOp) {
		t.Helper()
		if err := r.AlterConfigs(t.Context(), "test", "m", ops, false); err != nil {
			t.Fatal(err)
		}
	}
	discovered := func(name string) {
		t.Helper()
		within(t, 30*time.Second, r.img, name+" is discovered", func() bool { _, ok := r.view.Topic("m", name); return ok })
	}
	alter(ConfigOp{Name: config.TopicsIncludeKey, Op: opSet, Value: ptr("a")})
	discovered("a")
	alter(ConfigOp{Name: config.TopicsIncludeKey, Op: opAppend, Value: ptr("b")})
	discovered("b")
	r.src.mu.Lock()
	before := r.src.opened
	r.src.mu.Unlock()
	if before != 1 {
		t.Errorf("%d connections, want 1", before)
	}
	// The address: one connection to check it, one to use it.
	alter(ConfigOp{Name: "bootstrap.servers", Op: opSet, Value: ptr("west:9092")}, ConfigOp{Name: config.TopicsIncludeKey, Op: opAppend, Value: ptr("c")})
	discovered("c")
	r.src.mu.Lock()
	if r.src.opened != 3 {
		t.Errorf("%d connections, want 3", r.src.opened)
	}
	r.src.mu.Unlock()
}

func TestExplain(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("running", Mirroring, Mirroring)
	r.mirrorTopic("failed", Mirroring, Failed)
	faulty := r.mirrorTopic("faulty", Mirroring, Failed)
	faulty.Fault = "it was deleted"
	r.mirrorTopic("was", Stopped, Stopped)
	r.put(
		record{kind: kindTopic, topic: topicKey{"m", "faulty"}, value: faulty},
		record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
			"bootstrap.servers": "east:9092", config.TopicsIncludeKey: "in.*,was", config.TopicsExcludeKey: "in-not",
		}}},
		record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "third"}},
		record{kind: kindTopic, topic: topicKey{"other", "theirs"}, value: Topic{Mirror: "other", Name: "theirs", Desired: Mirroring}},
	)
	r.src.set(func(s *fakeSource) { s.topics["in-there"] = SourceTopic{ID: idOf("x"), Partitions: 4} })
	r.mirrorTopic("refused", Mirroring, LogTruncation)
	r.mirrorTopic("waiting", Stopped, Stopping)
	r.rec.outcome(t.Context(), topicKey{"m", "refused"}, errors.New("the policy says no"))
	r.rec.waiting(topicKey{"m", "waiting"}, "broker 2 is alive but not in sync")
	for _, c := range []struct {
		kind, name string
		mirrored   bool
		words      string
	}{
		{"topic", "refused", true, "the policy says no"},
		{"topic", "waiting", false, "waits for: broker 2"},
		{"topic", "running", true, "MIRRORING"},
		{"topic", "failed", false, "partition 0 is FAILED"},
		{"topic", "faulty", false, "it was deleted"},
		{"topic", "was", false, "stopped here"},
		{"topic", "theirs", false, "belongs to mirror other"},
		{"topic", "__consumer_offsets", false, "internal"},
		{"topic", "in-not", false, `excluded by the pattern "in-not"`},
		{"topic", "in-nowhere", false, "does not exist at the source"},
		{"topic", "in-there", false, "the next refresh starts it"},
		{"topic", "nobody", false, "no pattern of the mirror matches"},
		{"group", "g", false, "no policy was asked about groups yet"},
		{"acl", "User:a", false, "it is empty: the mirror leaves acls as they are here"},
		{"quota", "user=a;producer_byte_rate", false, "no policy is named there: the mirror leaves quotas as they are here"},
	} {
		req := protocol.NewExplainClusterMirrorRequest()
		req.MirrorName, req.Kind, req.Name = ptr("m"), c.kind, c.name
		a := call[*protocol.ExplainClusterMirrorResponse](t, &side{Coordinator: r.Coordinator}, &req)
		if a.ErrorCode != 0 || len(a.Explanations) != 1 || a.Explanations[0].Mirrored != c.mirrored {
			t.Errorf("%s %s: %s, %+v", c.kind, c.name, message(a.ErrorCode, a.ErrorMessage), a.Explanations)
			continue
		}
		if !slices.ContainsFunc(a.Explanations[0].Steps, func(s protocol.ExplanationStep) bool { return strings.Contains(s.Reason, c.words) }) {
			t.Errorf("%s %s: %+v, want %q", c.kind, c.name, a.Explanations[0].Steps, c.words)
		}
	}
	req := protocol.NewExplainClusterMirrorRequest()
	req.Kind, req.Name = "topic", "nobody"
	if a := call[*protocol.ExplainClusterMirrorResponse](t, &side{Coordinator: r.Coordinator}, &req); len(a.Explanations) != 2 {
		t.Errorf("all mirrors: %+v", a.Explanations)
	}
	req.Kind = "record"
	if a := call[*protocol.ExplainClusterMirrorResponse](t, &side{Coordinator: r.Coordinator}, &req); a.ErrorCode == 0 {
		t.Error("a kind that there is not")
	}
}

// knowing is another sidecar that explains.
type knowing struct {
	windowPeers
	asked int32
	err   error
}

func (k *knowing) Request(ctx context.Context, who int32, req kmsg.Request) (kmsg.Response, error) {
	r, ok := req.(*protocol.ExplainClusterMirrorRequest)
	if !ok {
		return k.windowPeers.Request(ctx, who, req)
	}
	k.asked = who
	resp := protocol.NewExplainClusterMirrorResponse()
	e := protocol.NewMirrorExplanation()
	e.MirrorName, e.Steps = *r.MirrorName, []protocol.ExplanationStep{step("discovery", false, "it knows")}
	resp.Explanations = append(resp.Explanations, e)
	return &resp, k.err
}

// TestExplainAtCoordinator: who coordinates a mirror knows best; without it, what is known
// here must do.
func TestExplainAtCoordinator(t *testing.T) {
	r := newRig(t)
	r.mu.Lock()
	p := *r.parts[0]
	p.Leader = 2
	r.parts[0] = &p
	r.showLocked()
	r.mu.Unlock()
	peer := &knowing{}
	r.deps.Peers = peer
	req := protocol.NewExplainClusterMirrorRequest()
	req.Kind, req.Name = "topic", "nobody"
	for _, want := range []string{"it knows", "no pattern of the mirror matches"} {
		a := call[*protocol.ExplainClusterMirrorResponse](t, &side{Coordinator: r.Coordinator}, &req)
		if len(a.Explanations) != 1 || len(a.Explanations[0].Steps) != 1 || !strings.Contains(a.Explanations[0].Steps[0].Reason, want) || peer.asked != 10002 {
			t.Errorf("asked %d, %+v, want %q", peer.asked, a.Explanations, want)
		}
		peer.err = errPeer
	}
}

// TestDescribeSkipped: describe shows what discovery left out, from whoever knows it.
func TestDescribeSkipped(t *testing.T) {
	r := newRig(t)
	r.ref.mirrors["m"] = &refreshed{lastRun: time.UnixMilli(5), lastErr: "why", skipped: map[string]string{"b": "y", "a": "x"}}
	r.mirrorTopic("c", Mirroring, LogTruncation)
	r.rec.outcome(t.Context(), topicKey{"m", "c"}, errors.New("the policy says no"))
	req := protocol.NewDescribeClusterMirrorsRequest()
	a := call[*protocol.DescribeClusterMirrorsResponse](t, &side{Coordinator: r.Coordinator}, &req)
	if len(a.Mirrors) != 1 || len(a.Mirrors[0].Policies) != 1 {
		t.Fatalf("%+v", a.Mirrors)
	}
	p := a.Mirrors[0].Policies[0]
	if p.Kind != "topics" || p.LastRunMs != 5 || p.LastError == nil || *p.LastError != "why" || len(p.Skipped) != 3 ||
		p.Skipped[0].Name != "a" || p.Skipped[0].Reason != "x" || p.Skipped[2].Name != "c" || p.Skipped[2].Reason != "the policy says no" {
		t.Errorf("%+v", p)
	}
	into := []protocol.DescribedMirror{{MirrorName: "x"}, {MirrorName: "m"}}
	mergeDescribed(into, a.Mirrors)
	if len(into[0].Policies) != 0 || len(into[1].Policies) != 1 {
		t.Errorf("%+v", into)
	}
}

// TestIgnoredConfigIsTold: what of a configuration has no effect is logged once, and described.
func TestIgnoredConfigIsTold(t *testing.T) {
	r := newRig(t)
	var logged strings.Builder
	r.ref.log = slog.New(slog.NewTextHandler(&logged, nil))
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{
		"bootstrap.servers": "east:9092", "mirror.stop.gently": "yes", "mirror.fetch.quickly": "yes",
	}}})
	for range 2 {
		r.ref.look(t.Context(), "m", &r.look)
	}
	for _, key := range []string{"mirror.stop.gently", "mirror.fetch.quickly"} {
		if n := strings.Count(logged.String(), key); n != 1 {
			t.Errorf("%s is logged %d times", key, n)
		}
	}
	r.ref.mirrors["m"] = &r.look
	p := r.policies0("m")
	if len(p.Warnings) != 2 || !strings.Contains(strings.Join(p.Warnings, " "), "mirror.stop.gently") || p.LastError != nil {
		t.Errorf("%+v", p)
	}
}

// policies0 is the first row of what describe shows of a mirror's policies.
func (r *rig) policies0(mirror string) protocol.DescribedPolicy {
	r.t.Helper()
	rows := r.Coordinator.policies(mirror)
	if len(rows) == 0 {
		r.t.Fatal("nothing is described")
	}
	return rows[0]
}

// TestConfigsBeforeData: a topic that was stopped and is started again has its source's
// configs, and the lock, before it gets a virtual replica (contract-additions §3). What it
// had itself is kept for the next stop.
func TestConfigsBeforeData(t *testing.T) {
	r := newRig(t)
	c := r.mirrorTopic("c", Stopped, Stopped)
	r.configs["c"] = map[string]string{"retention.ms": "1", configMinISR: "2"}
	r.topic("x", idOf("x"), []int32{1}) // shows the configs
	r.deps.Destination.defaults, r.deps.Destination.asked = map[string]string{configMinISR: "1"}, time.Now()
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{"retention.ms": "-1", configMaxMessageBytes: "77"}}
	})
	if got, err := r.startTopics(t.Context(), startRequest{mirror: "m", topics: []string{"c"}}); err != nil || got[0].Err != nil {
		t.Fatal(got, err)
	}
	m, _ := r.view.Mirror("m")
	if _, err := r.rec.step(t.Context(), m, r.topicT("c")); err != nil {
		t.Fatal(err)
	}
	if n := r.asked(kmsg.NewPtrIncrementalAlterConfigsRequest().Key()); n == 0 {
		t.Fatal("no config was changed")
	}
	if _, ok := r.requests[0].(*kmsg.IncrementalAlterConfigsRequest); !ok {
		t.Errorf("%T comes first", r.requests[0])
	}
	have := r.img.TopicConfig("c")
	if have["retention.ms"] != "-1" || have[configMaxMessageBytes] != "0" || have[configMinISR] != "4" {
		t.Errorf("configs %v", have)
	}
	wanted := r.topicT("c").Wanted
	if v := wanted[configMinISR]; v == nil || *v != "2" {
		t.Errorf("wanted %v", wanted)
	}
	if v := wanted[configMaxMessageBytes]; v == nil || *v != "77" {
		t.Errorf("wanted %v", wanted)
	}
}

// TestFaultOfAFailureThatIsTriedAgain: a leader that told of the fault first took it for something to
// try again, which it is not.
func TestFaultOfAFailureThatIsTriedAgain(t *testing.T) {
	failed, needed := faultyState(PartitionState{State: Failed, ErrorMessage: "gone", StateEpoch: 3}, "gone")
	if !needed || failed.RetryAttempt != notRetryable {
		t.Errorf("%+v, %v", failed, needed)
	}
	if _, needed := faultyState(failed, "gone"); needed {
		t.Error("it is written again and again")
	}
}
