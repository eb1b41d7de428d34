package coordinator

import (
	"fmt"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// misreadKeys bounds the records that are remembered. Beyond them nothing is forgotten.
const misreadKeys = 1000

// misread remembers which records of the state topic count and are not understood. Whoever acts on
// the absence of a record asks here first.
type misread struct {
	mu   sync.Mutex // guards the following
	keys map[string]misreadRecord
	more error // of a record beyond the bound
}

type misreadRecord struct {
	partition int32
	error
}

// note takes note of a record, and of what was wrong with it. A later one with the same key
// replaces it.
func (m *misread) note(r *kgo.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || r.Value == nil {
		delete(m.keys, string(r.Key))
		return
	}
	err = fmt.Errorf("the record at offset %d of %s-%d is not understood: %w", r.Offset, StateTopic, r.Partition, err)
	if m.keys == nil {
		m.keys = map[string]misreadRecord{}
	}
	if _, known := m.keys[string(r.Key)]; !known && len(m.keys) >= misreadKeys {
		m.more = err
		return
	}
	m.keys[string(r.Key)] = misreadRecord{r.Partition, err}
}

// count is the number of those records, as far as they are remembered.
func (m *misread) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keys)
}

// err is about one of those records, nil if there is none.
func (m *misread) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.keys {
		return r.error
	}
	return m.more
}

// errOf is about the record with a key, nil if that is understood.
func (m *misread) errOf(key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.keys[string(key)]; ok {
		return r.error
	}
	return m.more
}

// replace forgets what was found in a partition, for what was found when it was read anew.
func (m *misread) replace(partition int32, by *misread) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.keys, func(_ string, r misreadRecord) bool { return r.partition == partition })
	if m.keys == nil {
		m.keys = map[string]misreadRecord{}
	}
	maps.Copy(m.keys, by.keys)
	if by.more != nil {
		m.more = by.more
	}
}

// clear forgets what a topic that was deleted held.
func (m *misread) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys, m.more = nil, nil
}
