package links

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"
)

const (
	dialTimeout = 10 * time.Second
	// changeLimit is how long connections may take to let a delay be put into their way. One whose
	// reader has stopped cannot, and is reset.
	changeLimit = 5 * time.Second
)

// Link is all connections of one party to another. Its faults add up until Restore.
type Link struct {
	From, To string

	toxics *toxiproxy.ToxicCollection
	server *toxiproxy.ApiServer
	change sync.Mutex // one change of the toxics at a time

	mu      sync.Mutex
	cut     bool
	hold    chan struct{} // open: data flows; else closed by Restore
	half    bool
	limit   int64 // bytes after which a connection is reset, 0: never
	pairs   map[*pair]struct{}
	counter int

	up, down              atomic.Int64
	opened, resets, turns atomic.Int64
}

// Stats of a link since it was made.
type Stats struct {
	Open           int   // connections now
	Opened         int64 // connections ever
	Reset, Refused int64 // connections reset by a fault; turned away by Cut
	Up, Down       int64 // bytes from the caller; to the caller
}

func newLink(from, to string) *Link {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, from+" to "+to, "", to)
	return &Link{From: from, To: to, server: server, toxics: p.Toxics, pairs: map[*pair]struct{}{}}
}

func (l *Link) String() string { return l.From + " to " + l.To }

// Cut resets every connection, and each new one at once: as if the other machine's process were
// gone. (The caller's connect succeeds all the same: only then is known who calls.)
func (l *Link) Cut() {
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	l.ResetNow()
}

// ResetNow resets the connections that are open and lets new ones through.
func (l *Link) ResetNow() {
	for _, p := range l.open() {
		l.resets.Add(1)
		p.reset()
	}
}

// Blackhole lets nothing pass, as a network partition does: connections stay open, new ones are
// accepted, and no end is told to the other. After Restore everything held goes on its way.
func (l *Link) Blackhole() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		l.hold = make(chan struct{})
	}
}

// HalfOpen is Blackhole for good: what is open now, or is opened before Restore, never carries
// anything again, as when the peer's machine vanished without a word. It ends when the caller closes.
func (l *Link) HalfOpen() {
	l.Blackhole()
	l.mu.Lock()
	l.half = true
	l.mu.Unlock()
	for _, p := range l.open() {
		p.dead.Store(true)
	}
}

// ResetAfter resets each connection, the open ones too, when it has carried that many bytes from now.
func (l *Link) ResetAfter(bytes int64) {
	l.mu.Lock()
	l.limit = bytes
	l.mu.Unlock()
	for _, p := range l.open() {
		p.carried.Store(0)
		p.limit.Store(bytes)
	}
}

// Latency delays data by d in each direction, give or take jitter.
func (l *Link) Latency(d, jitter time.Duration) error {
	return l.toxic("latency", fmt.Sprintf(`{"latency":%d,"jitter":%d}`, d.Milliseconds(), jitter.Milliseconds()))
}

// Bandwidth bounds what passes in each direction, of each connection.
func (l *Link) Bandwidth(bytesPerSecond int64) error {
	return l.toxic("bandwidth", fmt.Sprintf(`{"rate":%d}`, max(1, bytesPerSecond>>10)))
}

// Slice cuts data into pieces of about that size, with a pause after each.
func (l *Link) Slice(bytes int, pause time.Duration) error {
	return l.toxic("slicer", fmt.Sprintf(`{"average_size":%d,"size_variation":%d,"delay":%d}`, bytes, bytes/2, pause.Microseconds()))
}

// Restore ends all faults. What Blackhole held goes on; what HalfOpen silenced stays silent.
func (l *Link) Restore() {
	l.mu.Lock()
	l.cut, l.half, l.limit = false, false, 0
	hold := l.hold
	l.hold = nil
	l.mu.Unlock()
	if hold != nil {
		close(hold)
	}
	for _, p := range l.open() {
		p.limit.Store(0)
	}
	l.changing(func() { l.toxics.ResetToxics(context.Background()) })
}

// Stats tells what passed.
func (l *Link) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Open: len(l.pairs), Opened: l.opened.Load(), Reset: l.resets.Load(), Refused: l.turns.Load(),
		Up: l.up.Load(), Down: l.down.Load(),
	}
}

