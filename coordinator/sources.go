package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// SourcesConfig says how fetchers are made.
type SourcesConfig struct {
	HomeID    int32
	ClusterID string // of this cluster
	Fetchers  int
	Providers config.Providers
	Buffers   *pool.Pool // that all of them read into
}

// reopenPause is how long after a configuration that cannot be used it is tried again: a
// file that it names may appear.
const reopenPause = 10 * time.Second

// sourceGrace is how long reading may fail before people are told: the leader at the source
// may just have moved.
const sourceGrace = 2 * time.Second

// Sources keeps one fetcher for each mirror that partitions are read for. When the way to
// a source changes, what is read moves to a new one; a change of filters does not.
type Sources struct {
	cfg  SourcesConfig
	view *View
	log  *slog.Logger

	mu      sync.Mutex // guards the following
	sources map[string]*source
	unused  map[string]error // by mirror: why its changed configuration is not used
	closed  bool

	wake   chan struct{}
	cancel func()
	stop   context.CancelFunc
	done   chan struct{}
}

var _ replica.Sources = (*Sources)(nil)

// NewSources returns Sources for the mirrors of view.
func NewSources(cfg SourcesConfig, view *View, log *slog.Logger) *Sources {
	return &Sources{cfg: cfg, view: view, log: log, sources: map[string]*source{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Start begins to follow the mirrors' configurations.
func (s *Sources) Start(context.Context) error {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.cancel = s.view.Subscribe(func(c Change) {
		if c.Reset || len(c.Mirrors) > 0 {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	})
	go func() {
		defer close(s.done)
		s.follow(ctx)
	}()
	return nil
}

func (s *Sources) follow(ctx context.Context) {
	for {
		var again <-chan time.Time
		t := time.NewTimer(reopenPause)
		if !s.reconcile() {
			again = t.C
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.wake:
		case <-again:
		}
		t.Stop()
	}
}

// reconcile moves sources whose configuration has changed to new fetchers and ends those
// of deleted mirrors. It reports whether all is as configured.
func (s *Sources) reconcile() bool {
	s.mu.Lock()
	open := maps.Clone(s.sources)
	s.mu.Unlock()
	well := true
	unused := map[string]error{}
	defer func() {
		s.mu.Lock()
		s.unused = unused
		s.mu.Unlock()
	}()
	for name, src := range open {
		m, ok := s.view.Mirror(name)
		if !ok {
			s.mu.Lock()
			delete(s.sources, name)
			s.mu.Unlock()
			src.close()
			continue
		}
		if src.is(m) {
			continue
		}
		f, err := s.open(m)
		if err != nil {
			s.log.Error("the changed configuration of a mirror cannot be used, the former one goes on", "mirror", name, "err", err)
			unused[name], well = err, false
			continue
		}
		s.log.Info("the source of a mirror is read anew, its configuration has changed", "mirror", name)
		src.move(m, f)
	}
	return well
}

// Source implements replica.Sources.
func (s *Sources) Source(name string) (replica.Source, error) {
	m, ok := s.view.Mirror(name)
	if !ok {
		return nil, fmt.Errorf("mirror %s is not known here (yet)", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the sidecar is stopping")
	}
	if src := s.sources[name]; src != nil {
		return src, nil
	}
	f, err := s.open(m)
	if err != nil {
		return nil, err
	}
	src := newSource(m, f)
	s.sources[name] = src
	return src, nil
}

// Health tells how the reading of a partition stands; false where it is not read.
func (s *Sources) Health(mirror, topic string, partition int32) (fetcher.Health, bool) {
	s.mu.Lock()
	src := s.sources[mirror]
	s.mu.Unlock()
	if src == nil {
		return fetcher.Health{}, false
	}
	return src.fetcher.Load().Health(topic, partition)
}

func (s *Sources) open(m Mirror) (*fetcher.Fetcher, error) {
	cfg, err := m.stored()
	if err != nil {
		return nil, fmt.Errorf("mirror %s: configuration: %w", m.Name, err)
	}
	opts, err := cfg.Options(s.cfg.Providers)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: configuration: %w", m.Name, err)
	}
	f := fetcher.New(fetcher.Config{
		Mirror: m.Name, BrokerID: s.cfg.HomeID, Opts: opts,
		MaxWait: cfg.FetchWaitMax, MinBytes: cfg.FetchMinBytes, MaxBytes: cfg.FetchMaxBytes,
		ResponseMaxBytes: cfg.FetchResponseMaxBytes, Backoff: cfg.FetchBackoff, Fetchers: s.cfg.Fetchers,
		Buffers: s.cfg.Buffers, Tagger: batch.NewTagger(m.SourceClusterID, s.cfg.ClusterID), Log: s.log,
	})
	if err := f.Start(context.Background()); err != nil {
		return nil, fmt.Errorf("mirror %s: connecting to the source: %w", m.Name, err)
	}
	return f, nil
}

// Status turns what a replica.Manager knows into what describe shows, with what the reading
// of each partition waits for.
func (s *Sources) Status(in []replica.PartitionStatus) []PartitionStatus {
	out := StatusOf(in)
	s.mu.Lock()
	unused := s.unused // replaced as a whole
	s.mu.Unlock()
	for i, p := range in {
		h, read := s.Health(p.Mirror, p.Topic, p.TP.Partition)
		if read && out[i].Detail == "" {
			out[i].Detail, out[i].ErrorMessage = sourceDetail(h, time.Now())
		}
		if err := unused[p.Mirror]; err != nil && out[i].ErrorMessage == "" {
			out[i].ErrorMessage = "the changed configuration of the mirror cannot be used, the former one goes on: " + err.Error()
		}
	}
	return out
}

// sourceDetail says for people what the reading of a partition waits for, "" if for nothing.
func sourceDetail(h fetcher.Health, now time.Time) (detail, message string) {
	switch {
	case h.Err != nil && now.Sub(h.Since) > sourceGrace:
		return DetailSourceUnavailable, h.Err.Error()
	case !h.Throttled.IsZero() && now.Sub(h.Throttled) > sourceGrace:
		return DetailThrottled, fmt.Sprintf("a quota of the source slows the mirror down since %s; its last answer asked to wait %v",
			h.Throttled.UTC().Format(time.RFC3339), h.Throttle)
	}
	return "", ""
}

// Describe implements prometheus.Collector.
func (s *Sources) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range sourceMetrics() {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (s *Sources) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, src := range s.sources {
		stats := src.stats()
		for _, d := range sourceMetrics() {
			ch <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, d.value(stats), name)
		}
	}
}

type sourceMetric struct {
	desc  *prometheus.Desc
	value func(fetcher.Stats) float64
}

// sourceMetrics are the counters of what is read from sources, by mirror.
func sourceMetrics() []sourceMetric {
	d := func(name, help string, value func(fetcher.Stats) float64) sourceMetric {
		return sourceMetric{prometheus.NewDesc("kafka_mirror_"+name, help, []string{"mirror"}, nil), value}
	}
	return []sourceMetric{
		d("fetched_bytes_total", "Record bytes read from the source.", func(s fetcher.Stats) float64 { return float64(s.Bytes) }),
		d("fetched_records_total", "Records read from the source.", func(s fetcher.Stats) float64 { return float64(s.Records) }),
		d("fetch_requests_total", "Fetch requests sent to the source.", func(s fetcher.Stats) float64 { return float64(s.Requests) }),
		d("fetch_retries_total", "Failures of reading from the source that were or will be tried again.", func(s fetcher.Stats) float64 { return float64(s.Retries) }),
		d("corrupt_batches_total", "Batches from the source whose checksum was wrong.", func(s fetcher.Stats) float64 { return float64(s.Corrupt) }),
		d("source_throttle_seconds_total", "What quotas of the source asked to wait.", func(s fetcher.Stats) float64 { return s.Throttled.Seconds() }),
	}
}

// Stop ends all fetchers.
func (s *Sources) Stop(ctx context.Context) error {
	if s.stop != nil {
		s.cancel()
		s.stop()
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("sources: stop: %w", ctx.Err())
		}
	}
	s.mu.Lock()
	all := s.sources
	s.sources, s.closed = map[string]*source{}, true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var errs []error
	for _, src := range all {
		errs = append(errs, src.fetcher.Load().Stop(ctx))
	}
	return errors.Join(errs...)
}
