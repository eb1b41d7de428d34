package leading

import (
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// The model's logs: batches without bytes, and a leader epoch cache as Kafka keeps it.

type simBatch struct {
	base, last int64
	epoch      int32 // leader epoch in the batch: the source's in its log, this cluster's elsewhere
	id         int
	pid        int8
	txn        simTxn
}

type simLog struct {
	start, end int64
	batches    []simBatch
	cache      lineage.Chain // leader epoch cache; Epoch and Start only
}

func (l *simLog) append(b simBatch) {
	l.batches = append(l.batches, b)
	l.end = b.last + 1
	l.assign(b.epoch, b.base)
}

func (l *simLog) assign(epoch int32, start int64) {
	if n := len(l.cache); n > 0 && l.cache[n-1].Epoch == epoch {
		return
	}
	l.cache = l.cache.Append(lineage.Entry{Epoch: epoch, SourceEpoch: lineage.NoSource, Start: start})
}

func (l *simLog) truncate(end int64) {
	if end < l.start {
		l.restart(end)
		return
	}
	n := len(l.batches)
	for n > 0 && l.batches[n-1].last >= end {
		n--
	}
	l.batches = slices.Clone(l.batches[:n])
	l.end = min(l.end, end)
	l.cache = l.cache.Cut(l.end)
}

func (l *simLog) restart(at int64) {
	*l = simLog{start: at, end: at}
}

func (l *simLog) trim(start int64) {
	if start <= l.start {
		return
	}
	n := 0
	for n < len(l.batches) && l.batches[n].last < start {
		n++
	}
	l.start, l.batches, l.cache = start, slices.Clone(l.batches[n:]), l.cache.Trim(start)
}

// read returns up to n batches from offset on that end below limit.
func (l *simLog) read(offset, limit int64, n int) []simBatch {
	var out []simBatch
	for _, b := range l.batches {
		if b.last >= offset && b.last < limit && len(out) < n {
			out = append(out, b)
		}
	}
	return out
}

func (l *simLog) has(b simBatch) bool {
	return slices.ContainsFunc(l.batches, func(o simBatch) bool { return o.base == b.base && o.id == b.id })
}

// check is a stock leader's answer to a Fetch's position.
func (l *simLog) check(offset int64, last int32) (div bool, e int32, o int64, out bool) {
	if last != lineage.Undefined {
		e, o = l.cache.EndOffsetFor(last, l.end)
		if e == lineage.Undefined {
			return false, 0, 0, true
		}
		if e < last || o < offset {
			return true, e, o, false
		}
	}
	return false, 0, 0, offset < l.start || offset > l.end
}

func (l *simLog) clone() simLog {
	c := *l
	c.batches = slices.Clip(c.batches) // appended to only; everything else replaces it
	return c
}

func with(list []int32, id int32) []int32 {
	if slices.Contains(list, id) {
		return list
	}
	return append(slices.Clone(list), id)
}

func without(list []int32, ids ...int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(id int32) bool { return slices.Contains(ids, id) })
}

func only(list, ids []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(id int32) bool { return !slices.Contains(ids, id) })
}
