package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// heldSource is a source that shows one batch.
type heldSource struct {
	*wishSource
	batch batch.Batch
	err   error
	asked int64
}

func (s *heldSource) BatchAt(_ context.Context, _ string, _ int32, offset int64) (batch.Batch, error) {
	s.asked = offset
	return s.batch, s.err
}

// threeBatches starts brokers with a topic t of one partition, which holds three batches of one record.
func threeBatches(t *testing.T, brokers int) (c *kfake.Cluster, writer *kgo.Client, infos []metadata.Broker) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for id, addr := range c.ListenAddrs() {
		host, portText, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, metadata.Broker{ID: int32(id), Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: host, Port: uint16(port)}}})
	}
	return c, cl, infos
}

// TestAnotherLog compares what a real replica shows last with what the source holds there.
func TestAnotherLog(t *testing.T) {
	c, cl, infos := threeBatches(t, 1)
	tp := ids.TopicPartition{TopicID: ids.UUID(c.TopicInfo("t").TopicID)}
	img := metadata.NewImage(10000)
	img.Set([]*metadata.Partition{{TopicID: tp.TopicID, Topic: "t", Replicas: []int32{10001, 0}, ISR: []int32{10001, 0}}},
		infos, nil)
	brokers := NewBrokers(img, "INTERNAL", nil)
	t.Cleanup(brokers.Close)
	m := &Manager{cfg: ManagerConfig{ID: 10001, Virtual: 10000}, image: img, calls: brokers}
	p := &partition{m: m, tp: tp, topic: "t", log: slog.New(slog.DiscardHandler)}

	held, err := m.lastBatch(t.Context(), 0, p, 3)
	if err != nil || held == nil || held.BaseOffset() != 2 {
		t.Fatalf("the replica shows %v, %v", held, err)
	}
	// What it has not got is not asked of the source.
	if below, err := m.lastBatch(t.Context(), 0, p, 2); err != nil || below.BaseOffset() != 1 {
		t.Errorf("below 2: %v, %v", below, err)
	}
	other := append(batch.Batch(nil), held...)
	other.SetProducerID(held.ProducerID() + 1)
	for _, tc := range []struct {
		name  string
		there batch.Batch
		err   error
		below int64
		want  bool
	}{
		{"the same", held, nil, 3, false},
		{"another", other, nil, 3, true},
		{"nothing there any more", nil, nil, 3, false},
		{"no answer", nil, errors.New("gone"), 3, false},
		{"nothing here", other, nil, 0, false},
	} {
		src := &heldSource{batch: tc.there, err: tc.err, asked: -1}
		got, err := p.another(t.Context(), src, []int32{0}, tc.below, 0)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %t, %v", tc.name, got, err)
		}
		if tc.below > 0 && src.asked != 2 {
			t.Errorf("%s: asked for offset %d", tc.name, src.asked)
		}
	}
	// A source that ends within the batch is asked for what it still has of it.
	var recs []*kgo.Record
	for range 3 {
		recs = append(recs, &kgo.Record{Value: []byte("v")})
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cut := &heldSource{batch: other, asked: -1}
	if _, err := p.another(t.Context(), cut, []int32{0}, 5, 0); err != nil || cut.asked != 4 {
		t.Errorf("the batch [3, 5] is compared at %d, %v", cut.asked, err)
	}
	// What the source has deleted is not asked for: retention on an idle topic takes everything.
	src := &heldSource{batch: other, err: errors.New("out of range"), asked: -1}
	if got, err := p.another(t.Context(), src, []int32{0}, 3, 3); got || err != nil || src.asked != -1 {
		t.Errorf("deleted up to there: %t, %v, asked for offset %d", got, err, src.asked)
	}
	// A replica that does not answer proves nothing.
	img.Set(nil, []metadata.Broker{}, nil)
	if got, err := p.another(t.Context(), &heldSource{batch: other}, []int32{0}, 3, 0); got || err != nil {
		t.Error(got, err)
	}
}

// TestAnotherLogAsSomeReplicaShowsIt: a replica that was just restarted shows little, and another
// one what has to be compared.
func TestAnotherLogAsSomeReplicaShowsIt(t *testing.T) {
	c, _, infos := threeBatches(t, 2)
	leader := c.LeaderFor("t", 0)
	tp := ids.TopicPartition{TopicID: ids.UUID(c.TopicInfo("t").TopicID)}
	// The one that is not the leader has restarted: it shows the first record only.
	var first batch.Batch
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == leader {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = "t", tp.TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark = 1
		if req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset == 0 {
			rp.RecordBatches = first
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	isr := []int32{10001, 1 - leader, leader}
	img := metadata.NewImage(10000)
	img.Set([]*metadata.Partition{{TopicID: tp.TopicID, Topic: "t", Replicas: isr, ISR: isr}}, infos, nil)
	brokers := NewBrokers(img, "INTERNAL", nil)
	t.Cleanup(brokers.Close)
	m := &Manager{cfg: ManagerConfig{ID: 10001, Virtual: 10000}, image: img, calls: brokers}
	p := &partition{m: m, tp: tp, topic: "t", log: slog.New(slog.DiscardHandler)}
	var err error
	if first, err = m.lastBatch(t.Context(), leader, p, 1); err != nil || first == nil {
		t.Fatal(first, err)
	}
	src := &heldSource{asked: -1}
	if _, err := p.another(t.Context(), src, []int32{1 - leader, leader}, 3, 0); err != nil || src.asked != 2 {
		t.Errorf("compared at %d, %v", src.asked, err)
	}
}
