package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// runTimeout bounds one run of one sync of one mirror.
	runTimeout = 3 * time.Minute
	// soon is when a run is tried again that could not be begun: this sidecar has just become the
	// coordinator, or is not it any more.
	soon = 2 * time.Second
)

// Config says how syncs are run.
type Config struct {
	// Interval is between two runs.
	Interval time.Duration
	Source   OpenSource
}

// Syncer runs the syncs of the mirrors that are coordinated here. Each sync of each mirror has a
// turn of its own, so that one that waits for its source, or for a policy, holds up no other.
type Syncer struct {
	cfg     Config
	mirrors Mirrors
	ledger  *policy.Ledger
	log     *slog.Logger
	syncs   []Sync

	wake   chan struct{}
	stop   context.CancelFunc // nil before start
	done   chan struct{}      // closed when everything has ended
	cancel func()             // ends the subscription that wakes it

	mu     sync.Mutex // guards the following
	known  map[string]*mirrored
	ended  bool
	asked  sync.WaitGroup  // runs that somebody waits for
	ending context.Context // ends them
}

// mirrored is what is remembered of one mirror. All of it can be found out again.
type mirrored struct {
	props config.Properties // at the last look
	turns map[policy.Kind]*turn
	src   source
}

// turn is one sync of one mirror.
type turn struct {
	sync    Sync
	running chan struct{} // holds a token while a run is under way
	lastErr string        // that was logged; the token's

	due   time.Time
	stats stats
}

// New returns a Syncer.
func New(cfg Config, mirrors Mirrors, ledger *policy.Ledger, log *slog.Logger, all ...Sync) *Syncer {
	return &Syncer{
		cfg: cfg, mirrors: mirrors, ledger: ledger, log: log, syncs: all,
		wake: make(chan struct{}, 1), done: make(chan struct{}), known: map[string]*mirrored{},
	}
}

// Start begins to run them once the state of the mirrors was read.
func (s *Syncer) Start(context.Context) error {
	ctx, stop := context.WithCancel(context.Background())
	s.mu.Lock()
	s.stop, s.ending = stop, ctx
	s.mu.Unlock()
	s.cancel = s.mirrors.Changed(s.poke)
	go func() {
		defer close(s.done)
		select {
		case <-s.mirrors.Ready():
			s.run(ctx)
		case <-ctx.Done():
			s.asked.Wait()
		}
	}()
	return nil
}

// Stop gives up what is under way, and waits for it.
func (s *Syncer) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.ended = true
	stop := s.stop
	s.mu.Unlock()
	if stop == nil {
		return nil
	}
	s.cancel()
	stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("syncs: stop: %w", ctx.Err())
	}
}

// Request has everything of a mirror run soon.
func (s *Syncer) Request(mirror string) {
	s.mu.Lock()
	if m := s.known[mirror]; m != nil {
		for _, t := range m.turns {
			t.due = time.Time{}
		}
	}
	s.mu.Unlock()
	s.poke()
}

// Run runs one sync of a mirror at once, after the one that is under way, and returns its report.
// The mirror has to be coordinated here.
func (s *Syncer) Run(ctx context.Context, mirror string, kind policy.Kind, why policyv1.Round_Why) (Report, error) {
	return s.onDemand(ctx, mirror, kind, why, nil)
}

// Preview says what a run would do if the mirror's configuration were changed so: keys without a
// value are removed. Nothing is changed.
func (s *Syncer) Preview(ctx context.Context, mirror string, kind policy.Kind, with map[string]*string) (Report, error) {
	return s.onDemand(ctx, mirror, kind, policyv1.Round_DRY_RUN, with)
}

