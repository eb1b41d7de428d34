package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// What a plugin may cost.
const (
	// healthy: a process that has run so long begins its backoff anew when it ends.
	healthy = time.Minute
	// budgetWindow has Config.Starts; the next one waits until the oldest of them is that long ago.
	budgetWindow = 10 * time.Minute
	// concurrent calls of one plugin.
	concurrent = 8
)

// Plugin is one plugin, whether it runs or not.
type Plugin struct {
	host *Host
	cfg  config.Plugin
	// program is what is run and how it is vouched for.
	program program
	calls   chan struct{} // has a place for each call

	mu       sync.Mutex
	run      *run          // nil: does not run
	starting chan struct{} // closed when the start that goes on has ended; nil: none does
	ever     bool          // it has run before
	info     info
	backoff  *backoff.ExponentialBackOff
	next     time.Time   // not started before
	starts   []time.Time // those within budgetWindow
	restarts int64
	lastErr  error
	lastAt   time.Time
	overdue  bool // it had to be killed at the end
}

// info is what a plugin says of itself.
type info struct {
	name, version string
	kinds         []policy.Kind
}

func newPlugin(h *Host, cfg *config.Plugin) *Plugin {
	p := &Plugin{host: h, cfg: *cfg, calls: make(chan struct{}, concurrent)}
	p.cfg.Config = maps.Clone(cfg.Config)
	p.program = program{argv: cfg.Command, sha256: cfg.SHA256}
	if cfg.Name == policy.BuiltIn {
		p.program = program{argv: h.cfg.BuiltIn, own: true}
	}
	p.backoff = &backoff.ExponentialBackOff{
		InitialInterval: h.cfg.InitialBackoff, MaxInterval: h.cfg.MaxBackoff, Multiplier: 2, RandomizationFactor: 0.2,
	}
	h.metrics.up.WithLabelValues(cfg.Name)
	h.metrics.restarts.WithLabelValues(cfg.Name)
	return p
}

// Name implements policy.Plugin.
func (p *Plugin) Name() string { return p.cfg.Name }

// Kinds implements policy.Plugin.
func (p *Plugin) Kinds() []policy.Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.info.kinds)
}

// Status is what there is to know of the plugin.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{
		Name: p.cfg.Name, Title: p.info.name, Version: p.info.version, Overdue: p.overdue, Kinds: slices.Clone(p.info.kinds), Restarts: p.restarts,
		LastError: p.lastErr, LastErrorAt: p.lastAt, NextStart: p.next,
	}
	if p.run != nil && !p.run.doomed.Load() {
		s.Running, s.PID, s.NextStart = true, p.run.proc.pid, time.Time{}
	}
	return s
}

// verified tells whether the plugin may be named: it runs, and so was checked, or its program is
// the one that was vouched for.
func (p *Plugin) verified() error {
	p.mu.Lock()
	running := p.run != nil && !p.run.doomed.Load()
	p.mu.Unlock()
	if running {
		return nil
	}
	if err := p.program.verify(); err != nil {
		return fmt.Errorf("plugin %s: %w", p.cfg.Name, err)
	}
	return nil
}

// Start starts the plugin if it does not run, and returns when it does, or why it does not.
func (p *Plugin) Start(ctx context.Context) error {
	_, err := p.ready(ctx)
	return err
}

// Serves is an error unless the plugin runs and decides on a kind; it is started for that.
func (p *Plugin) Serves(ctx context.Context, k policy.Kind) error {
	r, err := p.ready(ctx)
	if err != nil {
		return err
	}
	return r.serves(k)
}

// ready returns a process of the plugin, which is started if there is none. It waits for that no
// longer than the plugin's timeout; the start goes on without whoever asked.
func (p *Plugin) ready(ctx context.Context) (*run, error) {
	timeout := time.NewTimer(p.cfg.Timeout)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		r := p.run
		if r != nil && !r.doomed.Load() {
			p.mu.Unlock()
			return r, nil
		}
		if r == nil && p.starting == nil {
			if err := p.beginStart(); err != nil {
				p.mu.Unlock()
				return nil, err
			}
		}
		change := p.starting
		if r != nil {
			change = r.over
		}
		p.mu.Unlock()
		select {
		case <-change:
		case <-timeout.C:
			return nil, fmt.Errorf("plugin %s has not started within %v yet", p.cfg.Name, p.cfg.Timeout)
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for plugin %s to start: %w", p.cfg.Name, context.Cause(ctx))
		}
		p.mu.Lock()
		err := p.lastErr
		running := p.run != nil
		p.mu.Unlock()
		if !running && err != nil {
			return nil, fmt.Errorf("plugin %s: %w", p.cfg.Name, err)
		}
	}
}

// beginStart starts the plugin in the background, unless it has to wait. p.mu is held.
func (p *Plugin) beginStart() error {
	now := time.Now()
	if wait := p.next.Sub(now); wait > 0 {
		return fmt.Errorf("plugin %s does not run, it may be started again in %v: %w", p.cfg.Name, wait.Round(100*time.Millisecond), p.lastErr)
	}
	p.starts = slices.DeleteFunc(p.starts, func(t time.Time) bool { return now.Sub(t) >= budgetWindow })
	p.starts = append(p.starts, now)
	if p.ever {
		p.restarts++
		p.host.metrics.restarts.WithLabelValues(p.cfg.Name).Inc()
	}
	p.ever = true
	starting := make(chan struct{})
	ok := p.host.own(func() {
		ctx, cancel := context.WithTimeout(p.host.ctx, p.host.cfg.StartTimeout)
		r, err := p.start(ctx)
		cancel()
		p.begun(r, err)
		close(starting)
		if err == nil {
			r.reap() // not before it is p.run: it may have ended meanwhile
		}
	})
	if !ok {
		return fmt.Errorf("plugin %s: the sidecar ends", p.cfg.Name)
	}
	p.starting = starting
	return nil
}

// begun notes what has become of a start.
func (p *Plugin) begun(r *run, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = nil
	if err != nil {
		p.failed(time.Now(), 0, err)
		return
	}
	p.run, p.info = r, r.info
	p.host.metrics.up.WithLabelValues(p.cfg.Name).Set(1)
	p.host.log.Info("plugin started", "plugin", p.cfg.Name, "pid", r.proc.pid, "version", r.info.version, "kinds", r.info.kinds)
}

// failed notes why there is no process, and when the next may be started. p.mu is held.
func (p *Plugin) failed(now time.Time, ran time.Duration, err error) {
	if errors.Is(err, context.Canceled) && p.host.ctx.Err() != nil {
		return
	}
	if ran >= healthy {
		p.backoff.Reset()
	}
	p.next = now.Add(p.backoff.NextBackOff())
	if n := p.host.cfg.Starts; len(p.starts) >= n {
		if at := p.starts[len(p.starts)-n].Add(budgetWindow); at.After(p.next) {
			p.next = at
		}
	}
	p.lastErr, p.lastAt = err, now
	p.host.log.Warn("plugin does not run; what it decided last stands", "plugin", p.cfg.Name, "error", err, "again in", p.next.Sub(now).Round(time.Millisecond))
}

// serves tells whether a process decides on a kind.
func (r *run) serves(k policy.Kind) error {
	if slices.Contains(r.info.kinds, k) {
		return nil
	}
	kinds := make([]string, 0, len(r.info.kinds))
	for _, k := range r.info.kinds {
		kinds = append(kinds, string(k))
	}
	return fmt.Errorf("plugin %s does not decide on %s, but on %s", r.plugin.cfg.Name, k, strings.Join(kinds, ", "))
}
