package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// sweepPause keeps a burst of changes from causing a look each.
	sweepPause = 200 * time.Millisecond
	// verifyAfter is how long a partition must look foreign before the state topic is read to
	// its end for it, and sweepAfter before it is swept: every sidecar has then noted what it
	// was, and goes on if the one that sweeps dies in between.
	verifyAfter = time.Second
	sweepAfter  = 2 * time.Second
	// sweepAgain is how long a request is left to work, and a hindrance to go away.
	sweepAgain = 3 * time.Second
	// laggardWait is how long a live replica may take to get in sync behind a real leader,
	// before it is left out and copies all of it anew.
	laggardWait = 10 * time.Second
	// barriersAtOnce bounds how many state partitions are read to their ends at a time.
	barriersAtOnce = 8
)

// Sweeper takes virtual replicas away from partitions of topics that no mirror has. While a
// mirror topic is assigned, virtual brokers accept assignments, and what the controller
// places then may land there: nobody can write to such a partition, and one without a real
// replica could never be read. Every sidecar watches, the live one with the lowest id acts:
// first down to the real members of the ISR, which takes effect at once whoever leads, then
// as many real replicas as there were.
type Sweeper struct {
	c   *Coordinator
	log *slog.Logger
	now func() time.Time

	watcher

	mu    sync.Mutex // guards the following
	found map[ids.TopicPartition]*stray
	count int // partitions with a virtual replica among found
}

// stray is what is remembered of a partition that was found on virtual brokers.
type stray struct {
	topic    string
	since    time.Time
	verified bool    // the state topic, read to its end, has no mirror with this topic
	want     int     // replicas it had
	had      []int32 // those of them that are real
	left     []int32 // what is left of them when the virtual ones are gone
	gone     bool    // the virtual ones are
	told     string
	after    time.Time // nothing is asked for before
}

// NewSweeper returns the sweeper of a coordinator.
func NewSweeper(c *Coordinator, log *slog.Logger) *Sweeper {
	s := &Sweeper{
		c: c, log: log, now: time.Now, watcher: newWatcher(),
		found: map[ids.TopicPartition]*stray{},
	}
	c.sweeper.Store(s)
	return s
}

// Start begins to sweep once the state was read.
func (s *Sweeper) Start(context.Context) error {
	s.start(s.c.store.Ready(), s.run,
		s.c.img.Subscribe(func(d metadata.Delta) {
			if s.concerns(d) {
				s.poke()
			}
		}),
		s.c.view.Subscribe(func(c Change) {
			if c.Reset || len(c.Topics) > 0 {
				s.poke()
			}
		}))
	return nil
}

// Stop ends sweeping; what is under way is given up.
func (s *Sweeper) Stop(ctx context.Context) error { return s.end(ctx, "sweeper") }

// concerns tells cheaply whether a change of the metadata is worth a look.
func (s *Sweeper) concerns(d metadata.Delta) bool {
	s.mu.Lock()
	watching := len(s.found) > 0
	s.mu.Unlock()
	if watching {
		return true
	}
	for _, tp := range d.Partitions {
		if p := s.c.img.Partition(tp); p != nil && slices.ContainsFunc(p.Replicas, s.c.cfg.Virtual.Is) {
			if _, ours := s.c.view.TopicByID(tp.TopicID); !ours {
				return true
			}
		}
	}
	return false
}

func (s *Sweeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := max(s.c.cfg.RefreshInterval, 100*time.Millisecond)
		if again := s.look(ctx); again > 0 {
			wait = min(wait, again)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
			pause(ctx, sweepPause)
		case <-t.C:
		}
		t.Stop()
	}
}

// ours tells whether a topic is one of a mirror, or may be: one that a mirror is about to
// take is known by its name only, and one that has the write lock was a mirror topic, even
// if the state topic that said so was lost.
func (s *Sweeper) ours(topic string, id ids.UUID) bool {
	if _, ok := s.c.view.TopicByID(id); ok {
		return true
	}
	if t, ok := s.c.view.TopicByName(topic); ok && (t.Desired != Stopped || t.TopicID.IsZero()) {
		return true
	}
	return s.c.img.TopicConfig(topic)[configMaxMessageBytes] == "0"
}

// Foreign tells whether a partition that virtual brokers are assigned to is certainly no
// mirror's.
func (s *Sweeper) Foreign(tp ids.TopicPartition) bool {
	s.mu.Lock()
	e := s.found[tp]
	verified := e != nil && e.verified
	s.mu.Unlock()
	return verified && !s.ours(e.topic, tp.TopicID)
}

