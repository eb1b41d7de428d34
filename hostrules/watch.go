package hostrules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/periodic"
)

const (
	// lookTimeout bounds one look.
	lookTimeout = 20 * time.Second
	// shown is how many rules are listed; the rest is counted.
	shown = 20
)

// Config of a Watch.
type Config struct {
	// Home is asked: the broker of this id, at whose listeners of these names clients come
	// through the proxy.
	Home      requester
	Broker    int32
	Listeners []string
	// Every is how often.
	Every time.Duration
	// Ignored says that rules keep nobody from being ready.
	Ignored bool
}

// Watch looks for rules again and again.
type Watch struct {
	*periodic.Loop
	cfg Config
	log *slog.Logger

	mu     sync.Mutex // guards the following
	looked bool
	last   answers
	found  []string // by last
	failed error    // of the last look
}

// NewWatch returns a watch that does not look yet.
func NewWatch(cfg Config, log *slog.Logger) *Watch {
	w := &Watch{cfg: cfg, log: log}
	w.Loop = periodic.New(cfg.Every, w.look)
	return w
}

func (w *Watch) look(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	all := find(once, w.cfg.Home, w.cfg.Broker, w.cfg.Listeners)
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all.keep(&w.last)
	found := all.rules()
	if !slices.Equal(found, w.found) {
		w.log.Warn("rules by the address of clients have changed; brokers see the address of the sidecar", "rules", list(found), "ignored", w.cfg.Ignored)
	}
	w.looked, w.last, w.found, w.failed = true, all, found, all.failed()
}

// Ready returns the list of rules as an error, unless they are ignored.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cfg.Ignored:
		return nil
	case !w.looked:
		return errors.New("not looked for yet")
	case len(w.found) > 0:
		return fmt.Errorf("brokers decide by the address of clients, and see the sidecar's; take these rules away, or start with --allow-host-rules-ignored: %s", list(w.found))
	}
	return nil
}

// Warn returns what does not keep the sidecar from being ready.
func (w *Watch) Warn() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Ignored && len(w.found) > 0 {
		return fmt.Errorf("ignored, though brokers see the sidecar's address: %s", list(w.found))
	}
	return w.failed
}

func list(found []string) string {
	if more := len(found) - shown; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(found[:shown], "; "), more)
	}
	return strings.Join(found, "; ")
}
