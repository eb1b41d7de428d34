package policy

import (
	"maps"
	"sync"
	"time"
)

const (
	// maxRemembered bounds what one plugin has said of one mirror that is kept: what comes beyond
	// it is undecided while the plugin cannot be asked.
	maxRemembered = 100_000
	// forgetAfter is how long what nobody asks about any more is kept.
	forgetAfter = time.Hour
)

// memory is what plugins have said last, for when they cannot be asked.
type memory struct {
	mu   sync.Mutex // guards the following
	kept map[memoryKey]map[string]remembered
	// next is the item at which a plugin goes on that had not decided on all when a refresh ended.
	next map[memoryKey]string
}

type memoryKey struct {
	mirror string
	kind   Kind
	plugin string
}

type said struct {
	accepted     bool
	rule, reason string
}

type remembered struct {
	said
	decision any // if it changed something
	at       time.Time
}

func (m *memory) keep(key memoryKey, item string, r remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[memoryKey]map[string]remembered{}
	}
	items := m.kept[key]
	if items == nil {
		items = map[string]remembered{}
		m.kept[key] = items
	}
	was, known := items[item]
	if !known && len(items) >= maxRemembered {
		return
	}
	if known && was.said == r.said {
		r.said = was.said // one copy of the words
	}
	r.at = time.Now()
	items[item] = r
}

func (m *memory) drop(key memoryKey, item string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept[key], item)
}

func (m *memory) recall(key memoryKey, item string) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.kept[key][item]
	if ok {
		r.at = time.Now() // still asked about
		m.kept[key][item] = r
	}
	return r, ok
}

// resume notes where a plugin goes on, "" if it was through.
func (m *memory) resume(key memoryKey, item string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if item == "" {
		delete(m.next, key)
		return
	}
	if m.next == nil {
		m.next = map[memoryKey]string{}
	}
	m.next[key] = item
}

// resumes is where a plugin goes on, false if it begins at the beginning.
func (m *memory) resumes(key memoryKey) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.next[key]
	return item, ok
}

func (m *memory) prune(mirror string, kind Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, items := range m.kept {
		if key.mirror == mirror && key.kind == kind {
			maps.DeleteFunc(items, func(_ string, r remembered) bool { return time.Since(r.at) > forgetAfter })
		}
	}
}

func (m *memory) forget(mirror string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.kept, func(key memoryKey, _ map[string]remembered) bool { return key.mirror == mirror })
	maps.DeleteFunc(m.next, func(key memoryKey, _ string) bool { return key.mirror == mirror })
}
