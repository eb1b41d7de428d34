package fetcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

// patience bounds every wait of a test for something that will happen.
const patience = 15 * time.Second

func TestMain(m *testing.M) {
	playRole()
	goleak.VerifyTestMain(m)
}

func newSource(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newClient(t testing.TB, addrs []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// newFetcher returns a started Fetcher of c that retries fast and polls long.
func newFetcher(t testing.TB, addrs []string, change ...func(*Config)) *Fetcher {
	t.Helper()
	cfg := Config{
		Mirror: "m", BrokerID: 1, Opts: []kgo.Opt{kgo.SeedBrokers(addrs...)},
		MaxWait: time.Second, Backoff: 20 * time.Millisecond, Buffers: newPool(t),
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	f := New(cfg)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return f
}

// newPool returns a pool that overwrites what is released, and looks that all is in the
// end. It must be called before what uses it is made.
func newPool(t testing.TB) *pool.Pool {
	p := pool.New(64 << 20)
	p.Poison()
	t.Cleanup(func() {
		if u := p.Usage(); u.Held != 0 {
			t.Errorf("%d bytes were not released", u.Held)
		}
	})
	return p
}

// sink collects what a partition delivers.
type sink struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each delivery
	room    int
	got     []batch.Batch
	answers int
	last    Fetched
	errs    []error
}

func newSink() *sink { return &sink{changed: make(chan struct{}), room: 1 << 30} }

func (s *sink) Fetched(f Fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	s.last = f
	for _, b := range f.Batches { // their memory is the fetcher's again after the call
		s.got = append(s.got, bytes.Clone(b))
	}
	if f.Err != nil {
		s.errs = append(s.errs, f.Err)
		if len(f.Batches) > 0 {
			s.errs = append(s.errs, fmt.Errorf("batches and an error in one: %w", f.Err))
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sink) Room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room
}

func (s *sink) setRoom(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = n
}

// next is the offset after the last batch, 0 before any.
func (s *sink) next() int64 {
	if len(s.got) == 0 {
		return 0
	}
	return s.got[len(s.got)-1].NextOffset()
}

// wait waits until cond, which is called with the sink locked.
func (s *sink) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.After(patience)
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-end:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("waited in vain for %s; next offset %d, %d answers, errors %v", what, s.next(), s.answers, s.errs)
		}
	}
}

func (s *sink) waitNext(t testing.TB, offset int64) {
	t.Helper()
	s.wait(t, fmt.Sprintf("offset %d", offset), func() bool { return s.next() >= offset })
}

func (s *sink) waitErr(t testing.TB) error {
	t.Helper()
	s.wait(t, "an error", func() bool { return len(s.errs) > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errs[0]
}

func (s *sink) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	for _, x := range s.got {
		b = append(b, x...)
	}
	return b
}

// produce writes n batches of one record each to a partition and returns the end.
func produce(t testing.TB, cl *kgo.Client, topic string, partition int32, n int) int64 {
	t.Helper()
	var end int64
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: bytes.Repeat([]byte{byte('a' + i%26)}, 100)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		end = r.Offset + 1
	}
	return end
}

// rawLog reads a partition the plain way: whole batches from the leader.
func rawLog(t testing.TB, cl *kgo.Client, topic string, partition int32, end int64) []byte {
	t.Helper()
	var out []byte
	for at := int64(0); at < end; {
		md := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = kmsg.StringPtr(topic)
		md.Topics = append(md.Topics, mt)
		m, err := md.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		var lead int32 = -1
		for _, p := range m.Topics[0].Partitions {
			if p.Partition == partition {
				lead = p.Leader
			}
		}
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.MaxWaitMillis, req.SessionEpoch = 10<<20, 500, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic, ft.TopicID = topic, m.Topics[0].TopicID
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = partition, at, 10<<20, -1
		ft.Partitions = append(ft.Partitions, fp)
		req.Topics = append(req.Topics, ft)
		raw, err := cl.Broker(int(lead)).RetriableRequest(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		rp := raw.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if rp.ErrorCode != 0 {
			t.Fatalf("raw read of %s-%d at %d: %s", topic, partition, at, codeName(rp.ErrorCode))
		}
		for b, err := range batch.Iterate(rp.RecordBatches) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
			at = b.NextOffset()
		}
	}
	return out
}

// asked is one partition's part of a Fetch request that a source got.
type asked struct {
	topic            string
	id               [16]byte
	partition        int32
	offset           int64
	epoch, lastEpoch int32
	maxWait          int32
	maxBytes         int32
	replica          int32
	isolation        int8
}

// spy notes the Fetch requests of a source.
type spy struct {
	mu  sync.Mutex
	all []asked
	n   int
}

func spyOn(c *kfake.Cluster) *spy {
	s := &spy{}
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.FetchRequest)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n++
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				s.all = append(s.all, asked{
					t.Topic, t.TopicID, p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch,
					req.MaxWaitMillis, p.PartitionMaxBytes, req.ReplicaID, req.IsolationLevel,
				})
			}
		}
		return nil, nil, false
	})
	return s
}

func (s *spy) requests() (int, []asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, slices.Clone(s.all)
}

// answer makes the source answer, n times (0: for ever), the Fetch requests that ask for
// partition p at or above offset from, with what fn makes of a default answer.
// Requests for other partitions are left alone, as are their parts of such a request.
func answer(c *kfake.Cluster, partition int32, from int64, n int, fn func(*kmsg.FetchRequest, *kmsg.FetchResponse, *kmsg.FetchResponseTopicPartition)) {
	left := n
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.FetchRequest)
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				if p.Partition != partition || p.FetchOffset < from {
					continue
				}
				if n > 0 {
					if left == 0 {
						c.DropControl()
						return nil, nil, false
					}
					left--
				}
				if n == 0 || left > 0 {
					c.KeepControl()
				}
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				for _, t := range req.Topics {
					rt := kmsg.NewFetchResponseTopic()
					rt.Topic, rt.TopicID = t.Topic, t.TopicID
					for _, p := range t.Partitions {
						rp := kmsg.NewFetchResponseTopicPartition()
						rp.Partition = p.Partition
						if p.Partition == partition {
							fn(req, resp, &rp)
						}
						rt.Partitions = append(rt.Partitions, rp)
					}
					resp.Topics = append(resp.Topics, rt)
				}
				return resp, nil, true
			}
		}
		return nil, nil, false
	})
}

func createTopic(t testing.TB, cl *kgo.Client, topic string, partitions int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, partitions, 1
	req.Topics = append(req.Topics, ct)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}
