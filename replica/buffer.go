package replica

import (
	"sort"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// buffer holds the batches of one partition between the source and the followers, in
// offset order. The bytes are those that the source's answer arrived in; they are never
// changed after they were put here, so that an answer being written may go on using them
// after they were evicted.
//
// The zero buffer is empty. Whoever holds a partition's lock may use it.
type buffer struct {
	batches []batch.Batch // from head on
	head    int
	bytes   int64
}

func (b *buffer) reset() { *b = buffer{} }

func (b *buffer) append(x batch.Batch) {
	b.batches = append(b.batches, x)
	b.bytes += int64(len(x))
}

// read appends to dst the batches from offset on that end at or below end, up to max bytes
// but at least one, and returns their size.
func (b *buffer) read(dst [][]byte, offset, end int64, max int) ([][]byte, int) {
	live := b.batches[b.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].LastOffset() >= offset })
	size := 0
	for ; i < len(live); i++ {
		x := live[i]
		if x.LastOffset() >= end || size > 0 && size+len(x) > max {
			break
		}
		size += len(x)
		dst = append(dst, x)
	}
	return dst, size
}

// evict drops whole batches below offset until at most keep bytes are left, and returns
// the offset that the buffer begins at now; ok is false if nothing went.
func (b *buffer) evict(below int64, keep int64) (start int64, ok bool) {
	for b.head < len(b.batches) && b.bytes > keep {
		x := b.batches[b.head]
		if x.LastOffset() >= below {
			break
		}
		start, ok = x.NextOffset(), true
		b.bytes -= int64(len(x))
		b.batches[b.head] = nil
		b.head++
	}
	if b.head > 64 && b.head*2 > len(b.batches) {
		b.batches = append(b.batches[:0], b.batches[b.head:]...)
		b.head = 0
	}
	return start, ok
}
