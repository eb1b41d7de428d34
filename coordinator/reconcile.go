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

	"golang.org/x/sync/errgroup"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/placement"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// windowLease is how long a virtual broker stays open for assignments at most.
	windowLease = 10 * time.Second
	// passPause keeps a burst of changes from causing a pass each.
	passPause = 50 * time.Millisecond
	// topicsAtOnce bounds how many topics are worked on at the same time.
	topicsAtOnce = 8
	// stepTimeout bounds one topic's step of one pass.
	stepTimeout = 45 * time.Second
	// assignedTimeout is how long the metadata log may take to show a reassignment.
	assignedTimeout = 3 * time.Second
	// A topic that failed is tried again after a while that doubles.
	firstBackoff, lastBackoff = 500 * time.Millisecond, 30 * time.Second
)

// DetailConsentNeeded is written with FAILED when a partition holds records that the
// source lacks and that nobody has allowed to drop: it is handed back as it is.
const DetailConsentNeeded = "CONSENT_NEEDED"

// Reconciler brings mirror topics to what is wanted of them. It acts for the mirrors whose
// name this sidecar coordinates, and is the only one that sends reassignments (R19).
// It remembers nothing that it could not find out again: after a crash the next
// coordinator looks at state, assignment and configs and goes on.
type Reconciler struct {
	c   *Coordinator
	log *slog.Logger

	watcher

	mu       sync.Mutex // guards the following
	retry    map[topicKey]retry
	stopping map[topicKey]stopWait // stops that wait
	told     map[topicKey]string   // last thing logged as waited for
	unlocked map[topicKey]unlocked // see unlocked.go
	seen     map[int32]presence    // of virtual brokers
	seatings map[string]seating    // the last of each mirror
	leads    map[partitionKey]led  // see resigned.go
	adopting map[string]*adoption  // by mirror, see adopting.go
	stepping map[topicKey]bool     // a step of it is under way; one at a time

	adopts sync.WaitGroup
}

// stopWait is since when a stop was seen to wait. It is told from others of the same topic by
// when it was asked for.
type stopWait struct {
	stop  int64 // Topic.Since
	since time.Time
}

type retry struct {
	wait time.Duration
	at   time.Time
	why  string
}

// hindrance is what keeps a topic from being as wanted, as far as it is known here: what
// went wrong last, or what is waited for.
func (r *Reconciler) hindrance(key topicKey) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.retry[key].why; why != "" {
		return why
	}
	if what := r.told[key]; what != "" {
		return "waits for: " + what
	}
	return ""
}

// NewReconciler returns the reconciler of a coordinator.
func NewReconciler(c *Coordinator, log *slog.Logger) *Reconciler {
	return &Reconciler{
		c: c, log: log, watcher: newWatcher(),
		retry: map[topicKey]retry{}, stopping: map[topicKey]stopWait{}, told: map[topicKey]string{}, unlocked: map[topicKey]unlocked{},
		seen: map[int32]presence{}, seatings: map[string]seating{}, leads: map[partitionKey]led{},
		adopting: map[string]*adoption{}, stepping: map[topicKey]bool{},
	}
}

// Start begins to reconcile once the state was read.
func (r *Reconciler) Start(context.Context) error {
	r.start(r.c.store.Ready(), r.run,
		r.c.img.Subscribe(func(d metadata.Delta) {
			if len(d.Brokers) > 0 {
				r.look(time.Now()) // at once: who goes and comes between two passes is gone all the same
			}
			r.poke()
		}),
		r.c.view.Subscribe(func(Change) { r.poke() }))
	return nil
}

// Stop ends reconciling; a step that is under way is given up.
func (r *Reconciler) Stop(ctx context.Context) error { return r.end(ctx, "reconciler") }

func (r *Reconciler) run(ctx context.Context) {
	refresh := time.NewTicker(max(r.c.cfg.RefreshInterval, 100*time.Millisecond))
	defer refresh.Stop()
	defer r.adopts.Wait()
	for ctx.Err() == nil {
		again := r.pass(ctx)
		var t *time.Timer
		var timer <-chan time.Time
		if again > 0 {
			t = time.NewTimer(again)
			timer = t.C
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			pause(ctx, passPause)
		case <-refresh.C:
		case <-timer:
		}
		if t != nil {
			t.Stop()
		}
	}
}

