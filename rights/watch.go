package rights

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/periodic"
)

const (
	// lookTimeout bounds one look.
	lookTimeout = 20 * time.Second
	// shown is how many missing rights are listed; the rest is counted.
	shown = 10
)

// WatchConfig says what a Watch looks for.
type WatchConfig struct {
	// Asker is asked, under the identity that Principal names for the commands.
	Asker     Asker
	Principal string
	// What is done at the destination as of now.
	What func() Destination
	// Every is how often it is looked.
	Every time.Duration
}

// Watch looks again and again whether the sidecar has all the rights that it needs, so that one which
// was never granted, or was taken away, is told before something fails for the want of it.
type Watch struct {
	*periodic.Loop
	cfg WatchConfig
	log *slog.Logger

	mu      sync.Mutex // guards the following
	missing string
	failed  error // of the last look
}

// NewWatch returns a watch that does not look yet.
func NewWatch(cfg WatchConfig, log *slog.Logger) *Watch {
	w := &Watch{cfg: cfg, log: log}
	w.Loop = periodic.New(cfg.Every, w.look)
	return w
}

func (w *Watch) look(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	d := w.cfg.What()
	missing, err := d.Missing(once, w.cfg.Asker)
	if ctx.Err() != nil {
		return
	}
	text := w.text(missing)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
	if err != nil && text == "" {
		return // what is missing is not known
	}
	switch {
	case text == w.missing:
	case text == "":
		w.log.Info("the sidecar has all rights that it needs")
	default:
		w.log.Error("the sidecar lacks rights", "missing", text)
	}
	w.missing = text
}

// text names what is missing, for what, and the command that grants each.
func (w *Watch) text(missing []Need) string {
	var b strings.Builder
	for i, n := range missing {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(missing)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s, for %s: %s", n, n.For, n.Grant(w.cfg.Principal))
	}
	return b.String()
}

// Warn returns the rights that are missing as an error. They keep no sidecar from being ready: what
// it can do without them it does, and clients of ordinary topics need none of them.
func (w *Watch) Warn() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing != "" {
		return fmt.Errorf("%s lacks %s", w.cfg.Principal, w.missing)
	}
	return w.failed
}
