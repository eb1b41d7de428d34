package replica

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// laggardRig is a led partition whose buffer begins at 100: broker 1 lags, brokers 2 and 3
// have everything below.
type laggardRig struct {
	*wishRig
	helpers map[int32]*helper
}

// helper is a real broker that can be read from, or not.
type helper struct {
	dead atomic.Bool
	// refuses is the error code that it answers reads with.
	refuses atomic.Int32
	reads   atomic.Int32
	// cleaned: its cleaner has taken everything below 105.
	cleaned atomic.Bool
}

func (h *helper) answer(req kmsg.Request) kmsg.Response {
	fetch, ok := req.(*kmsg.FetchRequest)
	if !ok {
		return nil
	}
	resp := fetch.ResponseKind().(*kmsg.FetchResponse)
	ft := fetch.Topics[0]
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = ft.Topic, ft.TopicID
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.HighWatermark = 100
	if ft.Partitions[0].FetchOffset < 100 {
		h.reads.Add(1)
		if h.dead.Load() {
			return nil
		}
		rp.ErrorCode = int16(h.refuses.Load())
		b := batchtest.Plain(0, 100)
		if h.cleaned.Load() {
			b, rp.HighWatermark = batchtest.Plain(105, 5), 110
		}
		b.SetLeaderEpoch(2)
		rp.RecordBatches = b
	}
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// chained is a state with a history.
type chained struct{ *wishRig }

func (chained) ReadLineage(context.Context, string, ids.TopicPartition, int32) (lineage.Record, leading.Consent, error) {
	rec := lineage.NewRecord()
	rec.Chains = map[int32]lineage.Chain{2: {{Epoch: 2, SourceEpoch: 0, Start: 0}}}
	return rec, leading.Consent{Truncate: true, AllowLoss: true}, nil
}

func newLaggardRig(t *testing.T) *laggardRig {
	t.Helper()
	r := &laggardRig{newWishRig(t), map[int32]*helper{2: {}, 3: {}}}
	brokers := []metadata.Broker{{ID: wishSelf, Epoch: 10}, {ID: 1, Epoch: 11}}
	for id := int32(2); id <= 3; id++ {
		c, err := scripted.Listen("127.0.0.1:0", nil, r.helpers[id].answer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		host, port, _ := net.SplitHostPort(c.Addr())
		n, _ := strconv.Atoi(port)
		brokers = append(brokers, metadata.Broker{ID: id, Epoch: int64(10 + id), Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: host, Port: uint16(n)}}})
	}
	r.m.image.Set([]*metadata.Partition{{Topic: "t", TopicID: r.tp.TopicID, Leader: wishSelf, LeaderEpoch: wishEpoch, Replicas: []int32{wishSelf, 1, 2, 3}}}, brokers, nil)
	r.m.calls = NewBrokers(r.m.image, "INTERNAL", nil)
	t.Cleanup(r.m.calls.Close)
	r.m.state = chained{r.wishRig}
	r.src.answer = fetcher.ProbeResult{HighWatermark: 100, LogEnd: 100}
	r.takeover(wishEpoch)
	for _, h := range r.helpers {
		h.reads.Store(0) // those of the takeover, which compares what replicas show with the source
	}
	return r
}

// takeover lets the partition be led under an epoch, with brokers 2 and 3 in sync.
func (r *laggardRig) takeover(epoch int32) {
	r.t.Helper()
	r.p.step(func(now time.Time) {
		v := leading.View{
			Leader: wishSelf, LeaderEpoch: epoch, PartitionEpoch: 5, Replicas: []int32{wishSelf, 1, 2, 3}, ISR: []int32{wishSelf, 2, 3}, MinISR: 1,
			Brokers: map[int32]leading.BrokerView{},
		}
		for _, b := range r.m.image.Brokers() {
			v.Brokers[b.ID] = leading.BrokerView{Epoch: b.Epoch}
		}
		r.p.machine.Metadata(now, v)
	})
	r.until("the takeover", func() bool {
		r.caughtUp(epoch)
		return r.phase() == leading.Leading
	})
	r.caughtUp(epoch)
}

// caughtUp are Fetches of brokers 2 and 3.
func (r *laggardRig) caughtUp(epoch int32) {
	for id := int32(2); id <= 3; id++ {
		r.p.step(func(now time.Time) {
			d := r.p.machine.Fetch(now, leading.FetchRequest{Replica: id, BrokerEpoch: int64(10 + id), CurrentLeaderEpoch: epoch, Offset: 100, LastFetchedEpoch: 2})
			if d.Code == leading.CodeNone {
				r.p.machine.Told(id, d.HighWatermark)
			}
		})
	}
}

