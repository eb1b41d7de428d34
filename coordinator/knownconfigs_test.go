package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestConfigsOfManyTopics: a policy is told the configs of every topic at each look, of which a look asks
// the source for what is new and for a bounded number of the others, the oldest first.
func TestConfigsOfManyTopics(t *testing.T) {
	r := newRig(t)
	r.ref.log = slog.New(slog.DiscardHandler)
	told := map[string]string{}
	r.policies(config.Properties{"mirror.policy.topics": "mine"}, map[string]plugins.Policy{"mine": {
		Name: "mine", Topics: plugins.TopicFunc(func(_ context.Context, _ *policyv1.Round, f *policyv1.TopicFacts) (*policyv1.Decision, error) {
			told[f.GetName()] = f.GetConfigs()["retention.ms"]
			return plugins.Refuse("none", "nothing is mirrored"), nil
		}),
	}})
	const n, mirrored = 4 * topicsAtATime, 10
	name := func(i int) string { return fmt.Sprintf("t%05d", i) }
	put := func(i int, retention string) {
		r.src.set(func(s *fakeSource) {
			s.topics[name(i)] = SourceTopic{Name: name(i), ID: idOf(name(i)), Partitions: 1, Configs: map[string]string{"retention.ms": retention}, Defaults: map[string]string{"segment.ms": "1"}}
		})
	}
	for i := range n {
		put(i, "1")
	}
	look := func(what string, asked int) {
		t.Helper()
		r.src.set(func(s *fakeSource) { s.described = 0 })
		clear(told)
		if _, err := r.refresh(); err != nil {
			t.Fatal(what, err)
		}
		r.src.set(func(s *fakeSource) {
			if len(told) != len(s.topics) || s.described != asked {
				t.Errorf("%s: %d of %d topics are told, %d are asked for, want %d", what, len(told), len(s.topics), s.described, asked)
			}
		})
	}
	look("at first", n)
	for i := range n {
		put(i, "2")
	}
	for i := range n / topicsAtATime {
		look(fmt.Sprintf("look %d", i), topicsAtATime)
		fresh := 0
		for _, retention := range told {
			if retention == "2" {
				fresh++
			}
		}
		if fresh != (i+1)*topicsAtATime {
			t.Errorf("look %d: %d are told as they are", i, fresh)
		}
	}
	put(n, "3")
	r.src.set(func(s *fakeSource) {
		delete(s.topics, name(0))
		again := s.topics[name(1)]
		again.ID, again.Configs = idOf("again"), map[string]string{"retention.ms": "4"}
		s.topics[name(1)] = again
	})
	look("a new one, one made anew and one that is gone", topicsAtATime+2)
	if told[name(n)] != "3" || told[name(1)] != "4" {
		t.Errorf("told %q and %q", told[name(n)], told[name(1)])
	}
	if known := len(r.look.known.of); known != n || r.look.known.of[name(2)].topic.Defaults != nil {
		t.Errorf("%d are known", known)
	}
	// What is mirrored is asked for once in a look, by whoever follows it.
	for i := 2; i < 2+mirrored; i++ {
		r.mirrorTopic(name(i), Mirroring, Mirroring)
	}
	r.src.set(func(s *fakeSource) {
		for i := 2; i < 2+mirrored; i++ {
			topic := s.topics[name(i)]
			topic.ID = r.topicT(name(i)).SourceTopicID
			s.topics[name(i)] = topic
		}
	})
	look("some are mirrored", topicsAtATime+mirrored)
	r.policies(config.Properties{config.TopicsIncludeKey: "x.*"}, nil)
	if _, err := r.refresh(); err != nil || len(r.look.known.of) > 0 {
		t.Errorf("without that policy %d are known: %v", len(r.look.known.of), err)
	}
}

// TestMeasureConfigsOfManyTopics: what a look at 10,000 topics of a source costs.
func TestMeasureConfigsOfManyTopics(t *testing.T) {
	if !harness.Full() {
		t.Skip("only measured in the full form")
	}
	const n = 10_000
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cfg, err := config.ParseMirror(config.Properties{"bootstrap.servers": fake.ListenAddrs()[0], "request.timeout.ms": "120000"})
	if err != nil {
		t.Fatal(err)
	}
	src, err := KafkaSource(config.Providers{}, 1)(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	cl := src.(*kafkaSource).cl
	for i := 0; i < n; i += 1000 {
		req := kmsg.NewPtrCreateTopicsRequest()
		for j := range 1000 {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprintf("t%05d", i+j), 1, 1
			req.Topics = append(req.Topics, topic)
		}
		if _, err := req.RequestWith(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := src.List(t.Context())
	if err != nil || len(listed) != n {
		t.Fatal(len(listed), err)
	}
	m := &refreshed{src: src}
	var first uint64
	for _, what := range []string{"first look", "later look"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if told, err := m.withConfigs(t.Context(), listed); err != nil || len(told) != n {
			t.Fatal(len(told), err)
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s at %d topics: %v, %d MB allocated by both sides", what, n, took.Round(time.Millisecond), allocated>>20)
		if first == 0 {
			first = allocated
		} else if allocated > first/2 {
			t.Errorf("a later look costs %d bytes, the first one %d", allocated, first)
		}
	}
}
