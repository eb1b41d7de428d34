package coordinator

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// forge writes records as Kafka's own tools do.
func (r *rig) forge(records ...*kgo.Record) {
	r.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.fake.ListenAddrs()...), kgo.DefaultProduceTopic(StateTopic))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// last returns the last record of each key, which is what compaction leaves.
func (r *rig) last() map[string]*kgo.Record {
	r.t.Helper()
	if err := r.store.Barrier(r.t.Context(), 0); err != nil {
		r.t.Fatal(err)
	}
	end := r.view.position(0)
	cl, err := r.store.reader(map[int32]int64{0: 0})
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	out := map[string]*kgo.Record{}
	for at := int64(0); at < end; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			r.t.Fatalf("the log was read up to %d of %d", at, end)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if at = rec.Offset + 1; !rec.Attrs.IsControl() {
				out[string(rec.Key)] = rec
			}
		})
	}
	return out
}

// TestForeignRecords: what was written around the sidecars says nothing, whatever it looks like, wedges
// nothing, and does not take the place of what it stands after.
func TestForeignRecords(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("c", Mirroring, Mirroring)
	before, _ := r.view.Mirror("m")
	encoded := func(rec record) *kgo.Record {
		k, v, err := encodeRecord(rec)
		if err != nil {
			t.Fatal(err)
		}
		return &kgo.Record{Key: k, Value: v}
	}
	mirror := encoded(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "evil", Configs: config.Properties{"bootstrap.servers": "evil:1"}}})
	stop := topic
	stop.Desired = Stopped
	forged := []*kgo.Record{
		mirror,
		{Key: mirror.Key, Value: []byte{0, 99, 1, 2, 3}}, // a future version
		{Key: mirror.Key, Value: []byte{0}},
		{Key: []byte("no key of ours"), Value: []byte("x")},
		{Key: nil, Value: []byte("x")},
		{Key: []byte{0, 77}, Value: nil},                               // a future type
		{Key: append(mirror.Key[:len(mirror.Key):len(mirror.Key)], 0)}, // almost a key
		encoded(record{kind: kindTopic, topic: topicKey{"m", "c"}, value: stop}),
		encoded(record{kind: kindMirror, mirror: "new", value: Mirror{Name: "new", Configs: config.Properties{"bootstrap.servers": "evil:1"}}}),
		{Key: mirror.Key}, // a tombstone
	}
	r.forge(forged...)
	same := func(when string) {
		t.Helper()
		if err := r.store.Barrier(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if now, there := r.view.Mirror("m"); !there || !reflect.DeepEqual(now.Configs, before.Configs) || now.SourceClusterID != before.SourceClusterID {
			t.Errorf("%s: the mirror is %+v", when, now)
		}
		if now := r.topicT("c"); now.Desired != Mirroring {
			t.Errorf("%s: the topic is %+v", when, now)
		}
		if _, there := r.view.Mirror("new"); there {
			t.Errorf("%s: there is a mirror that nobody has created", when)
		}
		if err := r.Understood(); err != nil {
			t.Errorf("%s: what nobody has to understand holds up who asks: %v", when, err)
		}
	}
	same("when it was forged")
	if n := r.store.foreign.count.Load(); n != int64(len(forged)) {
		t.Errorf("%d of %d records were told", n, len(forged))
	}
	if got := len(r.store.foreign.records()); got != 3 {
		t.Errorf("%d keys are taken, want the mirror's, the topic's and the new one", got)
	}
	restorer := NewRestorer(r.Coordinator, r.log)
	if err := restorer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stopWithin(t, restorer.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(r.store.foreign.records()) > 0 {
		if pause(ctx, time.Millisecond); ctx.Err() != nil {
			t.Fatalf("still taken: %+v", r.store.foreign.records())
		}
	}
	same("afterwards")
	last := r.last()
	rec, err := decodeRecord(mirror.Key, last[string(mirror.Key)].Value, 0)
	if m, ok := rec.value.(Mirror); err != nil || !ok || m.Configs["bootstrap.servers"] != before.Configs["bootstrap.servers"] {
		t.Errorf("what compaction leaves of the mirror: %+v, %v", rec, err)
	}
	k, err := protocol.EncodeKey(protocol.MirrorKey{MirrorName: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if left := last[string(k)]; left == nil || left.Value != nil {
		t.Errorf("what compaction leaves of the forged mirror: %+v", left)
	}
	// A sidecar's own record comes after it: nothing is to be restored.
	r.forge(forged[0])
	r.put(record{kind: kindMirror, mirror: "m", value: before})
	same("and after its own")
}

// TestForeignRecordAfterANewerOne: what a newer sidecar has written, and this one does not understand, is
// not replaced by what was so before it.
func TestForeignRecordAfterANewerOne(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("c", Mirroring)
	key, err := protocol.EncodeKey(protocol.MirrorKey{MirrorName: "m"})
	if err != nil {
		t.Fatal(err)
	}
	newer := &kgo.Record{Topic: StateTopic, Key: key, Value: []byte{0, 99, 1}}
	err = r.act(t.Context(), "m", func() error {
		return transact(t.Context(), r.store.writers.get(0), []*kgo.Record{newer}, r.log)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.forge(&kgo.Record{Key: key, Value: []byte("forged")})
	if err := r.store.Barrier(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	taken := r.store.foreign.records()
	if len(taken) != 1 {
		t.Fatalf("%d keys are taken", len(taken))
	}
	if err := r.restore(t.Context(), taken[0]); err == nil {
		t.Error("it was written over")
	}
	if last := r.last()[string(key)]; string(last.Value) != "forged" {
		t.Errorf("%q came after it", last.Value)
	}
}
