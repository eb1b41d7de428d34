package lineage

import (
	"fmt"
	"slices"
	"strings"
)

// Undefined is Kafka's UNDEFINED_EPOCH and UNDEFINED_EPOCH_OFFSET.
const Undefined = -1

// EndOffsetFor answers OffsetForLeaderEpoch as Kafka's LeaderEpochFileCache does
// (LeaderEpochFileCache.endOffsetFor, same rule since 2.0): the largest known epoch at
// or below the one asked for, and the offset at which the next larger one begins. The
// newest epoch ends at logEnd. An epoch above all known ones gives (-1, -1); one below
// all known ones gives itself and the start of the first.
//
// Epochs here are this cluster's; entries that differ in SourceEpoch only are one epoch.
func (c Chain) EndOffsetFor(epoch int32, logEnd int64) (int32, int64) {
	if epoch == Undefined || len(c) == 0 {
		return Undefined, Undefined
	}
	if c[len(c)-1].Epoch == epoch {
		return epoch, logEnd
	}
	higher := slices.IndexFunc(c, func(e Entry) bool { return e.Epoch > epoch })
	switch {
	case higher < 0:
		return Undefined, Undefined
	case higher == 0:
		return epoch, c[0].Start
	default:
		return c[higher-1].Epoch, c[higher].Start
	}
}

// At returns the entry that covers offset. Below the first entry there is none.
func (c Chain) At(offset int64) (Entry, bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].Start <= offset {
			return c[i], true
		}
	}
	return Entry{}, false
}

// SourceEpochBefore returns the source epoch of the last record below offset, or
// NoSource: the LastFetchedEpoch of a Fetch at offset (R7).
func (c Chain) SourceEpochBefore(offset int64) int32 {
	if offset <= 0 {
		return NoSource
	}
	e, ok := c.At(offset - 1)
	if !ok {
		return NoSource
	}
	return e.SourceEpoch
}

// Cut returns the chain of the same log truncated to end.
func (c Chain) Cut(end int64) Chain {
	n := len(c)
	for n > 0 && c[n-1].Start >= end {
		n--
	}
	return slices.Clone(c[:n])
}

// CutEpoch returns the part of the chain at or below epoch.
func (c Chain) CutEpoch(epoch int32) Chain {
	n := len(c)
	for n > 0 && c[n-1].Epoch > epoch {
		n--
	}
	return slices.Clone(c[:n])
}

// Trim returns the chain of the same log whose start moved up to logStart: the entry
// that covers logStart stays and begins there, as LeaderEpochFileCache.truncateFromStart
// leaves it.
func (c Chain) Trim(logStart int64) Chain {
	i := 0
	for i+1 < len(c) && c[i+1].Start <= logStart {
		i++
	}
	out := slices.Clone(c[i:])
	if len(out) > 0 && out[0].Start < logStart {
		out[0].Start = logStart
	}
	return out
}

// Append returns the chain with e added. An entry of the same two epochs as the last one
// changes nothing; entries at or above e.Start are replaced, as a truncation would have
// done to the log they describe.
func (c Chain) Append(e Entry) Chain {
	out := c.Cut(e.Start)
	if n := len(out); n > 0 && out[n-1].Epoch == e.Epoch && out[n-1].SourceEpoch == e.SourceEpoch {
		return out
	}
	return append(out, e)
}

// Bound returns a chain of at most n entries: the oldest become one, which begins where the
// first did. Whoever still asks about an epoch that is gone is told that it ends there, and
// copies more than it had to.
func (c Chain) Bound(n int) Chain {
	if len(c) <= n {
		return slices.Clone(c)
	}
	out := slices.Clone(c[len(c)-n:])
	out[0].Start = c[0].Start
	return out
}

// FirstLocal returns the start of the first entry that no virtual broker led. S never
// passes it (R5, C12): what lies above was written by clients of this cluster.
func (c Chain) FirstLocal() (int64, bool) {
	for _, e := range c {
		if e.SourceEpoch == NoSource {
			return e.Start, true
		}
	}
	return 0, false
}

// WrittenBehind tells whether clients of this cluster wrote behind what was mirrored, of a
// chain whose entries all have records. That of a real leader's log may end with one that has
// none: what is on record of it says so beside the chain (Record.Written).
func (c Chain) WrittenBehind() bool {
	_, has := c.FirstLocal()
	return has && c[0].SourceEpoch != NoSource
}

