package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// peerSource is a source with sidecars.
type peerSource struct {
	*fakeSource
	mu     sync.Mutex // guards the following
	answer protocol.DescribeClusterMirrorsResponse
	err    error
	got    []protocol.DescribeClusterMirrorsRequest
}

func (s *peerSource) Mirrors(_ context.Context, req *protocol.DescribeClusterMirrorsRequest) (*protocol.DescribeClusterMirrorsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, *req)
	return &s.answer, s.err
}

// peer gives a rig a source with sidecars.
func (r *rig) peer() *peerSource {
	p := &peerSource{fakeSource: r.src}
	r.deps.Source = func(*config.Mirror) (Source, error) { return p, nil }
	return p
}

func origin(topic string, clusters ...string) protocol.TopicOrigin {
	o := protocol.NewTopicOrigin()
	o.TopicName, o.ClusterIDs = topic, clusters
	return o
}

// starts asks to start topics and returns what each was refused with.
func (r *rig) starts(allowTruncate bool, topics ...string) map[string]string {
	r.t.Helper()
	results, err := r.startTopics(r.t.Context(), startRequest{mirror: "m", topics: topics, allowTruncate: allowTruncate, validateOnly: true})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, t := range results {
		out[t.Name] = ""
		if t.Err != nil {
			out[t.Name] = t.Err.Message
		}
	}
	return out
}

func TestALoopIsRefused(t *testing.T) {
	r := newRig(t)
	p := r.peer()
	for _, n := range []string{"round", "far-round", "chain", "free"} {
		r.src.set(func(s *fakeSource) { s.topics[n] = SourceTopic{ID: idOf(n), Partitions: 1} })
	}
	p.answer.Origins = []protocol.TopicOrigin{origin("round", "here"), origin("far-round", "middle", "here", "beyond"), origin("chain", "middle", "beyond")}
	for _, allow := range []bool{false, true} {
		got := r.starts(allow, "round", "far-round", "chain", "free")
		for topic, says := range map[string]string{"round": "source from here", "far-round": "source from middle from here", "chain": "", "free": ""} {
			if says == "" && got[topic] != "" || !strings.Contains(got[topic], says) || says != "" && !strings.Contains(got[topic], "mirror loop") {
				t.Errorf("%s: %q, want %q", topic, got[topic], says)
			}
		}
	}
	req := p.got[0]
	if req.MirrorNames == nil || req.ClusterID == nil || *req.ClusterID != "here" || !slices.Equal(req.OriginVisited, []string{"here"}) || len(req.OriginTopics) != 4 {
		t.Errorf("asked %+v", req)
	}
}

func TestASourceThatDoesNotAnswerStartsNothing(t *testing.T) {
	r := newRig(t)
	p := r.peer()
	r.src.set(func(s *fakeSource) { s.topics["t"] = SourceTopic{ID: idOf("t"), Partitions: 1} })
	p.err = errors.New("no rights")
	if _, err := r.startTopics(t.Context(), startRequest{mirror: "m", topics: []string{"t"}}); err == nil || !strings.Contains(err.Error(), "no rights") {
		t.Errorf("started: %v", err)
	}
	p.err = errNoMirrors
	if got := r.starts(false, "t"); got["t"] != "" {
		t.Errorf("a source without sidecars: %q", got["t"])
	}
}

func lookupResult(topic ids.UUID, lmo ...int64) protocol.LookupResult {
	l := protocol.NewLookupResult()
	l.TopicID = topic
	for i, o := range lmo {
		p := protocol.NewLookupPartition()
		p.PartitionIndex = int32(i)
		if o >= 0 {
			h := protocol.NewLineageEntry()
			h.DestinationEpoch, h.SourceEpoch = 7, 2
			p.LastMirrorEpoch, p.LastMirrorOffset, p.History = 2, o, []protocol.LineageEntry{h}
		}
		l.Partitions = append(l.Partitions, p)
	}
	return l
}