// toxic puts toxiproxy's delay of that kind into both directions, instead of an earlier one.
func (l *Link) toxic(kind, attributes string) error {
	var err error
	l.changing(func() {
		for _, dir := range []string{"upstream", "downstream"} {
			name := kind + "_" + dir
			if l.toxics.GetToxic(name) != nil {
				if err = l.toxics.RemoveToxic(context.Background(), name); err != nil {
					return
				}
			}
			text := fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":%s}`, kind, dir, attributes)
			if _, err = l.toxics.AddToxicJson(strings.NewReader(text)); err != nil {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("link %s: %s: %w", l, kind, err)
	}
	return nil
}

// changing does what needs every connection to pause for a moment. The connections that will not
// are reset.
func (l *Link) changing(change func()) {
	l.change.Lock()
	defer l.change.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		change()
	}()
	timer := time.NewTimer(changeLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		l.ResetNow()
		<-done
	}
}

func (l *Link) open() []*pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*pair, 0, len(l.pairs))
	for p := range l.pairs {
		out = append(out, p)
	}
	return out
}

// serve carries one connection to its end.
func (l *Link) serve(client *net.TCPConn, upstream string) {
	p := &pair{link: l, client: client, done: make(chan struct{})}
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		l.turns.Add(1)
		reset(client)
		return
	}
	l.counter++
	name := fmt.Sprintf("%d", l.counter)
	p.limit.Store(l.limit)
	p.dead.Store(l.half)
	l.pairs[p] = struct{}{}
	l.mu.Unlock()
	l.opened.Add(1)
	defer func() {
		l.mu.Lock()
		delete(l.pairs, p)
		l.mu.Unlock()
	}()

	// A partition lets no connection through either: whoever is called hears of it after Restore.
	if !p.pass() {
		reset(client)
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	c, err := dialer.Dial("tcp", upstream)
	if err != nil {
		reset(client)
		return
	}
	if !p.connected(c.(*net.TCPConn)) {
		return
	}
	p.halves.Add(2)
	l.toxics.StartLink(l.server, name+"up", &half{pair: p, from: client, count: &l.up}, &half{pair: p, to: p.server}, stream.Upstream)
	l.toxics.StartLink(l.server, name+"down", &half{pair: p, from: p.server, count: &l.down}, &half{pair: p, to: client}, stream.Downstream)
	p.halves.Wait()
}

// Links is several links as one.
type Links []*Link

func (ls Links) each(do func(l *Link) error) error {
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() { errs[i] = do(l) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (ls Links) all(do func(l *Link)) {
	_ = ls.each(func(l *Link) error { do(l); return nil })
}

// Cut is [Link.Cut] of each.
func (ls Links) Cut() { ls.all((*Link).Cut) }

// ResetNow is [Link.ResetNow] of each.
func (ls Links) ResetNow() { ls.all((*Link).ResetNow) }

// Blackhole is [Link.Blackhole] of each.
func (ls Links) Blackhole() { ls.all((*Link).Blackhole) }

// HalfOpen is [Link.HalfOpen] of each.
func (ls Links) HalfOpen() { ls.all((*Link).HalfOpen) }

// ResetAfter is [Link.ResetAfter] of each.
func (ls Links) ResetAfter(bytes int64) { ls.all(func(l *Link) { l.ResetAfter(bytes) }) }

// Latency is [Link.Latency] of each.
func (ls Links) Latency(d, jitter time.Duration) error {
	return ls.each(func(l *Link) error { return l.Latency(d, jitter) })
}

// Bandwidth is [Link.Bandwidth] of each.
func (ls Links) Bandwidth(bytesPerSecond int64) error {
	return ls.each(func(l *Link) error { return l.Bandwidth(bytesPerSecond) })
}

// Slice is [Link.Slice] of each.
func (ls Links) Slice(bytes int, pause time.Duration) error {
	return ls.each(func(l *Link) error { return l.Slice(bytes, pause) })
}

// Restore is [Link.Restore] of each.
func (ls Links) Restore() { ls.all((*Link).Restore) }

// Stats is the sum.
func (ls Links) Stats() Stats {
	var sum Stats
	for _, l := range ls {
		s := l.Stats()
		sum.Open += s.Open
		sum.Opened += s.Opened
		sum.Reset += s.Reset
		sum.Refused += s.Refused
		sum.Up += s.Up
		sum.Down += s.Down
	}
	return sum
}
