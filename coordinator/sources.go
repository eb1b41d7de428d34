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
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// SourcesConfig says how fetchers are made.
type SourcesConfig struct {
	HomeID    int32
	ClusterID string // of this cluster
	Fetchers  int
	Providers config.Providers
}

// Sources keeps one fetcher for each mirror that partitions are read for. A mirror whose
// configuration changed gets a new one when it is next asked for.
type Sources struct {
	cfg  SourcesConfig
	view *View
	log  *slog.Logger

	mu       sync.Mutex // guards the following
	fetchers map[string]*mirrorFetcher
	closed   bool
}

type mirrorFetcher struct {
	mirror  Mirror
	fetcher *fetcher.Fetcher
}

var _ replica.Sources = (*Sources)(nil)

// NewSources returns Sources for the mirrors of view.
func NewSources(cfg SourcesConfig, view *View, log *slog.Logger) *Sources {
	return &Sources{cfg: cfg, view: view, log: log, fetchers: map[string]*mirrorFetcher{}}
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
	if f := s.fetchers[name]; f != nil && f.mirror.SourceClusterID == m.SourceClusterID && maps.Equal(f.mirror.Configs, m.Configs) {
		return f.fetcher, nil
	} else if f != nil {
		delete(s.fetchers, name)
		f.fetcher.Close()
	}
	f, err := s.open(m)
	if err != nil {
		return nil, err
	}
	s.fetchers[name] = &mirrorFetcher{mirror: m, fetcher: f}
	return f, nil
}

func (s *Sources) open(m Mirror) (*fetcher.Fetcher, error) {
	cfg, err := config.ParseMirror(m.Configs)
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
		Tagger: batch.NewTagger(m.SourceClusterID, s.cfg.ClusterID), Log: s.log,
	})
	if err := f.Start(context.Background()); err != nil {
		return nil, fmt.Errorf("mirror %s: connecting to the source: %w", m.Name, err)
	}
	return f, nil
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
	for name, f := range s.fetchers {
		stats := f.fetcher.Stats()
		for _, d := range sourceMetrics() {
			ch <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(d.value(stats)), name)
		}
	}
}

type sourceMetric struct {
	desc  *prometheus.Desc
	value func(fetcher.Stats) int64
}

// sourceMetrics are the counters of what is read from sources, by mirror.
func sourceMetrics() []sourceMetric {
	d := func(name, help string, value func(fetcher.Stats) int64) sourceMetric {
		return sourceMetric{prometheus.NewDesc("kafka_mirror_"+name, help, []string{"mirror"}, nil), value}
	}
	return []sourceMetric{
		d("fetched_bytes_total", "Record bytes read from the source.", func(s fetcher.Stats) int64 { return s.Bytes }),
		d("fetched_records_total", "Records read from the source.", func(s fetcher.Stats) int64 { return s.Records }),
		d("fetch_requests_total", "Fetch requests sent to the source.", func(s fetcher.Stats) int64 { return s.Requests }),
		d("fetch_retries_total", "Failures of reading from the source that were or will be tried again.", func(s fetcher.Stats) int64 { return s.Retries }),
		d("corrupt_batches_total", "Batches from the source whose checksum was wrong.", func(s fetcher.Stats) int64 { return s.Corrupt }),
	}
}

// Stop ends all fetchers.
func (s *Sources) Stop(context.Context) error {
	s.mu.Lock()
	all := s.fetchers
	s.fetchers, s.closed = map[string]*mirrorFetcher{}, true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, f := range all {
		errs = append(errs, f.fetcher.Stop(ctx))
	}
	return errors.Join(errs...)
}
