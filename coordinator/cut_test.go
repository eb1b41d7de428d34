package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
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

// TestReplaceTakesEverything: what a view holds of the topic is all replaced.
func TestReplaceTakesEverything(t *testing.T) {
	t.Parallel()
	a, b := NewView(), NewView()
	a.replace(b)
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		if f := va.Type().Field(i); f.Type.Kind() == reflect.Map && f.Name != "subs" && va.Field(i).Pointer() != vb.Field(i).Pointer() {
			t.Errorf("%s is the old one's", f.Name)
		}
	}
}
