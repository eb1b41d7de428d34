package fetcher

import "github.com/cluster-mirroring/mirror-sidecar/batch"

// anchor is the last batch that a part was given. Whenever the part comes to a worker, after a
// failure or with a new leader, the source must show that it still holds that batch: nothing is
// delivered before. The epochs of a source that was restored from a backup begin at the backup's,
// so that another log may come under the very epoch that was read last.
type anchor struct {
	batch.Anchor
	known bool
	due   bool // to be shown
	ask   bool // the next fetch asks for it; else for what comes behind it
}

func newAnchor(a *batch.Anchor) anchor {
	if a == nil {
		return anchor{}
	}
	return anchor{Anchor: *a, known: true}
}

// arm demands that the batch be shown again.
func (a *anchor) arm() { a.due, a.ask = a.known, a.known }

// set takes the last batch that was delivered.
func (a *anchor) set(b batch.Batch) { *a = anchor{Anchor: b.Anchor(), known: true} }

// verdict is what becomes of an answer while the anchor is due.
type verdict int8

const (
	asUsual    verdict = iota
	discard            // ask anew at once
	another            // the source's log is not the one that was read
	incomplete         // part of the batch came: ask for more of it
)

// look judges an answer to a fetch, and drops the anchor's batch from it.
func (a *anchor) look(in *ingested, size int) verdict {
	switch {
	case !a.due:
		return asUsual
	case !a.ask && size == 0:
		// Nothing behind it yet. Next time it is asked for itself: what ends at it shows only then.
		a.ask = true
		return asUsual
	case !a.ask:
		a.ask = true
		return discard
	case size == 0:
		// The source ends at it or before: asked for what is behind, it tells which.
		a.ask = false
		return asUsual
	case len(in.batches) == 0 && in.err != nil:
		return asUsual
	case len(in.batches) == 0:
		return incomplete
	}
	first := in.batches[0].Anchor()
	if a.Refutes(first) {
		return another
	}
	a.due, a.ask = false, false
	if first.Last <= a.Last {
		in.records -= int64(in.batches[0].Count())
		in.size -= len(in.batches[0])
		in.batches = in.batches[1:]
	}
	return asUsual
}
