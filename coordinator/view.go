package coordinator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

// Mirror is what the state keeps of a mirror (record type 3).
type Mirror struct {
	Name            string
	SourceClusterID string
	Configs         config.Properties // as given, secrets included: show only Redacted

	tags []wire.Tag // a newer sidecar's fields, kept as they came
}

// Topic is what the state keeps of a mirror topic (record type 4).
type Topic struct {
	Mirror        string
	Name          string
	TopicID       ids.UUID // this cluster's; zero until the topic exists
	SourceTopicID ids.UUID
	Desired       State // Mirroring, Paused or Stopped
	Since         int64 // milliseconds since 1970 of the last change of Desired
	AllowTruncate bool
	// Wanted are the topic's own configs that the write lock hides. A nil value means
	// that the topic had none of its own.
	Wanted map[string]*string
	// RealReplicas are the real replicas of those partitions that a hand-back left some out
	// of: they are added again afterwards, also by a coordinator that did not see it begin.
	RealReplicas map[int32][]int32
	// Fault says why nothing may be read from the source now, "" if nothing speaks against
	// it: the topic is gone there, or another one of its name took its place.
	Fault string
	// GiveUp are the partitions whose operator does not wait any longer for the replica that
	// has all data, and when that was said, in milliseconds since 1970. It is no part of
	// AllowTruncate: who lets a start drop records has given up no broker (R15).
	GiveUp map[int32]int64
	// Locked says that the whole of the write lock's ban on writes was seen in force since Wanted
	// was taken. It is not while the lock is on its way, nor where a policy refuses it.
	Locked bool
	// RaiseRefused says that a policy of this cluster refuses to change min.insync.replicas, so
	// that virtual replicas need not wait for it to be raised (R21).
	RaiseRefused bool

	tags []wire.Tag // a newer sidecar's fields, kept as they came
}

// PartitionState is what the state keeps of a mirror partition (record type 2).
type PartitionState struct {
	State        State
	Previous     State
	RetryAttempt int16
	LeaderEpoch  int32 // of the leader that wrote it
	StateEpoch   int32 // one more with each write
	Detail       string
	ErrorMessage string
	Since        int64 // milliseconds since 1970, the record's timestamp

	told int64      // when a record last said something new, state or not
	tags []wire.Tag // a newer sidecar's fields, kept as they came
}

// partitionKey is the key of record types 1 and 2.
type partitionKey struct {
	mirror string
	tp     ids.TopicPartition
}

// topicKey is the key of record type 4.
type topicKey struct{ mirror, topic string }

// Change names what changed in a view.
type Change struct {
	Mirrors    []string
	Topics     []ids.UUID // this cluster's topic ids
	Partitions []ids.TopicPartition
	// States are the changes of partitions' states, in the order in which they were recorded.
	States []StateChange
	// Reset says that anything may have changed: the state topic was read anew.
	Reset bool
}

func (c Change) empty() bool {
	return !c.Reset && len(c.Mirrors) == 0 && len(c.Topics) == 0 && len(c.Partitions) == 0
}

// StateChange is a state record that says something new to people: another state, detail or error.
type StateChange struct {
	Mirror         string
	Topic          string // "" if no topic record names it
	TopicPartition ids.TopicPartition
	From           State          // Unknown if there was none
	To             PartitionState // its State is Unknown if the record was removed
	At             int64          // milliseconds since 1970
}

// record is one record of the state topic in this package's types. A nil value is a
// tombstone; exactly one of the keys is used, by kind.
type record struct {
	kind      recordKind
	mirror    string       // kindMirror
	topic     topicKey     // kindTopic
	partition partitionKey // kindLineage, kindState
	owned     ownedKey     // kindOwned
	value     any          // Mirror, Topic, PartitionState, lineage.Record, owned or nil
	since     int64
}

type recordKind int8

