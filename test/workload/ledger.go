package workload

import (
	"slices"
	"sync"
)

// spans is an ascending list of disjoint half-open ranges of record numbers.
type spans []span

type span struct{ from, to int64 }

// add puts [from, to) into the list.
func (s *spans) add(from, to int64) {
	if from >= to {
		return
	}
	list := *s
	// Acknowledgements mostly arrive in order: extend the last range.
	if n := len(list); n > 0 && list[n-1].to == from {
		list[n-1].to = to
		return
	} else if n == 0 || list[n-1].to < from {
		*s = append(list, span{from, to})
		return
	}
	// The first range that is not wholly before [from, to), and the first wholly after.
	lo, _ := slices.BinarySearchFunc(list, from, func(a span, from int64) int {
		if a.to < from {
			return -1
		}
		return 1
	})
	hi := lo
	for hi < len(list) && list[hi].from <= to {
		from, to = min(from, list[hi].from), max(to, list[hi].to)
		hi++
	}
	*s = slices.Replace(list, lo, hi, span{from, to})
}

func (s spans) has(n int64) bool {
	_, found := slices.BinarySearchFunc(s, n, func(a span, n int64) int {
		switch {
		case a.to <= n:
			return -1
		case a.from > n:
			return 1
		}
		return 0
	})
	return found
}

func (s spans) count() int64 {
	var n int64
	for _, r := range s {
		n += r.to - r.from
	}
	return n
}

// below returns the part of s that is below limit.
func (s spans) below(limit int64) spans {
	var out spans
	for _, r := range s {
		out.add(r.from, min(r.to, limit))
	}
	return out
}

// minus returns the part of s that is not in other.
func (s spans) minus(other spans) spans {
	var out spans
	j := 0
	for _, r := range s {
		from := r.from
		for j < len(other) && other[j].to <= from {
			j++
		}
		for k := j; k < len(other) && other[k].from < r.to; k++ {
			out.add(from, other[k].from)
			from = max(from, other[k].to)
		}
		out.add(from, r.to)
	}
	return out
}

// latest is the newest acknowledged record of a key.
type latest struct {
	number    int64
	tombstone bool
}

// account is what is known of one partition's records.
type account struct {
	next int64 // number of the next record
	// acked were acknowledged; committed are those of them that a read_committed consumer
	// must see in the end, aborted and open those that it must not. What is acknowledged and
	// in none of the three belongs to a transaction whose end is not known.
	acked, committed, aborted, open spans
	// keys is kept for compacted topics only.
	keys map[string]latest
}

// ledger is the account of one topic, shared by its producer and readers.
type ledger struct {
	mu    sync.Mutex
	parts []account
}

func newLedger(partitions int32) *ledger {
	return &ledger{parts: make([]account, partitions)}
}

// take gives out the next number of a partition.
func (l *ledger) take(partition int32) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.parts[partition].next
	l.parts[partition].next++
	return n
}

// acked notes an acknowledged record; visible says that no transaction holds it back.
func (l *ledger) acked(partition int32, n int64, visible bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.parts[partition]
	p.acked.add(n, n+1)
	if visible {
		p.committed.add(n, n+1)
	}
}

// key notes the newest visible record of a key.
func (l *ledger) key(partition int32, key string, n int64, tombstone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.parts[partition]
	if p.keys == nil {
		p.keys = make(map[string]latest)
	}
	if was, ok := p.keys[key]; !ok || was.number < n {
		p.keys[key] = latest{number: n, tombstone: tombstone}
	}
}

type outcome int

const (
	committed outcome = iota
	aborted
	leftOpen
)

// end notes how the transaction that wrote these numbers ended.
func (l *ledger) end(byPartition map[int32]*spans, how outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, numbers := range byPartition {
		p := &l.parts[partition]
		into := &p.committed
		switch how {
		case aborted:
			into = &p.aborted
		case leftOpen:
			into = &p.open
		}
		for _, r := range *numbers {
			into.add(r.from, r.to)
		}
	}
}

// snapshot returns a copy that does not change any more.
func (l *ledger) snapshot() []account {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := make([]account, len(l.parts))
	for i, p := range l.parts {
		parts[i] = account{
			next: p.next, acked: slices.Clone(p.acked), committed: slices.Clone(p.committed),
			aborted: slices.Clone(p.aborted), open: slices.Clone(p.open), keys: make(map[string]latest, len(p.keys)),
		}
		for k, v := range p.keys {
			parts[i].keys[k] = v
		}
	}
	return parts
}

// Counts says what became of a topic's records so far.
type Counts struct {
	// Produced were handed to a producer; Acked of them were acknowledged.
	Produced, Acked int64
	// Committed, Aborted and Open are parts of Acked. Records outside of transactions count as committed.
	Committed, Aborted, Open int64
}

// Plus adds two counts.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		Produced: c.Produced + o.Produced, Acked: c.Acked + o.Acked,
		Committed: c.Committed + o.Committed, Aborted: c.Aborted + o.Aborted, Open: c.Open + o.Open,
	}
}

func (l *ledger) counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c Counts
	for _, p := range l.parts {
		c = c.Plus(Counts{p.next, p.acked.count(), p.committed.count(), p.aborted.count(), p.open.count()})
	}
	return c
}
