package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// sweepLimit bounds how long a partition may be on virtual brokers on a loaded machine. It is
// meant to be less than a second, and logged.
const sweepLimit = 30 * time.Second

// window opens all virtual brokers and creates what a cluster creates: topics, by request and
// unasked, Kafka's internal ones and ours. Nothing of it stays on virtual brokers; a mirror topic
// beside it does.
func window(t *testing.T, e *env) {
	const kept = "kept"
	w := e.watchPlacement(t, func(topic string) bool { return topic == kept })
	e.uncordon(t, 60*time.Second)
	e.createUnasked(t)
	e.createMirror(t)
	e.mirrorTopic(t, kept, 1)
	adm := kadm.NewClient(e.proxied)
	names := map[string]int{}
	for i := 0; i < 12; i++ {
		e.uncordon(t, 60*time.Second) // on a slow machine they may have closed by themselves
		for rf := range 2 {
			name := fmt.Sprintf("window-%d-%d", i, rf+1)
			if r, err := adm.CreateTopic(t.Context(), 4, int16(rf+1), nil, name); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			names[name] = rf + 1
		}
		w.mu.Lock()
		enough := i >= 1 && len(w.ended)+len(w.since) > 4 && len(w.alone) > 0
		w.mu.Unlock()
		if enough {
			break
		}
	}
	e.uncordon(t, 0)
	e.allReal(t, w, names)
	if landed, alone, longest := w.report(t); landed == 0 || alone == 0 || longest > sweepLimit {
		t.Errorf("%d partitions landed on virtual brokers, %d without a real replica, for %v at most", landed, alone, longest)
	}
	e.usable(t, "window-0-1", 4)
	e.usable(t, "window-0-2", 4)
	e.assigned(t, kept, 0, real(e.partitions(t, e.direct, kept)[0].Replicas)...)
	e.same(t, kept)
}

// createUnasked makes clients' doings create topics: one that is written to, those of groups, of
// transactions and of share groups.
func (e *env) createUnasked(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := e.client(t, e.dst.Proxies(), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(-1), kgo.TransactionalID("unasked"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	// Until the partitions are where they stay nobody takes the record.
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "unasked", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for kind, key := range map[int8]string{0: "unasked", 2: "unasked:" + ids.UUID{1, 6: 0x40}.String() + ":0"} {
		eventually(t, fmt.Sprintf("a coordinator of kind %d", kind), func(ctx context.Context) error {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKeys = 6, kind, []string{key}
			resp, err := e.proxied.SeedBrokers()[0].Request(ctx, req)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
		})
	}
}

// allReal returns when no partition of an ordinary topic is on a virtual broker, and these
// topics have as many replicas as they were given.
func (e *env) allReal(t *testing.T, w *watch, factors map[string]int) {
	t.Helper()
	eventually(t, "all ordinary topics are on real brokers", func(context.Context) error {
		topics := map[string]bool{}
		for _, p := range w.img.AllPartitions() {
			topics[p.Topic] = true
			if w.mirror(p.Topic) {
				continue
			}
			rf, known := factors[p.Topic]
			if slices.ContainsFunc(p.Replicas, isVirtual) || isVirtual(p.Leader) || p.Leader < 0 || known && (len(p.Replicas) != rf || len(p.Adding) > 0) {
				return fmt.Errorf("%s-%d: replicas %v, in sync %v, led by %d", p.Topic, p.Partition, p.Replicas, p.ISR, p.Leader)
			}
		}
		for _, name := range []string{"unasked", "__consumer_offsets", "__transaction_state", "__share_group_state", protocol.StateTopic} {
			if !topics[name] && !strings.HasPrefix(name, "__share") {
				return fmt.Errorf("there is no topic %s", name)
			}
		}
		for name := range factors {
			if !topics[name] {
				return fmt.Errorf("there is no topic %s", name)
			}
		}
		return nil
	})
}

// usable writes to each partition of a topic and reads it.
func (e *env) usable(t *testing.T, topic string, partitions int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := e.client(t, e.dst.Proxies(), manual(), kgo.UnknownTopicRetries(-1), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for p := range partitions {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < int(partitions); {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("consume %s: %v", topic, err)
		}
		got += f.NumRecords()
	}
}

// uncordon opens all virtual brokers for assignments, for a while or until it is called with 0.
func (e *env) uncordon(t *testing.T, lease time.Duration) {
	t.Helper()
	for _, b := range e.api.SeedBrokers() {
		req := protocol.NewUncordonVirtualBrokerRequest()
		req.LeaseMs = int32(lease.Milliseconds())
		resp, err := b.Request(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := resp.(*protocol.UncordonVirtualBrokerResponse); !ok || r.ErrorCode != 0 {
			t.Fatalf("un-cordon: %+v", resp)
		}
	}
}
