package proxy

import (
	"math/bits"
	"sync"
)

// Buffers are pooled by size class, each a power of two. What is larger than the
// largest class is left to the garbage collector: such frames are rare, and a pool
// would hold on to them.
const (
	minClass = 12 // 4 KiB
	maxClass = 22 // 4 MiB
)

const (
	// maxDecoded bounds a request that is decoded whatever it holds, which is all but Produce: real
	// ones come to a few MiB for a hundred thousand partitions.
	maxDecoded = 16 << 20
	// decodedWeight is about what a byte of such a request may come to in memory: an empty element
	// of an array is a byte or two, and a hundred when it is decoded. Anybody can send one before
	// a broker has asked who it is.
	decodedWeight = 16
)

// weight is what of the budget is taken for a large request that is held in memory.
func (p *Proxy) weight(r *row, size int) (int64, error) {
	if r.pooled { // walked over first
		return min(int64(size), p.cfg.BufferedBytes), nil
	}
	if size > maxDecoded {
		return 0, because(reasonOversized, "%s request of %d bytes, at most %d are read", p.apiName(r.key), size, maxDecoded)
	}
	return min(decodedWeight*int64(size), p.cfg.BufferedBytes), nil
}

// buffers is a pool of byte slices.
type buffers struct {
	classes [maxClass - minClass + 1]sync.Pool
}

// buffer is a pooled slice. Its owner calls release once.
type buffer struct {
	b    []byte
	full []byte // the whole slice of the size class; nil if not pooled
	pool *buffers
}

// get returns a buffer of n bytes with undefined content.
func (p *buffers) get(n int) *buffer {
	if n > 1<<maxClass {
		return &buffer{b: make([]byte, n)}
	}
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if v, ok := p.classes[class-minClass].Get().(*buffer); ok {
		v.b = v.full[:n]
		return v
	}
	full := make([]byte, 1<<class)
	return &buffer{b: full[:n], full: full, pool: p}
}

// release gives the bytes back. Nothing may refer to them any more.
func (b *buffer) release() {
	if b == nil || b.full == nil {
		return
	}
	b.b = nil
	b.pool.classes[bits.Len(uint(len(b.full)-1))-minClass].Put(b)
}
