package proxy

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
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
	// of an array is a byte or two, and a hundred when it is decoded.
	decodedWeight = 16
)

// fits tells whether a large request can be held in memory.
func (p *Proxy) fits(r *row, size int) error {
	if !r.pooled && size > maxDecoded { // what is pooled is walked over first
		return because(reasonOversized, "%s request of %d bytes, at most %d are read", p.apiName(r.key), size, maxDecoded)
	}
	return nil
}

// introduced makes sure that the broker has accepted the caller before a large request of its is
// read: of what all connections share, nothing is for whoever has not logged in.
func (c *conn) introduced(h header) error {
	if c.authority.authenticated.Load() {
		return nil
	}
	return c.consult(&request{header: h}, func(context.Context, Caller) error { return nil })
}

// acquire takes n bytes of a budget, or all of it if that is less. A request takes of Proxy.budget
// while it comes, as slowly as its sender likes, and then of Proxy.decoding, always in this order and
// once of each, so that no two of them wait for each other.
func (c *conn) acquire(budget *semaphore.Weighted, n int64) (taken, error) {
	n = min(n, c.p.cfg.BufferedBytes)
	if budget.Acquire(c.ctx, n) != nil {
		return taken{}, context.Cause(c.ctx)
	}
	return taken{budget, n}, nil
}

// taken is what a request has of a budget; the zero value is nothing.
type taken struct {
	budget *semaphore.Weighted
	n      int64
}

// keep gives back all but n bytes, if there are more.
func (t *taken) keep(n int64) {
	if n < t.n {
		t.budget.Release(t.n - n)
		t.n = n
	}
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