// link asks for a link until the source has answered.
func (r *rig) link(tp ids.TopicPartition) (lineage.Link, bool, error) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		l, ok, err := NewLeaders(r.Coordinator).Link(r.t.Context(), "m", tp)
		if !errors.Is(err, errAsking) {
			return l, ok, err
		}
		if time.Now().After(deadline) {
			r.t.Fatal("the source was asked for ever")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestLink(t *testing.T) {
	r := newRig(t)
	p := r.peer()
	t.Cleanup(r.links.close)
	fresh := r.mirrorTopic("fresh", Mirroring, LogTruncation, LogTruncation)
	running := r.mirrorTopic("running", Mirroring, Mirroring)
	p.answer.LookupResults = []protocol.LookupResult{lookupResult(fresh.TopicID, 80, -1), lookupResult(running.TopicID, 80)}
	at := func(t Topic, n int32) ids.TopicPartition { return ids.TopicPartition{TopicID: t.TopicID, Partition: n} }

	if l, ok, err := r.link(at(fresh, 0)); err != nil || !ok || l.LastOffset != 80 || l.LastEpoch != 2 || len(l.Invert()) != 1 {
		t.Errorf("%+v, %v, %v", l, ok, err)
	}
	if _, ok, err := r.link(at(fresh, 1)); err != nil || ok {
		t.Errorf("a partition without a link: %v, %v", ok, err)
	}
	if n := len(p.got); n != 1 {
		t.Errorf("asked %d times for one topic", n)
	}
	// A mirror that runs must be led on while its source is away.
	if _, ok, err := r.link(at(running, 0)); err != nil || ok || len(p.got) != 1 {
		t.Errorf("a running mirror asks its source: %v, %v", ok, err)
	}
	// Another start asks anew.
	again := fresh
	again.Since++
	r.put(record{kind: kindTopic, topic: topicKey{"m", "fresh"}, value: again})
	if _, ok, err := r.link(at(fresh, 0)); err != nil || !ok || len(p.got) != 2 {
		t.Errorf("%v, %v, asked %d times", ok, err, len(p.got))
	}
	// Both ends started it at the same time.
	p.mu.Lock()
	p.answer.Origins = []protocol.TopicOrigin{origin("fresh", "here")}
	p.mu.Unlock()
	again.Since++
	r.put(record{kind: kindTopic, topic: topicKey{"m", "fresh"}, value: again})
	if _, _, err := r.link(at(fresh, 0)); err == nil || !strings.Contains(err.Error(), "mirror loop") {
		t.Errorf("no loop: %v", err)
	}
	if s := r.stateOf(fresh, 0); s.State != Failed || !strings.Contains(s.ErrorMessage, "mirror loop") {
		t.Errorf("%+v", s)
	}
}

func TestOriginsOf(t *testing.T) {
	r := newRig(t)
	p := r.peer()
	r.mirrorTopic("fed", Mirroring, Mirroring)
	r.mirrorTopic("held", Paused, Paused)
	r.mirrorTopic("free", Stopped, Stopped)
	p.answer.Origins = []protocol.TopicOrigin{origin("fed", "beyond", "further")}
	ask := func(visited ...string) map[string]string {
		out := map[string]string{}
		for _, o := range r.originsOf(t.Context(), []string{"fed", "held", "free", "unknown"}, visited) {
			out[o.TopicName] = strings.Join(o.ClusterIDs, " ")
		}
		return out
	}
	if got := ask("asker"); len(got) != 2 || got["fed"] != "source beyond further" || got["held"] != "source" {
		t.Errorf("got %v", got)
	}
	if v := p.got[0].OriginVisited; !slices.Equal(v, []string{"asker", "here"}) {
		t.Errorf("asked on with %v", v)
	}
	for name, visited := range map[string][]string{"the source asks": {"source"}, "asked before": {"here", "x"}, "too far": {"1", "2", "3", "4", "5", "6", "7", "8"}} {
		if got := ask(visited...); got["fed"] != "source" || len(p.got) != 1 {
			t.Errorf("%s: got %v, asked %d times", name, got, len(p.got))
		}
	}
	p.err = errors.New("away")
	if got := ask("asker"); got["fed"] != "source" {
		t.Errorf("source away: got %v", got)
	}
}

// A link is a stop that was completed, of the topic that there is now; the latest counts.
func TestLookup(t *testing.T) {
	r := newRig(t)
	done := r.mirrorTopic("done", Stopped, Stopped, Stopping)
	for p := range int32(2) {
		l := rec(map[int32]lineage.Chain{4: chain(1)})
		l.LastMirrorEpoch, l.LastMirrorOffset = 1, 50
		r.put(record{kind: kindLineage, partition: partitionKey{"m", ids.TopicPartition{TopicID: done.TopicID, Partition: p}}, value: l})
	}
	for _, tt := range []struct {
		name      string
		cluster   string
		topic     ids.UUID
		partition int32
		want      int64
	}{
		{"stopped", "source", done.SourceTopicID, 0, 50},
		{"still stopping", "source", done.SourceTopicID, 1, -1},
		{"another cluster", "elsewhere", done.SourceTopicID, 0, -1},
		{"another topic", "source", idOf("created anew"), 0, -1},
	} {
		if got := r.lookup(tt.cluster, tt.topic, tt.partition); got.LastMirrorOffset != tt.want || (len(got.History) > 0) != (tt.want >= 0) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	// A later stop of another mirror of the same topic.
	key := partitionKey{"other", ids.TopicPartition{TopicID: done.TopicID}}
	l := rec(map[int32]lineage.Chain{6: chain(1)})
	l.LastMirrorEpoch, l.LastMirrorOffset = 1, 30
	later := done
	later.Mirror, later.Since = "other", done.Since+1
	r.put(
		record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "source", Configs: config.Properties{}}},
		record{kind: kindTopic, topic: topicKey{"other", "done"}, value: later},
		record{kind: kindState, partition: key, value: PartitionState{State: Stopped, LeaderEpoch: 3}},
		record{kind: kindLineage, partition: key, value: l},
	)
	if got := r.lookup("source", done.SourceTopicID, 0); got.LastMirrorOffset != 30 || got.DestinationEpoch != 6 {
		t.Errorf("the latest stop: %+v", got)
	}
}

