package lineage

import "slices"

// Link is what the cluster that a topic now fails back from says of it: it mirrored the
// topic from here, and stopped. All epochs called its own are that cluster's.
type Link struct {
	// LastEpoch is the last mirror epoch: our epoch of the last record it took from us.
	LastEpoch int32
	// LastOffset is the last mirror offset: where its log ended when it stopped.
	LastOffset int64
	// History is its lineage: in its own epochs, with ours as the source epochs.
	History Chain
}

// Invert returns the lineage of the part that was mirrored from here as we have to see it:
// our epochs stand for its own. It is empty when the link says nothing that can be used.
func (l Link) Invert() Chain {
	end := l.LastOffset
	if local, has := l.History.FirstLocal(); has {
		end = min(end, local) // written there by clients, not taken from us
	}
	var out Chain
	for _, e := range l.History.Cut(end) {
		inverted := Entry{Epoch: e.SourceEpoch, SourceEpoch: e.Epoch, Start: e.Start}
		if n := len(out); n > 0 && (inverted.Epoch < out[n-1].Epoch || inverted.SourceEpoch < out[n-1].SourceEpoch) {
			return nil // no log of ours can have gone like this
		}
		out = out.Append(inverted)
	}
	return out.CutEpoch(l.LastEpoch)
}

// point returns the failback point of a log of ours, with cache as its epochs (see
// Record.Seed): up to there it holds what the peer took from us. That is the last mirror
// offset, or where the last mirror epoch ends here; where the log does not have that epoch,
// the same for the newest epoch that it does have. ok is false when there is none.
func (l Link) point(cache Chain, end int64) (p int64, inverted Chain, ok bool) {
	inverted = l.Invert()
	p, ok = commonEpochEnd(cache.spans(end), inverted.spans(l.LastOffset))
	return p, inverted, ok
}

// seed is Record.Seed with the history of a peer. agreed is the failback point.
func (l Link) seed(cache Chain, end int64) (out Chain, agreed int64, ok bool) {
	p, inverted, ok := l.point(cache, end)
	if !ok {
		return nil, 0, false
	}
	// Our epochs begin where our own log says, its epochs where its lineage says. What lies
	// below its lineage was trimmed there, but was ours and came to it before the rest.
	starts := []int64{}
	for _, e := range cache {
		starts = append(starts, e.Start)
	}
	for _, e := range inverted {
		if len(cache) > 0 && e.Start > cache[0].Start {
			starts = append(starts, e.Start)
		}
	}
	slices.Sort(starts)
	for _, start := range slices.Compact(starts) {
		if start >= p {
			break
		}
		own, _ := cache.At(start)
		source := inverted[0].SourceEpoch
		if e, ok := inverted.At(start); ok {
			source = e.SourceEpoch
		}
		out = out.Append(Entry{Epoch: own.Epoch, SourceEpoch: source, Start: start})
	}
	if p < end {
		// A log that begins above the point has lost what leads to it.
		epoch := cache[0].Epoch
		if e, ok := cache.At(p); ok {
			epoch = e.Epoch
		}
		out = append(out, Entry{Epoch: epoch, SourceEpoch: NoSource, Start: p})
	}
	for _, e := range cache {
		if e.Start > p || e.Start == p && p >= end {
			out = out.Append(Entry{Epoch: e.Epoch, SourceEpoch: NoSource, Start: e.Start})
		}
	}
	return out, p, true
}

// SeedLinked is Seed for the first takeover of a start. What the peer says stands where it
// reaches as far as our own record: of what both know, its answer is the newer one, for the
// log there may have been copied anew since the record was written.
func (r Record) SeedLinked(cache Chain, end int64, link Link) Chain {
	own := r.Seed(cache, end)
	out, agreed, ok := link.seed(cache, end)
	if !ok {
		return own
	}
	if own.agreed(end) > agreed {
		return own
	}
	return out
}
