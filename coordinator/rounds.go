package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// roundEvery is the least time between the beginnings of two rounds in one state partition.
const roundEvery = time.Second

// rounds are readings of state partitions to the end on behalf of those who only ask, for
// which DESCRIBE is enough. Each writes a barrier, so that they are shared: a round serves
// everybody who came before it began, and there is one in a second at most. Nobody is told
// what was true before he asked. The zero value is ready.
type rounds struct {
	now  func() time.Time                           // nil: the clock's
	wait func(ctx context.Context, d time.Duration) // nil: pause

	mu    sync.Mutex // guards the following
	next  map[int32]*round
	began map[int32]time.Time
}

type round struct {
	done chan struct{} // closed when the following is set
	err  error
	left bool // who held the round went away before its end
}

// join waits for a round that begins after the call. The first to come holds it, by calling
// read; if he goes away another one does.
func (r *rounds) join(ctx context.Context, partition int32, read func(ctx context.Context) error) error {
	for {
		mine, hold := r.enter(partition)
		if hold {
			r.hold(ctx, partition, mine, read)
			return mine.err
		}
		select {
		case <-mine.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !mine.left {
			return mine.err
		}
	}
}

// enter returns the next round of a partition; the caller has to hold it if it is new.
func (r *rounds) enter(partition int32) (mine *round, hold bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next, r.began = map[int32]*round{}, map[int32]time.Time{}
		if r.now == nil {
			r.now = time.Now
		}
		if r.wait == nil {
			r.wait = pause
		}
	}
	if mine = r.next[partition]; mine != nil {
		return mine, false
	}
	mine = &round{done: make(chan struct{})}
	r.next[partition] = mine
	return mine, true
}

func (r *rounds) hold(ctx context.Context, partition int32, mine *round, read func(ctx context.Context) error) {
	defer close(mine.done)
	r.mu.Lock()
	d := r.began[partition].Add(roundEvery).Sub(r.now())
	r.mu.Unlock()
	if d > 0 {
		r.wait(ctx, min(d, roundEvery)) // not longer where a clock was put back
	}
	r.mu.Lock()
	delete(r.next, partition) // who comes from now on is in the one after
	mine.err = ctx.Err()
	if mine.err == nil {
		r.began[partition] = r.now()
	}
	r.mu.Unlock()
	if mine.err == nil {
		mine.err = read(ctx)
	}
	mine.left = mine.err != nil && (ctx.Err() != nil || errors.Is(mine.err, context.Canceled))
}
