package policy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// HoldEvents is how long a sink that takes nothing is waited for: an event that has waited longer is
// given up. Who becomes a mirror's coordinator repeats what has happened within it.
const HoldEvents = 10 * time.Minute

const (
	eventBatch = 500
	// eventQueueLimit bounds what one sink of one mirror may have waiting, a few MB.
	eventQueueLimit = 20_000
)

// EventDispatch tells the plugins of mirror.policy.events what happens to mirrors. Each plugin of each
// mirror has a queue and a goroutine of its own, so that one that does not answer holds up neither
// another nor whoever tells. An event is told at least once, in order for one partition.
type EventDispatch struct {
	plugins Plugins
	ledger  *Ledger
	log     *slog.Logger

	// As the constants say; tests are in more of a hurry.
	hold             time.Duration
	now              func() time.Time
	batch, limit     int
	minWait, maxWait time.Duration

	ctx    context.Context // ends the sinks
	cancel context.CancelFunc
	all    sync.WaitGroup // the sinks that run

	mu    sync.Mutex // guards the following
	sinks map[sinkKey]*eventSink
	ended bool
}

type sinkKey struct{ mirror, plugin string }

// SinkStatus is what is known of one plugin that is told of a mirror's events.
type SinkStatus struct {
	Plugin  string
	Waiting int
	GivenUp int64 // since this sidecar coordinates the mirror
	// LastTold is when it last took something, and LastError why it takes nothing now.
	LastTold  time.Time
	LastError string
}

// NewEventDispatch returns a dispatch that asks plugins for who is to be told, and writes to the ledger
// how that went.
func NewEventDispatch(plugins Plugins, ledger *Ledger, log *slog.Logger) *EventDispatch {
	ctx, cancel := context.WithCancel(context.Background())
	return &EventDispatch{
		plugins: plugins, ledger: ledger, log: log,
		hold: HoldEvents, now: time.Now, batch: eventBatch, limit: eventQueueLimit, minWait: time.Second, maxWait: time.Minute,
		ctx: ctx, cancel: cancel, sinks: map[sinkKey]*eventSink{},
	}
}

// Stop gives up what was not told, and waits for the question that is under way.
func (d *EventDispatch) Stop(ctx context.Context) error {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.all.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("events: stop: %w", ctx.Err())
	}
}

// Tell has plugins told of what happened to a mirror. It does not wait for them.
func (d *EventDispatch) Tell(q Question, plugins []string, events []*policyv1.Event) {
	if len(events) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	for _, name := range plugins {
		k := sinkKey{q.Mirror, name}
		s := d.sinks[k]
		if s == nil {
			ctx, cancel := context.WithCancel(d.ctx)
			s = &eventSink{d: d, plugin: name, end: cancel, wake: make(chan struct{}, 1), queue: eventQueue{limit: d.limit}}
			d.sinks[k] = s
			d.all.Go(func() { s.run(ctx) })
		}
		s.tell(q, events)
	}
}

// Keep ends every sink but those: a mirror that is coordinated elsewhere is told of from there. What
// they have not taken is not told from here any more, so that the order stays.
func (d *EventDispatch) Keep(plugins map[string][]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.sinks {
		if !slices.Contains(plugins[k.mirror], k.plugin) {
			s.end()
			delete(d.sinks, k)
		}
	}
}

// Status returns how a mirror's sinks are, by name. A plugin that nothing was told of yet has none.
func (d *EventDispatch) Status(mirror string) []SinkStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []SinkStatus
	for _, k := range slices.SortedFunc(maps.Keys(d.sinks), func(a, b sinkKey) int { return strings.Compare(a.plugin, b.plugin) }) {
		if k.mirror == mirror {
			out = append(out, d.sinks[k].status())
		}
	}
	return out
}

// eventSink is one plugin as it is told of one mirror.
type eventSink struct {
	d      *EventDispatch
	plugin string
	end    context.CancelFunc
	wake   chan struct{}

	mu       sync.Mutex // guards the following
	question Question   // the last: its configuration is what counts
	queue    eventQueue
	told     time.Time
	err      error
}

func (s *eventSink) tell(q Question, events []*policyv1.Event) {
	s.mu.Lock()
	s.question = q
	s.queue.add(s.d.now(), events)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *eventSink) status() SinkStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := SinkStatus{Plugin: s.plugin, Waiting: s.queue.len(), GivenUp: s.queue.total, LastTold: s.told}
	if s.err != nil {
		st.LastError = s.err.Error()
	}
	return st
}

func (s *eventSink) run(ctx context.Context) {
	defer s.end()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = s.d.minWait, s.d.maxWait
	pause.Reset()
	for ctx.Err() == nil {
		s.mu.Lock()
		req := &policyv1.NotifyRequest{Round: s.question.round()}
		req.Events, req.GivenUp = s.queue.take(s.d.batch, s.d.now().Add(-s.d.hold))
		s.mu.Unlock()
		if len(req.Events) == 0 {
			select {
			case <-ctx.Done():
			case <-s.wake:
			}
			continue
		}
		err := s.notify(ctx, req)
		if err != nil && ctx.Err() != nil {
			return
		}
		s.answered(req, err)
		if err == nil {
			pause.Reset()
			continue
		}
		t := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// notify is bounded by the plugin's own timeout, as every question is.
func (s *eventSink) notify(ctx context.Context, req *policyv1.NotifyRequest) error {
	p, err := s.d.plugins.Get(s.plugin)
	if err != nil {
		return err
	}
	_, err = p.Notify(ctx, req)
	return err
}

func (s *eventSink) answered(req *policyv1.NotifyRequest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.d.log.With("mirror", req.Round.Mirror, "plugin", s.plugin)
	switch {
	case err == nil:
		s.queue.done(req.GivenUp)
		s.told = s.d.now()
		if s.err != nil {
			log.Info("a plugin takes events again", "given_up", req.GivenUp)
		}
	case s.err == nil:
		log.Warn("a plugin does not take events; they are kept for it for a while", "hold", s.d.hold, "error", err)
	}
	s.err = err
	run := Run{Kind: Events, Plugin: s.plugin, At: s.d.now()}
	if err != nil {
		run.LastError = cut(err.Error())
	}
	if s.queue.total > 0 {
		run.Warnings = []string{fmt.Sprintf("%d events were given up: the plugin did not take them in time", s.queue.total)}
	}
	s.d.ledger.ran(req.Round.Mirror, run)
}
