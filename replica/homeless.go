package replica

import (
	"context"
	"time"
)

// A sidecar coordinates what its home broker leads, and whoever asks a sidecar is sent to that one
// by the controllers' word: as long as its virtual broker is unfenced, nobody takes over. One that
// cannot reach a home broker which the others can reach is of no use to anybody, neither as a
// coordinator nor to the clients of its listeners. It has its virtual broker fenced, so that the next
// sidecar coordinates and leads.

const (
	// homeEvery is how often the home broker is asked for a sign of life, homeWait how long it has
	// for one.
	homeEvery, homeWait = 2 * time.Second, 3 * time.Second
	// homelessAgain is how long a sidecar stays that came back although it does not reach its home
	// broker, since no other was there.
	homelessAgain = 10 * time.Minute
)

// homeless decides for a sidecar that may not reach its home broker.
type homeless struct {
	since  time.Time // when the first of the present row of tries failed; zero without one
	fenced bool      // it has itself fenced
	not    time.Time // before this it does not
}

// look takes the outcome of a try. alive says that the controllers hold the home broker for alive, and
// others that another sidecar could do what this one does; patience is more than it takes the
// controllers to notice that a broker is dead. What is dead for all is no reason: its partitions
// are led, and coordinated, elsewhere by then.
func (h homeless) look(now time.Time, reached, alive, others bool, patience time.Duration) homeless {
	switch {
	case reached || !alive:
		h.since, h.fenced = time.Time{}, false
	case h.since.IsZero():
		h.since = now
	case h.fenced && !others:
		// Perhaps they do not reach theirs either. Somebody has to lead.
		h.fenced, h.not = false, now.Add(homelessAgain)
	case !h.fenced:
		h.fenced = others && now.Sub(h.since) > patience && !now.Before(h.not)
	}
	return h
}

// watchHome asks the home broker for signs of life until the broker's life ends.
func (b *Broker) watchHome() {
	t := time.NewTicker(min(homeEvery, b.cfg.SessionTimeout/4))
	defer t.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(b.life, min(homeWait, b.cfg.SessionTimeout/3))
		err := b.cfg.Home(ctx)
		cancel()
		if b.life.Err() != nil {
			return
		}
		b.lookHome(time.Now(), err)
	}
}

// homePatience is more than it takes the controllers to notice that a broker is dead.
func (c BrokerConfig) homePatience() time.Duration {
	return max(c.SessionTimeout, c.HomeSession) * 4 / 3
}

func (b *Broker) lookHome(now time.Time, err error) {
	home, ok := b.img.Broker(b.cfg.HomeID)
	alive := ok && !home.Fenced
	others := false
	for _, o := range b.img.Brokers() {
		others = others || o.ID != b.id && b.cfg.Virtual.Is(o.ID) && !o.Fenced && !o.ShuttingDown
	}
	patience := b.cfg.homePatience()
	b.mu.Lock()
	was := b.homeless
	// What the image says of the others counts only while controllers are there to say it, and for as
	// long: after an outage of everything the brokers come back one by one.
	known := !b.answeredSince.IsZero() && now.Sub(b.answeredSince) > patience
	b.homeless = was.look(now, err == nil, alive && known, others, patience)
	is := b.homeless
	b.mu.Unlock()
	switch {
	case is.fenced && !was.fenced:
		b.log.Warn("the home broker is alive, but this sidecar does not reach it: another one takes over", "home", b.cfg.HomeID, "since", is.since, "error", err)
	case was.fenced && !is.fenced && err != nil && alive:
		b.log.Warn("the home broker is not reached, but there is no other sidecar to take over", "home", b.cfg.HomeID, "error", err)
	case was.fenced && !is.fenced:
		b.log.Info("the home broker is reached again, or dead", "home", b.cfg.HomeID)
	default:
		return
	}
	b.beatNow()
}
