package coordinator

import (
	"context"
	"fmt"
)

// watcher is the life of an actor that looks at state and metadata when they change: one
// goroutine, begun once the state was read, woken by whoever sees a change.
type watcher struct {
	wake    chan struct{}
	stop    context.CancelFunc // nil before start
	done    chan struct{}      // closed when the goroutine has ended
	cancels []func()           // end the subscriptions that wake it
}

func newWatcher() watcher {
	return watcher{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// start calls run once ready is closed; subscriptions end before run's context does.
func (w *watcher) start(ready <-chan struct{}, run func(ctx context.Context), subscriptions ...func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.cancels = cancel, subscriptions
	go func() {
		defer close(w.done)
		select {
		case <-ready:
			run(ctx)
		case <-ctx.Done():
		}
	}()
}

// end gives up what is under way, and waits for it. It may be called without a start.
func (w *watcher) end(ctx context.Context, who string) error {
	if w.stop == nil {
		return nil
	}
	for _, cancel := range w.cancels {
		cancel()
	}
	w.stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: stop: %w", who, ctx.Err())
	}
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