// fetch is broker 1's, and returns how much it got and how long that took.
func (r *laggardRig) fetch(wait time.Duration) (bytes int, took time.Duration) {
	r.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version = 17
	req.ReplicaState.ID, req.ReplicaState.Epoch = 1, 11
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(wait.Milliseconds()), 1, 10<<20, -1
	addPartition(req, r.tp, "t", fetchArgs{replica: 1, epoch: 11, leaderEpoch: wishEpoch, offset: 0, lastEpoch: -1, maxBytes: 1 << 20})
	begun := time.Now()
	reply, err := r.m.Fetch(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer reply.Release()
	if code := reply.Topics[0].Partitions[0].ErrorCode; code != 0 {
		r.t.Fatalf("error %d", code)
	}
	return reply.Topics[0].Partitions[0].Size, time.Since(begun)
}

// TestLaggardIsServedByAnother: a replica that does not answer is passed over for a while, so
// that it holds nobody up.
func TestLaggardIsServedByAnother(t *testing.T) {
	r := newLaggardRig(t)
	r.helpers[2].dead.Store(true)
	for range 3 {
		if n, _ := r.fetch(time.Minute); n == 0 {
			t.Fatal("nothing came, although broker 3 has it")
		}
	}
	if n := r.helpers[2].reads.Load(); n != 1 {
		t.Errorf("the broker that does not answer was asked %d times", n)
	}
	r.helpers[2].dead.Store(false)
	r.pass(shunFor)
	if n, _ := r.fetch(time.Minute); n == 0 || r.helpers[2].reads.Load() != 2 {
		t.Errorf("%d bytes; broker 2 was asked %d times in all", n, r.helpers[2].reads.Load())
	}
}

// TestRefusalShunsOnePartition: a broker that does not serve one partition serves the others.
func TestRefusalShunsOnePartition(t *testing.T) {
	r := newLaggardRig(t)
	r.helpers[2].refuses.Store(int32(kerr.KafkaStorageError.Code))
	for range 3 {
		if n, _ := r.fetch(time.Minute); n == 0 {
			t.Fatal("nothing came, although broker 3 has it")
		}
	}
	if n := r.helpers[2].reads.Load(); n != 1 {
		t.Errorf("the broker that refuses was asked %d times", n)
	}
	other := ids.TopicPartition{TopicID: r.tp.TopicID, Partition: 1}
	if r.m.shunned.has(2, other, r.clock()) {
		t.Error("it is shunned for another partition")
	}
	r.m.shunned.add(2, r.tp, context.DeadlineExceeded, r.clock())
	if !r.m.shunned.has(2, other, r.clock()) {
		t.Error("one that does not answer is asked for another partition")
	}
}

// TestLaggardWaitsWhenNobodyAnswers: an empty answer would be asked for again at once.
func TestLaggardWaitsWhenNobodyAnswers(t *testing.T) {
	r := newLaggardRig(t)
	for _, h := range r.helpers {
		h.dead.Store(true)
	}
	const wait = 300 * time.Millisecond
	for range 2 {
		if n, took := r.fetch(wait); n > 0 || took < wait {
			t.Errorf("%d bytes after %v", n, took)
		}
	}
	if n := r.helpers[2].reads.Load() + r.helpers[3].reads.Load(); n != 2 {
		t.Errorf("%d reads were tried", n)
	}
}

// TestLaggardPassesWhatTheCleanerTook: a replica that has nothing left below the buffer answers with
// what lies behind; the follower goes on in the buffer, and does not wait for ever.
func TestLaggardPassesWhatTheCleanerTook(t *testing.T) {
	r := newLaggardRig(t)
	for _, h := range r.helpers {
		h.cleaned.Store(true)
	}
	r.reading()
	r.src.sink().Fetched(fetcher.Fetched{Batches: []batch.Batch{batchtest.Plain(100, 10)}, HighWatermark: 110})
	r.until("what the buffer has", func() bool {
		n, _ := r.fetch(10 * time.Millisecond)
		return n == len(batchtest.Plain(100, 10))
	})
}

// TestNewsDoesNotWaitForLaggards: a high watermark that moved is told although nobody can be read
// from for another partition.
func TestNewsDoesNotWaitForLaggards(t *testing.T) {
	r := newLaggardRig(t)
	lagging := func() *question {
		return &question{
			p: r.p, tp: r.tp, topic: "t", reply: &PartitionReply{}, max: 1 << 20, lagging: true, news: true,
			req: leading.FetchRequest{Replica: 1, BrokerEpoch: 11, CurrentLeaderEpoch: wishEpoch, LastFetchedEpoch: lineage.Undefined},
		}
	}
	for id := range r.helpers {
		r.m.shunned.add(id, r.tp, context.DeadlineExceeded, r.clock())
	}
	if r.m.readLaggards(t.Context(), []*question{lagging(), {reply: &PartitionReply{}}}, 1<<20) {
		t.Error("an answer with nothing in it is sent")
	}
	if !r.m.readLaggards(t.Context(), []*question{lagging(), {reply: &PartitionReply{}, news: true}}, 1<<20) {
		t.Error("a moved high watermark waits")
	}
}

func TestNothingBelow(t *testing.T) {
	plain := func(base int64, n int) []byte { return batchtest.Plain(base, n) }
	for _, tt := range []struct {
		name string
		raw  []byte
		want bool
	}{
		{"an empty answer", nil, true},
		{"only what lies behind", plain(100, 5), true},
		{"far behind", plain(105, 5), true},
		{"a batch in between", plain(50, 5), false},
		{"a batch that goes beyond", plain(95, 10), false},
		{"the batch before, then what lies behind", append(plain(0, 10), plain(100, 5)...), true},
		{"the batch before, then one in between", append(plain(0, 10), plain(10, 5)...), false},
		{"the batch before alone", plain(0, 10), false},
		{"a part of a batch", plain(100, 5)[:70], false},
	} {
		if got := nothingBelow(tt.raw, 10, 100); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
