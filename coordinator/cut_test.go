package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// cutLog lets the view have read more than the log has: it was cut, and nobody has told the reader yet.
// What the reader has seen is a mirror that the log knows nothing of.
func (r *rig) cutLog() {
	r.view.apply([]record{{kind: kindMirror, mirror: "ghost", value: Mirror{Name: "ghost", Configs: config.Properties{}}}}, map[int32]int64{0: 1000})
}

// forgotten returns when the ghost is gone and the position is that of the log.
func (r *rig) forgotten() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, ghost := r.view.Mirror("ghost")
		if _, there := r.view.Mirror("m"); !there {
			r.t.Fatal("the mirror that the log knows of is gone")
		}
		if !ghost && r.view.position(0) < 1000 {
			return
		}
		pause(ctx, time.Millisecond)
		if ctx.Err() != nil {
			r.t.Fatalf("ghost %t, position %d", ghost, r.view.position(0))
		}
	}
}

// TestBarrierFindsACutLog: a barrier that is written where records were read before says nothing of
// what is in the log now, and shows that it was cut.
func TestBarrierFindsACutLog(t *testing.T) {
	r := newRig(t)
	r.cutLog()
	if err := r.store.Barrier(t.Context(), 0); !errors.Is(err, errCut) {
		t.Fatalf("a barrier in a log that was cut: %v", err)
	}
	r.forgotten()
	if err := r.store.Barrier(t.Context(), 0); err != nil {
		t.Errorf("a barrier afterwards: %v", err)
	}
	if _, there := r.view.Mirror("m"); !there {
		t.Error("the mirror is gone")
	}
}

// TestWriterFindsACutLog: nor is what a writer has written read back, although the view is far beyond.
func TestWriterFindsACutLog(t *testing.T) {
	r := newRig(t)
	again := record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "another", Configs: config.Properties{}}}
	err := r.act(t.Context(), "m", func() error {
		r.cutLog()
		return r.store.Put(t.Context(), again)
	})
	if !errors.Is(err, errCut) || r.store.Holds(0) {
		t.Fatalf("%v, and the partition is held: %t", err, r.store.Holds(0))
	}
	r.forgotten()
	if m, _ := r.view.Mirror("m"); m.SourceClusterID != "another" {
		t.Errorf("the record that was written is not read: %+v", m)
	}
	r.put(again)
}

