package coordinator

import (
	"context"
)

// still returns a topic's record as it is by now, and whether what was asked about t, for however
// long, may be done to it: it is wanted as it was then, and is still coordinated here. Whoever has
// stopped it meanwhile writes to it.
func (r *Reconciler) still(t Topic) (Topic, bool) {
	now, ok := r.c.view.Topic(t.Mirror, t.Name)
	return now, ok && r.mine(t.Mirror) &&
		now.Desired == t.Desired && now.Since == t.Since && now.TopicID == t.TopicID && now.Fault == t.Fault
}

// whileStill is for questions about t: it ends once nobody wants to know any more.
func (r *Reconciler) whileStill(ctx context.Context, t Topic) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unsubscribe := r.c.view.Subscribe(func(Change) {
		if _, ok := r.still(t); !ok {
			cancel()
		}
	})
	if _, ok := r.still(t); !ok {
		cancel()
	}
	return ctx, func() {
		unsubscribe()
		cancel()
	}
}