func (s *Syncer) onDemand(ctx context.Context, mirror string, kind policy.Kind, why policyv1.Round_Why, with map[string]*string) (Report, error) {
	s.mu.Lock()
	if s.ended || s.ending == nil {
		s.mu.Unlock()
		return Report{}, errors.New("the sidecar is stopping, or has not started yet")
	}
	s.asked.Add(1)
	ending := s.ending
	m := s.enter(mirror)
	t := m.turns[kind]
	s.mu.Unlock()
	defer s.asked.Done()
	if t == nil {
		return Report{}, fmt.Errorf("mirror %s: there is no sync of %s", mirror, kind)
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	defer context.AfterFunc(ending, cancel)()
	select {
	case <-s.mirrors.Ready():
	case <-ctx.Done():
		return Report{}, fmt.Errorf("mirror %s: sync of %s: the state of the mirrors is being read: %w", mirror, kind, ctx.Err())
	}
	return s.turn(ctx, mirror, m, t, why, with)
}

func (s *Syncer) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Syncer) run(ctx context.Context) {
	var runs sync.WaitGroup
	defer func() {
		runs.Wait()
		s.asked.Wait()
		for _, m := range s.known {
			m.src.close()
		}
	}()
	interval := max(s.cfg.Interval, 100*time.Millisecond)
	for ctx.Err() == nil {
		next := interval
		for name, m := range s.look() {
			for _, t := range m.turns {
				if !s.begin(t, &next) {
					continue
				}
				runs.Go(func() {
					again := s.once(ctx, name, m, t)
					s.mu.Lock()
					// A request that came in meanwhile has put it back to the front.
					if !t.due.IsZero() {
						t.due = time.Now().Add(min(again, interval))
					}
					s.mu.Unlock()
					<-t.running
					s.poke()
				})
			}
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// look returns the mirrors that are coordinated here, and drops those that are not any more.
// Those whose configuration has changed are due.
func (s *Syncer) look() map[string]*mirrored {
	mine := s.mirrors.Coordinated()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]*mirrored, len(mine))
	for name, props := range mine {
		m := s.enter(name)
		if !maps.Equal(m.props, props) {
			m.props = props
			for _, t := range m.turns {
				t.due = time.Time{}
			}
		}
		out[name] = m
	}
	for name, m := range s.known {
		if _, ok := mine[name]; !ok && !m.busy() {
			m.src.close()
			delete(s.known, name)
		}
	}
	return out
}

// enter returns what is remembered of a mirror. s.mu is held.
func (s *Syncer) enter(name string) *mirrored {
	m := s.known[name]
	if m == nil {
		m = &mirrored{turns: make(map[policy.Kind]*turn, len(s.syncs))}
		for _, sy := range s.syncs {
			m.turns[sy.Kind()] = &turn{sync: sy, running: make(chan struct{}, 1)}
		}
		s.known[name] = m
	}
	return m
}

// busy tells whether a run is under way. Whoever has run wakes the syncer.
func (m *mirrored) busy() bool {
	for _, t := range m.turns {
		if len(t.running) > 0 {
			return true
		}
	}
	return false
}

// begin tells whether a turn is due, and takes it. Otherwise next is lowered to when it is due.
func (s *Syncer) begin(t *turn, next *time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(t.due); left > 0 {
		*next = min(*next, left)
		return false
	}
	select {
	case t.running <- struct{}{}:
	default:
		return false // whoever runs it wakes us
	}
	t.due = time.Now()
	return true
}

// once is a run at its time. The token of its turn is held. It returns when to do so again.
func (s *Syncer) once(ctx context.Context, name string, m *mirrored, t *turn) time.Duration {
	run, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	again := s.cfg.Interval
	_, err := s.sync(run, name, m, t, policyv1.Round_REFRESH, nil)
	var early *notYetError
	if errors.As(err, &early) {
		again = soon
	}
	return again
}

// turn waits for the token of a turn and runs it.
func (s *Syncer) turn(ctx context.Context, name string, m *mirrored, t *turn, why policyv1.Round_Why, with map[string]*string) (Report, error) {
	select {
	case t.running <- struct{}{}:
	case <-ctx.Done():
		return Report{}, fmt.Errorf("mirror %s: sync of %s: the one before has not ended: %w", name, t.sync.Kind(), ctx.Err())
	}
	defer func() { <-t.running; s.poke() }()
	return s.sync(ctx, name, m, t, why, with)
}

// notYetError is of a mirror that this sidecar cannot act for.
type notYetError struct{ error }

func (e *notYetError) Unwrap() error { return e.error }

// sync runs a sync once and records how it ended. A question is not recorded.
func (s *Syncer) sync(ctx context.Context, name string, m *mirrored, t *turn, why policyv1.Round_Why, with map[string]*string) (Report, error) {
	kind := t.sync.Kind()
	mirror, err := s.mirrors.Mirror(ctx, name)
	if err != nil {
		return Report{}, &notYetError{err}
	}
	if mirror, err = mirror.with(with); err != nil {
		return Report{}, err
	}
	if err := mirror.Config.Unread(string(kind)); err != nil {
		err = fmt.Errorf("mirror %s: configuration: %w; the %s are left as they are", name, err, kind)
		if why != policyv1.Round_DRY_RUN && why != policyv1.Round_EXPLAIN {
			s.record(ctx, name, t, Report{}, err)
		}
		return Report{}, err
	}
	acts := why != policyv1.Round_DRY_RUN && why != policyv1.Round_EXPLAIN
	var unreleased error
	if r, ok := t.sync.(Releaser); ok && acts {
		unreleased = r.Release(ctx, mirror)
	}
	if !t.sync.Wanted(mirror) {
		t.lastErr = ""
		return Report{Note: fmt.Sprintf("mirror %s is not configured to mirror %s", name, kind)}, nil
	}
	report, err := s.ask(ctx, mirror, m, t, why)
	if err = errors.Join(unreleased, err); err != nil {
		err = fmt.Errorf("mirror %s: sync of %s: %w", name, kind, err)
	}
	if !acts {
		return report, err
	}
	s.record(ctx, name, t, report, err)
	return report, err
}

// doubter is a sync that remembers what a source seems to have lost: that it was not asked at all
// comes between two rounds.
type doubter interface{ unanswered(mirror string) }

func (s *Syncer) ask(ctx context.Context, mirror Mirror, m *mirrored, t *turn, why policyv1.Round_Why) (Report, error) {
	src, done, err := m.src.use(mirror, s.cfg.Source)
	if err == nil {
		defer done()
		err = checkSource(ctx, mirror, src)
	}
	if err != nil {
		if d, ok := t.sync.(doubter); ok {
			d.unanswered(mirror.Name)
		}
		return Report{}, err
	}
	return t.sync.Sync(ctx, mirror, src, why)
}

// record keeps how a run ended, and logs what is new. The token of the turn is held.
func (s *Syncer) record(ctx context.Context, name string, t *turn, report Report, err error) {
	kind := t.sync.Kind()
	s.mu.Lock()
	t.stats.count(report, err)
	s.mu.Unlock()
	if report.Note != "" {
		s.ledger.Idle(name, kind, err, append([]string{report.Note}, report.Warnings...)...)
	} else {
		s.ledger.Done(name, kind, err, report.Warnings...)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text != "" && text != t.lastErr && ctx.Err() == nil:
		s.log.Warn("something of a mirror was not synchronised", "mirror", name, "kind", kind, "err", err)
	case text == "" && t.lastErr != "":
		s.log.Info("something of a mirror is synchronised again", "mirror", name, "kind", kind)
	}
	t.lastErr = text
}
