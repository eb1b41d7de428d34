package syncs

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// refusedFor is how long what this cluster has refused is not tried again.
const refusedFor = 10 * time.Minute

// refusals remembers, by mirror, what this cluster would not have: it would say so in every round.
type refusals struct {
	mu    sync.Mutex // guards the following
	known map[string]map[string]refusal
}

type refusal struct {
	err   error
	until time.Time
}

func (r *refusals) add(mirror, item string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]map[string]refusal{}
	}
	if r.known[mirror] == nil {
		r.known[mirror] = map[string]refusal{}
	}
	r.known[mirror][item] = refusal{err: err, until: time.Now().Add(refusedFor)}
}

// without leaves out what was refused lately, and tells of it.
func (r *refusals) without(mirror string, items []string, tell func(item string, err error)) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, now := r.known[mirror], time.Now()
	maps.DeleteFunc(known, func(_ string, f refusal) bool { return now.After(f.until) })
	if len(known) == 0 {
		delete(r.known, mirror)
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		f, ok := known[item]
		if ok {
			tell(item, f.err)
		}
		return ok
	})
}