// TestReaderFindsACutLog: whoever writes, what comes after lower offsets than were read is another log.
func TestReaderFindsACutLog(t *testing.T) {
	r := newRig(t)
	r.cutLog()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.fake.ListenAddrs()...), kgo.DefaultProduceTopic(StateTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	k, v, err := encodeRecord(record{kind: kindBarrier, value: barrier{10002, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Key: k, Value: v}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.forgotten()
}

func TestLostData(t *testing.T) {
	t.Parallel()
	if !lostData(fmt.Errorf("fetch: %w", &kgo.ErrDataLoss{Topic: StateTopic})) || lostData(errors.New("fetch")) || lostData(nil) {
		t.Error("what a client says of lost data is not told from the rest")
	}
}

// TestReplaceTakesEverything: what a view holds of a partition is all replaced.
func TestReplaceTakesEverything(t *testing.T) {
	t.Parallel()
	v, k := NewView(), partitionKey{"m", ids.TopicPartition{TopicID: idOf("t")}}
	records := []record{
		{kind: kindMirror, mirror: "m", value: Mirror{Name: "m"}},
		{kind: kindTopic, topic: topicKey{"m", "t"}, value: Topic{Mirror: "m", Name: "t", TopicID: idOf("t")}},
		{kind: kindState, partition: k, value: PartitionState{State: Mirroring}},
		{kind: kindLineage, partition: k, value: lineage.Record{}},
		{kind: kindOwned, owned: ownedKey{mirror: "m"}, value: owned{}},
	}
	v.apply(records, map[int32]int64{0: 5})
	of := reflect.ValueOf(v).Elem()
	count := func(want int) {
		t.Helper()
		for i := range of.NumField() {
			if f := of.Field(i); f.Kind() == reflect.Map && of.Type().Field(i).Name != "subs" && f.Len() != want {
				t.Errorf("%s has %d of %d", of.Type().Field(i).Name, f.Len(), want)
			}
		}
	}
	count(1)
	by := NewView()
	by.apply(records, map[int32]int64{0: 4})
	v.replace(0, 1, by)
	count(1)
	if v.position(0) != 4 {
		t.Errorf("at %d", v.position(0))
	}
	empty := NewView()
	empty.apply(nil, map[int32]int64{0: 0})
	v.replace(0, 1, empty)
	delete(v.next, 0)
	count(0)
	// What the topic has elsewhere is not touched.
	v.apply(records[:2], map[int32]int64{0: 5})
	other := 1 - statePartition("m", 2)
	v.replace(other, 2, empty)
	if _, there := v.Topic("m", "t"); !there || len(v.Mirrors()) != 1 || v.position(0) != 5 && other != 0 {
		t.Error("what another partition has is gone")
	}
}

// awayStore is a store whose state topic has n partitions, of which nobody leads those that are bad while
// they are away.
type awayStore struct {
	*Store
	away atomic.Bool
}

func newAwayStore(t *testing.T, n int32, bad func(p int32) bool) *awayStore {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(n, StateTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	all, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	without := kmsg.NewPtrMetadataResponse()
	*without = *all
	without.Topics = slices.Clone(all.Topics)
	without.Topics[0].Partitions = slices.Clone(all.Topics[0].Partitions)
	for i := range without.Topics[0].Partitions {
		if p := &without.Topics[0].Partitions[i]; bad(p.Partition) {
			p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		}
	}
	l := &awayStore{}
	fake.ControlKey(kmsg.NewPtrMetadataRequest().Key(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if !l.away.Load() {
			return nil, nil, false
		}
		resp := kmsg.NewPtrMetadataResponse()
		*resp = *without
		resp.Version = req.GetVersion()
		return resp, nil, true
	})
	img := metadata.NewImage(virtual)
	var parts []*metadata.Partition
	for p := range n {
		parts = append(parts, &metadata.Partition{Topic: StateTopic, TopicID: idOf("state"), Partition: p, Replicas: []int32{0}, ISR: []int32{0}})
	}
	img.Set(parts, []metadata.Broker{{ID: 0}}, nil)
	l.Store, err = NewStore(StoreConfig{Virtual: virtual, Opts: []kgo.Opt{kgo.SeedBrokers(fake.ListenAddrs()...)}}, img, nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	caughtUp := make(chan struct{})
	close(caughtUp)
	if err := l.Start(t.Context(), caughtUp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, l.Stop) })
	select {
	case <-l.Ready():
	case <-time.After(30 * time.Second):
		t.Fatal("the state is not read")
	}
	return l
}

// cutOff lets a partition that holds a ghost, and so all, have lost records while some are away.
func (l *awayStore) cutOff(partition int32) {
	l.away.Store(true)
	l.view.apply([]record{{kind: kindMirror, mirror: "ghost", value: Mirror{Name: "ghost"}}}, map[int32]int64{partition: 1000})
	l.cut(partition, "the test")
}

// TestCutPartitionHoldsUpNoOther: while a partition that has lost records cannot be read, the others
// are, and it is once it can be.
func TestCutPartitionHoldsUpNoOther(t *testing.T) {
	bad := statePartition("ghost", 2)
	l := newAwayStore(t, 2, func(p int32) bool { return p == bad })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l.cutOff(bad)
	for range 3 { // also after it was tried again
		if err := l.Barrier(ctx, 1-bad); err != nil {
			t.Fatalf("the other partition is not read: %v", err)
		}
		pause(ctx, 10*time.Millisecond)
	}
	if _, there := l.view.Mirror("ghost"); !there {
		t.Error("it was forgotten before it was known that it is gone")
	}
	l.away.Store(false)
	for ctx.Err() == nil {
		if _, there := l.view.Mirror("ghost"); !there {
			break
		}
		pause(ctx, time.Millisecond)
	}
	if err := l.Barrier(ctx, bad); err != nil {
		t.Errorf("the partition is not read any more: %v", err)
	}
}

// TestManyCutPartitionsHoldUpNoOther: nor do as many as would take all places in which partitions are read,
// one after the other.
func TestManyCutPartitionsHoldUpNoOther(t *testing.T) {
	const n = 50
	l := newAwayStore(t, n, func(p int32) bool { return p < n-1 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l.cutOff(n - 1)
	for ctx.Err() == nil && l.lostBy(n-1) > 0 {
		pause(ctx, time.Millisecond)
	}
	if err := l.Barrier(ctx, n-1); err != nil || l.lostBy(0) == 0 {
		t.Errorf("%v; the others are lost since %d", err, l.lostBy(0))
	}
}

// TestFoundAndCutAgain: what was cut once more while it was read anew is still lost.
func TestFoundAndCutAgain(t *testing.T) {
	l := newAwayStore(t, 2, func(int32) bool { return true })
	l.cutOff(0)
	which := l.lostBy(1)
	if l.found(0, l.lostBy(0)); which == 0 || l.lostBy(0) > 0 {
		t.Fatal("it is not found")
	}
	l.cut(0, "the test")
	if l.found(1, which) || l.lostBy(1) == 0 {
		t.Error("what was found before the log was cut again counts")
	}
}
