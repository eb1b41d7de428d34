package coordinator

import (
	"bytes"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Sidecars write to the state topic in transactions, but for barriers, which say nothing. Whatever else
// comes there was written by somebody with Kafka's own tools, around the proxies that refuse it: by
// mistake, or to tell the sidecars something that is not so. It counts for nothing. But it takes the
// place of the record with its key when the topic is compacted, so that whoever coordinates that key
// writes what is true once more (restore.go).

const (
	// foreignKeys bounds the keys that are remembered. What comes beyond them is found when the topic is
	// read from its beginning, if it still matters then.
	foreignKeys = 1000
	// foreignSilence is for how long the log says nothing more of foreign records.
	foreignSilence = 10 * time.Second
)

// foreign remembers the keys of records that no sidecar has written, and that none has written since.
type foreign struct {
	count atomic.Int64 // of records
	wake  chan struct{}

	mu      sync.Mutex        // guards the following
	keys    map[string]record // a key's own record, without a value
	told    time.Time
	unsaid  int
	silence time.Duration
}

func newForeign() *foreign {
	return &foreign{wake: make(chan struct{}, 1), keys: map[string]record{}, silence: foreignSilence}
}

// isForeign tells whether a record that was read is not a sidecar's.
func isForeign(r *kgo.Record) bool {
	if r.Attrs.IsTransactional() {
		return false
	}
	rec, err := decodeRecord(r.Key, r.Value, 0)
	return err != nil || rec.kind != kindBarrier || len(r.Value) > 0
}

// note takes note of a foreign record in a topic of n partitions.
func (f *foreign) note(r *kgo.Record, n int32, log *slog.Logger) {
	f.count.Add(1)
	// The key alone: what its value would say is nobody's business.
	rec, err := decodeRecord(r.Key, nil, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && rec.kind != kindBarrier && statePartition(rec.coordinatorKey(), n) == r.Partition && len(f.keys) < foreignKeys {
		if canonical, _, err := encodeRecord(rec); err == nil && bytes.Equal(canonical, r.Key) {
			f.keys[string(r.Key)] = rec
			select {
			case f.wake <- struct{}{}:
			default:
			}
		}
	}
	f.unsaid++
	if now := time.Now(); now.Sub(f.told) >= f.silence {
		log.Error("state topic: a record that no mirror sidecar has written counts for nothing; who writes there goes around the proxies, and is to be denied it (docs/security.md)",
			"topic", StateTopic, "partition", r.Partition, "offset", r.Offset, "producer_id", r.ProducerID, "records", f.unsaid)
		f.told, f.unsaid = now, 0
	}
}

// written takes note of a record of a sidecar's own.
func (f *foreign) written(r *kgo.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, string(r.Key))
}

// records are those whose keys foreign records have taken.
func (f *foreign) records() []record {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]record, 0, len(f.keys))
	for _, r := range f.keys {
		out = append(out, r)
	}
	return out
}

// has tells whether a foreign record has a key still.
func (f *foreign) has(key []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, has := f.keys[string(key)]
	return has
}

// clear forgets what a topic that was deleted held.
func (f *foreign) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.keys)
}
