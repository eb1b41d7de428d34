package syncs

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// groupMemory is what this process knows of what it has committed for a mirror. It can be lost:
// then what is here is taken for another's, and moved forward only, until it is what the source
// has. Only one round at a time uses it.
type groupMemory struct {
	written map[string]map[offsets.Partition]written // by group
	seen    map[string]time.Time                     // by item: when its offsets were last here
}

type written struct {
	at   int64
	when time.Time
}

func newGroupMemory() *groupMemory {
	return &groupMemory{written: map[string]map[offsets.Partition]written{}, seen: map[string]time.Time{}}
}

func (m *groupMemory) wrote(group string, p offsets.Partition) (int64, bool) {
	w, ok := m.written[group][p]
	return w.at, ok
}

func (m *groupMemory) committed(group string, p offsets.Partition, at int64, when time.Time) {
	if m.written[group] == nil {
		m.written[group] = map[offsets.Partition]written{}
	}
	m.written[group][p] = written{at, when}
}

// found notes an offset that is as it should be. When it was committed is not known after a
// restart: it is committed again before long, at a time of the group's own, for all of them have
// this at once.
func (m *groupMemory) found(group string, p offsets.Partition, at int64, now time.Time, keep time.Duration) {
	if w, ok := m.written[group][p]; ok && w.at == at {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(group))
	within := max(min(keep/8, time.Hour), time.Millisecond)
	m.committed(group, p, at, now.Add(-renewAfter(keep)+time.Duration(h.Sum64()%uint64(within))))
}

// due tells whether an offset has to be committed again so that it does not expire.
func (m *groupMemory) due(group string, p offsets.Partition, at int64, now time.Time, keep time.Duration) bool {
	w, ok := m.written[group][p]
	return ok && w.at == at && now.Sub(w.when) >= renewAfter(keep)
}

// renewAfter leaves room for rounds that fail.
func renewAfter(keep time.Duration) time.Duration { return keep / 3 }

// saw notes that offsets of an item are here.
func (m *groupMemory) saw(item string, now time.Time) { m.seen[item] = now }

func (m *groupMemory) forget(item string) {
	delete(m.seen, item)
	_, group := groupOfItem(item)
	delete(m.written, group) // it is found again where it is still here
}

// expired tells whether offsets that are gone may be so because nobody has committed them for so
// long: the mirror was paused, or could not reach its source.
func (m *groupMemory) expired(item string, now time.Time, keep time.Duration) bool {
	last, ok := m.seen[item]
	return ok && now.Sub(last) >= keep/2
}

// retention is how long this cluster keeps offsets of groups without members.
type retention struct {
	cl      *kgo.Client
	virtual ids.Virtual
	log     *slog.Logger

	mu    sync.Mutex // guards the following
	value time.Duration
	asked time.Time
}

const (
	retentionKey = "offsets.retention.minutes"
	// defaultRetention is Kafka's since 2.0.
	defaultRetention = 7 * 24 * time.Hour
	// retentionAge is how long an answer is believed.
	retentionAge = 10 * time.Minute
)

func (r *retention) get(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value > 0 && time.Since(r.asked) < retentionAge {
		return r.value
	}
	v, err := r.ask(ctx)
	if err != nil {
		r.log.Warn("how long this cluster keeps offsets is not known", "assumed", max(r.value, defaultRetention), "err", err)
		if r.value == 0 {
			return defaultRetention
		}
		return r.value
	}
	r.value, r.asked = v, time.Now()
	return v
}

// ask takes the shortest of all brokers': each expires the groups that it coordinates.
func (r *retention) ask(ctx context.Context) (time.Duration, error) {
	adm := kadm.NewClient(r.cl)
	about, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("which brokers there are: %w", err)
	}
	answer := slices.DeleteFunc(about.Brokers.NodeIDs(), r.virtual.Is)
	configs, err := adm.DescribeBrokerConfigs(ctx, answer...)
	var shortest time.Duration
	for _, c := range configs {
		if c.Err != nil {
			err = c.Err
			continue
		}
		for _, kv := range c.Configs {
			if kv.Key != retentionKey || kv.Value == nil {
				continue
			}
			if n, bad := strconv.ParseInt(*kv.Value, 10, 32); bad == nil && n > 0 {
				if d := time.Duration(n) * time.Minute; shortest == 0 || d < shortest {
					shortest = d
				}
			}
		}
	}
	if shortest == 0 {
		return 0, fmt.Errorf("%s of the brokers: %w", retentionKey, err)
	}
	return shortest, nil
}
