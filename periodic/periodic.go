// Package periodic does one thing at once and then again and again, in a goroutine of its own. It does
// not know what it does, nor whether that succeeds.
package periodic

import (
	"context"
	"time"
)

// Loop is such a goroutine, from Start to Stop.
type Loop struct {
	every time.Duration
	do    func(ctx context.Context)
	stop  context.CancelFunc
	done  chan struct{} // closed when the goroutine has ended
}

// New returns a loop that does not do anything yet. do has to end with its context.
func New(every time.Duration, do func(ctx context.Context)) *Loop {
	return &Loop{every: every, do: do, stop: func() {}, done: make(chan struct{})}
}

// Start begins in the background, until Stop: ctx ends nothing.
func (l *Loop) Start(ctx context.Context) error {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(l.done)
		tick := time.NewTicker(l.every)
		defer tick.Stop()
		for {
			l.do(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// Stop gives up what is under way, and waits for it until ctx ends.
func (l *Loop) Stop(ctx context.Context) error {
	l.stop()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
