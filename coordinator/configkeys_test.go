package coordinator

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// TestAskedWithoutTheLock: while the cluster is slow to answer, what is known already is told: no lock is
// held.
func TestAskedWithoutTheLock(t *testing.T) {
	r := newRig(t)
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	r.fake.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		r.fake.SleepControl(func() { asked <- struct{}{}; <-answer })
		return nil, nil, false
	})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := r.deps.Destination.topicDefaults(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("nobody asks")
	}
	if r.deps.Destination.mu.TryLock() {
		r.deps.Destination.mu.Unlock()
	} else {
		t.Error("the lock is held while the cluster is asked")
	}
	close(answer)
	all.Wait()
}

// TestUnknownConfigs: what this cluster's version does not know of a source topic's configs does
// not keep the topic from being mirrored.
func TestUnknownConfigs(t *testing.T) {
	r := newRig(t)
	source := map[string]string{"retention.ms": "5", "message.format.version": "2.8-IV1", "message.downconversion.enable": "false", "some.day": "x"}
	c := r.mirrorTopic("c", Mirroring, Mirroring)
	r.src.set(func(s *fakeSource) {
		s.topics["c"] = SourceTopic{ID: c.SourceTopicID, Partitions: 1, Configs: source}
	})
	m, _ := r.view.Mirror("m")
	got, err := r.copied(t.Context(), r.question(m, policyv1.Round_REFRESH), []sourced{{c, SourceTopic{Name: "c", Configs: source}}})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].values["retention.ms"] != "5" {
		t.Errorf("known: %v", got[0].values)
	}
	if left := got[0].unknown; !slices.Contains(left, "some.day") || len(got[0].values)+len(left) != len(source) {
		t.Errorf("left out: %v, known: %v", left, got[0].values)
	}
	for range 2 {
		if _, err := r.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	have := r.img.TopicConfig("c")
	if _, set := have["some.day"]; set || have["retention.ms"] != "5" {
		t.Errorf("configs %v", have)
	}
}
