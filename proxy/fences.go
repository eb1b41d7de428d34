package proxy

import (
	"fmt"
	"sync"
	"time"
)

// maxFences bounds the topics that are fenced at one time.
const maxFences = 10000

// Fences are the topics whose writers are held back for a while. All proxies of a process
// share them. They are nowhere but in memory: whoever needs a fence renews it, and it ends
// by itself when nobody does.
type Fences struct {
	now func() time.Time

	mu    sync.RWMutex // guards the following
	until map[string]time.Time
}

// NewFences returns no fences yet; now is the clock.
func NewFences(now func() time.Time) *Fences {
	return &Fences{now: now, until: make(map[string]time.Time)}
}

// Fence begins or prolongs the fences of topics, or ends them if there is no lease. It
// returns those that were not fenced until now.
func (f *Fences) Fence(topics []string, lease time.Duration) (anew []string, err error) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for t, until := range f.until {
		if !now.Before(until) {
			delete(f.until, t)
		}
	}
	if lease > 0 {
		// What is fenced already is renewed, and needs no room.
		more := make(map[string]bool)
		for _, t := range topics {
			if _, ok := f.until[t]; !ok {
				more[t] = true
			}
		}
		if len(f.until)+len(more) > maxFences {
			return nil, fmt.Errorf("at most %d topics can be fenced, %d are, and %d more were asked for", maxFences, len(f.until), len(more))
		}
	}
	for _, t := range topics {
		if _, ok := f.until[t]; !ok {
			anew = append(anew, t)
		}
		if lease <= 0 {
			delete(f.until, t)
		} else {
			f.until[t] = now.Add(lease)
		}
	}
	return anew, nil
}

// Left tells whether a topic is fenced, and for how long.
func (f *Fences) Left(topic string) (time.Duration, bool) {
	f.mu.RLock()
	until, ok := f.until[topic]
	f.mu.RUnlock()
	if !ok {
		return 0, false
	}
	left := until.Sub(f.now())
	return left, left > 0
}

// none tells whether no topic is fenced. One whose fence has run out may count until the
// next change.
func (f *Fences) none() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.until) == 0
}
