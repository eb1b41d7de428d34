package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxEntries bounds what is kept of one kind of one mirror.
	maxEntries = 50_000
	// maxWarnings bounds what one run of one plugin may tell, maxText how long one text is.
	maxWarnings, maxText = 100, 1024
)

// Ledger keeps what was decided and what came of it, for whoever asks why. It is made of what has
// happened since this process coordinates a mirror.
type Ledger struct {
	mu      sync.Mutex // guards the following
	entries map[ledgerKey]map[string]*entry
	runs    map[memoryKey]Run
	syncs   map[ledgerKey]Run // what was done with the decisions, whoever made them
}

type ledgerKey struct {
	mirror string
	kind   Kind
}

type entry struct {
	Entry
	seen time.Time
}

// Run is the last time that a plugin was asked about a mirror. Plugin is empty for what was then
// done with what the plugins said.
type Run struct {
	Kind      Kind
	Plugin    string
	At        time.Time
	LastError string
	Warnings  []string
	// Idle: there was nothing to do at all, and nothing was looked at.
	Idle bool
}

// Skip is something that is not mirrored, and why.
type Skip struct {
	Item string
	Entry
}

// Why says in one sentence why an item is not mirrored, "" if nothing is known against it.
func (e Entry) Why() string {
	switch {
	case !e.Accepted && e.Reason != "":
		return e.Reason
	case e.Skipped != "":
		return e.Skipped
	}
	return e.LastError
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: map[ledgerKey]map[string]*entry{}, runs: map[memoryKey]Run{}, syncs: map[ledgerKey]Run{}}
}

// edit changes an item's entry, which is made if there is none yet.
func (l *Ledger) edit(mirror string, kind Kind, item string, change func(e *Entry, isNew bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := ledgerKey{mirror, kind}
	items := l.entries[key]
	if items == nil {
		items = map[string]*entry{}
		l.entries[key] = items
	}
	e, known := items[item]
	if !known {
		if len(items) >= maxEntries {
			return
		}
		e = &entry{}
		items[strings.Clone(item)] = e
	}
	e.seen = time.Now()
	change(&e.Entry, !known)
}

// decided records a verdict. It holds since it was first given: the words of its reason may change.
func (l *Ledger) decided(mirror string, kind Kind, item string, v Verdict) {
	l.edit(mirror, kind, item, func(e *Entry, isNew bool) {
		if isNew || e.Accepted != v.Accepted || e.Plugin != v.Plugin || e.Rule != v.Rule || e.Undecided != v.Undecided {
			e.Since = time.Now()
		}
		if !v.Accepted {
			e.LastError, e.Skipped = "", "" // of when it was accepted
		}
		e.Verdict = v
	})
}

// drop forgets an item of which nobody asks why it is not here.
func (l *Ledger) drop(mirror string, kind Kind, item string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries[ledgerKey{mirror, kind}], item)
}

// Applied records that an item is here as it was decided.
func (l *Ledger) Applied(mirror string, kind Kind, item string) {
	l.edit(mirror, kind, item, func(e *Entry, _ bool) { e.LastApplied, e.LastError, e.Skipped = time.Now(), "", "" })
}

// Failed records that an item could not be brought here.
func (l *Ledger) Failed(mirror string, kind Kind, item string, err error) {
	l.edit(mirror, kind, item, func(e *Entry, _ bool) { e.LastError, e.Skipped = cut(err.Error()), "" })
}

// Skipped records that nothing is done for an item although it is accepted.
func (l *Ledger) Skipped(mirror string, kind Kind, item, why string) {
	l.edit(mirror, kind, item, func(e *Entry, _ bool) { e.LastError, e.Skipped = "", cut(why) })
}

// LeftOut records that an item is not mirrored whatever the policies say, which were not asked.
func (l *Ledger) LeftOut(mirror string, kind Kind, item, rule, why string) {
	l.decided(mirror, kind, item, Verdict{Rule: rule, Reason: cut(why)})
}

// Done records that what was decided on a kind was applied, or why it was not, and what else is to
// be known of it.
func (l *Ledger) Done(mirror string, kind Kind, err error, notes ...string) {
	l.through(mirror, Run{Kind: kind}, err, notes)
}

// Idle records a round that had nothing to do at all.
func (l *Ledger) Idle(mirror string, kind Kind, err error, notes ...string) {
	l.through(mirror, Run{Kind: kind, Idle: true}, err, notes)
}

func (l *Ledger) through(mirror string, r Run, err error, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.At = time.Now()
	if err != nil {
		r.LastError = cut(err.Error())
	}
	for _, n := range notes[:min(len(notes), maxWarnings)] {
		r.Warnings = append(r.Warnings, cut(n))
	}
	l.syncs[ledgerKey{mirror, r.Kind}] = r
}

// ran records that a plugin was asked. It returns the run before.
func (l *Ledger) ran(mirror string, r Run) Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := memoryKey{mirror, r.Kind, r.Plugin}
	was := l.runs[key]
	l.runs[key] = r
	return was
}

// Get returns what is known of an item.
func (l *Ledger) Get(mirror string, kind Kind, item string) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[ledgerKey{mirror, kind}][item]
	if !ok {
		return Entry{}, false
	}
	return e.Entry, true
}

// Find returns the items that begin so, in order, at most limit.
func (l *Ledger) Find(mirror string, kind Kind, prefix string, limit int) []Skip {
	return l.pick(mirror, kind, limit, func(item string, _ Entry) bool { return strings.HasPrefix(item, prefix) })
}

// Skips returns what is not mirrored, in order, at most limit.
func (l *Ledger) Skips(mirror string, kind Kind, limit int) []Skip {
	return l.pick(mirror, kind, limit, func(_ string, e Entry) bool { return e.Why() != "" })
}

func (l *Ledger) pick(mirror string, kind Kind, limit int, want func(string, Entry) bool) []Skip {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Skip
	for item, e := range l.entries[ledgerKey{mirror, kind}] {
		if want(item, e.Entry) {
			out = append(out, Skip{item, e.Entry})
		}
	}
	slices.SortFunc(out, func(a, b Skip) int { return cmp.Compare(a.Item, b.Item) })
	return out[:min(len(out), limit)]
}

// Runs returns the last run of each plugin of a mirror, by kind and name, then what was done with
// what they said.
func (l *Ledger) Runs(mirror string) []Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Run
	for key, r := range l.runs {
		if key.mirror == mirror {
			out = append(out, r)
		}
	}
	for key, r := range l.syncs {
		if key.mirror == mirror {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(len(b.Plugin), 0)-cmp.Compare(len(a.Plugin), 0), cmp.Compare(a.Plugin, b.Plugin))
	})
	return out
}

// Only drops what is not there any more, so that nothing is told of it.
func (l *Ledger) Only(mirror string, kind Kind, there func(item string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries[ledgerKey{mirror, kind}], func(item string, _ *entry) bool { return !there(item) })
}

// prune drops what nobody asks about any more.
func (l *Ledger) prune(mirror string, kind Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries[ledgerKey{mirror, kind}], func(_ string, e *entry) bool { return time.Since(e.seen) > forgetAfter })
}

// Forget drops a mirror that is coordinated elsewhere now, or gone.
func (l *Ledger) Forget(mirror string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries, func(key ledgerKey, _ map[string]*entry) bool { return key.mirror == mirror })
	maps.DeleteFunc(l.runs, func(key memoryKey, _ Run) bool { return key.mirror == mirror })
	maps.DeleteFunc(l.syncs, func(key ledgerKey, _ Run) bool { return key.mirror == mirror })
}

// cut keeps a text short.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-3], "") + "..."
}
