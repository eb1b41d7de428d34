package lineage

import (
	"maps"
	"slices"
)

// MaxChains bounds how many chains one partition's record keeps. A chain leaves when no
// real replica can still end with its epoch (see Record.Prune); this bound is only
// reached when a replica stays dead over that many leader changes, and then the oldest
// goes: such a replica is answered from the newest chain's floor and copies more than it
// had to.
const MaxChains = 64

// MaxEntries bounds how long a chain is on record, so that a record of MaxChains chains
// stays well below what a batch of the state topic may hold.
const MaxEntries = 512

// NewRecord returns the record of a partition that was never mirrored.
func NewRecord() Record {
	return Record{LastMirrorEpoch: Undefined, LastMirrorOffset: Undefined, Chains: map[int32]Chain{}}
}

// Newest returns the highest epoch that has a chain, and the chain.
func (r Record) Newest() (int32, Chain) {
	best := int32(Undefined)
	for e := range r.Chains {
		best = max(best, e)
	}
	return best, r.Chains[best]
}

// With returns a copy in which epoch has chain, bounded by MaxEntries. The oldest chains above
// MaxChains go.
func (r Record) With(epoch int32, chain Chain) Record {
	r.Chains = maps.Clone(r.Chains)
	if r.Chains == nil {
		r.Chains = map[int32]Chain{}
	}
	r.Chains[epoch] = chain.Bound(MaxEntries)
	for len(r.Chains) > MaxChains {
		delete(r.Chains, slices.Min(slices.Collect(maps.Keys(r.Chains))))
	}
	return r.withWritten(r.Written)
}

// WithWritten returns a copy in which epoch, if it has a chain, is one of Written.
func (r Record) WithWritten(epoch int32) Record {
	return r.withWritten(map[int32]bool{epoch: true}, r.Written)
}

// withWritten returns a copy whose Written are those of the sets that have a chain.
func (r Record) withWritten(sets ...map[int32]bool) Record {
	r.Written = nil
	for _, set := range sets {
		for e, w := range set {
			if _, ok := r.Chains[e]; !ok || !w {
				continue
			}
			if r.Written == nil {
				r.Written = map[int32]bool{}
			}
			r.Written[e] = true
		}
	}
	return r
}

// Prune returns a copy without the chains below epoch. The caller knows that every
// assigned real replica's log ends with a record of epoch or later (R11).
func (r Record) Prune(epoch int32) Record {
	r.Chains = maps.Clone(r.Chains)
	maps.DeleteFunc(r.Chains, func(e int32, _ Chain) bool { return e < epoch })
	return r.withWritten(r.Written)
}

// Merge returns r with the chains of o that r does not have. An epoch's chain has one
// writer, its leader, who adds at the end and trims at the start: of two for one epoch the
// one that reaches further is later, and of those that reach equally far the one that
// begins later. What clients wrote stays known.
func (r Record) Merge(o Record) Record {
	out := r
	out.Chains = maps.Clone(r.Chains)
	if out.Chains == nil {
		out.Chains = map[int32]Chain{}
	}
	for e, c := range o.Chains {
		if c.later(out.Chains[e]) {
			out.Chains[e] = c
		}
	}
	return out.withWritten(r.Written, o.Written)
}

func (c Chain) later(o Chain) bool {
	if len(c) == 0 || len(o) == 0 {
		return len(c) > 0
	}
	if l, k := c[len(c)-1].Start, o[len(o)-1].Start; l != k {
		return l > k
	}
	return c[0].Start > o[0].Start
}

// Log is a replica's log as far as a Fetch tells it.
type Log struct {
	End       int64
	LastEpoch int32 // LastFetchedEpoch, Undefined for a log without records
	// Visible is, with Epoch and Start, a record of the log that was read to tell its history
	// where LastEpoch does not; nil if none was.
	Visible *Entry
}

// Ambiguous tells whether a record of the log would tell more of its history than its last
// epoch does.
func (r Record) Ambiguous(l Log) bool {
	if _, ok := r.Chains[l.LastEpoch]; ok || l.LastEpoch == Undefined || l.Visible != nil {
		return false
	}
	_, end, _ := r.ChainOf(l)
	return end < l.End && len(r.before(l)) > 1
}

// ChainOf returns the chain of a log and the end up to which it is known. The chain is the
// one kept under the log's last epoch, or what a later leader's has up to that epoch: whoever
// has records of one epoch has the same ones below. Where there is none (the epoch of a real leader that
// appended nothing, R5), the log is that of an earlier leader, and which one cannot be told
// from that epoch: only what all the chains that it may be have in common is known. A
// record of it excludes those that do not have it. Known is false when nothing at
// all is known of a log that has records.
func (r Record) ChainOf(l Log) (c Chain, end int64, known bool) {
	if l.LastEpoch == Undefined || l.End == 0 {
		return nil, l.End, true
	}
	if c, ok := r.Chains[l.LastEpoch]; ok {
		return c.Cut(l.End), l.End, true
	}
	if c := r.holding(l.LastEpoch); c != nil {
		return c.Cut(l.End), l.End, true
	}
	if may := r.before(l); len(may) > 0 {
		newest := may[len(may)-1].Cut(l.End)
		end = l.End
		for _, o := range may[:len(may)-1] {
			end = min(end, CommonPrefix(newest, l.End, o.Cut(l.End), l.End))
		}
		return newest.Cut(end), end, true
	}
	_, newest := r.Newest()
	if len(newest) == 0 {
		return nil, 0, false
	}
	// Older than every leader on record: the floor of the newest chain, as
	// OffsetForLeaderEpoch would find it.
	end = l.End
	if e, o := newest.EndOffsetFor(l.LastEpoch, l.End); e != Undefined {
		end = min(o, end)
	}
	return newest.CutEpoch(l.LastEpoch).Cut(end), end, true
}

