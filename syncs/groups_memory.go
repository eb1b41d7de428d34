package syncs

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
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
	missing map[string]time.Time                     // groups that the source does not list, since when
	filled  map[string]time.Time                     // groups that had members last, or never any, or were not there
	topics  map[string]string                        // the topics that it is about, and their ids
	before  time.Time                                // the last round of which is on record that it saw everything
	begun   bool
}

type written struct {
	at   int64
	when time.Time
	ours bool // or a reader may have committed it here
}

func newGroupMemory() *groupMemory {
	return &groupMemory{written: map[string]map[offsets.Partition]written{}, seen: map[string]time.Time{}, filled: map[string]time.Time{}}
}

// begin takes what is on record, once.
func (m *groupMemory) begin(owned map[string]int64) {
	if m.begun {
		return
	}
	m.begun = true
	for item := range owned {
		if at, ok := roundOfItem(item); ok && at.After(m.before) {
			m.before = at
		}
	}
}

// only forgets what was committed for topics that are others now, or none.
func (m *groupMemory) only(topics map[string]string) {
	same := true
	for name, id := range m.topics {
		same = same && topics[name] == id
	}
	if !same {
		for _, ps := range m.written {
			maps.DeleteFunc(ps, func(p offsets.Partition, _ written) bool { return m.topics[p.Topic] != topics[p.Topic] })
		}
	}
	m.topics = topics
}

func (m *groupMemory) wrote(group string, p offsets.Partition) (int64, bool) {
	w, ok := m.written[group][p]
	return w.at, ok && w.ours
}

// knows tells whether a group was seen, or set, in a partition to where the source's is.
func (m *groupMemory) knows(group string, p offsets.Partition) bool {
	_, ok := m.written[group][p]
	return ok
}

func (m *groupMemory) committed(group string, p offsets.Partition, at int64, when time.Time) {
	m.note(group, p, written{at, when, true})
}

// renewed is committed of what was here before.
func (m *groupMemory) renewed(group string, p offsets.Partition, at int64, when time.Time) {
	m.note(group, p, written{at, when, m.written[group][p].ours})
}

func (m *groupMemory) note(group string, p offsets.Partition, w written) {
	if m.written[group] == nil {
		m.written[group] = map[offsets.Partition]written{}
	}
	m.written[group][p] = w
}

// found notes an offset that is as it should be. When it was committed is not known after a
// restart: it is committed again before long, at a time of the group's own, for all of them have
// this at once. It counts as the mirror's own unless the group has had members here, who may have
// committed it.
func (m *groupMemory) found(group string, p offsets.Partition, at int64, now time.Time, keep time.Duration, ours bool) {
	if w, ok := m.written[group][p]; ok && w.at == at {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(group))
	within := max(min(keep/8, time.Hour), time.Millisecond)
	m.note(group, p, written{at, now.Add(-renewAfter(keep) + time.Duration(h.Sum64()%uint64(within))), ours})
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
	delete(m.filled, group)
}

// expired tells whether offsets that are gone may be so because nobody has committed them for so
// long: the mirror was paused, or could not reach its source.
func (m *groupMemory) expired(item string, now time.Time, keep time.Duration) bool {
	last, ok := m.seen[item]
	if !ok {
		last = m.before
	}
	return now.Sub(last) >= keep/2
}

// unemptied notes that a group is not one whose members have gone.
func (m *groupMemory) unemptied(group string, now time.Time) { m.filled[group] = now }

// emptiedLately tells whether that was so a moment ago: well within what a group is thought to expire
// early by.
func (m *groupMemory) emptiedLately(group string, now time.Time, keep time.Duration) bool {
	at, ok := m.filled[group]
	delete(m.filled, group)
	return ok && now.Sub(at) <= keep/16
}

// gone notes which groups the source does not list, and returns those that it has not listed in two
// rounds in a row: while a broker takes over groups of another, a list may lack them for a moment.
func (m *groupMemory) gone(unlisted map[string]bool, now time.Time) map[string]bool {
	out, missing := map[string]bool{}, map[string]time.Time{}
	for group := range unlisted {
		since, ok := m.missing[group]
		if !ok {
			since = now
		}
		missing[group] = since
		if now.Sub(since) >= goneAfter {
			out[group] = true
		}
	}
	m.missing = missing
	return out
}

// goneAfter is how far apart two rounds are that agree on what is gone.
const goneAfter = 10 * time.Second

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