// pass looks once at every topic of every mirror that is coordinated here. It returns
// when to look again although nothing changes; 0 if there is no need. It does not wait for
// topics that are adopted, which sources and policies are asked about.
func (r *Reconciler) pass(ctx context.Context) time.Duration {
	var mu sync.Mutex
	again := time.Duration(0)
	sooner := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	var work errgroup.Group
	work.SetLimit(topicsAtOnce)
	r.forgetOthers()
	for _, m := range r.c.view.Mirrors() {
		if !r.mine(m.Name) {
			continue
		}
		topics := slices.DeleteFunc(r.c.view.Topics(m.Name), func(t Topic) bool { return r.idle(t) })
		if len(topics) == 0 {
			continue
		}
		// Only a coordinator that has read everything may act.
		if err := r.c.act(ctx, m.Name, func() error { return nil }); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("mirror is not reconciled now", "mirror", m.Name, "err", err)
				sooner(firstBackoff)
			}
			continue
		}
		var adoptees []topicKey
		for _, t := range topics {
			key := topicKey{t.Mirror, t.Name}
			if left := r.backoff(key); left > 0 {
				sooner(left)
				continue
			}
			if r.adoptee(t) {
				adoptees = append(adoptees, key)
				continue
			}
			work.Go(func() error {
				sooner(r.turn(ctx, m, key))
				return nil
			})
		}
		r.adoptAll(ctx, m.Name, adoptees)
	}
	_ = work.Wait()
	return again
}

// turn brings one topic a step further, unless that is being done. It returns when to look again
// although nothing changes.
func (r *Reconciler) turn(ctx context.Context, m Mirror, key topicKey) (again time.Duration) {
	if !r.claim(key) {
		return firstBackoff
	}
	defer r.release(key)
	stepCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	// What was listed may be stale by the time its turn comes.
	now, ok := r.c.view.Topic(key.mirror, key.topic)
	if !ok {
		return 0
	}
	again, err := r.step(stepCtx, m, now)
	r.outcome(ctx, key, err)
	if err != nil {
		again = r.backoff(key)
	}
	return again
}

// mine tells whether a mirror is coordinated here.
func (r *Reconciler) mine(mirror string) bool {
	who, err := r.c.Of(mirror)
	return err == nil && who == r.c.cfg.Self
}

// forgetOthers drops what is remembered of topics that are coordinated elsewhere now, that
// are gone, or whose stop is not wanted any more: what was waited for is no news of a stop
// that comes later.
func (r *Reconciler) forgetOthers() {
	mine := map[string]bool{}
	for _, m := range r.c.view.Mirrors() {
		mine[m.Name] = r.mine(m.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.seatings) // made of what was then
	known := func(key topicKey) bool { _, ok := r.c.view.Topic(key.mirror, key.topic); return ok && mine[key.mirror] }
	for key, s := range r.stopping {
		if t, _ := r.c.view.Topic(key.mirror, key.topic); !known(key) || t.Desired != Stopped || t.Since != s.stop {
			delete(r.stopping, key)
			delete(r.told, key)
		}
	}
	maps.DeleteFunc(r.leads, func(key partitionKey, _ led) bool { return !mine[key.mirror] || r.c.img.Partition(key.tp) == nil })
	maps.DeleteFunc(r.unlocked, func(key topicKey, _ unlocked) bool { return !known(key) })
	maps.DeleteFunc(r.told, func(key topicKey, _ string) bool { return !known(key) })
	maps.DeleteFunc(r.retry, func(key topicKey, _ retry) bool { return !known(key) })
}

// idle tells cheaply whether nothing has to be done for a topic.
func (r *Reconciler) idle(t Topic) bool {
	if t.Desired == Stopped {
		if _, exists := r.c.img.Topic(t.Name); exists && t.TopicID.IsZero() && len(t.Wanted) > 0 {
			return false // stopped between taking the lock and recording the id
		}
		return r.c.stopped(t) && len(t.RealReplicas) == 0
	}
	return false
}

func (r *Reconciler) backoff(key topicKey) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.retry[key].at)
}

