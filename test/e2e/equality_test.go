package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// feed starts producers of every kind at the source and returns when the real log cleaner
// has made all kinds of gaps. Cleaning is frozen then: each cluster cleans at its own
// times, and what is compared batch by batch must stay.
func (e *env) feed(t *testing.T, prefix string, rate int) *workload.Load {
	t.Helper()
	load, err := workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Prefix: prefix, Rate: rate, TuneCleaner: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = load.Stop(ctx) // again, if a test did so: a load that ended says nothing new
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	gaps, err := load.WaitForGaps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the cleaner has made gaps: %+v", gaps)
	if err := load.FreezeCompaction(ctx); err != nil {
		t.Fatal(err)
	}
	return load
}

// testEquality mirrors every kind of topic while producers run, and compares: a prefix
// while they run, everything when they have ended.
func (e *env) testEquality(t *testing.T, mirror string, load *workload.Load) {
	e.createMirror(t, mirror)
	names := load.TopicNames()
	e.mirrorTopics(t, mirror, names...)

	// Live: what the mirror has must be what the source has, and it must grow.
	acked := load.Total().Acked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		if err := load.WaitAcked(ctx, load.Total().Acked/int64(len(names))/2); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			e.samePrefix(t, name)
		}
		if _, err := load.Check(ctx, workload.CheckConfig{Bootstrap: e.dst.Proxies(), Committed: true, Prefix: true}); err != nil {
			t.Errorf("live, read committed: %v", err)
		}
	}
	if now := load.Total().Acked; now <= acked {
		t.Errorf("the producers did not go on meanwhile: %d records before, %d after", acked, now)
	}
	if err := load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	total := load.Total()
	t.Logf("produced: %+v", total)
	if total.Aborted == 0 || total.Open == 0 || total.Committed == 0 {
		t.Errorf("the load lacks a kind of outcome: %+v", total)
	}
	e.waitMirrored(t, names...)
	e.sameReplicas(t, names...)
	for _, name := range names {
		e.sameAsSource(t, name)
	}
	e.verify(t, mirror)

	// What consumers see, whichever way they come.
	for _, seeds := range [][]string{e.dst.Proxies(), e.dst.Direct()} {
		for _, committed := range []bool{true, false} {
			if _, err := load.Check(t.Context(), workload.CheckConfig{Bootstrap: seeds, Committed: committed}); err != nil {
				t.Errorf("consumer at %v, read committed %t: %v", seeds, committed, err)
			}
		}
	}
	for _, name := range names {
		e.sameConfigs(t, name)
	}
}

