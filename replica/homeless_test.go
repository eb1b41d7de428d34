package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	rec "github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
)

func TestHomelessLook(t *testing.T) {
	type look struct {
		after                  time.Duration // since the look before
		reached, alive, others bool
		fenced                 bool
	}
	const patience = 12 * time.Second
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"it is reached", []look{{0, true, true, true, false}, {time.Minute, true, true, true, false}}},
		{"for a moment it is not", []look{{0, false, true, true, false}, {10 * time.Second, false, true, true, false}, {time.Second, true, true, true, false}, {10 * time.Second, false, true, true, false}}},
		{"it is not for longer than it takes to notice a death", []look{{0, false, true, true, false}, {12 * time.Second, false, true, true, false}, {time.Second, false, true, true, true}, {time.Minute, false, true, true, true}, {time.Second, true, true, true, false}}},
		{"it is dead", []look{{0, false, true, true, false}, {9 * time.Second, false, false, true, false}, {time.Minute, false, false, true, false}}},
		{"it comes back, and still is not reached", []look{{0, false, true, true, false}, {9 * time.Second, false, false, true, false}, {time.Minute, false, true, true, false}, {11 * time.Second, false, true, true, false}, {2 * time.Second, false, true, true, true}}},
		{"it dies when it was not reached already", []look{{0, false, true, true, false}, {13 * time.Second, false, true, true, true}, {time.Second, false, false, true, false}}},
		{"nobody else is there", []look{{0, false, true, false, false}, {time.Minute, false, true, false, false}, {time.Second, false, true, true, true}}},
		{"the others go too", []look{{0, false, true, true, false}, {13 * time.Second, false, true, true, true}, {time.Second, false, true, false, false}, {time.Minute, false, true, true, false}, {9 * time.Minute, false, true, true, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, now := homeless{}, time.Unix(1e9, 0)
			for i, l := range c.looks {
				now = now.Add(l.after)
				if h = h.look(now, l.reached, l.alive, l.others, patience); h.fenced != l.fenced {
					t.Fatalf("look %d: fenced %t", i, h.fenced)
				}
			}
		})
	}
}

// TestBrokerWithoutItsHome: one that does not reach its home broker has itself fenced, so that
// another sidecar takes over, and comes back when it reaches it, or when no other is left.
func TestBrokerWithoutItsHome(t *testing.T) {
	t.Parallel()
	r := newRig(t, 33)
	other := rec.NewRegisterBrokerRecord()
	other.BrokerID, other.LogDirs, other.Fenced = 10002, []ids.UUID{{2}}, false
	home := rec.NewBrokerRegistrationChangeRecord()
	home.BrokerID, home.Fenced = homeID, -1
	r.f.set(func() {
		r.f.append(&other)
		r.f.append(&home)
	})
	var away atomic.Bool
	r.cfg.SessionTimeout = time.Second
	r.cfg.Home = func(context.Context) error {
		if away.Load() {
			return errors.New("no route")
		}
		return nil
	}
	r.started(t)
	fenced := func(want bool) func() bool {
		return func() bool { return r.f.brokers[virtualID].fenced == want }
	}
	away.Store(true)
	r.f.until("fenced", fenced(true))
	away.Store(false)
	r.f.until("back", fenced(false))
	away.Store(true)
	r.f.until("fenced again", fenced(true))
	gone := rec.NewBrokerRegistrationChangeRecord()
	gone.BrokerID, gone.Fenced = 10002, 1
	r.f.set(func() { r.f.append(&gone) })
	r.f.until("back since nobody else is there", fenced(false))
}

// TestHomeIsWaitedForLongerThanADeathTakes: controllers that take longer to notice that the home broker
// is dead do so before its sidecar gives up on it.
func TestHomeIsWaitedForLongerThanADeathTakes(t *testing.T) {
	for told, want := range map[time.Duration]time.Duration{
		0: 12 * time.Second, 3 * time.Second: 12 * time.Second, 30 * time.Second: 40 * time.Second,
	} {
		if got := (BrokerConfig{HomeSession: told}).withDefaults().homePatience(); got != want {
			t.Errorf("told %v: waits %v, want %v", told, got, want)
		}
	}
}