// agreed returns up to where a log that ends at end holds what virtual brokers led. Where
// the first entry is a client's nothing is: also a log that begins above 0 is copied from
// the source's beginning then.
func (c Chain) agreed(end int64) int64 {
	local, has := c.FirstLocal()
	switch {
	case !has:
		return end
	case local == c[0].Start:
		return 0
	}
	return min(end, local)
}

// SourceTruncation returns the offset down to which this log agrees with the source, when
// the source has answered a Fetch with DivergingEpoch (epoch, endOffset), in its own
// epochs. It walks as AbstractFetcherThread.getOffsetTruncationState does; when the
// source's epoch is not known here the result is an intermediate point, to be asked about
// again. logEnd is this log's end.
func (c Chain) SourceTruncation(epoch int32, endOffset, logEnd int64) int64 {
	if endOffset == Undefined || len(c) == 0 {
		return 0
	}
	if c[0].SourceEpoch > epoch {
		// All that is here is newer: nothing above the first entry agrees.
		return min(c[0].Start, endOffset, logEnd)
	}
	// The end, in this log, of the largest source epoch at or below the one answered.
	floor, end := NoSource, int64(0)
	for i, e := range c {
		if e.SourceEpoch == NoSource || e.SourceEpoch > epoch {
			if e.SourceEpoch > epoch {
				break
			}
			continue
		}
		floor, end = e.SourceEpoch, logEnd
		if i+1 < len(c) {
			end = c[i+1].Start
		}
	}
	if floor == epoch {
		return min(end, endOffset, logEnd)
	}
	return min(end, logEnd)
}

// CommonPrefix returns the end of the part that two logs share: log a with chain ca ends at
// ea, log b with cb at eb. It stands on Kafka's log matching (equal epoch at equal offset
// means equal logs up to there), so the newest epoch that both logs hold decides: of two
// logs that hold records of it, the one whose last ends lower is a part of the other. Where
// it starts does not matter, as a compaction gap at its start makes it start later in a
// log copied later (C11). A log without any epoch holds no record and agrees with
// everything up to its end.
func CommonPrefix(ca Chain, ea int64, cb Chain, eb int64) int64 {
	end := min(ea, eb)
	if len(ca) == 0 || len(cb) == 0 {
		return end
	}
	if common, ok := commonEpochEnd(ca.spans(ea), cb.spans(eb)); ok {
		return common
	}
	// No epoch in common: nothing above the later of the two starts is known to agree.
	return min(end, max(ca[0].Start, cb[0].Start))
}

// commonEpochEnd returns the lower of the two ends of the newest epoch that both have.
func commonEpochEnd(sa, sb []span) (int64, bool) {
	for i := len(sa) - 1; i >= 0; i-- {
		for j := len(sb) - 1; j >= 0; j-- {
			a, b := sa[i], sb[j]
			if a.epoch == b.epoch {
				return min(a.end, b.end), true
			}
		}
	}
	return 0, false
}

type span struct {
	epoch      int32
	start, end int64
}

// spans lists the stretches of one epoch of a log that ends at end, ascending.
func (c Chain) spans(end int64) []span {
	var out []span
	for _, e := range c {
		if e.Start >= end {
			break
		}
		if n := len(out); n > 0 && out[n-1].epoch == e.Epoch {
			continue
		} else if n > 0 {
			out[n-1].end = e.Start
		}
		out = append(out, span{e.Epoch, e.Start, end})
	}
	return out
}

// Validate checks what every chain promises: starts and epochs ascend, and no entry is
// a repetition of the one before it.
func (c Chain) Validate() error {
	for i := 1; i < len(c); i++ {
		p, e := c[i-1], c[i]
		if e.Epoch < p.Epoch || e.Start <= p.Start || (e.Epoch == p.Epoch && e.SourceEpoch == p.SourceEpoch) {
			return fmt.Errorf("lineage entry %d (%v) does not follow %v", i, e, p)
		}
	}
	return nil
}

func (e Entry) String() string {
	return fmt.Sprintf("%d/%d@%d", e.Epoch, e.SourceEpoch, e.Start)
}

func (c Chain) String() string {
	s := make([]string, len(c))
	for i, e := range c {
		s[i] = e.String()
	}
	return "[" + strings.Join(s, " ") + "]"
}
