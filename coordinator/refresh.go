package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// refreshTimeout bounds one refresh of one mirror.
	refreshTimeout = 3 * time.Minute
	// secondLook is how soon a suspicion is looked at again: a source broker that has just
	// started does not know every topic yet.
	secondLook = 2 * time.Second
	// DetailSourceChanged is written with FAILED when the source is not what was mirrored:
	// the topic or the cluster is another one.
	DetailSourceChanged = "SOURCE_CHANGED"
	// notRetryable is the attempt count of a failure that only an operator ends.
	notRetryable int16 = -1
)

// Refresher looks at the sources of the mirrors that are coordinated here, at each
// interval and when their configuration changes: topics that appear, grow, are deleted or
// created anew, and configs. It asks; what is done to this cluster goes the Reconciler's
// ways. Each mirror has one connection, kept between looks, and is looked at by itself, so
// that a dead source holds up nobody.
type Refresher struct {
	c   *Coordinator
	rec *Reconciler
	log *slog.Logger

	watcher

	mu      sync.Mutex // guards the following
	mirrors map[string]*refreshed
}

// refreshed is what is remembered of one mirror. All of it can be found out again.
type refreshed struct {
	running bool
	due     time.Time
	configs config.Properties // at the last look

	// Of the look under way, or the last one. Only that look touches them.
	src     Source
	srcWith config.Properties
	suspect map[string]string      // by topic: a fault seen once
	found   map[string]SourceTopic // what is mirrored, as the source has it at this look
	known   knownConfigs
	// undecided counts the looks in a row at which a policy could not say anything of something.
	undecided   int
	openConfigs bool // of this look

	// For people; guarded by Refresher.mu.
	lastRun time.Time
	lastErr string
	skipped map[string]string // by topic: why a match is not mirrored
	told    map[string]string // by topic: what was logged last
	ignored []string          // of its configuration, which has no effect
}

// NewRefresher returns the refresher of a coordinator.
func NewRefresher(c *Coordinator, rec *Reconciler, log *slog.Logger) *Refresher {
	r := &Refresher{c: c, rec: rec, log: log, watcher: newWatcher(), mirrors: map[string]*refreshed{}}
	c.refresher.Store(r)
	return r
}

// requestRefresh has a mirror looked at soon.
func (c *Coordinator) requestRefresh(mirror string) {
	if r := c.refresher.Load(); r != nil {
		r.request(mirror)
	}
}

// skipReason says why a topic that the patterns pick is not mirrored, as far as it is
// known here.
func (c *Coordinator) skipReason(mirror, topic string) string {
	r := c.refresher.Load()
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.mirrors[mirror]; m != nil {
		return m.skipped[topic]
	}
	return ""
}

// Start begins to look once the state was read.
func (r *Refresher) Start(context.Context) error {
	r.start(r.c.store.Ready(), r.run,
		r.c.view.Subscribe(func(c Change) {
			if c.Reset || len(c.Mirrors) > 0 {
				r.poke()
			}
		}))
	return nil
}

// Stop ends looking; what is under way is given up.
func (r *Refresher) Stop(ctx context.Context) error { return r.end(ctx, "refresher") }

func (r *Refresher) request(mirror string) {
	r.mu.Lock()
	if m := r.mirrors[mirror]; m != nil {
		m.due = time.Time{}
	}
	r.mu.Unlock()
	r.poke()
}

