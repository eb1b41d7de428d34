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
