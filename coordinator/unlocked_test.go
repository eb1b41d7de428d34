package coordinator

import (
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestRefusedLock: a policy that refuses parts of the write lock does not keep a topic from being
// mirrored; what it lets be set is set, and what it refuses is not asked for all the time.
func TestRefusedLock(t *testing.T) {
	r := newRig(t)
	r.policy = []string{configMaxMessageBytes, configUnclean}
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	key := topicKey{"m", "t"}
	lock := lockConfigs(1, 2)
	want := map[string]string{configMinISR: lock[configMinISR], configRemoteStorage: lock[configRemoteStorage]}
	set := func() {
		t.Helper()
		if err := r.rec.setLock(t.Context(), topic, differing(r.img.TopicConfig("t"), lock)); err != nil {
			t.Fatal(err)
		}
	}
	set()
	if got := r.img.TopicConfig("t"); !maps.Equal(got, want) {
		t.Errorf("set: %v, want %v", got, want)
	}
	why := r.rec.unlockedWhy(key)
	for _, w := range []string{configMaxMessageBytes, configUnclean, "POLICY_VIOLATION"} {
		if !strings.Contains(why, w) {
			t.Errorf("%q does not say %s", why, w)
		}
	}
	if strings.Contains(why, configMinISR) {
		t.Errorf("%q names what was set", why)
	}
	asked := r.asked(int16(kmsg.IncrementalAlterConfigs))
	set()
	if now := r.asked(int16(kmsg.IncrementalAlterConfigs)); now != asked {
		t.Errorf("asked for again at once: %d requests, %d before", now, asked)
	}
	// Later it is, and the policy has changed.
	r.rec.unlocked[key] = unlocked{keys: r.rec.unlocked[key].keys}
	r.mu.Lock()
	r.policy = nil
	r.mu.Unlock()
	set()
	if got := r.img.TopicConfig("t"); !maps.Equal(got, lock) {
		t.Errorf("set: %v, want %v", got, lock)
	}
	r.rec.locked(key)
	if why := r.rec.unlockedWhy(key); why != "" {
		t.Errorf("complete, and: %s", why)
	}
}

// TestCreateWithARefusedLock: a topic is created with as much of the lock as may be.
func TestCreateWithARefusedLock(t *testing.T) {
	r := newRig(t)
	r.policy = []string{configMaxMessageBytes}
	lock := lockConfigs(1, 2)
	if err := r.rec.createLocked(t.Context(), Topic{Mirror: "m", Name: "new"}, [][]int32{{1, 2}}, map[string]string{"retention.ms": "-1"}, lock); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(lock)
	delete(want, configMaxMessageBytes)
	want["retention.ms"] = "-1"
	if got := r.img.TopicConfig("new"); !maps.Equal(got, want) {
		t.Errorf("created with %v, want %v", got, want)
	}
	if why := r.rec.unlockedWhy(topicKey{"m", "new"}); !strings.Contains(why, configMaxMessageBytes) || strings.Contains(why, configMinISR) {
		t.Errorf("told: %q", why)
	}
	// What the source's configs are refused for is no matter of the lock.
	r.mu.Lock()
	r.policy = []string{"retention.ms"}
	r.mu.Unlock()
	if err := r.rec.createLocked(t.Context(), Topic{Mirror: "m", Name: "other"}, [][]int32{{1, 2}}, map[string]string{"retention.ms": "-1"}, lock); err == nil {
		t.Error("created although its own configs are refused")
	}
}

// TestR21RefusedRaiseIsOnRecord: virtual replicas that wait for a higher minimum are told when a
// policy refuses it, until it does not.
func TestR21RefusedRaiseIsOnRecord(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring)
	one := "1"
	topic.Wanted = map[string]*string{configMinISR: &one}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "t"}, value: topic})
	look := func(refuses ...string) bool {
		t.Helper()
		r.mu.Lock()
		r.policy = refuses
		r.mu.Unlock()
		r.rec.mu.Lock()
		for key, u := range r.rec.unlocked {
			r.rec.unlocked[key] = unlocked{keys: u.keys} // asked again
		}
		r.rec.mu.Unlock()
		if err := r.rec.lock(t.Context(), topic, r.img.TopicPartitions(topic.TopicID), 2); err != nil {
			t.Fatal(err)
		}
		if _, err := r.rec.noteRaise(t.Context(), r.topicT("t")); err != nil {
			t.Fatal(err)
		}
		mt, _ := NewLeaders(r.Coordinator).MirrorTopic(topic.TopicID)
		return mt.RaiseRefused
	}
	if !look(configMinISR) {
		t.Error("a refusal is not told")
	}
	if look(); look() { // the second look finds it raised
		t.Error("it was raised, and is told as refused")
	}
}

// TestR21RaisedBehindForeignRecords: where clients wrote to a real leader, as many are wanted in
// sync as there are replicas, until a virtual broker leads.
func TestR21RaisedBehindForeignRecords(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Mirroring, Mirroring, Mirroring)
	one := "1"
	topic.Wanted = map[string]*string{configMinISR: &one}
	// The chain is the same whether the leader has taken anything or not.
	chain := lineage.Chain{{Epoch: 2, SourceEpoch: 0, Start: 0}, {Epoch: 3, SourceEpoch: lineage.NoSource, Start: 9}}
	for p, rec := range []lineage.Record{lineage.NewRecord().With(3, chain), lineage.NewRecord().With(3, chain).WithWritten(3)} {
		r.put(record{kind: kindLineage, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID, Partition: int32(p)}}, value: rec})
	}
	parts := func(leader int32) []*metadata.Partition {
		var out []*metadata.Partition
		for _, p := range r.img.TopicPartitions(topic.TopicID) {
			next := *p
			next.Leader = leader
			out = append(out, &next)
		}
		return out
	}
	if got := r.rec.behindForeign(topic, parts(1)); got != 4 {
		t.Errorf("behind a real leader %d, want 4", got)
	}
	if got := r.rec.behindForeign(topic, parts(1)[:1]); got != 0 {
		t.Errorf("behind a real leader that took nothing %d", got)
	}
	if got := r.rec.behindForeign(topic, parts(10001)); got != 0 {
		t.Errorf("behind a virtual leader %d", got)
	}
	minISR := func() string { return r.img.TopicConfig("t")[configMinISR] }
	if err := r.rec.lock(t.Context(), topic, parts(1), 2); err != nil || minISR() != "4" {
		t.Errorf("min.insync.replicas is %s, %v", minISR(), err)
	}
	if err := r.rec.lock(t.Context(), topic, parts(10001), 2); err != nil || minISR() != "3" {
		t.Errorf("min.insync.replicas is %s, %v", minISR(), err)
	}
}
