package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/placement"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// sweepPause keeps a burst of changes from causing a look each.
	sweepPause = 20 * time.Millisecond
	// readPause is the least time between two readings of the state topic to its end.
	readPause = 200 * time.Millisecond
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
// replica could never be read. Where virtual brokers cannot be cordoned (metadata.version
// below 4.3) that is what most new partitions begin with.
//
// Every sidecar notes what the metadata log shows, as it shows it, so that each can go on
// where another one ended. The live one with the lowest id acts, as soon as it has read the
// state topic to its end: a mirror writes there which topics it takes before it assigns
// anything, so that what is not there is nobody's. First down to the real members of the
// ISR, which takes effect at once whoever leads, then as many real replicas as there were.
type Sweeper struct {
	c   *Coordinator
	log *slog.Logger
	now func() time.Time

	watcher

	mu    sync.Mutex // guards the following
	found map[ids.TopicPartition]*stray
	cut   map[ids.TopicPartition]*stray // what a mirror took before it had its real replicas again
	count int                           // partitions with a virtual replica among found
	read  time.Time                     // when the state topic was read to its end last
	began time.Time                     // when it looked first
}

// stray is what is remembered of a partition that was found on virtual brokers.
type stray struct {
	topic    string
	since    time.Time
	verified bool    // it is internal to Kafka, or the state topic, read to its end, has no mirror with it
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
		found: map[ids.TopicPartition]*stray{}, cut: map[ids.TopicPartition]*stray{},
	}
	c.sweeper.Store(s)
	return s
}

