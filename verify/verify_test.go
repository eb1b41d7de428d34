package verify

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

func newCluster(t *testing.T, id string, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.ClusterID(id))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableClientMetrics(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c, cl
}

// put appends the same batches to both clusters.
func put(t *testing.T, n int, partition int32, clients ...*kgo.Client) {
	t.Helper()
	for i := range n {
		for _, cl := range clients {
			r := kgo.Record{Topic: "a", Partition: partition, Value: fmt.Appendf(nil, "value %d", i)}
			r.Timestamp = r.Timestamp.AddDate(2020, 0, i)
			if err := cl.ProduceSync(t.Context(), &r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCompareClusters(t *testing.T) {
	_, src := newCluster(t, "source", kfake.NumBrokers(2), kfake.SeedTopics(3, "a"))
	mirror, dst := newCluster(t, "mirror", kfake.NumBrokers(3), kfake.SeedTopics(3, "a"))
	for p := range int32(3) {
		put(t, 5, p, src, dst)
	}
	var calls atomic.Int32
	opts := Options{Wait: -1, Progress: func(p Progress) { calls.Add(1) }}
	r, err := Compare(t.Context(), src, dst, []string{"a"}, opts)
	if err != nil || !r.Equal() || len(r.Partitions) != 3 || r.SourceClusterID != "source" || r.MirrorClusterID != "mirror" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, p := range r.Partitions {
		if p.Start != 0 || p.End != 5 || p.Records != 5 || p.Batches != 5 || p.Bytes == 0 || p.Compacted {
			t.Errorf("%+v", p)
		}
	}
	if calls.Load() != 15 {
		t.Errorf("%d calls of progress", calls.Load())
	}

	// From a follower that the caller chose.
	asked := atomic.Int32{}
	lead := mirror.LeaderFor("a", 1)
	mirror.SetFollowers("a", 1, []int32{(lead + 1) % 3})
	mirror.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		if mirror.CurrentNode() == (lead+1)%3 {
			asked.Add(1)
		}
		return nil, nil, false
	})
	// kfake's followers do not answer ListOffsets, as real ones do for this replica id.
	mirror.ControlKey(int16(kmsg.ListOffsets), func(kr kmsg.Request) (kmsg.Response, error, bool) {
		req := kr.(*kmsg.ListOffsetsRequest)
		if req.ReplicaID != debuggingReplica {
			return nil, nil, false
		}
		mirror.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = "a"
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition = 1
		if req.Topics[0].Partitions[0].Timestamp == -1 {
			rp.Offset = 5
		} else {
			rp.Offset = 0
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	opts.MirrorBroker = func(tp TopicPartition) int32 {
		if tp.Partition == 1 {
			return (lead + 1) % 3
		}
		return -1
	}
	if r, err = Compare(t.Context(), src, dst, []string{"a"}, opts); err != nil || !r.Equal() || asked.Load() == 0 {
		t.Errorf("from a follower: %+v, %v, %d fetches", r, err, asked.Load())
	}
	opts.MirrorBroker = nil

	// One partition goes on, another gets something else.
	put(t, 1, 0, src)
	put(t, 1, 2, src, dst)
	put(t, 1, 2, src, dst)
	if err := dst.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Partition: 1, Value: []byte("foreign")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	put(t, 1, 1, src)
	r, err = Compare(t.Context(), src, dst, []string{"a"}, opts)
	if err != nil || r.Equal() {
		t.Fatalf("%+v, %v", r, err)
	}
	for p, want := range []string{FieldEnd, FieldLastOffset + FieldBaseTimestamp + FieldPayload, ""} {
		d := r.Partitions[p].Difference
		switch {
		case want == "" && d != nil:
			t.Errorf("partition %d: %v", p, d)
		case want != "" && (d == nil || d.Offset != 5):
			t.Errorf("partition %d: %v, want %s", p, d, want)
		}
	}
	// The same again, only up to where they were equal.
	opts.UpTo = map[TopicPartition]int64{{"a", 0}: 5, {"a", 1}: 5}
	if r, err = Compare(t.Context(), src, dst, []string{"a"}, opts); err != nil || !r.Equal() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCompareWhatIsNotThere(t *testing.T) {
	source, src := newCluster(t, "source", kfake.NumBrokers(1), kfake.SeedTopics(3, "a"))
	if err := source.CreateTopic("compact", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	mirror, dst := newCluster(t, "mirror", kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	if err := mirror.CreateTopic("compact", 1, nil); err != nil {
		t.Fatal(err)
	}
	r, err := Compare(t.Context(), src, dst, []string{"a", "compact"}, Options{Wait: -1, Tagger: &batch.Tagger{}})
	if err != nil || r.Equal() || len(r.Partitions) != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	if d := r.Partitions[2].Difference; d == nil || d.Field != FieldPartition || d.Mirror != "absent" {
		t.Errorf("%v", d)
	}
	if !r.Partitions[3].Compacted || r.Partitions[0].Compacted {
		t.Error("Compacted is wrong")
	}
	if _, err := Compare(t.Context(), src, dst, []string{"nowhere"}, Options{Wait: -1}); err == nil {
		t.Error("a topic that the source does not have was compared")
	}
	if err := source.CreateTopic("new", 1, nil); err != nil {
		t.Fatal(err)
	}
	if r, err = Compare(t.Context(), src, dst, []string{"new"}, Options{Wait: -1}); err != nil || r.Partitions[0].Difference == nil {
		t.Errorf("a topic without a mirror: %+v, %v", r, err)
	}
}