func (r *Reconciler) outcome(ctx context.Context, key topicKey, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.retry, key)
		return
	}
	if ctx.Err() != nil {
		return
	}
	wait := min(max(2*r.retry[key].wait, firstBackoff), lastBackoff)
	r.retry[key] = retry{wait: wait, at: time.Now().Add(wait), why: err.Error()}
	r.log.Warn("mirror topic is not as wanted yet", "mirror", key.mirror, "topic", key.topic, "err", err, "again_in", wait)
}

// waiting logs once what a topic waits for.
func (r *Reconciler) waiting(key topicKey, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[key] != what {
		r.told[key] = what
		if what != "" {
			r.log.Info("mirror topic waits", "mirror", key.mirror, "topic", key.topic, "for", what)
		}
	}
}

func (r *Reconciler) step(ctx context.Context, m Mirror, t Topic) (time.Duration, error) {
	t, err := r.regained(ctx, t)
	if err != nil {
		return 0, err
	}
	if err := r.leadGivenUp(ctx, t); err != nil {
		return 0, err
	}
	if t.Desired == Stopped {
		return r.stopTopic(ctx, t)
	}
	if r.c.cfg.Alone {
		return 0, nil // it hands back, and mirrors nothing
	}
	if o, elsewhere, err := r.elsewhere(ctx, t); elsewhere || t.lost() || err != nil {
		if err != nil {
			return 0, err
		}
		return 0, r.lose(ctx, t, o)
	}
	wait, err := r.mirrorTopic(ctx, m, t)
	if err == nil {
		err = r.spend(ctx, t)
	}
	return wait, err
}

// lose fails a topic that another mirror has started at the same time. Nothing of it is
// touched, now or by its stop: it is the other one's.
func (r *Reconciler) lose(ctx context.Context, t, owner Topic) error {
	if !t.lost() {
		why := fmt.Sprintf("%s%s, which started it at the same time; stop it in one of the two, then recover it in the other", lostTo, owner.Mirror)
		r.log.Error("mirror topic failed", "mirror", t.Mirror, "topic", t.Name, "why", why)
		var err error
		if t, err = r.put(ctx, t, func(now *Topic) {
			if now.Desired != Stopped {
				now.Fault = why
			}
		}); err != nil {
			return err
		}
	}
	var errs []error
	for _, k := range r.c.view.partitionKeys(t.Mirror) {
		s, ok := r.c.view.State(t.Mirror, k.tp)
		if k.tp.TopicID != t.TopicID || !ok || s.State == Stopped || s.State == Failed && s.ErrorMessage == t.Fault {
			continue // what was STOPPED is where a fail-back begins
		}
		errs = append(errs, r.c.WriteState(ctx, t.Mirror, k.tp, s.LeaderEpoch, PartitionState{State: Failed, StateEpoch: -1, ErrorMessage: t.Fault, RetryAttempt: notRetryable}))
	}
	return errors.Join(errs...)
}

// put writes a topic's record after re-reading what must not be overwritten: a stop that
// came in meanwhile stands.
func (r *Reconciler) put(ctx context.Context, t Topic, change func(*Topic)) (Topic, error) {
	out := t
	err := r.c.act(ctx, t.Mirror, func() error {
		now, ok := r.c.view.Topic(t.Mirror, t.Name)
		if !ok {
			return fmt.Errorf("mirror %s, topic %s: deleted meanwhile", t.Mirror, t.Name)
		}
		change(&now)
		out = now
		return r.c.store.Put(ctx, record{kind: kindTopic, topic: topicKey{t.Mirror, t.Name}, value: now})
	})
	if err == nil && out.Desired != t.Desired {
		return out, fmt.Errorf("mirror %s, topic %s: wanted %s meanwhile", t.Mirror, t.Name, out.Desired)
	}
	return out, err
}

