package syncs

import (
	"slices"
	"sync"
	"time"
)

// doubts remembers, by mirror, what a source does not have any more that it had much of. A cluster
// whose brokers have just started, or whose metadata was lost, answers like one where somebody
// has deleted everything.
type doubts struct {
	mu  sync.Mutex // guards the following
	was map[string]doubt
}

type doubt struct {
	gone  []string
	since time.Time
}

// massive tells whether so much is gone that it is looked at again in another round: all that the
// source has, or most of what was created here.
func massive(gone, owned, source int) bool {
	return source == 0 || gone > 10 && 2*gone > owned
}

// settle tells whether what is gone was gone already in a round at least patience ago. Otherwise it
// is remembered.
func (d *doubts) settle(mirror string, gone []string, patience time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was, ok := d.was[mirror]; ok && slices.Equal(was.gone, gone) {
		return time.Since(was.since) >= patience
	}
	if d.was == nil {
		d.was = map[string]doubt{}
	}
	d.was[mirror] = doubt{gone: slices.Clone(gone), since: time.Now()}
	return false
}

// forget drops what is remembered of a mirror.
func (d *doubts) forget(mirror string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.was, mirror)
}
