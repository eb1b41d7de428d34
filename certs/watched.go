package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// checkEvery is how old what is known of the files may be at a handshake.
	checkEvery = time.Second
	// expiresSoon is from when on the end of a certificate is warned of, once a day; of those
	// that are replaced every few days, from the last quarter of their life on.
	expiresSoon = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// Source says where settings come from.
type Source struct {
	// Name says whose they are, in logs.
	Name string
	// Files are the files that Load reads; nil if it reads none.
	Files func() []string
	// Stamp changes when anything else does that Load goes by, such as a password; nil if there is
	// nothing else.
	Stamp func() string
	// Load builds the settings. What it returns is not changed any more.
	Load func() (*tls.Config, error)
	// Brief says that settings of the source are made again and again: what is well is not told.
	Brief bool
}

// Watched holds the settings of a source.
type Watched struct {
	src Source
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex // guards the following
	current *tls.Config
	leaf    *x509.Certificate
	stamp   string
	checked time.Time
	warned  time.Time
}

// New loads the settings for the first time.
func New(src Source, log *slog.Logger) (*Watched, error) {
	return newWatched(src, log, time.Now)
}

func newWatched(src Source, log *slog.Logger, now func() time.Time) (*Watched, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Watched{src: src, log: log.With("tls", src.Name), now: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Looked at before they are read: what changes in between is seen at the next look.
	w.stamp, w.checked = src.stamp(), now()
	if err := w.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", src.Name, err)
	}
	return w, nil
}

// Config returns the settings as of now. They are the same as long as the files are, so
// that sessions can be resumed.
func (w *Watched) Config() *tls.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Sub(w.checked) >= checkEvery {
		w.checked = now
		w.reload()
	}
	w.warnOfEnd(now)
	return w.current
}

// Server returns settings for a listener: each handshake is made with those of its time.
func (w *Watched) Server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.Config(), nil },
	}
}

// Leaf returns the certificate that is shown to the other side, nil if there is none.
func (w *Watched) Leaf() *x509.Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaf
}

func (w *Watched) reload() {
	stamp := w.src.stamp()
	if stamp == w.stamp {
		return
	}
	// A pair of which half is written as yet cannot be used; the other half changes the files
	// again.
	w.stamp = stamp
	if err := w.load(); err != nil {
		w.log.Error("changed files cannot be used; what was read before stays in force", "files", w.src.files(), "error", err)
	}
}

func (w *Watched) load() error {
	cfg, err := w.src.Load()
	if err != nil {
		return err
	}
	var leaf *x509.Certificate
	if len(cfg.Certificates) > 0 {
		if leaf, err = leafOf(&cfg.Certificates[0]); err != nil {
			return err
		}
	}
	w.current, w.leaf, w.warned = cfg, leaf, time.Time{}
	if leaf != nil && !w.src.Brief {
		w.log.Info("certificate read", "subject", Principal(leaf), "names", leaf.DNSNames, "addresses", leaf.IPAddresses, "expires", leaf.NotAfter.UTC())
	}
	return nil
}

func (w *Watched) warnOfEnd(now time.Time) {
	if w.leaf == nil || w.src.Brief || now.Sub(w.warned) < warnEvery {
		return
	}
	soon := min(expiresSoon, w.leaf.NotAfter.Sub(w.leaf.NotBefore)/4)
	if now.Before(w.leaf.NotAfter.Add(-soon)) && !now.Before(w.leaf.NotBefore) {
		return
	}
	w.warned = now
	attrs := []any{"subject", Principal(w.leaf), "expires", w.leaf.NotAfter.UTC()}
	switch {
	case now.Before(w.leaf.NotBefore):
		w.log.Error("the certificate is not valid yet: others refuse it", append(attrs, "from", w.leaf.NotBefore.UTC())...)
	case now.After(w.leaf.NotAfter):
		w.log.Error("the certificate has expired: others refuse it", attrs...)
	default:
		w.log.Warn("the certificate expires soon", attrs...)
	}
}

func leafOf(c *tls.Certificate) (*x509.Certificate, error) {
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return leaf, nil
}

func (s Source) files() []string {
	if s.Files == nil {
		return nil
	}
	return s.Files()
}

// stamp changes when what Load reads does.
func (s Source) stamp() string {
	out := stampOf(s.files())
	if s.Stamp != nil {
		out += s.Stamp()
	}
	return out
}

// stampOf changes when one of the files does. A link is followed, so that a swap of what
// it points to is seen.
func stampOf(files []string) string {
	var s string
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			s += fmt.Sprintf("%s: %v\n", f, err)
			continue
		}
		s += fmt.Sprintf("%s: %d %d %v\n", f, info.Size(), info.ModTime().UnixNano(), inode(info))
	}
	return s
}
