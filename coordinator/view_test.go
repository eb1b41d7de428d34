package coordinator

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

func chain(epochs ...int32) lineage.Chain {
	var c lineage.Chain
	for i, e := range epochs {
		c = append(c, lineage.Entry{Epoch: e, SourceEpoch: e, Start: int64(10 * i)})
	}
	return c
}

func rec(chains map[int32]lineage.Chain) lineage.Record {
	return lineage.Record{LastMirrorEpoch: -1, LastMirrorOffset: -1, Chains: chains}
}

// TestLateLineage is R11: a write that comes late must not remove newer chains; the
// newest leader may prune.
func TestLateLineage(t *testing.T) {
	v := NewView()
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 2}}
	write := func(r lineage.Record) lineage.Record {
		v.apply([]record{{kind: kindLineage, partition: key, value: r}}, nil)
		got, _ := v.Lineage(key.mirror, key.tp)
		return got
	}
	write(rec(map[int32]lineage.Chain{3: chain(3)}))
	write(rec(map[int32]lineage.Chain{3: chain(3), 5: chain(3, 5)}))
	if got := write(rec(map[int32]lineage.Chain{3: chain(3)})); len(got.Chains) != 2 {
		t.Fatalf("a late write removed a newer chain: %v", got.Chains)
	}
	if got := write(rec(map[int32]lineage.Chain{5: chain(5)})); len(got.Chains) != 1 || len(got.Chains[5]) != 2 {
		t.Fatalf("the newest leader prunes, a chain of one epoch only grows: %v", got.Chains)
	}
	if got := write(rec(map[int32]lineage.Chain{7: chain(5, 7)})); len(got.Chains) != 1 || len(got.Chains[7]) != 2 {
		t.Fatalf("the newest leader's record stands: %v", got.Chains)
	}
	for _, r := range []lineage.Record{
		rec(map[int32]lineage.Chain{7: chain(5, 7)}).WithWritten(7),
		rec(map[int32]lineage.Chain{7: chain(5, 7)}), // of who has read the leader's log before
		rec(map[int32]lineage.Chain{5: chain(5)}),
	} {
		if got := write(r); !got.Written[7] {
			t.Fatalf("R21 forgotten that clients have written: %+v", got)
		}
	}
	if got := write(rec(map[int32]lineage.Chain{8: chain(5, 8)})); len(got.Written) > 0 {
		t.Fatalf("clients have written to another leader: %+v", got)
	}
	v.apply([]record{{kind: kindLineage, partition: key}}, nil)
	if _, ok := v.Lineage(key.mirror, key.tp); ok {
		t.Fatal("a tombstone removes it")
	}
}

func TestTopicOwner(t *testing.T) {
	v := NewView()
	id := ids.UUID{9}
	put := func(mirror string, desired State, since int64) {
		k := topicKey{mirror, "t"}
		v.apply([]record{{kind: kindTopic, topic: k, value: Topic{Mirror: mirror, Name: "t", TopicID: id, Desired: desired, Since: since}}}, nil)
	}
	owner := func() string { o, _ := v.TopicByID(id); return o.Mirror }
	put("a", Stopped, 1)
	if owner() != "a" {
		t.Error("the only one owns it")
	}
	put("b", Mirroring, 2)
	if owner() != "b" {
		t.Error("the one that mirrors owns it")
	}
	put("b", Stopped, 3)
	put("a", Stopped, 4)
	if owner() != "a" {
		t.Error("the last one that stopped owns it")
	}
	v.apply([]record{{kind: kindTopic, topic: topicKey{"a", "t"}}}, nil)
	if o, ok := v.TopicByName("t"); !ok || o.Mirror != "b" {
		t.Error("a deleted one owns nothing")
	}
}

func TestStateSince(t *testing.T) {
	v := NewView()
	k := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}}}
	for i, s := range []State{LogTruncation, Mirroring, Mirroring} {
		v.apply([]record{{kind: kindState, partition: k, value: PartitionState{State: s}, since: int64(i + 1)}}, nil)
	}
	if s, _ := v.State("m", k.tp); s.Since != 2 {
		t.Errorf("since %d: it counts from the first record in this state", s.Since)
	}
}

func TestViewWaitAndSubscribe(t *testing.T) {
	v := NewView()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []Change
	stop := v.Subscribe(func(c Change) { got = append(got, c) })
	done := make(chan error, 1)
	go func() { done <- v.wait(ctx, 4, 7) }()
	v.apply(nil, map[int32]int64{4: 7})
	v.apply([]record{{kind: kindMirror, mirror: "m", value: Mirror{Name: "m"}}}, map[int32]int64{4: 8})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Mirrors[0] != "m" {
		t.Errorf("changes: %+v", got)
	}
	stop()
	v.reset()
	if len(got) != 1 {
		t.Error("called after cancel")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := v.wait(ended, 4, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("after a reset nothing is read: %v", err)
	}
}

// TestRecordsRoundTrip: what is written is read back, by every kind; a tombstone is one.
func TestRecordsRoundTrip(t *testing.T) {
	tp := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1, 2}, Partition: 3}}
	one := "1"
	for _, r := range []record{
		{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "c", Configs: map[string]string{"bootstrap.servers": "a:1"}}},
		{kind: kindTopic, topic: topicKey{"m", "t"}, value: Topic{Mirror: "m", Name: "t", TopicID: ids.UUID{1}, SourceTopicID: ids.UUID{2}, Desired: Mirroring, Since: 5, AllowTruncate: true, Wanted: map[string]*string{"a": &one, "b": nil}}},
		{kind: kindState, partition: tp, value: PartitionState{State: Failed, Previous: Mirroring, RetryAttempt: 2, LeaderEpoch: 4, StateEpoch: 5, Detail: "D", ErrorMessage: "E", Since: 77}},
		{kind: kindLineage, partition: tp, value: lineage.Record{LastMirrorEpoch: 3, LastMirrorOffset: 9, Chains: map[int32]lineage.Chain{1: chain(1), 4: chain(1, 4)}}},
		{kind: kindMirror, mirror: "m"},
		{kind: kindTopic, topic: topicKey{"m", "t"}},
		{kind: kindState, partition: tp},
		{kind: kindLineage, partition: tp},
	} {
		k, v, err := encodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		if (v == nil) != (r.value == nil) {
			t.Errorf("%+v: value %x", r, v)
		}
		got, err := decodeRecord(k, v, 77)
		r.since = 77
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, r)
		}
	}
	k, v, err := encodeRecord(record{kind: kindBarrier, value: barrier{10001, 1}})
	if err != nil || v != nil {
		t.Fatal(v, err)
	}
	if r, err := decodeRecord(k, v, 0); err != nil || r.kind != kindBarrier {
		t.Errorf("%+v %v", r, err)
	}
}