const (
	kindLineage recordKind = 1
	kindState   recordKind = 2
	kindMirror  recordKind = 3
	kindTopic   recordKind = 4
	kindBarrier recordKind = 6
	kindOwned   recordKind = 7
)

// View is the state topic as far as it was read. Any number of goroutines may read it.
type View struct {
	mu       sync.RWMutex // guards the following
	mirrors  map[string]Mirror
	topics   map[topicKey]Topic
	states   map[partitionKey]PartitionState
	lineages map[partitionKey]lineage.Record
	owned    map[ownedKey]owned
	byID     map[ids.UUID][]topicKey
	next     map[int32]int64 // offset of the next record to read, by state partition
	moved    chan struct{}   // closed, and replaced, when next moves

	subsMu  sync.Mutex // guards the following
	subs    map[int]func(Change)
	nextSub int
}

// NewView returns an empty view.
func NewView() *View {
	v := &View{subs: map[int]func(Change){}, moved: make(chan struct{})}
	v.clear()
	return v
}

func (v *View) clear() {
	v.mirrors = map[string]Mirror{}
	v.topics = map[topicKey]Topic{}
	v.states = map[partitionKey]PartitionState{}
	v.lineages = map[partitionKey]lineage.Record{}
	v.owned = map[ownedKey]owned{}
	v.byID = map[ids.UUID][]topicKey{}
	v.next = map[int32]int64{}
}

// Mirror returns a mirror by name.
func (v *View) Mirror(name string) (Mirror, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	m, ok := v.mirrors[name]
	return m, ok
}

// Mirrors returns all mirrors by name.
func (v *View) Mirrors() []Mirror {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]Mirror, 0, len(v.mirrors))
	for _, n := range slices.Sorted(maps.Keys(v.mirrors)) {
		out = append(out, v.mirrors[n])
	}
	return out
}

// Topic returns a mirror's topic by name.
func (v *View) Topic(mirror, topic string) (Topic, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	t, ok := v.topics[topicKey{mirror, topic}]
	return t, ok
}

