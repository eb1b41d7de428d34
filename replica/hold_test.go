package replica

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// holdRig is a partition that is led, and another one of the same topic whose takeover waits
// for broker 2.
type holdRig struct {
	*wishRig
	next *partition
}

func newHoldRig(t *testing.T) *holdRig {
	t.Helper()
	r := &holdRig{wishRig: newWishRig(t)}
	tp := ids.TopicPartition{TopicID: r.tp.TopicID, Partition: 1}
	r.m.image.Set([]*metadata.Partition{
		{Topic: "t", TopicID: tp.TopicID}, {Topic: "t", TopicID: tp.TopicID, Partition: 1},
	}, nil, nil)
	r.next = newPartition(r.m, tp, "t")
	r.m.partitions[tp] = r.next
	t.Cleanup(r.next.close)
	r.lead(wishEpoch)
	return r
}

func (r *holdRig) takeover(epoch int32) {
	v := leading.View{
		Leader: wishSelf, LeaderEpoch: epoch, PartitionEpoch: 1, Replicas: []int32{wishSelf, 1, 2}, ISR: []int32{wishSelf, 1, 2}, MinISR: 1,
		// Fenced ones are not asked for their high watermark, which needs a network.
		Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, 1: {Epoch: 11, Fenced: true}, 2: {Epoch: 12, Fenced: true}},
	}
	r.next.step(func(now time.Time) { r.next.machine.Metadata(now, v) })
}

// complete lets broker 2 be heard, which is what the takeover waits for.
func (r *holdRig) complete(epoch int32) {
	r.t.Helper()
	r.until("the takeover", func() bool {
		r.next.step(func(now time.Time) {
			r.next.machine.Fetch(now, leading.FetchRequest{Replica: 2, BrokerEpoch: 12, CurrentLeaderEpoch: epoch, LastFetchedEpoch: lineage.Undefined})
		})
		r.next.mu.Lock()
		defer r.next.mu.Unlock()
		return r.next.machine.Status().Phase == leading.Leading
	})
}

// fetch asks for both partitions as broker 1; the codes come when it is answered. The first one
// would be answered at once: its epoch is over.
func (r *holdRig) fetch(epoch int32) <-chan [2]int16 { return r.fetchUnder(wishEpoch-1, epoch) }

func (r *holdRig) fetchUnder(epochs ...int32) <-chan [2]int16 {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 17
	req.ReplicaState.ID, req.ReplicaState.Epoch = 1, 11
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 30000, 1, 10<<20, -1
	for p, e := range epochs {
		addPartition(req, ids.TopicPartition{TopicID: r.tp.TopicID, Partition: int32(p)}, "t", fetchArgs{replica: 1, epoch: 11, leaderEpoch: e, lastEpoch: -1, maxBytes: 1 << 20})
	}
	out := make(chan [2]int16, 1)
	go func() {
		reply, err := r.m.Fetch(r.t.Context(), req)
		if err != nil {
			return // the test has ended, and says why
		}
		defer reply.Release()
		out <- [2]int16{reply.Topics[0].Partitions[0].ErrorCode, reply.Topics[0].Partitions[1].ErrorCode}
	}()
	return out
}

func (r *holdRig) expect(out <-chan [2]int16, want [2]int16) {
	r.t.Helper()
	select {
	case got := <-out:
		if got != want {
			r.t.Errorf("answered with %v, want %v", got, want)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatal("not answered")
	}
}

func (r *holdRig) waiting() bool {
	r.next.mu.Lock()
	defer r.next.mu.Unlock()
	return len(r.next.waiters) > 0
}

// TestAnswerWaitsForTakeover: an answer that has news of one partition does not bring an error
// for another that is about to be led here, since the follower would stay away from that for
// its back-off.
func TestAnswerWaitsForTakeover(t *testing.T) {
	t.Run("ours, not ready yet", func(t *testing.T) {
		r := newHoldRig(t)
		r.takeover(7)
		out := r.fetch(7)
		r.until("the fetch", r.waiting)
		r.complete(7)
		r.expect(out, [2]int16{leading.CodeFencedLeaderEpoch, leading.CodeNone})
	})
	t.Run("ours, of which we have not heard yet", func(t *testing.T) {
		r := newHoldRig(t)
		out := r.fetch(7)
		r.until("the fetch", r.waiting)
		r.takeover(7)
		r.complete(7)
		r.expect(out, [2]int16{leading.CodeFencedLeaderEpoch, leading.CodeNone})
	})
	t.Run("not for long", func(t *testing.T) {
		r := newHoldRig(t)
		r.takeover(7)
		r.pass(takeoverPatience)
		r.expect(r.fetch(7), [2]int16{leading.CodeFencedLeaderEpoch, leading.CodeUnknownLeaderEpoch})
	})
	t.Run("not one answer for long", func(t *testing.T) {
		r := newHoldRig(t)
		r.takeover(7)
		out := r.fetch(7)
		r.until("the fetch", r.waiting)
		r.pass(answerPatience)
		r.expect(out, [2]int16{leading.CodeFencedLeaderEpoch, leading.CodeUnknownLeaderEpoch})
	})
	t.Run("records do not wait", func(t *testing.T) {
		r := newHoldRig(t)
		r.reading()
		r.src.sink().Fetched(fetcher.Fetched{Batches: []batch.Batch{batchtest.Plain(0, 10)}, HighWatermark: 10})
		r.takeover(7)
		r.expect(r.fetchUnder(wishEpoch, 7), [2]int16{leading.CodeNone, leading.CodeUnknownLeaderEpoch})
	})
	t.Run("not for an epoch that is over", func(t *testing.T) {
		r := newHoldRig(t)
		r.takeover(7)
		r.expect(r.fetch(6), [2]int16{leading.CodeFencedLeaderEpoch, leading.CodeFencedLeaderEpoch})
	})
}
