package leading

import "slices"

// The source: one log, whose leader may change, cleanly or not, and which may lose its
// beginning or something in its middle.

func (w *simWorld) append(extra int64) {
	w.nextID++
	b := simBatch{base: w.source.end, last: w.source.end + extra%2, epoch: w.sle, id: w.nextID}
	if w.cfg.txn {
		w.transact(&b, int(extra))
	}
	w.source.append(b)
}

func (w *simWorld) lose(b simBatch) {
	w.gone.add(b.id)
	w.forget(b)
	if w.visible[b.base] == uint8(b.id) {
		w.visible[b.base] = 0
	}
}

func (w *simWorld) unclean(n int) bool {
	if w.left.unclean <= 0 || len(w.source.batches) == 0 {
		return false
	}
	at, extra := w.source.batches[n%len(w.source.batches)].base, int64(n/len(w.source.batches))%2
	if at < w.source.start {
		return false
	}
	w.left.unclean--
	for _, b := range w.source.batches {
		if b.base >= at {
			w.lose(b)
		}
	}
	w.source.truncate(at)
	w.sle++
	w.said()
	w.append(extra)
	return true
}

func (w *simWorld) retain(n int) bool {
	if w.left.retain <= 0 || len(w.source.batches) < 2 {
		return false
	}
	w.left.retain--
	if n%2 == 0 { // the log start moves
		n := 1 + n/2%len(w.source.batches)
		to := w.source.end
		if n < len(w.source.batches) {
			to = w.source.batches[n].base
		}
		for _, b := range w.source.batches[:min(n, len(w.source.batches))] {
			w.lose(b)
		}
		w.source.trim(to)
		return true
	}
	i := n / 2 % (len(w.source.batches) - 1) // compaction, never of the last batch
	w.lose(w.source.batches[i])
	w.source.batches = slices.Delete(slices.Clone(w.source.batches), i, i+1)
	return true
}