// look looks once at all partitions and acts. It returns when to look again although
// nothing changes; 0 if there is no need.
func (s *Sweeper) look(ctx context.Context) time.Duration {
	s.note()
	if due := s.unverified(); len(due) > 0 {
		if !s.barriers(ctx) {
			return sweepAgain
		}
		s.note() // what the barriers brought
		s.verify(due)
	}
	live := liveVirtual(s.c.img, s.c.cfg.Virtual)
	if len(live) > 0 && live[0] == s.c.cfg.Self && len(s.plan()) > 0 {
		// Once more: a mirror may have been told to take a topic since.
		if !s.barriers(ctx) {
			return sweepAgain
		}
		s.note()
		s.act(ctx, s.plan())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) == 0 {
		return 0
	}
	again, now := sweepAgain, s.now()
	for _, e := range s.found {
		for _, at := range []time.Time{e.since.Add(verifyAfter), e.since.Add(sweepAfter), e.after} {
			if left := at.Sub(now); left > 0 {
				again = min(again, left)
			}
		}
	}
	return again
}

// note brings what is remembered to what the metadata shows.
func (s *Sweeper) note() {
	v := s.c.cfg.Virtual
	strays := straysOf(v, s.c.img.AllPartitions(), s.ours)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	seen := map[ids.TopicPartition]bool{}
	for _, p := range strays {
		tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
		seen[tp] = true
		e := s.found[tp]
		if e == nil {
			e = &stray{topic: p.Topic, since: now, want: len(settled(p)), had: v.Real(settled(p))}
			s.found[tp] = e
		}
		e.gone = false
		if !reassigning(p) {
			e.left = v.Real(p.ISR)
		}
	}
	s.count = len(strays)
	for tp, e := range s.found {
		if seen[tp] {
			continue
		}
		p := s.c.img.Partition(tp)
		if p != nil && len(settled(p)) >= e.want && e.verified && e.told != "" {
			s.log.Info("partition is on real brokers again", "topic", e.topic, "partition", tp.Partition, "replicas", settled(p))
		}
		if p == nil || !e.verified || !lacksReplicas(p, *e) || s.ours(e.topic, tp.TopicID) {
			delete(s.found, tp)
			continue
		}
		if !e.gone { // with fewer replicas than it shall have: the rest at once
			e.gone, e.after = true, time.Time{}
		}
	}
}

// unverified are the partitions that have looked foreign for long enough.
func (s *Sweeper) unverified() (out []ids.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, e := range s.found {
		if !e.verified && s.now().Sub(e.since) >= verifyAfter {
			out = append(out, tp)
		}
	}
	return out
}

func (s *Sweeper) verify(all []ids.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range all {
		if e := s.found[tp]; e != nil {
			e.verified = true
		}
	}
}

// barriers returns when the own view has everything that was written to the state topic
// before: a record that is merely not read yet must not make a mirror's topic a stray (R19).
func (s *Sweeper) barriers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(barriersAtOnce)
	for p := range s.c.store.Partitions() {
		work.Go(func() error { return s.c.store.Barrier(workCtx, p) })
	}
	if err := work.Wait(); err != nil {
		if !errors.Is(err, context.Canceled) {
			s.log.Warn("partitions on virtual brokers are not looked at now, since it is not known whose they are", "err", err)
		}
		return false
	}
	return true
}

// plan decides about every partition that was found, by topic. What is waited for is logged
// once.
func (s *Sweeper) plan() map[string]map[int32][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, out := s.now(), map[string]map[int32][]int32{}
	live := func(b int32) bool { return alive(s.c.img, b) }
	brokers := realBrokers(s.c.img, s.c.cfg.Virtual)
	for tp, e := range s.found {
		p := s.c.img.Partition(tp)
		if p == nil || !e.verified || now.Sub(e.since) < sweepAfter || now.Before(e.after) {
			continue
		}
		waited := now.Sub(e.since) >= laggardWait
		target, wait := sweep(s.c.cfg.Virtual, p, *e, live, brokers, hashStart(p.Topic, max(len(brokers), 1)), waited)
		if wait != "" && e.told != wait {
			e.told = wait
			s.log.Warn("partition of an ordinary topic landed on virtual brokers, and cannot be on real ones yet",
				"topic", p.Topic, "partition", p.Partition, "replicas", p.Replicas, "isr", p.ISR, "waits_for", wait)
		}
		if target == nil {
			continue
		}
		if out[p.Topic] == nil {
			out[p.Topic] = map[int32][]int32{}
		}
		out[p.Topic][p.Partition] = target
	}
	return out
}

// act asks the controller for what was planned.
func (s *Sweeper) act(ctx context.Context, targets map[string]map[int32][]int32) {
	v := s.c.cfg.Virtual
	for _, topic := range slices.Sorted(maps.Keys(targets)) {
		id, ok := s.c.img.Topic(topic)
		if !ok {
			continue
		}
		for partition, target := range targets[topic] {
			p := s.c.img.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
			if p != nil && v.Is(p.Leader) && len(v.Real(p.ISR)) > 1 {
				// The controller takes the first of the list that is in sync.
				target = longestFirst(target, s.c.deps.Destination.logEnds(ctx, topic, partition, target))
			}
			targets[topic][partition] = target
			if p == nil || !s.asked(p, target) {
				delete(targets[topic], partition) // deleted, or created anew, meanwhile
			}
		}
		if len(targets[topic]) == 0 {
			continue
		}
		if err := s.c.deps.Destination.reassign(ctx, topic, targets[topic]); err != nil && ctx.Err() == nil {
			s.log.Warn("partitions of an ordinary topic are not on real brokers yet, tried again", "topic", topic, "err", err, "again_in", sweepAgain)
		}
	}
}

