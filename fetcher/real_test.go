package fetcher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// segments returns the whole batches of a partition as they lie in a broker's files.
func segments(t *testing.T, n *harness.Node, topic string, partition int32) []byte {
	t.Helper()
	dir, err := n.PartitionDir(topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files) // named by their base offsets
	var out []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range batch.Iterate(data) {
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			out = append(out, b...)
		}
	}
	return out
}

// TestRealSource: every kind of topic, with gaps from real cleaning, from brokers of
// which one dies: what is handed over is what lies in the brokers' files.
func TestRealSource(t *testing.T) {
	c := harness.StartT(t, harness.Config{Name: "source", Brokers: 2, Controllers: 1, Properties: map[string]string{
		"broker.session.timeout.ms": "3000",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	boot := c.Bootstrap(harness.ListenerClient)
	load, err := workload.New(workload.Config{
		Bootstrap: boot, Replication: 2, TuneCleaner: true,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = load.Stop(context.WithoutCancel(ctx))
		}
	}()

	f := newFetcher(t, boot, func(c *Config) { c.Backoff = 200 * time.Millisecond })
	id, err := f.ClusterID(ctx)
	if err != nil || id != c.ID() {
		t.Errorf("cluster id %q, %v, want %q", id, err, c.ID())
	}
	var infos map[string]TopicInfo
	for try := 0; ; try++ {
		if infos, err = f.Topics(ctx, load.TopicNames()); err != nil {
			t.Fatal(err)
		}
		unknown := false
		for _, info := range infos {
			unknown = unknown || info.Err != nil
		}
		if !unknown || try == 50 {
			break
		}
		// The broker that was asked has not heard of the new topics yet.
		if err := load.WaitAcked(ctx, int64(10*try)); err != nil {
			t.Fatal(err)
		}
	}
	type tp struct {
		topic string
		p     int32
	}
	live := map[tp]*sink{}
	for name, info := range infos {
		if info.Err != nil || info.ID.IsZero() || info.Partitions == 0 {
			t.Fatalf("%s: %+v", name, info)
		}
		for p := range info.Partitions {
			s := newSink()
			live[tp{name, p}] = s
			f.Add(Partition{Topic: name, TopicID: info.ID, Partition: p, LastFetchedEpoch: -1, Sink: s})
		}
	}
	if _, err := load.WaitForGaps(ctx); err != nil {
		t.Fatal(err)
	}
	if err := load.FreezeCompaction(ctx); err != nil {
		t.Fatal(err)
	}

	// A leader dies in the middle and comes back; everything goes on.
	victim := c.Brokers()[1]
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := load.WaitAcked(ctx, load.Total().Acked/int64(len(infos))+100); err != nil {
		t.Fatal(err)
	}
	t.Logf("producers go on %v after the kill", time.Since(killed).Round(time.Millisecond))
	if err := victim.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopped = true
	if err := load.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	// Everything again from the start, now that the logs stand still.
	again := newFetcher(t, boot, func(c *Config) { c.Fetchers = 2 })
	topics, err := kadm.NewClient(c.ClientT(t)).ListTopics(ctx, load.TopicNames()...)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range live {
		res, err := again.Probe(ctx, k.topic, k.p, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		fresh := newSink()
		again.Add(Partition{Topic: k.topic, Partition: k.p, Offset: res.LogStart, LastFetchedEpoch: -1, Sink: fresh})
		end := res.LogEnd
		s.waitNext(t, end)
		fresh.waitNext(t, end)
		// The leader's: a cleaner that starts again may take more than the other replica's did.
		want := segments(t, c.Node(topics[k.topic].Partitions[k.p].Leader), k.topic, k.p)
		if !bytes.Equal(fresh.bytes(), want) {
			t.Errorf("%v: %d bytes up to %d are not the %d bytes of the broker's files", k, len(fresh.bytes()), end, len(want))
		}
		// What was fetched while the load ran is older than the cleaning.
		if info := infos[k.topic]; info.Configs["cleanup.policy"] != "compact" && !bytes.Equal(s.bytes(), want) {
			t.Errorf("%v: what was fetched over the leader's death is not what the broker's files hold", k)
		}
		if len(s.errs)+len(fresh.errs) > 0 {
			t.Error(k, s.errs, fresh.errs)
		}
		if len(fresh.got) > 0 {
			last := fresh.got[len(fresh.got)-1]
			if r, err := again.Probe(ctx, k.topic, k.p, end, last.LeaderEpoch()); err != nil || r.ErrorCode != 0 || r.Diverging != nil {
				t.Errorf("%v: probe at the end: %+v, %v", k, r, err)
			}
		}
	}
	t.Logf("stats over the kill: %+v", f.Stats())

	// An epoch that the source never had is out of range, one that ended before diverges.
	k := tp{"load-idempotent", 0}
	got := live[k].got
	last := got[len(got)-1].LeaderEpoch()
	end := got[len(got)-1].NextOffset()
	var serr *SourceError
	s := newSink()
	again.Add(Partition{Topic: k.topic, Partition: k.p, Offset: end, LastFetchedEpoch: last + 50, Sink: s})
	if err := s.waitErr(t); !errors.As(err, &serr) || serr.LogEnd != end {
		t.Errorf("an epoch of the future: %v", err)
	}
	for k, s := range live { // one whose leader died
		got := s.got
		first := got[0].LeaderEpoch()
		if first == got[len(got)-1].LeaderEpoch() {
			continue
		}
		s := newSink()
		again.Add(Partition{Topic: k.topic, Partition: k.p, Offset: got[len(got)-1].NextOffset(), LastFetchedEpoch: first, Sink: s})
		var d *DivergingError
		if err := s.waitErr(t); !errors.As(err, &d) || d.Epoch != first || d.EndOffset <= 0 {
			t.Errorf("an epoch that ended: %v", err)
		}
		return
	}
	t.Error("no partition changed its leader")
}

// BenchmarkRealSource is the whole way from a broker's files to the sinks: a backlog of
// four partitions.
func BenchmarkRealSource(b *testing.B) {
	c := harness.StartT(b, harness.Config{Name: "source", Brokers: 1, FullJIT: true})
	boot := c.Bootstrap(harness.ListenerClient)
	cl := newClient(b, boot, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(900_000), kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(20_000))
	const partitions, total = 4, 512 << 20
	if err := createTopic(b, cl, "backlog", partitions); err != nil {
		b.Fatal(err)
	}
	value := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for i := range total / len(value) {
		r := &kgo.Record{Topic: "backlog", Partition: int32(i % partitions), Value: binary.BigEndian.AppendUint64(nil, uint64(i))}
		r.Value = append(r.Value, value[8:]...)
		cl.Produce(b.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, size := range []int32{1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("max.bytes=%dMiB", size>>20), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				f := newFetcher(b, boot, func(c *Config) {
					c.MaxBytes, c.Tagger, c.Log = size, batch.NewTagger("a", "b"), nil
				})
				sinks := make([]*counting, partitions)
				for p := range sinks {
					res, err := f.Probe(b.Context(), "backlog", int32(p), 0, -1)
					if err != nil {
						b.Fatal(err)
					}
					sinks[p] = &counting{end: res.LogEnd, done: make(chan struct{})}
					f.Add(Partition{Topic: "backlog", Partition: int32(p), LastFetchedEpoch: -1, Sink: sinks[p]})
				}
				for _, s := range sinks {
					<-s.done
				}
				b.SetBytes(f.Stats().Bytes)
				f.Close()
			}
		})
	}
}

// counting is a sink that drops everything.
type counting struct {
	end  int64
	done chan struct{}
}

func (c *counting) Room() int { return 64 << 20 }

func (c *counting) Fetched(f Fetched) {
	if n := len(f.Batches); n > 0 && f.Batches[n-1].NextOffset() >= c.end && c.end >= 0 {
		close(c.done)
		c.end = -1
	}
}