// mirrorTopic makes a topic a mirror topic: it exists, is locked, has the source's
// configs, and every partition has its virtual replicas in front.
func (r *Reconciler) mirrorTopic(ctx context.Context, m Mirror, t Topic) (time.Duration, error) {
	key := topicKey{t.Mirror, t.Name}
	id, exists := r.c.img.Topic(t.Name)
	if !t.TopicID.IsZero() && id != t.TopicID {
		return 0, r.failGone(ctx, t, exists)
	}
	if r.c.ordinary(t) { // its start was refused, and it is its owner's again
		return 0, nil
	}
	n := r.virtualThere()
	if len(liveVirtual(r.c.img, r.c.cfg.Virtual)) == 0 {
		return 0, fmt.Errorf("mirror %s, topic %s: no virtual broker is alive", m.Name, t.Name)
	}
	var err error
	// Also one that was stopped and is started again: the source's configs before its data.
	if t.TopicID.IsZero() || len(t.Wanted) == 0 {
		if t, err = r.adopt(ctx, m, t, id, exists, n); err != nil {
			return 0, err
		}
		id = t.TopicID
	}
	if all, err := r.handRefusedBack(ctx, t); all || err != nil {
		return 0, err
	}
	parts := r.c.img.TopicPartitions(id)
	if r.byHand(t, parts) {
		return 0, r.stopByHand(ctx, t)
	}
	if err := r.lock(ctx, t, parts, n); err != nil {
		return 0, err
	}
	if t, err = r.noteLock(ctx, t); err != nil {
		return 0, err
	}
	if t, err = r.noteRaise(ctx, t); err != nil {
		return 0, err
	}
	todo := r.seatingWork(t, parts)
	if len(todo.targets) > 0 {
		r.log.Info("virtual replicas are assigned", "mirror", m.Name, "topic", t.Name, "partitions", len(todo.targets), "replicas", todo.targets)
		if err := r.assign(ctx, t.Name, id, todo.targets, todo.windows); err != nil {
			return 0, err
		}
	}
	r.waiting(key, "")
	if len(todo.elect) > 0 {
		if err := r.c.deps.Destination.electPreferred(ctx, t.Name, todo.elect); err != nil {
			return 0, err
		}
	}
	return todo.again, nil
}

