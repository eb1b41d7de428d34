package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// TestMarkersAreReplicated: that no transaction is open any more at the leader says nothing as long
// as its followers have not got the marker of an earlier try: it may go with the leader.
func TestMarkersAreReplicated(t *testing.T) {
	r := newRig(t)
	var hw atomic.Int64
	var mirrored, marked atomic.Bool
	hw.Store(9)
	mirrored.Store(true)
	marked.Store(true)
	r.fake.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		rt := kmsg.NewDescribeProducersResponseTopic()
		rp := kmsg.NewDescribeProducersResponseTopicPartition()
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.CurrentTxnStartOffset, p.CoordinatorEpoch = 7, -1, -1
		if marked.Load() {
			p.CoordinatorEpoch = 0
		}
		if mirrored.Load() {
			p.ProducerID = 1<<48 | 7
		}
		rp.ActiveProducers = append(rp.ActiveProducers, p)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	var asked atomic.Int32
	r.fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		q := req.(*kmsg.ListOffsetsRequest)
		if len(q.Topics) != 1 || q.Topics[0].Topic != "t" {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Offset = 10
		if q.ReplicaID == -1 {
			asked.Add(1)
			if rp.Offset = hw.Load(); rp.Offset < 0 {
				rp.ErrorCode = kerr.OffsetNotAvailable.Code
			}
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	abort := func(wait time.Duration) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		n, has, err := r.deps.Destination.abortOpenTransactions(ctx, "t", 0, 0)
		if n != 0 {
			t.Errorf("aborted %d", n)
		}
		if has {
			return r.deps.Destination.replicated(ctx, time.Now().Add(wait), "t", 0, 0)
		}
		return err
	}
	if err := abort(300 * time.Millisecond); !errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		t.Errorf("answered %v", err)
	}
	hw.Store(-1)
	done := make(chan error, 1)
	before := asked.Load()
	go func() { done <- abort(30 * time.Second) }()
	for deadline := time.Now().Add(30 * time.Second); asked.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never asked for the high watermark")
		}
	}
	hw.Store(10)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// What this cluster's own producers write is no concern of a stop.
	mirrored.Store(false)
	hw.Store(0)
	before = asked.Load()
	if err := abort(30 * time.Second); err != nil || asked.Load() != before {
		t.Error(err)
	}
	// A mirrored producer without transactions has no marker that could be lost.
	mirrored.Store(true)
	marked.Store(false)
	if err := abort(30 * time.Second); err != nil || asked.Load() != before {
		t.Errorf("waited for a partition without a marker: %v", err)
	}
}

// TestMarkersOfAllPartitionsComeFirst: a partition whose followers stay behind holds up neither the
// markers of the others nor, for long, the coordinator's pass.
func TestMarkersOfAllPartitionsComeFirst(t *testing.T) {
	r := newRig(t)
	r.topic("t", ids.UUID{7}, []int32{0}, []int32{0})
	var mu sync.Mutex
	var order []string // guarded by mu
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	r.fake.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		rt := kmsg.NewDescribeProducersResponseTopic()
		rp := kmsg.NewDescribeProducersResponseTopicPartition()
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.CurrentTxnStartOffset = 1<<48|7, -1
		if req.(*kmsg.DescribeProducersRequest).Topics[0].Partitions[0] == 1 {
			p.CurrentTxnStartOffset, p.CoordinatorEpoch = 5, -1
		}
		rp.ActiveProducers = append(rp.ActiveProducers, p)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	r.fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		note("markers")
		return req.ResponseKind(), nil, true
	})
	r.fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		q := req.(*kmsg.ListOffsetsRequest)
		if len(q.Topics) != 1 || q.Topics[0].Topic != "t" {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		if rp.Offset = 9; q.ReplicaID != -1 {
			rp.Offset = 10
			note("look")
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := r.rec.abortOpen(ctx, Topic{Mirror: "m", Name: "t", TopicID: ids.UUID{7}})
	if !errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		t.Errorf("answered %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, []string{"markers", "look"}) {
		t.Errorf("did %v", order)
	}
}