// Start begins to sweep: at once what is internal to Kafka, since the state cannot be read as
// long as virtual brokers lead it.
func (s *Sweeper) Start(context.Context) error {
	begin := make(chan struct{})
	close(begin)
	s.start(begin, s.run,
		s.c.img.Subscribe(func(d metadata.Delta) {
			if s.noted(d) {
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

// noted takes note of what a change of the metadata put on virtual brokers, before the next
// one shows: another sidecar may be quick to take it away again. It tells whether the change
// is worth a look.
func (s *Sweeper) noted(d metadata.Delta) bool {
	some := false
	for _, tp := range d.Partitions {
		p := s.c.img.Partition(tp)
		if p == nil || !slices.ContainsFunc(p.Replicas, s.c.cfg.Virtual.Is) || s.ours(p.Topic, tp.TopicID) {
			continue
		}
		some = true
		s.mu.Lock()
		s.remember(p)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return some || len(s.found) > 0
}

// remember notes a partition that is on virtual brokers, and returns what is remembered of it.
func (s *Sweeper) remember(p *metadata.Partition) *stray {
	tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
	e := s.found[tp]
	if e == nil {
		e = &stray{
			topic: p.Topic, since: s.now(), verified: internalTopic(p.Topic),
			want: len(settled(p)), had: s.c.cfg.Virtual.Real(settled(p)),
		}
		s.found[tp] = e
	}
	e.left = s.c.cfg.Virtual.Real(p.ISR)
	if reassigning(p) {
		e.left = s.c.cfg.Virtual.Real(settled(p))
	}
	return e
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
	if internalTopic(topic) {
		return false // also the state topic: it could not be read where virtual brokers lead it
	}
	if _, ok := s.c.view.TopicByID(id); ok || !s.ready() {
		return true
	}
	if t, ok := s.c.view.TopicByName(topic); ok && (t.Desired != Stopped || t.TopicID.IsZero()) {
		return true
	}
	return s.c.img.TopicConfig(topic)[configMaxMessageBytes] == "0"
}

// ready tells whether the state was read.
func (s *Sweeper) ready() bool {
	select {
	case <-s.c.store.Ready():
		return true
	default:
		return false
	}
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

// Stray tells whether a partition that has virtual replicas is no mirror's; sure is false as
// long as the state topic was not read for it.
func (c *Coordinator) Stray(tp ids.TopicPartition) (stray, sure bool) {
	s, p := c.sweeper.Load(), c.img.Partition(tp)
	if s == nil || p == nil || s.ours(p.Topic, tp.TopicID) || !slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is) {
		return false, false
	}
	return true, internalTopic(p.Topic) || s.Foreign(tp)
}

// look looks once at all partitions and acts. It returns when to look again although
// nothing changes; 0 if there is no need.
func (s *Sweeper) look(ctx context.Context) time.Duration {
	s.note()
	s.careful(ctx)
	live := liveVirtual(s.c.img, s.c.cfg.Virtual)
	acts := len(live) > 0 && live[0] == s.c.cfg.Self || len(live) == 0 && s.c.cfg.Alone
	if acts {
		// What is internal to Kafka is no mirror's, and reading the state may have to wait for it.
		s.act(ctx, s.plan(s.internal()))
	}
	due, wait := s.unread(acts)
	if wait > 0 {
		return wait
	}
	if len(due) > 0 {
		if !s.barriers(ctx) {
			return sweepAgain
		}
		s.note() // what the barriers brought
		s.verify(due)
		if acts {
			s.act(ctx, s.plan(due))
		}
	}
	again, now := sweepAgain, s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) == 0 && s.ready() {
		return 0
	}
	for _, e := range s.found {
		if left := e.after.Sub(now); left > 0 {
			again = min(again, left)
		}
	}
	return again
}

// careful gets to know what laggards are waited for by, where this process may meet topics that were
// mirrored and that nobody knows of any more.
func (s *Sweeper) careful(ctx context.Context) {
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = s.now()
	}
	some := len(s.found) > 0
	s.mu.Unlock()
	if !s.c.cfg.Alone || !some {
		return
	}
	if _, err := s.c.deps.Destination.intDefault(ctx, configMinISR); err != nil && ctx.Err() == nil {
		s.log.Warn("min.insync.replicas of the cluster is not known: no live replica is left out", "err", err)
	}
}

// unread returns what was found and needs the state topic to be read to its end: what is not
// verified, and what something is to be done about, since a mirror may have been told to take
// the topic meanwhile. wait is for how long there is time for that.
func (s *Sweeper) unread(acts bool) (due map[ids.TopicPartition]bool, wait time.Duration) {
	rest := map[ids.TopicPartition]bool{}
	needed := false
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, e := range s.found {
		if !internalTopic(e.topic) {
			rest[tp] = true
			needed = needed || !e.verified
		}
	}
	if !needed && (!acts || len(s.planLocked(rest)) == 0) {
		return nil, 0
	}
	if wait = readPause - s.now().Sub(s.read); wait > 0 {
		return nil, wait
	}
	s.read = s.now()
	return rest, 0
}

// internal are the partitions of Kafka's own topics that were found.
func (s *Sweeper) internal() map[ids.TopicPartition]bool {
	out := map[ids.TopicPartition]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, e := range s.found {
		if internalTopic(e.topic) {
			out[tp] = true
		}
	}
	return out
}

// note brings what is remembered to what the metadata shows.
func (s *Sweeper) note() {
	v := s.c.cfg.Virtual
	strays := straysOf(v, s.c.img.AllPartitions(), s.ours)
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[ids.TopicPartition]bool{}
	for _, p := range strays {
		tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
		seen[tp] = true
		s.remember(p).gone = false
	}
	s.count = len(strays)
	for tp := range s.cut {
		if p := s.c.img.Partition(tp); p == nil || slices.ContainsFunc(p.Replicas, v.Is) || !s.ours(p.Topic, tp.TopicID) {
			delete(s.cut, tp)
		}
	}
	for tp, e := range s.found {
		if seen[tp] {
			continue
		}
		p := s.c.img.Partition(tp)
		if p != nil && len(settled(p)) >= e.want && e.verified && e.told != "" {
			s.log.Info("partition is on real brokers again", "topic", e.topic, "partition", tp.Partition, "replicas", settled(p))
		}
		ours := s.ours(e.topic, tp.TopicID)
		if p != nil && ours && len(v.Real(settled(p))) < e.want {
			s.cut[tp] = e
		}
		if p == nil || !lacksReplicas(p, *e) || ours {
			delete(s.found, tp)
			continue
		}
		if !e.gone { // with fewer replicas than it shall have: the rest at once
			e.gone, e.after = true, time.Time{}
		}
	}
}

// cutShort returns the real replicas that a partition had, or others in their place, and lost when it was
// taken away from virtual brokers, if a mirror took its topic before they were back: whoever gives the
// partition its virtual replicas gives it these too.
func (s *Sweeper) cutShort(p *metadata.Partition) []int32 {
	tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cut[tp]
	if e == nil {
		return nil
	}
	have := s.c.cfg.Virtual.Real(settled(p))
	brokers := placement.Brokers(s.c.img.Brokers(), s.c.cfg.Virtual)
	return placement.Add(brokers, have, e.had, e.want, hashStart(p.Topic, max(len(brokers), 1))+int(p.Partition))[len(have):]
}

func (s *Sweeper) verify(read map[ids.TopicPartition]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range read {
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

// plan decides about some of the partitions that were found, by topic. What is waited for is
// logged once.
func (s *Sweeper) plan(some map[ids.TopicPartition]bool) map[string]map[int32][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planLocked(some)
}

func (s *Sweeper) planLocked(some map[ids.TopicPartition]bool) map[string]map[int32][]int32 {
	now, out := s.now(), map[string]map[int32][]int32{}
	live := func(b int32) bool { return alive(s.c.img, b) }
	brokers := placement.Brokers(s.c.img.Brokers(), s.c.cfg.Virtual)
	for tp, e := range s.found {
		p := s.c.img.Partition(tp)
		if p == nil || !some[tp] || now.Before(e.after) {
			continue
		}
		care := careful{waited: now.Sub(e.since) >= laggardWait}
		if s.c.cfg.Alone {
			care = careful{waited: now.Sub(s.began) >= s.c.cfg.StopReplicaWait, minISR: s.minISR(p.Topic)}
		}
		target, wait := sweep(s.c.cfg.Virtual, p, *e, live, brokers, hashStart(p.Topic, max(len(brokers), 1)), care)
		if wait != "" && e.verified && e.told != wait {
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

// minISR is what a topic wants in sync: as long as it is not known whether that is less, all that
// there can be.
func (s *Sweeper) minISR(topic string) int {
	n, err := strconv.Atoi(s.c.img.TopicConfig(topic)[configMinISR])
	if err != nil {
		n = s.c.deps.Destination.knownDefault(configMinISR)
	}
	if n < 1 {
		return math.MaxInt
	}
	return n
}

// act asks the controller for what was planned.
func (s *Sweeper) act(ctx context.Context, targets map[string]map[int32][]int32) {
	var work errgroup.Group
	work.SetLimit(topicsAtOnce)
	for topic, parts := range targets {
		if id, ok := s.c.img.Topic(topic); ok {
			work.Go(func() error { s.actOn(ctx, topic, id, parts); return nil })
		}
	}
	_ = work.Wait()
}

func (s *Sweeper) actOn(ctx context.Context, topic string, id ids.UUID, targets map[int32][]int32) {
	v := s.c.cfg.Virtual
	for partition, target := range targets {
		p := s.c.img.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
		if p != nil && mayDiffer(v, p) {
			// The controller takes the first of the list that is in sync.
			target = longestFirst(target, s.c.deps.Destination.logEnds(ctx, topic, partition, target))
		}
		targets[partition] = target
		if p == nil || !s.asked(p, target) {
			delete(targets, partition) // deleted, or created anew, meanwhile
		}
	}
	if len(targets) == 0 {
		return
	}
	if err := s.c.deps.Destination.reassign(ctx, topic, targets); err != nil && ctx.Err() == nil {
		s.log.Warn("partitions of an ordinary topic are not on real brokers yet, tried again", "topic", topic, "err", err, "again_in", sweepAgain)
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

// mayDiffer tells whether real replicas behind a virtual leader may have logs of different
// lengths: not if it leads from the beginning, since nothing was written then.
func mayDiffer(v ids.Virtual, p *metadata.Partition) bool {
	return v.Is(p.Leader) && p.LeaderEpoch > 0 && len(v.Real(p.ISR)) > 1
}

// lacksReplicas tells whether a partition without virtual replicas is as the removal has
// left it. One that an administrator has changed since is none of our business.
func lacksReplicas(p *metadata.Partition, e stray) bool {
	return len(settled(p)) < e.want && (reassigning(p) || sameSet(p.Replicas, e.left))
}

// sweep returns what to ask the controller for to get a partition one step nearer to real
// brokers only, or what is waited for. live tells whether a broker is alive; brokers are the
// real ones that may be given replicas; care says how laggards are waited for.
func sweep(v ids.Virtual, p *metadata.Partition, e stray, live func(int32) bool, brokers []placement.Broker, start int, care careful) (target []int32, wait string) {
	if reassigning(p) {
		return nil, "" // somebody's, or our own
	}
	more := func(have []int32) []int32 {
		return placement.Add(brokers, have, e.had, e.want, start+int(p.Partition))
	}
	if !slices.ContainsFunc(p.Replicas, v.Is) {
		if target = more(p.Replicas); len(target) == len(p.Replicas) {
			return nil, fmt.Sprintf("a further real broker, for %d replicas", e.want)
		}
		return target, ""
	}
	isr := v.Real(p.ISR)
	active := slices.DeleteFunc(slices.Clone(isr), func(b int32) bool { return !live(b) })
	switch {
	case p.Leader < 0:
		return nil, "a leader"
	case len(isr) > 0 && len(active) == 0:
		return nil, fmt.Sprintf("broker %s, which alone is in sync", list(isr))
	case len(isr) > 0:
		if wait = sweepWaits(v, p, live, care); wait != "" {
			return nil, wait
		}
		// Not those that are out of sync: a removal waits for all that it names.
		return leaderFirst(active, p.Leader), ""
	case len(v.Real(p.Replicas)) > 0:
		// What they hold may be all there is. The virtual leader lets them in.
		return nil, fmt.Sprintf("broker %s to get in sync", list(v.Real(p.Replicas)))
	}
	// It was never anywhere else, so it is empty. The virtual leader lets a real one in, which
	// leads then, and lets others in faster.
	if target = more(nil); len(target) == 0 {
		return nil, "a real broker"
	}
	return target[:1], ""
}

// careful says how live replicas that are not in sync are waited for before they are left out,
// which deletes their logs.
type careful struct {
	waited bool // for as long as it is
	// minISR is how many have to be in sync then. 0 for what landed on virtual brokers and was
	// never mirrored: behind a virtual leader nothing is waited for there, since it lets nobody in.
	minISR int
}

// sweepWaits says which replicas of a partition are waited for before others are left out, ""
// if none is.
func sweepWaits(v ids.Virtual, p *metadata.Partition, live func(int32) bool, care careful) string {
	behind := lagging(v, p, live)
	active := slices.DeleteFunc(v.Real(p.ISR), func(b int32) bool { return !live(b) })
	switch {
	case len(behind) == 0 || care.minISR == 0 && (v.Is(p.Leader) || care.waited):
		return ""
	case v.Is(p.Leader):
		return fmt.Sprintf("a real broker to lead, so that broker %s gets in sync", list(behind))
	case !care.waited:
		return fmt.Sprintf("broker %s to get in sync", list(behind))
	case len(active) < care.minISR:
		return fmt.Sprintf("broker %s to get in sync, since only %s is", list(behind), list(active))
	}
	return ""
}