// A topic whose start was refused altogether is its owner's again.
func TestRefusedStartIsHandedBack(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, LogTruncation, LogTruncation)
	own := "1000"
	topic.Wanted = map[string]*string{configMaxMessageBytes: &own, configMinISR: nil}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
	r.mu.Lock()
	r.configs["t"] = map[string]string{configMaxMessageBytes: "0", configMinISR: "4"}
	r.showLocked()
	r.mu.Unlock()
	refuse := func(p int32) {
		tp := ids.TopicPartition{TopicID: topic.TopicID, Partition: p}
		if err := r.WriteState(t.Context(), "m", tp, 3, PartitionState{State: Failed, StateEpoch: -1, Detail: DetailConsentNeeded, ErrorMessage: "9 records"}); err != nil {
			t.Fatal(err)
		}
	}
	readOnly := func(p int32) bool {
		_, ro := r.ReadOnly(ids.TopicPartition{TopicID: topic.TopicID, Partition: p})
		return ro
	}
	virtuals := func(p int32) int {
		return len(virtual.Only(r.img.Partition(ids.TopicPartition{TopicID: topic.TopicID, Partition: p}).Replicas))
	}
	refuse(0)
	if all, err := r.rec.handRefusedBack(t.Context(), r.topicT("t")); err != nil || all || virtuals(0) != 0 || virtuals(1) == 0 {
		t.Fatalf("%v, %v; %d and %d virtual replicas", all, err, virtuals(0), virtuals(1))
	}
	if !readOnly(0) || !readOnly(1) || r.img.TopicConfig("t")[configMaxMessageBytes] != "0" {
		t.Error("half a mirror topic can be written to")
	}
	refuse(1)
	if all, err := r.rec.handRefusedBack(t.Context(), r.topicT("t")); err != nil || !all || virtuals(1) != 0 {
		t.Fatalf("%v, %v; %d virtual replicas", all, err, virtuals(1))
	}
	configs := r.img.TopicConfig("t")
	if _, set := configs[configMinISR]; readOnly(0) || readOnly(1) || configs[configMaxMessageBytes] != "1000" || set {
		t.Errorf("read only %v %v, configs %v", readOnly(0), readOnly(1), configs)
	}
	if s := r.stateOf(topic, 1); s.State != Failed || s.ErrorMessage != "9 records" {
		t.Errorf("%+v", s)
	}
	if all, err := r.rec.handRefusedBack(t.Context(), r.topicT("t")); err != nil || !all {
		t.Errorf("again: %v, %v", all, err)
	}
	// Nobody takes it under the lock again.
	if r.rec.adoptee(r.topicT("t")) {
		t.Error("it would be adopted")
	}
	m, _ := r.view.Mirror("m")
	if again, err := r.rec.mirrorTopic(t.Context(), m, r.topicT("t")); err != nil || again != 0 {
		t.Errorf("the next step: %v, %v", again, err)
	}
	if got := r.topicT("t"); len(got.Wanted) != 0 || r.img.TopicConfig("t")[configMaxMessageBytes] != "1000" {
		t.Errorf("%+v with configs %v", got, r.img.TopicConfig("t"))
	}
}
