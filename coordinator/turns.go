package coordinator

import (
	"context"
	"sync"
)

// turns lets those who come for one key act one after the other. The zero value is ready.
type turns struct {
	mu    sync.Mutex // guards the following
	queue map[string]*turn
}

type turn struct {
	slot chan struct{} // cap 1: full while somebody acts
	want int           // how many act or wait; without any the key is forgotten
}

// take waits for the key's turn; the returned function ends it.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	t.mu.Lock()
	q := t.queue[key]
	if q == nil {
		q = &turn{slot: make(chan struct{}, 1)}
		if t.queue == nil {
			t.queue = map[string]*turn{}
		}
		t.queue[key] = q
	}
	q.want++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.want--; q.want == 0 {
			delete(t.queue, key)
		}
	}
	select {
	case q.slot <- struct{}{}:
		return func() {
			<-q.slot
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