// asked takes note of what is about to be asked for, and says so once for each partition.
func (s *Sweeper) asked(p *metadata.Partition, target []int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.found[ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}]
	if e == nil {
		return false
	}
	e.after = s.now().Add(sweepAgain)
	if !slices.ContainsFunc(p.Replicas, s.c.cfg.Virtual.Is) {
		return true
	}
	e.left = target
	const what = "swept"
	if e.told != what {
		e.told = what
		s.log.Warn("partition of an ordinary topic landed on virtual brokers and is taken away; "+
			"if it is left with fewer replicas, kafka-reassign-partitions.sh gives it more",
			"topic", p.Topic, "partition", p.Partition, "replicas", p.Replicas, "isr", p.ISR, "to", target, "replicas_then", e.want)
	}
	return true
}

// Describe implements prometheus.Collector.
func (s *Sweeper) Describe(ch chan<- *prometheus.Desc) { ch <- strayMetric() }

// Collect implements prometheus.Collector.
func (s *Sweeper) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(strayMetric(), prometheus.GaugeValue, float64(s.count))
}

func strayMetric() *prometheus.Desc {
	return prometheus.NewDesc("kafka_mirror_foreign_partitions",
		"Partitions of topics that are in no mirror and have a replica on a virtual broker.", nil, nil)
}

// What follows decides, as pure functions.

// straysOf returns the partitions that virtual brokers are assigned to although they are no
// mirror's.
func straysOf(v ids.Virtual, all []*metadata.Partition, ours func(topic string, id ids.UUID) bool) []*metadata.Partition {
	return slices.DeleteFunc(all, func(p *metadata.Partition) bool {
		return !slices.ContainsFunc(p.Replicas, v.Is) || ours(p.Topic, p.TopicID)
	})
}

// lacksReplicas tells whether a partition without virtual replicas is as the removal has
// left it. One that an administrator has changed since is none of our business.
func lacksReplicas(p *metadata.Partition, e stray) bool {
	return len(settled(p)) < e.want && (reassigning(p) || sameSet(p.Replicas, e.left))
}

// sweep returns what to ask the controller for to get a partition one step nearer to real
// brokers only, or what is waited for. live tells whether a broker is alive; brokers are the
// real ones that are; waited that laggards were waited for.
func sweep(v ids.Virtual, p *metadata.Partition, e stray, live func(int32) bool, brokers []int32, start int, waited bool) (target []int32, wait string) {
	if reassigning(p) {
		return nil, "" // somebody's, or our own
	}
	more := func(have []int32) []int32 {
		out := slices.Clone(have)
		add := func(b int32) {
			if len(out) < e.want && !slices.Contains(out, b) && slices.Contains(brokers, b) {
				out = append(out, b)
			}
		}
		for _, b := range e.had {
			add(b)
		}
		for i := range brokers {
			add(brokers[(start+int(p.Partition)+i)%len(brokers)])
		}
		return out
	}
	if !slices.ContainsFunc(p.Replicas, v.Is) {
		if target = more(p.Replicas); len(target) == len(p.Replicas) {
			return nil, fmt.Sprintf("a further real broker, for %d replicas", e.want)
		}
		return target, ""
	}
	isr := v.Real(p.ISR)
	active := slices.DeleteFunc(slices.Clone(isr), func(b int32) bool { return !live(b) })
	behind := lagging(v, p, live)
	switch {
	case p.Leader < 0:
		return nil, "a leader"
	case len(isr) > 0 && len(active) == 0:
		return nil, fmt.Sprintf("broker %s, which alone is in sync", list(isr))
	case len(isr) > 0 && !v.Is(p.Leader) && len(behind) > 0 && !waited:
		return nil, fmt.Sprintf("broker %s to get in sync", list(behind))
	case len(isr) > 0:
		// Not those that are out of sync: a removal waits for all that it names.
		return leaderFirst(active, p.Leader), ""
	case len(v.Real(p.Replicas)) > 0:
		// What they hold may be all there is. The virtual leader lets them in.
		return nil, fmt.Sprintf("broker %s to get in sync", list(v.Real(p.Replicas)))
	}
	// It was never anywhere else, so it is empty. The virtual leader lets the real ones in.
	if target = more(nil); len(target) == 0 {
		return nil, "a real broker"
	}
	return target, ""
}