func sameSet(a, b []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// sameAssignment tells whether nobody has changed a partition's replicas in between.
func sameAssignment(a, b *metadata.Partition) bool {
	return a != nil && b != nil && slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}

// assign sends one reassignment inside un-cordon windows and waits until the metadata log
// shows it.
func (r *Reconciler) assign(ctx context.Context, topic string, id ids.UUID, targets map[int32][]int32, windows map[int32]bool) error {
	was := map[int32]*metadata.Partition{}
	for p := range targets {
		was[p] = r.c.img.Partition(ids.TopicPartition{TopicID: id, Partition: p})
	}
	closeWindows, err := r.c.openWindows(ctx, windows)
	if err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	defer closeWindows()
	// Nothing fences a reassignment: what somebody else has asked for, or cancelled, meanwhile
	// would be undone. The next look decides anew.
	maps.DeleteFunc(targets, func(p int32, _ []int32) bool {
		return !sameAssignment(was[p], r.c.img.Partition(ids.TopicPartition{TopicID: id, Partition: p}))
	})
	if len(targets) == 0 {
		return nil
	}
	if err := r.c.deps.Destination.reassign(ctx, topic, targets); err != nil {
		return err
	}
	failpoint("assign.sent")
	// Somebody else's change may have come after it: that is for the next look.
	waitCtx, cancel := context.WithTimeout(ctx, assignedTimeout)
	defer cancel()
	err = r.c.img.Wait(waitCtx, func() bool {
		for p, want := range targets {
			now := r.c.img.Partition(ids.TopicPartition{TopicID: id, Partition: p})
			if now == nil {
				return true // deleted meanwhile
			}
			if want == nil && reassigning(now) || want != nil && !sameSet(settled(now), want) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("topic %s: a reassignment was accepted, but the metadata log does not show it: %w", topic, err)
	}
	return nil
}

// adopt creates the topic, or takes an existing one under the lock, and records its id.
func (r *Reconciler) adopt(ctx context.Context, m Mirror, t Topic, id ids.UUID, exists bool, virtual int) (Topic, error) {
	src, cfg, err := r.c.source(m)
	if err != nil {
		return t, err
	}
	defer src.Close()
	for _, kind := range []policy.Kind{policy.Topics, policy.Configs} {
		if err := cfg.Unread(string(kind)); err != nil { // it may say that the topic, or some of its configs, is not wanted
			return t, fmt.Errorf("mirror %s, topic %s: not begun by this version: %w", m.Name, t.Name, err)
		}
	}
	found, err := src.Topics(ctx, []string{t.Name})
	if err != nil {
		return t, fmt.Errorf("mirror %s, topic %s: ask the source: %w", m.Name, t.Name, err)
	}
	source, ok := found[t.Name]
	if !ok {
		return t, fmt.Errorf("mirror %s, topic %s: the topic is not at the source any more", m.Name, t.Name)
	}
	if source.Err != nil {
		return t, fmt.Errorf("mirror %s, topic %s: at the source: %w", m.Name, t.Name, source.Err)
	}
	if !t.SourceTopicID.IsZero() && source.ID != t.SourceTopicID {
		return t, fmt.Errorf("mirror %s, topic %s: the topic was created anew at the source; stop and start it", m.Name, t.Name)
	}
	minISR, err := r.c.deps.Destination.intDefault(ctx, configMinISR)
	if err != nil {
		return t, err
	}
	asking, asked := r.whileStill(ctx, t)
	copied, err := r.c.copied(asking, r.c.question(m, policyv1.Round_START), []sourced{{t, source}})
	asked()
	// Policies may have taken long to answer.
	_, ok = r.still(t)
	if here, there := r.c.img.Topic(t.Name); !ok || there != exists || here != id {
		return t, fmt.Errorf("mirror %s, topic %s: it was stopped, changed, created or deleted while its policies were asked; looked at again", m.Name, t.Name)
	}
	if err != nil {
		return t, fmt.Errorf("mirror %s, topic %s: %w", m.Name, t.Name, err)
	}
	values := copied[0].values
	if why := copied[0].undecided; why != "" {
		// Configs before data: with this cluster's retention, records of the source may be gone at once.
		return t, fmt.Errorf("mirror %s, topic %s: which configs it gets is not decided: %s", m.Name, t.Name, why)
	}
	if left := copied[0].unknown; len(left) > 0 {
		r.log.Warn("configs of a source topic that this cluster's version does not know are not copied", "mirror", m.Name, "topic", t.Name, "configs", left)
	}
	if !exists {
		t.Wanted = wantedConfigs(nil, values)
		if id, err = r.create(ctx, t, source, syncedConfigs(values), lockConfigs(configuredMinISR(t, minISR), virtual)); err != nil {
			return t, err
		}
	} else {
		have := r.c.img.TopicConfig(t.Name)
		if len(t.Wanted) == 0 {
			t.Wanted = wantedConfigs(have, values)
			// What the lock hides is recorded before the lock is set: after a crash in between
			// the lock's own values must not be taken for the topic's.
			wanted := t.Wanted
			if t, err = r.put(ctx, t, func(now *Topic) { now.Wanted, now.Locked = wanted, false }); err != nil {
				return t, err
			}
		}
		// The lock first: from then on nothing changes but what the mirror brings.
		if err := r.setLock(ctx, t, differing(have, lockConfigs(configuredMinISR(t, minISR), virtual))); err != nil {
			return t, err
		}
		if err := r.alter(ctx, t.Name, differing(have, syncedConfigs(values))); err != nil {
			return t, err
		}
	}
	for k := range values {
		r.c.deps.Policies.Ledger().Applied(t.Mirror, policy.Configs, policy.ConfigItem(t.Name, k))
	}
	wanted := t.Wanted
	return r.put(ctx, t, func(now *Topic) { now.TopicID, now.Wanted, now.SourceTopicID = id, wanted, source.ID })
}

func (r *Reconciler) create(ctx context.Context, t Topic, source SourceTopic, configs, lock map[string]string) (ids.UUID, error) {
	brokers := placement.Live(placement.Brokers(r.c.img.Brokers(), r.c.cfg.Virtual))
	if len(brokers) == 0 {
		return ids.UUID{}, fmt.Errorf("create topic %s: no real broker is alive", t.Name)
	}
	rf, err := r.c.deps.Destination.intDefault(ctx, "default.replication.factor")
	if err != nil {
		return ids.UUID{}, err
	}
	if rf > len(brokers) {
		r.log.Warn("fewer replicas than default.replication.factor, since there are fewer brokers", "topic", t.Name, "configured", rf, "replicas", len(brokers))
		rf = len(brokers)
	}
	assignment := placement.Spread(brokers, int(source.Partitions), rf, hashStart(t.Name, len(brokers)))
	err = r.createLocked(ctx, t, assignment, configs, lock)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return ids.UUID{}, err
	}
	if err != nil {
		// Somebody was faster, or this is the answer to a request that was sent twice. The
		// next pass looks at the topic as an existing one.
		return ids.UUID{}, fmt.Errorf("%w; looked at again", err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	var id ids.UUID
	err = r.c.img.Wait(waitCtx, func() bool {
		var ok bool
		id, ok = r.c.img.Topic(t.Name)
		return ok && len(r.c.img.TopicPartitions(id)) == int(source.Partitions)
	})
	if err != nil {
		return ids.UUID{}, fmt.Errorf("topic %s was created, but the metadata log does not show it: %w", t.Name, err)
	}
	r.log.Info("topic created", "mirror", t.Mirror, "topic", t.Name, "partitions", source.Partitions, "replicas", rf)
	return id, nil
}

// lock asserts the write lock. min.insync.replicas counts the virtual replicas that the
// partitions can have, there, or still have.
func (r *Reconciler) lock(ctx context.Context, t Topic, parts []*metadata.Partition, there int) error {
	have := r.c.img.TopicConfig(t.Name)
	minISR := 1
	if t.Wanted[configMinISR] == nil {
		var err error
		if minISR, err = r.defaultMinISR(ctx); err != nil {
			return err
		}
	}
	minISR = configuredMinISR(t, minISR)
	virtual := r.countedVirtual(parts, there)
	want := lockConfigs(minISR, max(virtual, r.behindForeign(t, parts)-minISR))
	if bare := r.banRefused(topicKey{t.Mirror, t.Name}); mayChangeMinISR(r.c.cfg.Virtual, parts, minISR, have[configMinISR], want[configMinISR]) &&
		!(bare && exposes(r.c.cfg.Virtual, parts, have[configMinISR], want[configMinISR])) {
		change := differing(have, want)
		if now, to := have[configMinISR], change[configMinISR]; to != nil && now != "" {
			r.log.Info("min.insync.replicas of a mirror topic follows the sidecars that are there", "mirror", t.Mirror, "topic", t.Name, "was", now, "is", *to)
		}
	} else {
		delete(want, configMinISR)
	}
	change := differing(have, want)
	if len(change) == 0 {
		r.locked(topicKey{t.Mirror, t.Name})
		return nil
	}
	return r.setLock(ctx, t, change)
}

func (r *Reconciler) defaultMinISR(ctx context.Context) (int, error) {
	return r.c.deps.Destination.intDefault(ctx, configMinISR)
}

// alter changes configs of a topic and waits until the metadata log shows it.
func (r *Reconciler) alter(ctx context.Context, topic string, change map[string]*string) error {
	if len(change) == 0 {
		return nil
	}
	if err := r.c.deps.Destination.alterConfigs(ctx, topic, change); err != nil {
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	err := r.c.img.Wait(waitCtx, func() bool {
		have := r.c.img.TopicConfig(topic)
		for k, v := range change {
			now, set := have[k]
			if v == nil && set || v != nil && now != *v {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("configs of topic %s were changed, but the metadata log does not show it: %w", topic, err)
	}
	return nil
}

// failGone records that a mirror topic was deleted, or deleted and created anew, around
// the mirror. It is not created again unasked: whoever deleted it had a reason.
func (r *Reconciler) failGone(ctx context.Context, t Topic, recreated bool) error {
	msg := fmt.Sprintf("topic %s was deleted here while it was mirrored; start it again to mirror it anew", t.Name)
	if recreated {
		msg = fmt.Sprintf("topic %s was deleted here and created anew while it was mirrored; stop it, then start it again", t.Name)
	}
	var errs []error
	for _, k := range r.c.view.partitionKeys(t.Mirror) {
		if k.tp.TopicID != t.TopicID {
			continue
		}
		s, ok := r.c.view.State(t.Mirror, k.tp)
		if !ok || s.State == Failed && s.ErrorMessage == msg {
			continue
		}
		r.log.Error("mirror topic is gone", "mirror", t.Mirror, "topic", t.Name, "partition", k.tp.Partition, "recreated", recreated)
		errs = append(errs, r.c.WriteState(ctx, t.Mirror, k.tp, s.LeaderEpoch, PartitionState{State: Failed, StateEpoch: -1, ErrorMessage: msg}))
	}
	return errors.Join(errs...)
}
