package coordinator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// TestStoredByAnotherVersion: a mirror whose configuration this version does not understand in part
// goes on, follows its topics and can be stopped; it begins with nothing new, and says why.
func TestStoredByAnotherVersion(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	r := newRig(t)
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.topic("x", idOf("x"), []int32{1}) // shows the configs
	m, _ := r.view.Mirror("m")
	m.Configs = config.Properties{
		"bootstrap.servers": source.ListenAddrs()[0], config.TopicsIncludeKey: ".*",
		config.ACLsIncludeKey: "TOPIC;.*;*;ALLOW;User:CN=app,OU=x", "mirror.topics.order": "size",
	}
	r.put(record{kind: kindMirror, mirror: "m", value: m})
	sources := NewSources(SourcesConfig{HomeID: 1, ClusterID: "here", Fetchers: 1}, r.view, slog.New(slog.DiscardHandler))
	defer stopWithin(t, sources.Stop)
	if _, err := sources.Source("m"); err != nil {
		t.Errorf("its records: %v", err)
	}
	if err := reachable(t.Context(), m); err != nil {
		t.Error(err)
	}
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{"retention.ms": "5"}}
		s.topics["new"] = SourceTopic{ID: idOf("new"), Partitions: 1}
	})
	if _, err := r.refresh(); err == nil || !strings.Contains(err.Error(), "mirror.topics.order") {
		t.Errorf("the refresh: %v", err)
	}
	if got := r.img.TopicConfig("c")["retention.ms"]; got != "5" {
		t.Errorf("what is mirrored is not followed: %q", got)
	}
	m.Configs = m.Configs.Clone()
	m.Configs[config.PropertiesIncludeKey+".order"] = "size"
	r.put(record{kind: kindMirror, mirror: "m", value: m})
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: map[string]string{"retention.ms": "6"}}
	})
	if _, err := r.refresh(); err == nil || !strings.Contains(err.Error(), config.PropertiesIncludeKey+".order") {
		t.Errorf("the refresh: %v", err)
	}
	if got := r.img.TopicConfig("c")["retention.ms"]; got != "5" {
		t.Errorf("a config that a restriction may leave out was copied: %q", got)
	}
	if _, known := r.view.Topic("m", "new"); known {
		t.Error("a topic that a restriction may leave out was begun with")
	}
	if err := r.alterConfigs(t.Context(), "m", []ConfigOp{{"request.timeout.ms", opSet, ptr("1000")}}, true); err == nil || !strings.Contains(err.Error(), "mirror.topics.order") {
		t.Errorf("alter: %v", err)
	}
	got, err := r.stopTopics(t.Context(), stopRequest{mirror: "m", patterns: []string{".*"}})
	if err != nil || len(got) != 1 || got[0].Err != nil || r.topicT("c").Desired != Stopped {
		t.Errorf("stop: %+v %v", got, err)
	}
}