// Topics returns a mirror's topics by name.
func (v *View) Topics(mirror string) []Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []Topic
	for k, t := range v.topics {
		if k.mirror == mirror {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// TopicByID returns the mirror topic of one of this cluster's topics. Several mirrors may
// know it; the one that does not want it stopped owns it, else the last that did (see owns).
func (v *View) TopicByID(id ids.UUID) (Topic, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.owner(v.byID[id])
}

// TopicByName is TopicByID for a name, which also finds topics not created yet.
func (v *View) TopicByName(name string) (Topic, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var keys []topicKey
	for k := range v.topics {
		if k.topic == name {
			keys = append(keys, k)
		}
	}
	return v.owner(keys)
}

// Owners returns what TopicByName does for each name there is.
func (v *View) Owners() map[string]Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make(map[string]Topic, len(v.topics))
	for k, t := range v.topics {
		if best, known := out[k.topic]; !known || v.owns(t, best) {
			out[k.topic] = t
		}
	}
	return out
}

func (v *View) owner(keys []topicKey) (Topic, bool) {
	var best Topic
	found := false
	for _, k := range keys {
		t, ok := v.topics[k]
		if !ok {
			continue
		}
		if !found || v.owns(t, best) {
			best, found = t, true
		}
	}
	return best, found
}

// owns tells whether a topic is rather a's than b's. v.mu is held.
func (v *View) owns(a, b Topic) bool {
	claim := a.claim()
	switch {
	case claim != b.claim():
		return claim > b.claim()
	case claim == claimActive:
		// Both mirrors have started it at the same time. Who leads it keeps it; times would not
		// do, for they change with every pause.
		if holds := v.holds(a); holds != v.holds(b) {
			return holds
		}
	case a.Since != b.Since:
		return a.Since > b.Since
	}
	return a.Mirror < b.Mirror
}

// holds tells whether a topic's first partition is led, or was and is not STOPPED.
func (v *View) holds(t Topic) bool {
	s, ok := v.states[partitionKey{t.Mirror, ids.TopicPartition{TopicID: t.TopicID}}]
	return ok && s.State != Stopped
}

// What a mirror may claim of a topic.
const (
	claimLost     = iota // nothing: another mirror has started it at the same time
	claimPast            // it was stopped
	claimStopping        // what the stop has to give back is on record
	claimActive
)

func (t Topic) claim() int {
	switch {
	case t.lost():
		return claimLost
	case t.Desired != Stopped:
		return claimActive
	case len(t.Wanted) > 0:
		return claimStopping
	}
	return claimPast
}

// lostTo begins the fault of a topic that another mirror has started at the same time.
const lostTo = "belongs to mirror "

// lost tells whether the mirror has lost the topic to another one. It stays so until a
// person decides.
func (t Topic) lost() bool { return strings.HasPrefix(t.Fault, lostTo) }

// State returns the state of a partition; Unknown and false if none is recorded.
func (v *View) State(mirror string, tp ids.TopicPartition) (PartitionState, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s, ok := v.states[partitionKey{mirror, tp}]
	if !ok {
		return PartitionState{State: Unknown, Previous: Unknown, LeaderEpoch: -1}, false
	}
	return s, true
}

// Lineage returns the lineage record of a partition; an empty one and false if none is
// recorded.
func (v *View) Lineage(mirror string, tp ids.TopicPartition) (lineage.Record, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r, ok := v.lineages[partitionKey{mirror, tp}]
	if !ok {
		return lineage.NewRecord(), false
	}
	return r, true
}

// partitionKeys returns the keys of every state and lineage of a mirror.
func (v *View) partitionKeys(mirror string) []partitionKey {
	v.mu.RLock()
	defer v.mu.RUnlock()
	seen := map[partitionKey]bool{}
	for k := range v.states {
		seen[k] = k.mirror == mirror
	}
	for k := range v.lineages {
		seen[k] = k.mirror == mirror
	}
	var out []partitionKey
	for k, in := range seen {
		if in {
			out = append(out, k)
		}
	}
	return out
}

// Subscribe calls fn after each batch of records, on the reader's goroutine, with the
// view already changed and no lock held.
func (v *View) Subscribe(fn func(Change)) (cancel func()) {
	v.subsMu.Lock()
	defer v.subsMu.Unlock()
	n := v.nextSub
	v.nextSub++
	v.subs[n] = fn
	return func() {
		v.subsMu.Lock()
		defer v.subsMu.Unlock()
		delete(v.subs, n)
	}
}

func (v *View) publish(c Change) {
	if c.empty() {
		return
	}
	v.subsMu.Lock()
	fns := make([]func(Change), 0, len(v.subs))
	for _, n := range slices.Sorted(maps.Keys(v.subs)) {
		fns = append(fns, v.subs[n])
	}
	v.subsMu.Unlock()
	for _, fn := range fns {
		fn(c)
	}
}

// wait returns when partition was read up to and including offset.
func (v *View) wait(ctx context.Context, partition int32, offset int64) error {
	for {
		v.mu.RLock()
		moved, next := v.moved, v.next[partition]
		v.mu.RUnlock()
		if next > offset {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset forgets everything: the state topic was created anew.
func (v *View) reset() {
	v.mu.Lock()
	v.clear()
	close(v.moved)
	v.moved = make(chan struct{})
	v.mu.Unlock()
	v.publish(Change{Reset: true})
}

// apply takes in what was read and moves the position of the partitions to next.
func (v *View) apply(records []record, next map[int32]int64) {
	var c Change
	v.mu.Lock()
	for _, r := range records {
		v.applyOne(r, &c)
	}
	for p, o := range next {
		v.next[p] = max(v.next[p], o)
	}
	close(v.moved)
	v.moved = make(chan struct{})
	v.mu.Unlock()
	v.publish(c)
}

func (v *View) applyOne(r record, c *Change) {
	switch r.kind {
	case kindMirror:
		c.Mirrors = append(c.Mirrors, r.mirror)
		if m, ok := r.value.(Mirror); ok {
			v.mirrors[r.mirror] = m
		} else {
			delete(v.mirrors, r.mirror)
		}
	case kindTopic:
		if old, ok := v.topics[r.topic]; ok {
			c.Topics = append(c.Topics, old.TopicID)
			v.byID[old.TopicID] = slices.DeleteFunc(v.byID[old.TopicID], func(k topicKey) bool { return k == r.topic })
			if len(v.byID[old.TopicID]) == 0 {
				delete(v.byID, old.TopicID)
			}
		}
		if t, ok := r.value.(Topic); ok {
			v.topics[r.topic] = t
			if !t.TopicID.IsZero() {
				v.byID[t.TopicID] = append(v.byID[t.TopicID], r.topic)
			}
			c.Topics = append(c.Topics, t.TopicID)
		} else {
			delete(v.topics, r.topic)
		}
		c.Mirrors = append(c.Mirrors, r.topic.mirror)
	case kindState:
		c.Partitions = append(c.Partitions, r.partition.tp)
		old, had := v.states[r.partition]
		s, ok := r.value.(PartitionState)
		if !ok {
			delete(v.states, r.partition)
			if had {
				c.States = append(c.States, v.stateChange(r, old.State, PartitionState{State: Unknown}))
			}
			return
		}
		s.Since, s.told = r.since, r.since
		switch {
		case !had:
			c.States = append(c.States, v.stateChange(r, Unknown, s))
		case old.State != s.State || old.Detail != s.Detail || old.ErrorMessage != s.ErrorMessage:
			c.States = append(c.States, v.stateChange(r, old.State, s))
		default:
			s.told = old.told
		}
		if had && old.State == s.State {
			s.Since = old.Since
		}
		v.states[r.partition] = s
	case kindLineage:
		c.Partitions = append(c.Partitions, r.partition.tp)
		if l, ok := r.value.(lineage.Record); ok {
			v.lineages[r.partition] = mergeLineage(v.lineages[r.partition], l)
		} else {
			delete(v.lineages, r.partition)
		}
	case kindOwned:
		if o, ok := r.value.(owned); ok {
			v.owned[r.owned] = o
		} else {
			delete(v.owned, r.owned)
		}
	}
}

// stateChange names the topic while it can be named. v.mu is held.
func (v *View) stateChange(r record, from State, to PartitionState) StateChange {
	return StateChange{
		Mirror: r.partition.mirror, Topic: v.topicName(r.partition), TopicPartition: r.partition.tp, From: from, To: to, At: r.since,
	}
}

// topicName returns the name of a partition's topic, "" if no record of its mirror has it. v.mu is held.
func (v *View) topicName(k partitionKey) string {
	for _, t := range v.byID[k.tp.TopicID] {
		if t.mirror == k.mirror {
			return t.topic
		}
	}
	return ""
}

// mergeLineage merges a record that was read into what is known (R11). A write of the
// newest epoch stands, so that its leader can prune old chains; a late write of an
// older leader adds what is missing and removes nothing.
func mergeLineage(known, read lineage.Record) lineage.Record {
	knownNewest, _ := known.Newest()
	readNewest, chain := read.Newest()
	if readNewest < knownNewest {
		return known.Merge(read)
	}
	if old, ok := known.Chains[readNewest]; ok {
		later := lineage.Record{Chains: map[int32]lineage.Chain{readNewest: chain}}.
			Merge(lineage.Record{Chains: map[int32]lineage.Chain{readNewest: old}})
		read = read.With(readNewest, later.Chains[readNewest])
		if known.Written[readNewest] {
			read = read.WithWritten(readNewest)
		}
		return read
	}
	return read
}
