package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMarkersAreReplicated: that no transaction is open any more at the leader says nothing as long
// as its followers have not got the marker of an earlier try: it may go with the leader.
func TestMarkersAreReplicated(t *testing.T) {
	r := newRig(t)
	var hw atomic.Int64
	var mirrored atomic.Bool
	hw.Store(9)
	mirrored.Store(true)
	r.fake.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		rt := kmsg.NewDescribeProducersResponseTopic()
		rp := kmsg.NewDescribeProducersResponseTopicPartition()
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.CurrentTxnStartOffset = 7, -1
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
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		n, err := r.deps.Destination.abortOpenTransactions(ctx, "t", 0, 0)
		if n != 0 {
			t.Errorf("aborted %d", n)
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
}
