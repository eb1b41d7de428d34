package coordinator

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// offsets is a sink that checks that nothing is missing or there twice.
type offsets struct {
	t *testing.T

	mu    sync.Mutex // guards the following
	next  int64
	moved chan struct{}
	err   error
}

func (s *offsets) Room() int { return 1 << 20 }

func (s *offsets) Fetched(f fetcher.Fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Err != nil {
		s.err = f.Err
	}
	for _, b := range f.Batches {
		if b.BaseOffset() != s.next {
			s.t.Errorf("a batch at %d, want %d", b.BaseOffset(), s.next)
		}
		s.next = b.LastOffset() + 1
		b.SetLeaderEpoch(77) // as a leader does
	}
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

func (s *offsets) reaches(end int64) {
	s.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		s.mu.Lock()
		next, err := s.next, s.err
		s.mu.Unlock()
		if next >= end {
			return
		}
		if err != nil {
			s.t.Fatal(err)
		}
		select {
		case <-s.moved:
		case <-deadline:
			s.t.Fatalf("at %d, want %d", next, end)
		}
	}
}

// TestSourcesMove: what is read goes on where it was when the way to the source changes; a
// change of filters disturbs nothing; a deleted mirror is not read any more.
func TestSourcesMove(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v := NewView()
	mirror := func(p config.Properties) {
		v.apply([]record{{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "x", Configs: p}}}, nil)
	}
	mirror(config.Properties{"bootstrap.servers": c.ListenAddrs()[0]})
	s := NewSources(SourcesConfig{HomeID: 1, ClusterID: "here", Fetchers: 1}, v, slog.New(slog.DiscardHandler))
	defer stopWithin(t, s.Stop)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	end := int64(0)
	produce := func() {
		t.Helper()
		for p := range int32(2) {
			for range 3 {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		end += 3
	}
	got, err := s.Source("m")
	if err != nil {
		t.Fatal(err)
	}
	src := got.(*source) //nolint:forcetypeassert // it is ours
	sinks := []*offsets{{t: t, moved: make(chan struct{}, 1)}, {t: t, moved: make(chan struct{}, 1)}}
	produce()
	for p, sink := range sinks {
		src.Add(fetcher.Partition{Topic: "t", Partition: int32(p), LastFetchedEpoch: -1, Sink: sink})
	}
	// Removed and added again, as a leader does; one more is not to be read.
	failed := &offsets{t: t, moved: make(chan struct{}, 1)}
	src.Add(fetcher.Partition{Topic: "missing", LastFetchedEpoch: -1, Sink: failed})
	for _, sink := range sinks {
		sink.reaches(end)
	}
	first := src.fetcher.Load()

	mirror(config.Properties{"bootstrap.servers": c.ListenAddrs()[0], config.TopicsIncludeKey: ".*", "mirror.stop.pid.reset": "true"})
	if !s.reconcile() || src.fetcher.Load() != first {
		t.Error("a change of filters connects anew")
	}
	for i, p := range []config.Properties{
		{"bootstrap.servers": c.ListenAddrs()[1]},
		{"bootstrap.servers": c.ListenAddrs()[1], "mirror.fetch.max.bytes": "500"},
	} {
		before := src.fetcher.Load()
		produce()
		mirror(p)
		if !s.reconcile() || src.fetcher.Load() == before {
			t.Errorf("change %d does not connect anew", i)
		}
		produce()
		for _, sink := range sinks {
			sink.reaches(end)
		}
	}
	if st := src.stats(); st.Records != 2*end {
		t.Errorf("%d records counted, want %d over all fetchers", st.Records, 2*end)
	}
	// A configuration that cannot be used changes nothing.
	before := src.fetcher.Load()
	mirror(config.Properties{"bootstrap.servers": c.ListenAddrs()[0], "security.protocol": "NONSENSE"})
	if s.reconcile() || src.fetcher.Load() != before {
		t.Error("a broken configuration was used")
	}
	again, err := s.Source("m")
	if err != nil || again != got {
		t.Error("another source for the same mirror", err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.apply([]record{{kind: kindMirror, mirror: "m"}}, nil)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, ok := s.Health("m", "t", 0); !ok || time.Now().After(deadline) {
			break
		}
	}
	if _, err := s.Source("m"); err == nil {
		t.Error("a deleted mirror has a source")
	}
	if h, ok := s.Health("m", "t", 0); ok {
		t.Errorf("health %+v of a deleted mirror", h)
	}
	src.Remove("t", 0)
	src.Wake("t", 1)
	if _, err := src.Probe(t.Context(), "t", 0, 0, -1); err == nil || errors.Is(err, t.Context().Err()) {
		t.Errorf("a probe of what was closed: %v", err)
	}
}

// TestSourceUnavailable: describe says so of what is read, and it is no failure.
func TestSourceUnavailable(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v := NewView()
	v.apply([]record{{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "x", Configs: config.Properties{
		"bootstrap.servers": c.ListenAddrs()[0], "mirror.fetch.backoff.ms": "50", "request.timeout.ms": "500",
	}}}}, nil)
	s := NewSources(SourcesConfig{HomeID: 1, ClusterID: "here", Fetchers: 1}, v, slog.New(slog.DiscardHandler))
	defer stopWithin(t, s.Stop)
	src, err := s.Source("m")
	if err != nil {
		t.Fatal(err)
	}
	sink := &offsets{t: t, moved: make(chan struct{}, 1)}
	src.Add(fetcher.Partition{Topic: "t", LastFetchedEpoch: -1, Sink: sink})
	select {
	case <-sink.moved: // it is read
	case <-time.After(60 * time.Second):
		t.Fatal("nothing was read")
	}
	status := func() PartitionStatus {
		return s.Status([]replica.PartitionStatus{{Mirror: "m", Topic: "t"}})[0]
	}
	if st := status(); st.Detail != "" || st.ErrorMessage != "" {
		t.Errorf("all is well: %+v", st)
	}
	c.Close()
	for deadline := time.Now().Add(60 * time.Second); status().Detail != DetailSourceUnavailable; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", status())
		}
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if st := status(); st.ErrorMessage == "" || sink.err != nil {
		t.Errorf("%+v, %v", st, sink.err)
	}
	// What the leader itself says stands above it.
	if st := s.Status([]replica.PartitionStatus{{Mirror: "m", Topic: "t", Detail: DetailQuiesced}})[0]; st.Detail != DetailQuiesced {
		t.Errorf("%+v", st)
	}
}