func (r *Refresher) run(ctx context.Context) {
	var looks sync.WaitGroup
	defer func() {
		looks.Wait()
		for _, m := range r.mirrors {
			m.close()
		}
	}()
	interval := max(r.c.cfg.RefreshInterval, 100*time.Millisecond)
	for ctx.Err() == nil {
		next := interval
		for name, m := range r.dueNow(&next) {
			looks.Go(func() {
				lookCtx, cancel := context.WithTimeout(ctx, refreshTimeout)
				defer cancel()
				again := r.look(lookCtx, name, m)
				r.mu.Lock()
				m.running = false
				// A request that came in meanwhile has put it back to the front.
				if !m.due.IsZero() {
					m.due = time.Now().Add(min(again, interval))
				}
				r.mu.Unlock()
				r.poke()
			})
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// dueNow returns the mirrors to look at now, and marks them as being looked at. next is
// lowered to when the next one is due.
func (r *Refresher) dueNow(next *time.Duration) map[string]*refreshed {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, now := map[string]*refreshed{}, time.Now()
	mine := map[string]bool{}
	for _, mirror := range r.c.view.Mirrors() {
		if who, err := r.c.Of(mirror.Name); err != nil || who != r.c.cfg.Self {
			continue
		}
		mine[mirror.Name] = true
		m := r.mirrors[mirror.Name]
		if m == nil {
			m = &refreshed{suspect: map[string]string{}, told: map[string]string{}}
			r.mirrors[mirror.Name] = m
		}
		if m.running {
			continue
		}
		if left := m.due.Sub(now); left > 0 && maps.Equal(m.configs, mirror.Configs) {
			*next = min(*next, left)
			continue
		}
		m.running, m.due, m.configs = true, now, mirror.Configs
		out[mirror.Name] = m
	}
	for name, m := range r.mirrors {
		if !mine[name] && !m.running {
			m.close()
			delete(r.mirrors, name)
			r.c.deps.Policies.Forget(name)
		}
	}
	return out
}

func (m *refreshed) close() {
	if m.src != nil {
		m.src.Close()
		m.src = nil
	}
	m.known = knownConfigs{} // another source has others
}

// look looks at one mirror's source once, and returns when to do so again at the latest.
func (r *Refresher) look(ctx context.Context, name string, m *refreshed) time.Duration {
	again, err := r.refresh(ctx, name, m)
	err = errors.Join(err, r.c.reseal(ctx, name))
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.lastErr && ctx.Err() == nil {
		r.log.Warn("the source of a mirror was not refreshed", "mirror", name, "err", err)
	}
	if text == "" && m.lastErr != "" {
		r.log.Info("the source of a mirror is refreshed again", "mirror", name)
	}
	m.lastRun, m.lastErr = time.Now(), text
	if again <= 0 {
		again = time.Hour // the interval is shorter
	}
	return again
}

func (r *Refresher) refresh(ctx context.Context, name string, m *refreshed) (again time.Duration, err error) {
	// Only a coordinator that has read everything may act.
	if err := r.c.act(ctx, name, func() error { return nil }); err != nil {
		return secondLook, err
	}
	mirror, ok := r.c.view.Mirror(name)
	if !ok {
		return 0, nil
	}
	cfg, err := mirror.stored()
	if err != nil {
		return 0, fmt.Errorf("mirror %s: configuration: %w", name, err)
	}
	r.ignores(name, m, cfg.Ignored())
	var active, running []Topic
	for _, t := range r.c.view.Topics(name) {
		// One whose start was refused is an ordinary topic: what it has is not ours to change.
		if r.retryAllowed(ctx, t) != nil {
			continue // logged; the next look tries again
		}
		if !r.c.running(t) {
			continue
		}
		active = append(active, t)
		if t.Desired == Mirroring { // nothing is followed for what is paused
			running = append(running, t)
		}
	}
	// What is mirrored is followed whatever the rest of the configuration says.
	unread := cfg.Unread(string(policy.Topics))
	if unread != nil {
		unread = fmt.Errorf("mirror %s: configuration: %w; no new topics are mirrored", name, unread)
	}
	if len(active) == 0 && (unread != nil || !selects(cfg)) {
		m.close()
		return 0, unread
	}
	if m.src != nil && !config.SameSource(m.srcWith, mirror.Configs) {
		m.close()
	}
	if m.src == nil {
		if m.src, err = r.c.deps.Source(cfg); err != nil {
			return 0, fmt.Errorf("mirror %s: source: %w", name, err)
		}
		m.srcWith = mirror.Configs
	}
	id, err := m.src.ClusterID(ctx)
	if err != nil {
		m.close() // the next look finds its way anew
		return 0, fmt.Errorf("mirror %s: the source at %s does not answer: %w", name, strings.Join(cfg.Bootstrap, ","), err)
	}
	if id != mirror.SourceClusterID {
		return r.otherCluster(ctx, mirror, m, active, id)
	}
	var errs []error
	defer func() { m.found = nil }()
	again, err = r.follow(ctx, mirror, cfg, m, running)
	errs = append(errs, err)
	open := false
	if unread != nil {
		errs = append(errs, unread)
	} else {
		open, err = r.discover(ctx, mirror, cfg, m, running)
		errs = append(errs, err)
	}
	if open || m.openConfigs {
		// A policy that is being started, maybe: asked again soon, and less and less so.
		m.undecided = min(m.undecided+1, 10)
		soon := secondLook << (m.undecided - 1)
		if again == 0 || soon < again {
			again = soon
		}
	} else {
		m.undecided = 0
	}
	return again, errors.Join(errs...)
}

// ignores remembers what of a mirror's configuration has no effect, and logs what is new in it.
func (r *Refresher) ignores(mirror string, m *refreshed, ignored []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range ignored {
		if !slices.Contains(m.ignored, what) {
			r.log.Warn("part of a mirror's configuration has no effect", "mirror", mirror, "what", what)
		}
	}
	m.ignored = ignored
}

// selects tells whether a mirror may begin with topics by itself.
func selects(cfg *config.Mirror) bool {
	names := cfg.Policies[string(policy.Topics)]
	return len(names) > 0 && !(cfg.TopicsInclude.Empty() && slices.Equal(names, []string{policy.BuiltIn}))
}

// otherCluster fails every topic of a mirror behind whose address is another cluster.
func (r *Refresher) otherCluster(ctx context.Context, mirror Mirror, m *refreshed, active []Topic, id string) (time.Duration, error) {
	msg := fmt.Sprintf("%s is cluster %s now, the mirror was created for %s; make the address reach that cluster, then recover", mirror.Configs["bootstrap.servers"], id, mirror.SourceClusterID)
	m.close()
	if m.suspect[""] != msg {
		m.suspect[""] = msg
		return secondLook, nil
	}
	var errs []error
	for _, t := range active {
		errs = append(errs, r.fault(ctx, t, msg))
	}
	return 0, errors.Join(append(errs, fmt.Errorf("mirror %s: %s", mirror.Name, msg))...)
}

// follow compares the running topics with the source.
func (r *Refresher) follow(ctx context.Context, mirror Mirror, cfg *config.Mirror, m *refreshed, running []Topic) (time.Duration, error) {
	names := make([]string, len(running))
	for i, t := range running {
		names[i] = t.Name
	}
	found, err := m.src.Topics(ctx, names)
	if err != nil {
		return 0, fmt.Errorf("mirror %s: topics at the source: %w", mirror.Name, err)
	}
	m.found = found
	again := time.Duration(0)
	suspect := map[string]string{}
	var errs []error
	var well []sourced
	for _, t := range running {
		source, exists := found[t.Name]
		if exists && source.Err != nil {
			errs = append(errs, fmt.Errorf("mirror %s, topic %s: at the source: %w", mirror.Name, t.Name, source.Err))
			continue
		}
		here := len(r.c.img.TopicPartitions(t.TopicID))
		switch why := faultOf(mirror, t, source, exists, here); {
		case why != "" && (t.Fault != "" || m.suspect[t.Name] == why):
			errs = append(errs, r.fault(ctx, t, why))
			suspect[t.Name] = why
			continue
		case why != "":
			suspect[t.Name] = why
			again = secondLook
			continue
		case t.Fault != "":
			errs = append(errs, r.unfault(ctx, t, source))
			continue
		}
		if t.TopicID.IsZero() || here == 0 {
			continue // not created yet, or gone here: the reconciler's
		}
		if int(source.Partitions) > here {
			if err := r.grow(ctx, t, source.Partitions); err != nil {
				errs = append(errs, err)
				again = secondLook
			}
		}
		well = append(well, sourced{t, source})
	}
	m.suspect = suspect
	if err := cfg.Unread(string(policy.Configs)); err != nil {
		m.openConfigs = false
		err = fmt.Errorf("mirror %s: configuration: %w; configs of its topics are left as they are", mirror.Name, err)
		r.c.deps.Policies.Ledger().Done(mirror.Name, policy.Configs, err)
		return again, errors.Join(append(errs, err)...)
	}
	// Last: policies are asked, which may take as long as they like to answer.
	m.openConfigs, err = r.syncConfigs(ctx, mirror, well)
	errs = append(errs, err)
	return again, errors.Join(errs...)
}

// faultOf says why a running topic must not be read any more, "" if nothing speaks against
// it. here is the number of its partitions in this cluster. It is a pure function.
func faultOf(m Mirror, t Topic, source SourceTopic, exists bool, here int) string {
	switch {
	case !exists:
		return fmt.Sprintf("topic %s was deleted at the source of mirror %s; stop it to make it writable here", t.Name, m.Name)
	case t.SourceTopicID.IsZero() || source.ID.IsZero():
		// A source without topic ids shows no more than this.
		if int(source.Partitions) < here {
			return fmt.Sprintf("topic %s has %d partitions at the source of mirror %s and %d here: it was created anew there; stop it, then start it again", t.Name, source.Partitions, m.Name, here)
		}
	case source.ID != t.SourceTopicID:
		return fmt.Sprintf("topic %s was created anew at the source of mirror %s (id %s, mirrored was %s); stop it, then start it again, with --allow-truncate to give up what is here", t.Name, m.Name, source.ID, t.SourceTopicID)
	}
	return ""
}

// fault records why a topic must not be read, and fails its partitions. They stay read
// only. It is asserted at each look: a leader that was not told in time may have written.
func (r *Refresher) fault(ctx context.Context, t Topic, why string) error {
	if t.Fault != why {
		r.log.Error("mirror topic failed, its source is not what was mirrored", "mirror", t.Mirror, "topic", t.Name, "why", why)
		source := t.SourceTopicID
		now, err := r.rec.put(ctx, t, func(now *Topic) {
			if now.Desired != Stopped && now.SourceTopicID == source {
				now.Fault = why
			}
		})
		if err != nil || now.Fault != why {
			return err
		}
	}
	var errs []error
	for _, p := range r.c.img.TopicPartitions(t.TopicID) {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
		errs = append(errs, r.failFaulty(ctx, t, tp, p.LeaderEpoch, why))
	}
	return errors.Join(errs...)
}

// faultyState is what is written for a partition of a topic with a fault over state s; ok is
// false if nothing is.
func faultyState(s PartitionState, why string) (next PartitionState, ok bool) {
	if s.State == Stopping || s.State == Stopped || s.State == Failed && s.ErrorMessage == why && s.RetryAttempt == notRetryable || refusedStart(s) {
		return s, false
	}
	return PartitionState{State: Failed, StateEpoch: s.StateEpoch, Detail: DetailSourceChanged, ErrorMessage: why, RetryAttempt: notRetryable}, true
}

// failFaulty fails one partition of a topic with a fault. It is written over the very state
// that was looked at: a stop that has begun since then goes on, and what its leader has
// told of its end is told once.
func (r *Refresher) failFaulty(ctx context.Context, t Topic, tp ids.TopicPartition, leaderEpoch int32, why string) error {
	const looks = 3 // what changes more often is looked at with the next refresh
	s, _ := r.c.view.State(t.Mirror, tp)
	for look := 1; ; look++ {
		failed, needed := faultyState(s, why)
		if !needed {
			return nil
		}
		err := r.c.WriteState(ctx, t.Mirror, tp, max(s.LeaderEpoch, leaderEpoch), failed)
		if !errors.Is(err, ErrFencedStateEpoch) || look == looks {
			return err
		}
		if s, err = r.c.ReadState(ctx, t.Mirror, tp); err != nil {
			return err
		}
	}
}

// unfault lets a topic go on that proves to be the one that was mirrored: its id is the
// same. Without ids, and for a cluster that has changed, the operator decides.
func (r *Refresher) unfault(ctx context.Context, t Topic, source SourceTopic) error {
	if source.ID.IsZero() || source.ID != t.SourceTopicID || !strings.HasPrefix(t.Fault, "topic ") {
		return nil
	}
	r.log.Warn("mirror topic is at the source after all and goes on", "mirror", t.Mirror, "topic", t.Name, "was", t.Fault)
	was := t.Fault
	t, err := r.rec.put(ctx, t, func(now *Topic) {
		if now.Fault == was {
			now.Fault = ""
		}
	})
	if err != nil {
		return err
	}
	return r.c.retryFailed(ctx, t, VerbRecover)
}

// retryAllowed begins anew with partitions whose start was refused, and is allowed by now:
// whoever allowed it may have died before it was done.
func (r *Refresher) retryAllowed(ctx context.Context, t Topic) error {
	if t.Desired != Mirroring || !t.AllowTruncate || t.Fault != "" {
		return nil
	}
	for _, p := range r.c.img.TopicPartitions(t.TopicID) {
		if s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}); refusedStart(s) {
			return r.c.retryFailed(ctx, t, VerbStart)
		}
	}
	return nil
}
