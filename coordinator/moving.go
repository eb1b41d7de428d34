package coordinator

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// source is the source of one mirror for as long as it is read. It stays when the way to
// it changes: what is read goes on where it was, through another fetcher.
type source struct {
	// fetcher is read without mu: Wake is called under locks that a sink takes.
	fetcher atomic.Pointer[fetcher.Fetcher]

	mu     sync.Mutex // guards the following, and serialises Add, Remove and move
	mirror Mirror
	parts  map[sourcePart]*position
	before fetcher.Stats // of the fetchers before this one
	closed bool
}

type sourcePart struct {
	topic     string
	partition int32
}

// position is a partition's sink, and how far it came.
type position struct {
	fetcher.Partition

	mu     sync.Mutex // guards the following; a leaf
	offset int64
	epoch  int32
	before *batch.Anchor
	ended  bool // an error was delivered: nothing is read until it is added again
}

var _ replica.Source = (*source)(nil)

func newSource(m Mirror, f *fetcher.Fetcher) *source {
	s := &source{mirror: m, parts: map[sourcePart]*position{}}
	s.fetcher.Store(f)
	return s
}

// is tells whether the source is read as a mirror's configuration says.
func (s *source) is(m Mirror) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.SourceClusterID == m.SourceClusterID && config.SameSource(s.mirror.Configs, m.Configs)
}

// move reads on with another fetcher, and ends the former one.
func (s *source) move(m Mirror, f *fetcher.Fetcher) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		f.Close()
		return
	}
	old := s.fetcher.Swap(f)
	s.mirror = m
	for k, p := range s.parts {
		old.Remove(k.topic, k.partition) // no sink is called after this
		if at, goesOn := p.at(); goesOn {
			f.Add(at)
		}
	}
	s.before = sum(s.before, old.Stats())
	s.mu.Unlock()
	old.Close()
}

func (s *source) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.fetcher.Load().Close()
}

func (s *source) stats() fetcher.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sum(s.before, s.fetcher.Load().Stats())
}

func sum(a, b fetcher.Stats) fetcher.Stats {
	return fetcher.Stats{
		Requests: a.Requests + b.Requests, Batches: a.Batches + b.Batches, Records: a.Records + b.Records, Bytes: a.Bytes + b.Bytes,
		Retries: a.Retries + b.Retries, Corrupt: a.Corrupt + b.Corrupt, Throttled: a.Throttled + b.Throttled,
	}
}

// Probe implements replica.Source.
func (s *source) Probe(ctx context.Context, topic string, partition int32, offset int64, lastFetchedEpoch int32) (fetcher.ProbeResult, error) {
	return s.fetcher.Load().Probe(ctx, topic, partition, offset, lastFetchedEpoch)
}

// BatchAt implements replica.Source.
func (s *source) BatchAt(ctx context.Context, topic string, partition int32, offset int64) (batch.Batch, error) {
	return s.fetcher.Load().BatchAt(ctx, topic, partition, offset)
}

// Add implements replica.Source.
func (s *source) Add(p fetcher.Partition) {
	at := &position{Partition: p, offset: p.Offset, epoch: p.LastFetchedEpoch, before: p.Before}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[sourcePart{p.Topic, p.Partition}] = at
	p.Sink = at
	s.fetcher.Load().Add(p)
}

// Remove implements replica.Source.
func (s *source) Remove(topic string, partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts, sourcePart{topic, partition})
	s.fetcher.Load().Remove(topic, partition)
}

// Wake implements replica.Source.
func (s *source) Wake(topic string, partition int32) { s.fetcher.Load().Wake(topic, partition) }

// at is where to go on.
func (p *position) at() (fetcher.Partition, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.Partition
	out.Offset, out.LastFetchedEpoch, out.Before, out.Sink = p.offset, p.epoch, p.before, p
	return out, !p.ended
}

// Room implements fetcher.Sink.
func (p *position) Room() int { return p.Sink.Room() }

// Fetched implements fetcher.Sink. The position is noted first: the receiver writes its own
// epochs into the batches.
func (p *position) Fetched(f fetcher.Fetched) {
	p.mu.Lock()
	if n := len(f.Batches); n > 0 {
		last := f.Batches[n-1]
		before := last.Anchor()
		p.offset, p.epoch, p.before = last.LastOffset()+1, last.LeaderEpoch(), &before
	}
	p.ended = p.ended || f.Err != nil
	p.mu.Unlock()
	p.Sink.Fetched(f)
}