// holding returns what the oldest chain above an epoch has up to that epoch, nil if none has it.
func (r Record) holding(epoch int32) Chain {
	for _, e := range slices.Sorted(maps.Keys(r.Chains)) {
		if c := r.Chains[e].CutEpoch(epoch); e > epoch && len(c) > 0 && c[len(c)-1].Epoch == epoch {
			return c
		}
	}
	return nil
}

// before returns the chains, oldest first, that were in force under leaders before the
// log's last epoch: those that have the record that was read, if there are any.
func (r Record) before(l Log) []Chain {
	var all, have []Chain
	for _, e := range slices.Sorted(maps.Keys(r.Chains)) {
		c := r.Chains[e]
		if e >= l.LastEpoch || len(c) == 0 {
			continue
		}
		all = append(all, c)
		if v := l.Visible; v != nil {
			if at, ok := c.At(v.Start); ok && at.Epoch == v.Epoch {
				have = append(have, c)
			}
		}
	}
	if len(have) > 0 {
		return have
	}
	return all
}

// Seed translates the leader epoch cache of a real broker's log that ends at end (Epoch and
// Start, as OffsetForLeaderEpoch gives them) into a chain. A virtual broker persists it
// under the real leader's epoch before it joins that leader's ISR (R11).
//
// A log that holds a record of an epoch which a virtual broker led passed that leader's
// lineage check, so up to the end of that epoch its history is the leader's chain. The
// cache alone does not say so: with a compaction gap an empty epoch of a real leader looks
// as if it had the records up to the next epoch's first batch, and these would be taken
// for a client's. What follows the last such epoch was led by real brokers.
func (r Record) Seed(cache Chain, end int64) Chain {
	for i := len(cache) - 1; i >= 0; i-- {
		stop := end
		if i+1 < len(cache) {
			stop = min(end, cache[i+1].Start)
		}
		led := r.led(cache[i].Epoch)
		if len(led) == 0 || cache[i].Start >= stop {
			continue
		}
		return append(led.Cut(stop), local(cache[i+1:])...)
	}
	return local(cache)
}

func local(cache Chain) Chain {
	out := slices.Clone(cache)
	for i := range out {
		out[i].SourceEpoch = NoSource
	}
	return out
}

// led returns the chain in force under an epoch, up to that epoch: its own, or if that one is
// gone the oldest later one that has the epoch. It must know something of the source: that
// of a virtual broker does, and that of a real leader whose records a peer has mirrored (see
// SeedLinked), in whose epoch clients may have written more.
func (r Record) led(epoch int32) Chain {
	for _, e := range slices.Sorted(maps.Keys(r.Chains)) {
		if e < epoch {
			continue
		}
		c := r.Chains[e].CutEpoch(epoch)
		if last := len(c) - 1; last >= 0 && c[last].Epoch == epoch && c[0].SourceEpoch != NoSource {
			return c
		}
	}
	return nil
}

// Agree returns S, the end of the common prefix of the logs, and the chain in force up to
// it: that of the log with the newest last record, cut at S (R5). ok is false when some
// log's history is unknown. logs must not be empty.
func (r Record) Agree(logs []Log) (s int64, chain Chain, ok bool) {
	ref := -1
	var refChain Chain
	var refEnd int64
	for i, l := range logs {
		c, end, known := r.ChainOf(l)
		if !known {
			return 0, nil, false
		}
		if ref < 0 || newer(c, end, refChain, refEnd) {
			ref, refChain, refEnd = i, c, end
		}
	}
	s = refEnd
	for _, l := range logs {
		c, end, _ := r.ChainOf(l)
		s = min(s, CommonPrefix(refChain, refEnd, c, end))
	}
	s = refChain.agreed(s)
	return s, refChain.Cut(s), true
}

// newer compares two logs by the epoch of their last record, then by length: an empty
// leader epoch counts for nothing (C8e).
func newer(a Chain, aEnd int64, b Chain, bEnd int64) bool {
	ea, eb := lastEpoch(a, aEnd), lastEpoch(b, bEnd)
	if ea != eb {
		return ea > eb
	}
	return aEnd > bEnd
}

func lastEpoch(c Chain, end int64) int32 {
	if e, ok := c.At(end - 1); ok && end > 0 {
		return e.Epoch
	}
	return Undefined
}
