package host

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// maxLine of what a plugin says is kept, and linesPerPeriod lines in a period.
	maxLine        = 1024
	linesPerPeriod = 100
	linesPeriod    = 10 * time.Second
)

// lines is what a plugin says: its standard output and error, on their way to the log.
type lines struct {
	log  *slog.Logger
	name string

	mu      sync.Mutex
	began   time.Time // of the period
	count   int       // lines in it
	dropped int
	newest  string
}

func newLines(log *slog.Logger, plugin string) *lines { return &lines{log: log, name: plugin} }

// writer returns one that lines are written to in pieces. Each stream needs its own.
func (l *lines) writer() io.Writer { return &lineWriter{to: l} }

// last is the last line, which often says why a program ended.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clip(l.newest, 300)
}

func (l *lines) add(line string) {
	line = printable(strings.TrimSpace(line))
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = line
	now := time.Now()
	if now.Sub(l.began) >= linesPeriod {
		if l.dropped > 0 {
			l.log.Warn("plugin says more than is kept", "plugin", l.name, "lines left out", l.dropped)
		}
		l.began, l.count, l.dropped = now, 0, 0
	}
	if l.count++; l.count > linesPerPeriod {
		l.dropped++
		return
	}
	l.log.Info("plugin says", "plugin", l.name, "text", line)
}

type lineWriter struct {
	to  *lines
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer. It never fails: a plugin that cannot write would end.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range p {
		switch {
		case b == '\n':
			w.to.add(string(w.buf))
			w.buf = w.buf[:0]
		case len(w.buf) < maxLine:
			w.buf = append(w.buf, b)
		}
	}
	return len(p), nil
}
