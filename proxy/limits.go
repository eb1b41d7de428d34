package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// DefaultMaxConnections bounds the connections of a process whose configuration does not.
const DefaultMaxConnections = 20000

// LimitsConfig bounds the connections of one or more listeners together. Zero values bound
// nothing, but for Total, which then is DefaultMaxConnections.
type LimitsConfig struct {
	// Total bounds the connections that are open (max.connections).
	Total int
	// PerIP bounds those of one address (max.connections.per.ip), PerIPOverrides those of
	// addresses that have a bound of their own. The broker cannot: it sees the sidecar's.
	// 0 is a bound, as it is with a broker: nobody comes in but who has an own.
	PerIP          *int
	PerIPOverrides map[netip.Addr]int
	// Rate bounds how many are accepted in a second (max.connection.creation.rate). More wait.
	Rate int
}

// Limits counts the connections of the listeners that share it.
type Limits struct {
	cfg LimitsConfig

	mu   sync.Mutex // guards the following
	open int
	byIP map[netip.Addr]int
	next time.Time // when the next connection may be accepted, with a second's worth of them saved up
}

// NewLimits returns limits with no connection counted.
func NewLimits(cfg LimitsConfig) *Limits {
	cfg.Total = cmpDefault(cfg.Total, DefaultMaxConnections)
	return &Limits{cfg: cfg, byIP: make(map[netip.Addr]int)}
}

// Why a connection is refused, as metrics count it.
const (
	refusedTotal = "max_connections"
	refusedPerIP = "max_connections_per_ip"
)

// admit counts a connection, unless one more is too many: refused says which limit there is.
func (l *Limits) admit(from net.Addr) (refused string) {
	ip := ipOf(from)
	most, own := l.cfg.PerIPOverrides[ip]
	if !own && l.cfg.PerIP != nil {
		most, own = *l.cfg.PerIP, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case own && l.byIP[ip] >= most:
		return refusedPerIP
	case l.open >= l.cfg.Total:
		return refusedTotal
	}
	l.open++
	l.byIP[ip]++
	return ""
}

// release takes an admitted connection off the count.
func (l *Limits) release(from net.Addr) {
	ip := ipOf(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byIP[ip]--; l.byIP[ip] == 0 {
		delete(l.byIP, ip)
	}
}

// pace waits until one more connection may be accepted: those that come faster than Rate wait
// in the kernel's queue, as they do with a broker. After a quiet second, a second's worth
// goes through at once.
func (l *Limits) pace(ctx context.Context) error {
	if l.cfg.Rate <= 0 {
		return ctx.Err()
	}
	l.mu.Lock()
	now := time.Now()
	if saved := now.Add(-time.Second); l.next.Before(saved) {
		l.next = saved
	}
	l.next = l.next.Add(time.Second / time.Duration(l.cfg.Rate))
	wait := l.next.Sub(now)
	l.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ipOf returns the address of a peer, the zero one if it has none.
func ipOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
