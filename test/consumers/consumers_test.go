package consumers

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Topics of the source, all mirrored but the last two.
const (
	plain    = "plain"    // quiet once it is filled; two partitions, of which the first has an open transaction
	growing  = "growing"  // of the sessions
	handed   = "handed"   // read while its leaders change, and stopped
	lagging  = "lagging"  // a replica of it falls behind
	shared   = "shared"   // mirrored when a share group reads it already
	ordinary = "ordinary" // of the destination
)

// TestConsumers has one pair of clusters for all that consumers do.
func TestConsumers(t *testing.T) {
	e := start(t)
	src := e.srcClient(t)
	e.createTopic(t, e.srcAdmin, src, 2, 1, plain)
	for _, topic := range []string{growing, handed, lagging, shared} {
		e.createTopic(t, e.srcAdmin, src, 1, 1, topic)
	}
	e.createTopic(t, e.dstAdmin, e.dst.Cluster.ClientT(t), 1, brokers, ordinary)
	e.fill(t)
	e.createMirror(t)
	e.mirrorTopics(t, plain, growing, handed, lagging)
	e.mirrored(t, plain)

	t.Run("quiet", func(t *testing.T) {
		t.Run("share", func(t *testing.T) {
			t.Parallel()
			e.testShare(t)
		})
		t.Run("answers", func(t *testing.T) {
			t.Parallel()
			t.Run("fetch", e.testFetch)
			t.Run("offsets", e.testOffsets)
			t.Run("epochs", e.testEpochs)
			t.Run("producers", e.testProducers)
			t.Run("described", e.testDescribed)
			t.Run("sessions", e.testSessions)
			t.Run("virtual", e.testVirtual)
		})
	})
	t.Run("handed", e.testHanded)
	t.Run("lagging", e.testLagging)
}

// fill writes what consumers may meet: batches of several codecs, committed, aborted and open
// transactions, records that are deleted.
func (e *env) fill(t *testing.T) {
	t.Helper()
	at := time.Now().Add(-time.Hour).UnixMilli()
	records := func(partition int32, n int) []*kgo.Record {
		var out []*kgo.Record
		for range n {
			at += 10
			out = append(out, &kgo.Record{
				Topic: plain, Partition: partition, Timestamp: time.UnixMilli(at), Key: fmt.Append(nil, at), Value: make([]byte, 100),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}},
			})
		}
		return out
	}
	for p := range int32(2) {
		for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
			cl := e.srcClient(t, kgo.ProducerBatchCompression(codec))
			if err := cl.ProduceSync(t.Context(), records(p, 5)...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			cl.Close()
		}
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			cl := e.srcClient(t, kgo.TransactionalID(fmt.Sprintf("fill-%d-%d", p, i)))
			e.transaction(t, cl, records(p, 4))
			if err := cl.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			cl.Close()
		}
	}
	open := e.srcClient(t, kgo.TransactionalID("open"), kgo.TransactionTimeout(14*time.Minute))
	e.transaction(t, open, records(0, 3))
	if err := e.srcClient(t).ProduceSync(t.Context(), records(0, 3)...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	deleted, err := e.srcAdmin.DeleteRecords(t.Context(), kadm.Offsets{plain: {0: {Topic: plain, Partition: 0, At: 7}}})
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (e *env) transaction(t *testing.T, cl *kgo.Client, records []*kgo.Record) {
	t.Helper()
	err := cl.BeginTransaction()
	if err == nil {
		err = cl.ProduceSync(t.Context(), records...).FirstErr()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// side is an address to ask: the broker that leads the source topics, or a way to the mirror topics.
type side struct {
	*wire
	name string
	ids  map[string]ids.UUID
}

func (e *env) topicIDs(t *testing.T, adm *kadm.Client) map[string]ids.UUID {
	t.Helper()
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]ids.UUID{}
	for name, d := range topics {
		out[name] = ids.UUID(d.ID)
	}
	return out
}

func (e *env) source(t *testing.T) side {
	t.Helper()
	return side{dial(t, e.srcAddr), "source", e.topicIDs(t, e.srcAdmin)}
}

func (e *env) proxies(t *testing.T) []side {
	t.Helper()
	var out []side
	topics := e.topicIDs(t, e.dstAdmin)
	for _, c := range e.dst.Sidecars {
		out = append(out, side{dial(t, c.Proxy), fmt.Sprintf("proxy %d", c.Broker), topics})
	}
	return out
}

func (e *env) virtuals(t *testing.T) []side {
	t.Helper()
	var out []side
	topics := e.topicIDs(t, e.dstAdmin)
	for _, c := range e.dst.Sidecars {
		out = append(out, side{dial(t, c.Virtual), fmt.Sprintf("virtual broker %d", c.VirtualID()), topics})
	}
	return out
}
