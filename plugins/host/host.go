package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// Config of a host.
type Config struct {
	// Plugins by name. One without a SHA-256 is run unchecked: configurations of sidecars have none
	// such, the conformance kit has.
	Plugins map[string]*config.Plugin
	// BuiltIn is the command of the built-in plugin.
	BuiltIn []string
	// Folder is where plugins' sockets, and copies of their programs, are if there is no folder for
	// temporary files; empty: nowhere.
	Folder string
	// Version is told to plugins.
	Version string
	// StartTimeout bounds a start; those who ask wait for it no longer than the plugin's timeout.
	StartTimeout time.Duration
	// InitialBackoff and MaxBackoff are between the end of a process and the next start.
	InitialBackoff, MaxBackoff time.Duration
	// Starts that a plugin may have within ten minutes.
	Starts int
}

// Defaults of Config.
const (
	DefaultStartTimeout   = 30 * time.Second
	DefaultInitialBackoff = 500 * time.Millisecond
	DefaultMaxBackoff     = time.Minute
	DefaultStarts         = 15
)

// Host has the plugins of a sidecar.
type Host struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	plugins map[string]*Plugin

	ctx   context.Context
	end   context.CancelFunc
	owned sync.WaitGroup // everything that runs for a plugin
	swept sync.Once      // what killed processes have left behind

	mu    sync.Mutex // guards ended, so that nothing is added to owned once it is waited for
	ended bool
}

// New returns a host that has started nothing.
func New(cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Host, error) {
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = DefaultStartTimeout
	}
	if cfg.InitialBackoff == 0 {
		cfg.InitialBackoff = DefaultInitialBackoff
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = DefaultMaxBackoff
	}
	if cfg.Starts == 0 {
		cfg.Starts = DefaultStarts
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("metrics of plugins: %w", err)
	}
	h := &Host{cfg: cfg, log: log, metrics: m, plugins: map[string]*Plugin{}}
	h.ctx, h.end = context.WithCancel(context.Background())
	for name, p := range cfg.Plugins {
		h.plugins[name] = newPlugin(h, p)
	}
	if _, ok := h.plugins[policy.BuiltIn]; !ok && len(cfg.BuiltIn) > 0 {
		h.plugins[policy.BuiltIn] = newPlugin(h, &config.Plugin{Name: policy.BuiltIn, Timeout: 5 * time.Second})
	}
	return h, nil
}

// Get implements policy.Plugins.
func (h *Host) Get(name string) (policy.Plugin, error) {
	p, ok := h.plugins[name]
	if !ok {
		return nil, fmt.Errorf("there is no plugin %q; this sidecar has %s (plugin.<name>.command)", name, strings.Join(slices.Sorted(maps.Keys(h.plugins)), ", "))
	}
	if err := p.verified(); err != nil {
		return nil, err
	}
	return p, nil
}

// Status is what there is to know of a plugin.
type Status struct {
	Name    string
	Running bool
	PID     int
	// Title, Version and Kinds are what the plugin says of itself, empty before it has run.
	Title, Version string
	Kinds          []policy.Kind
	// Restarts are its starts but the first.
	Restarts int64
	// LastError is why it was ended last, or could not be started; zero NextStart: it may be started
	// at any time.
	LastError   error
	LastErrorAt time.Time
	NextStart   time.Time
	// Overdue: it has not ended when it was told to, at the end of the host.
	Overdue bool
}

// Status returns that of all plugins, by name.
func (h *Host) Status() []Status {
	var out []Status
	for _, name := range slices.Sorted(maps.Keys(h.plugins)) {
		out = append(out, h.plugins[name].Status())
	}
	return out
}

// Stop ends all plugins and waits until they are gone.
func (h *Host) Stop(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.end()
	done := make(chan struct{})
	go func() {
		h.owned.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the plugins: %w", ctx.Err())
	}
}

// own runs something that Stop waits for; false: the host has ended.
func (h *Host) own(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.owned.Go(f)
	return true
}
