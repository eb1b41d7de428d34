package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// link breaks the network between some parties. With an even Pick[1] connections are reset, else
// nothing passes and nobody is told.
func (b *blow) link(ctx context.Context) error {
	c := b.dest.Sidecars[int(b.plan.Pick[0]%uint32(len(b.dest.Sidecars)))]
	var pairs [][2]string
	hold := b.plan.Hold
	silent := b.plan.Pick[1]%2 == 1
	switch b.plan.Kind {
	case linkSourceCut, linkSourceSlow, linkSourceDead:
		pairs = [][2]string{{"sidecar-*", "source-*"}}
		hold += 3 * time.Second
	case linkController:
		pairs = [][2]string{{c.Party(), "controller.destination-*"}}
		hold += session
	case linkHome:
		pairs = [][2]string{{c.Party(), fmt.Sprintf("destination-%d", c.Broker)}}
		hold += 3 * time.Second
	case linkPeers:
		for _, o := range b.dest.Sidecars {
			if o != c {
				pairs = append(pairs, [2]string{c.Party(), o.Party()}, [2]string{o.Party(), c.Party()})
			}
		}
		hold += 3 * time.Second
	case linkVirtual:
		pairs = [][2]string{{"destination-*", c.Party()}}
		hold += 3 * time.Second
	}
	var all links.Links
	for _, p := range pairs {
		ls, err := b.fabric.Between(p[0], p[1])
		if err != nil {
			return fmt.Errorf("%w: %w", errNotNow, err)
		}
		all = append(all, ls...)
	}
	return b.breakLinks(ctx, c, all, pairs, silent, hold)
}

// inFlight is more than what passes a link that was silenced, and less than what it carries else.
const inFlight = 8 << 10

func (b *blow) breakLinks(ctx context.Context, c *stack.Sidecar, all links.Links, pairs [][2]string, silent bool, hold time.Duration) error {
	before := all.Stats()
	defer all.Restore()
	how := "reset"
	switch {
	case b.plan.Kind == linkSourceSlow:
		how = "250 ms late, in pieces, reset every 30 kB"
		if err := errors.Join(all.Latency(250*time.Millisecond, 100*time.Millisecond), all.Slice(1000, time.Millisecond)); err != nil {
			return err
		}
		all.ResetAfter(30_000)
	case b.plan.Kind == linkSourceDead:
		how = "half-open"
		all.HalfOpen()
	case silent:
		how = "silent"
		all.Blackhole()
	default:
		all.Cut()
	}
	if err := b.hold(ctx, hold, b.notices(c)); err != nil {
		return err
	}
	during := all.Stats()
	all.Restore()
	b.note("%v %s for %s: %d connections reset, %d refused, %d bytes passed",
		pairs, how, hold.Round(100*time.Millisecond), during.Reset-before.Reset, during.Refused-before.Refused, during.Up+during.Down-before.Up-before.Down)
	touched := during.Reset-before.Reset+during.Refused-before.Refused > 0
	if b.plan.Kind == linkSourceDead || b.plan.Kind != linkSourceSlow && silent {
		// What was on its way may still have passed.
		touched = before.Open+during.Open > 0 && during.Up+during.Down-before.Up-before.Down < inFlight
	}
	if !touched {
		return fmt.Errorf("%w: nobody used the link", errNotNow)
	}
	return nil
}

// notices tells what the destination makes of it, where that can be seen from outside.
func (b *blow) notices(c *stack.Sidecar) func(context.Context) (string, bool) {
	if b.plan.Kind != linkController {
		return nil
	}
	return func(ctx context.Context) (string, bool) {
		_, live, err := b.assignments(ctx)
		return fmt.Sprintf("virtual broker %d is fenced", c.VirtualID()), err == nil && !slices.Contains(live, c.VirtualID())
	}
}
