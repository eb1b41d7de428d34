package policy

import (
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// eventQueue are the events that one sink has still to be told of, oldest first. What does not fit, or
// has waited for too long, is given up and counted. It knows no time and no locks of its own.
type eventQueue struct {
	limit   int
	waiting []queuedEvent
	// sending is what the sink is being told of: it stays at the front until it is taken.
	sending []queuedEvent
	givenUp int64 // since the last that was taken
	total   int64 // ever
}

type queuedEvent struct {
	event *policyv1.Event
	since time.Time // when it came in
}

// add puts events at the end. The newest are kept: they say what is so now.
func (q *eventQueue) add(now time.Time, events []*policyv1.Event) {
	for _, e := range events {
		q.waiting = append(q.waiting, queuedEvent{e, now})
	}
	if over := len(q.waiting) - q.limit; over > 0 {
		q.giveUp(over)
		q.waiting = append(make([]queuedEvent, 0, q.limit), q.waiting[over:]...)
	}
}

// take returns what is to be told next, again what was taken before if nobody said done, and how many
// were given up. Events that came in before oldest are given up first.
func (q *eventQueue) take(n int, oldest time.Time) ([]*policyv1.Event, int64) {
	q.sending = q.expire(q.sending, oldest)
	if len(q.sending) == 0 {
		q.waiting = q.expire(q.waiting, oldest)
		n = min(n, len(q.waiting))
		q.sending, q.waiting = q.waiting[:n:n], q.waiting[n:]
	}
	out := make([]*policyv1.Event, len(q.sending))
	for i, e := range q.sending {
		out[i] = e.event
	}
	return out, q.givenUp
}

func (q *eventQueue) expire(events []queuedEvent, oldest time.Time) []queuedEvent {
	n := 0
	for n < len(events) && events[n].since.Before(oldest) {
		n++
	}
	q.giveUp(n)
	return events[n:]
}

func (q *eventQueue) giveUp(n int) {
	q.givenUp += int64(n)
	q.total += int64(n)
}

// done says that what take returned was taken, with the count of what was given up.
func (q *eventQueue) done(told int64) {
	q.sending = nil
	q.givenUp -= told
}

func (q *eventQueue) len() int { return len(q.waiting) + len(q.sending) }