// verify lets the command line compare.
func (e *env) verify(t *testing.T, mirror string) {
	t.Helper()
	out, err := e.tryCLI(t, "--verify", "--mirror", mirror)
	if err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// notCopied are configs of a source topic that a mirror leaves alone by default, beside
// those of the write lock.
func notCopied() []string {
	return []string{
		"leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
	}
}

// sameConfigs fails the test if a mirror topic lacks a config of its source topic.
func (e *env) sameConfigs(t *testing.T, topic string) {
	t.Helper()
	have := topicConfigs(t, e.dstClient, topic)
	for k, want := range topicConfigs(t, e.srcClient, topic) {
		if slices.Contains(notCopied(), k) || slices.Contains(lockKeys(), k) {
			continue
		}
		if have[k] != want {
			t.Errorf("%s: %s is %q, at the source %q", topic, k, have[k], want)
		}
	}
}

// rawBatch is a batch with its bytes.
type rawBatch struct {
	harness.Batch
	raw []byte
}

// rawLog reads a partition's log on a node. Only whole batches are given: the node runs.
func rawLog(n *harness.Node, topic string, partition int32) ([]rawBatch, error) {
	dir, err := n.PartitionDir(topic, partition)
	if err != nil {
		return nil, err
	}
	log, err := n.ReadLog(topic, partition)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	out := make([]rawBatch, 0, len(log.Batches))
	for _, b := range log.Batches {
		data, ok := files[b.Segment]
		if !ok {
			if data, err = os.ReadFile(filepath.Join(dir, b.Segment)); err != nil {
				return nil, err
			}
			files[b.Segment] = data
		}
		end := b.Position + int64(b.Size)
		if end > int64(len(data)) {
			return nil, fmt.Errorf("%s-%d on %s changes while it is read", topic, partition, n)
		}
		out = append(out, rawBatch{b, data[b.Position:end]})
	}
	return out, nil
}

// Where a batch's header holds what a mirror changes: the leader epoch, the checksum and
// the producer id.
const (
	epochFrom, epochTo = 12, 16
	crcFrom, crcTo     = 17, 21
	idFrom, idTo       = 43, 51
	idBits             = 48
)

// diff says how a mirrored batch differs from its source where it must not. tag is the
// source's producer id tag, 0 until one was seen.
func diff(src, dst rawBatch, tag *int64) error {
	if src.BaseOffset != dst.BaseOffset || src.LastOffset != dst.LastOffset {
		return fmt.Errorf("offsets %d–%d at the source, %d–%d here", src.BaseOffset, src.LastOffset, dst.BaseOffset, dst.LastOffset)
	}
	if !dst.Valid {
		return errors.New("its checksum is wrong")
	}
	want := src.ProducerID
	if want >= 0 {
		if *tag == 0 {
			*tag = dst.ProducerID >> idBits
		}
		if *tag <= 0 {
			return fmt.Errorf("producer id %d here is not tagged, %d at the source", dst.ProducerID, src.ProducerID)
		}
		want |= *tag << idBits
	}
	if dst.ProducerID != want {
		return fmt.Errorf("producer id %d here, want %d for the source's %d", dst.ProducerID, want, src.ProducerID)
	}
	if len(src.raw) != len(dst.raw) {
		return fmt.Errorf("%d bytes at the source, %d here", len(src.raw), len(dst.raw))
	}
	for _, part := range [][2]int{{0, epochFrom}, {epochTo, crcFrom}, {crcTo, idFrom}, {idTo, len(src.raw)}} {
		if !bytes.Equal(src.raw[part[0]:part[1]], dst.raw[part[0]:part[1]]) {
			return fmt.Errorf("bytes %d to %d are different", part[0], part[1])
		}
	}
	return nil
}

// sameAsSource fails the test if the logs of a topic's real replicas are not the source's
// log, byte for byte but for what a mirror changes.
func (e *env) sameAsSource(t *testing.T, topic string) { e.compare(t, topic, true, nil) }

// samePrefix is the same for a topic that grows: replicas may lack its end.
func (e *env) samePrefix(t *testing.T, topic string) { e.compare(t, topic, false, nil) }

// compare compares the topic's logs up to the given ends; nil means all there is.
func (e *env) compare(t *testing.T, topic string, whole bool, upTo map[int32]int64) {
	t.Helper()
	e.compareOn(t, topic, whole, upTo, e.dst.Cluster.Brokers())
}

// compareOn compares the logs on the given brokers only.
func (e *env) compareOn(t *testing.T, topic string, whole bool, upTo map[int32]int64, brokers []*harness.Node) {
	t.Helper()
	source := e.src.Brokers()[0]
	var tag int64
	for _, p := range e.topicT(t, topic).Partitions.Sorted() {
		for _, n := range brokers {
			if !slices.Contains(p.Replicas, n.ID()) {
				continue
			}
			// First the follower, then the source: that one only grows.
			got, err := rawLog(n, topic, p.Partition)
			if err != nil {
				if whole {
					t.Error(err)
				}
				continue
			}
			want, err := rawLog(source, topic, p.Partition)
			if err != nil {
				t.Error(err)
				continue
			}
			if end, limited := upTo[p.Partition]; limited {
				got, want = below(got, end), below(want, end)
			}
			if err := compareLogs(want, got, whole, &tag); err != nil {
				t.Errorf("%s-%d on broker %d: %v", topic, p.Partition, n.ID(), err)
			}
		}
	}
}

func below(log []rawBatch, end int64) []rawBatch {
	i, _ := slices.BinarySearchFunc(log, end, func(b rawBatch, end int64) int { return cmp.Compare(b.BaseOffset, end) })
	return log[:i]
}

func compareLogs(want, got []rawBatch, whole bool, tag *int64) error {
	for i, b := range got {
		if i >= len(want) {
			return fmt.Errorf("offset %d: the source has no such batch", b.BaseOffset)
		}
		if err := diff(want[i], b, tag); err != nil {
			return fmt.Errorf("offset %d: %w", want[i].BaseOffset, err)
		}
	}
	if whole && len(got) != len(want) {
		return fmt.Errorf("%d batches here, %d at the source; the first that is missing has offset %d", len(got), len(want), want[len(got)].BaseOffset)
	}
	return nil
}

// testOldRecords mirrors records that are 30 days old, of a topic that keeps them for
// ever, onto a cluster that keeps records for a week.
func (e *env) testOldRecords(t *testing.T, mirror string) {
	const topic, control = "old", "old-control"
	old := time.Now().Add(-30 * 24 * time.Hour)
	produce := func(cl *kgo.Client, topic string) {
		t.Helper()
		for i := range 10 {
			r := &kgo.Record{Topic: topic, Timestamp: old.Add(time.Duration(i) * time.Second), Value: fmt.Appendf(nil, "old %d", i)}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.createSource(t, 1, topic, "retention.ms", "-1")
	produce(e.srcClient, topic)
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)

	// An ordinary topic of the destination shows that retention has run since.
	createTopic(t, e.dstClient, 1, 1, control)
	produce(e.dstClient, control)
	eventually(t, "retention takes the control topic's records", func(ctx context.Context) error {
		starts, err := e.dstAdmin.ListStartOffsets(ctx, control)
		if err != nil {
			return err
		}
		if o, _ := starts.Lookup(control, 0); o.Offset < 10 {
			return fmt.Errorf("log start %d", o.Offset)
		}
		return nil
	})
	starts, err := e.dstAdmin.ListStartOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("log start %d: retention has deleted mirrored records that the source keeps", o.Offset)
		}
	})
	e.sameAsSource(t, topic)
}
