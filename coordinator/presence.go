package coordinator

import (
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// goneGrace: a virtual broker that is gone for less is being restarted. Replacing it costs
	// more than waiting, as long as nothing stands still without it.
	// With a real leader nothing is mirrored until one is back, and after all of them were gone
	// the first one would get everything.
	goneGrace, realGrace = 5 * time.Second, 2 * time.Second
	// electAfter is how long a preferred leader must have been alive before it is elected, and
	// moveAfter before partitions are moved to it.
	electAfter, moveAfter = 3 * time.Second, 6 * time.Second
	// flapWindow is how long a return is remembered. Each one of late doubles what is waited
	// after the next, up to flapDoublings times: who comes and goes leads little.
	flapWindow    = 10 * time.Minute
	flapDoublings = 5
)

// presence is what was seen of the comings and goings of one virtual broker.
type presence struct {
	live    bool
	epoch   int64 // of its registration, -1 without one
	since   time.Time
	returns []time.Time // of late
}

// see takes note of what the metadata log says now.
func (p presence) see(now time.Time, known bool, b metadata.Broker, registered bool) presence {
	live, epoch := registered && !b.Fenced && !b.ShuttingDown, int64(-1)
	if registered {
		epoch = b.Epoch
	}
	switch {
	case !known:
		return presence{live: live, epoch: epoch, since: now}
	case p.live && live && p.epoch == epoch:
		return p
	case live:
		// Also one that registered anew between two looks.
		var late []time.Time
		for _, t := range append(p.returns, now) {
			if now.Sub(t) < flapWindow {
				late = append(late, t)
			}
		}
		return presence{live: true, epoch: epoch, since: now, returns: late}
	case p.live || epoch > p.epoch:
		// Gone; or a new process has registered and is on its way.
		p.since = now
	}
	p.live, p.epoch = false, max(p.epoch, epoch)
	return p
}

// gone tells how long it has not been alive, 0 of one that is.
func (p presence) gone(now time.Time) time.Duration {
	if p.live {
		return 0
	}
	return now.Sub(p.since)
}

// there tells whether it is alive, or was a moment ago.
func (p presence) there(now time.Time) bool { return p.live || p.gone(now) < goneGrace }

// settles tells of one that is alive how long it has to stay so before it is relied on, where
// one that never went has to for base; 0 if it is.
func (p presence) settles(now time.Time, base time.Duration) time.Duration {
	doublings := 0
	for _, t := range p.returns {
		if now.Sub(t) < flapWindow {
			doublings++
		}
	}
	// The first return is no flapping yet.
	wait := base << min(max(doublings-1, 0), flapDoublings)
	return max(wait-now.Sub(p.since), 0)
}

// trust is how much it is relied on for a placement.
func (p presence) trust(now time.Time) trust {
	switch {
	case p.settles(now, moveAfter) == 0:
		return steady
	case len(p.returns) > 1:
		return shaky
	}
	return fresh
}
