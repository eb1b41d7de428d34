package replica

import (
	"sort"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

// buffer holds the batches of one partition between the source and the followers, in
// offset order. The bytes are those that the source's answer arrived in; they are never
// changed after they were put here, so that an answer being written may go on using them
// after they were evicted: it holds them too.
//
// The zero buffer is empty. Whoever holds a partition's lock may use it.
type buffer struct {
	kept []kept // from head on
	head int
	// bytes is the memory that the batches keep from being used for others: their pool
	// buffers as a whole.
	bytes int64
}

// kept is a batch and where it lies. Neighbours in one pool buffer hold it together.
type kept struct {
	batch.Batch
	in *pool.Buffer // nil: memory of its own
}

// reset lets go of everything.
func (b *buffer) reset() {
	var last *pool.Buffer
	for _, x := range b.kept[b.head:] {
		if x.in != last {
			x.in.Release()
			last = x.in
		}
	}
	*b = buffer{}
}

// append takes a batch in that has memory of its own.
func (b *buffer) append(x batch.Batch) { b.appendFrom(x, nil) }

// appendFrom takes in a batch that lies in a pool buffer, which is retained with the
// first of it.
func (b *buffer) appendFrom(x batch.Batch, in *pool.Buffer) {
	switch {
	case in == nil:
		b.bytes += int64(len(x))
	case b.head == len(b.kept) || b.kept[len(b.kept)-1].in != in:
		in.Retain()
		b.bytes += in.Size()
	}
	b.kept = append(b.kept, kept{x, in})
}

// read returns the batches from offset on that end at or below end, up to max bytes but
// at least one, the pool buffers that they lie in, retained for the caller, and the
// batches' size.
func (b *buffer) read(offset, end int64, max int) (dst [][]byte, hold []*pool.Buffer, size int) {
	live := b.kept[b.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].LastOffset() >= offset })
	var last *pool.Buffer
	for ; i < len(live); i++ {
		x := live[i]
		if x.LastOffset() >= end || size > 0 && size+len(x.Batch) > max {
			break
		}
		size += len(x.Batch)
		dst = append(dst, x.Batch)
		if x.in != nil && x.in != last {
			x.in.Retain()
			hold = append(hold, x.in)
			last = x.in
		}
	}
	return dst, hold, size
}

// evict drops whole batches below offset until at most keep bytes are left, and returns
// the offset that the buffer begins at now; ok is false if nothing went.
func (b *buffer) evict(below int64, keep int64) (start int64, ok bool) {
	for b.head < len(b.kept) && b.bytes > keep {
		x := b.kept[b.head]
		if x.LastOffset() >= below {
			break
		}
		start, ok = x.NextOffset(), true
		b.kept[b.head] = kept{}
		b.head++
		switch {
		case x.in == nil:
			b.bytes -= int64(len(x.Batch))
		case b.head == len(b.kept) || b.kept[b.head].in != x.in:
			b.bytes -= x.in.Size() // before it may be gone
			x.in.Release()
		}
	}
	if b.head > 64 && b.head*2 > len(b.kept) {
		n := copy(b.kept, b.kept[b.head:])
		clear(b.kept[n:])
		b.kept, b.head = b.kept[:n], 0
	}
	return start, ok
}

// needed returns the bytes that evict(below, 0) would leave.
func (b *buffer) needed(below int64) int64 {
	live := b.kept[b.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].LastOffset() >= below })
	var n int64
	var last *pool.Buffer
	for _, x := range live[i:] {
		switch {
		case x.in == nil:
			n += int64(len(x.Batch))
		case x.in != last:
			n += x.in.Size()
			last = x.in
		}
	}
	return n
}
