// Package pool hands out the memory that record batches travel in.
//
// One Pool is the budget of a whole sidecar (mirror.buffer.memory.bytes). What is
// handed out, what was promised to an answer that is about to be read, and what lies
// ready for reuse are counted against it alike, each buffer with its whole capacity.
//
// # Ownership
//
// A Buffer counts who needs it. Whoever gets one from a Reservation holds it; whoever
// keeps bytes of it beyond the call that showed them retains it, and everybody releases
// what they hold exactly once. With the last release the memory goes to the next answer,
// so that a batch must not be touched after the release that belongs to it. A Buffer is
// a new handle each time: one that was released too often panics, it cannot release
// somebody else's.
//
// Reuse is last in, first out: the buffer that is taken next is the one whose bytes are
// most likely still in the processor's caches. At full speed that, and that nothing has
// to be zeroed, is a third of the sidecar's time (docs/decisions).
package pool

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// smallest is the size from which on memory is kept for reuse; below, the garbage
	// collector does as well.
	smallest = 16 << 10
	// steps is the number of sizes between two powers of two: a buffer has at most a
	// quarter more than was asked for.
	steps = 4
	// classes is enough for sizes up to 1 GiB; larger ones are not kept.
	classes = steps * 16
)

// Pool is a budget for memory and the memory that is free in it.
type Pool struct {
	budget int64
	poison bool
	// pressed is set while somebody waits, or nearly everything is held.
	pressed atomic.Bool

	mu   sync.Mutex // guards the following
	held int64      // handed out or promised
	idle int64      // in free
	free [classes][][]byte
	wait []*waiter // first come, first served, nearly
}

type waiter struct {
	n       int64
	granted chan struct{}
	passed  int // by how many that came later, since its turn was looked at last
}

// Who is first and does not fit may be passed by maxPasses that do. After that nobody passes
// for patience, in which all that moves is given back. If that was not enough, memory is
// held by what does not move, which must not hold up the others: it is passed again.
const (
	maxPasses = 64
	patience  = time.Second
)

// New returns a Pool of budget bytes.
func New(budget int64) *Pool { return &Pool{budget: budget, poison: poisonAll} }

// Poison makes the pool overwrite what is released, so that a test sees a use of memory
// after its release. It is to be called before the first use.
func (p *Pool) Poison() { p.poison = true }

// poisonByte is what released memory is filled with.
const poisonByte = 0xDB

// Budget is what the pool was made with.
func (p *Pool) Budget() int64 { return p.budget }

// Pressed tells whether memory is scarce, so that who keeps what is not needed lets go.
func (p *Pool) Pressed() bool { return p.pressed.Load() }

// Usage is what a pool has given away, and what it keeps.
type Usage struct {
	Held int64 // handed out or promised
	Idle int64 // ready for reuse
}

// Usage returns the use of the pool at this moment.
func (p *Pool) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Held: p.held, Idle: p.idle}
}

// Reserve promises buffers of n bytes altogether. It waits while the budget does not
// have them, in the order of the calls, but for a few smaller ones that may pass. One that
// is larger than the whole budget waits until it is alone: then there is nobody who could
// release anything.
//
// A caller that holds nothing while it waits cannot be part of a deadlock; that is why
// an answer reserves all it needs before its first byte is read.
func (p *Pool) Reserve(ctx context.Context, n int) (*Reservation, error) {
	need := int64(n) + int64(n)/steps + smallest // what rounding up may add
	p.mu.Lock()
	if len(p.wait) == 0 && p.fitsLocked(need) {
		p.takeLocked(need)
		p.mu.Unlock()
		return &Reservation{p: p, left: need}, nil
	}
	w := &waiter{n: need, granted: make(chan struct{})}
	p.wait = append(p.wait, w)
	p.grantLocked() // it may pass
	p.mu.Unlock()
	if p.await(ctx, w) {
		return &Reservation{p: p, left: need}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.wait {
		if x == w {
			p.wait = append(p.wait[:i], p.wait[i+1:]...)
			p.grantLocked() // those behind may be smaller
			return nil, fmt.Errorf("waiting for %d bytes of buffer memory: %w", n, context.Cause(ctx))
		}
	}
	// Granted in the same moment.
	return &Reservation{p: p, left: need}, nil
}

// await returns when a waiter was granted what it waits for, false when ctx ends.
func (p *Pool) await(ctx context.Context, w *waiter) bool {
	t := time.NewTicker(patience)
	defer t.Stop()
	was := 0
	for {
		select {
		case <-w.granted:
			return true
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		p.mu.Lock()
		if w.passed == was && was >= maxPasses { // nobody has for patience
			w.passed = 0
			p.grantLocked()
		}
		was = w.passed
		p.mu.Unlock()
	}
}

func (p *Pool) fitsLocked(n int64) bool { return p.held == 0 || p.held+n <= p.budget }

// takeLocked counts n bytes as held and makes room for them among what is idle.
func (p *Pool) takeLocked(n int64) {
	p.held += n
	p.noteLocked()
}

// trimLocked lets go of idle memory until the budget holds, the largest first.
func (p *Pool) trimLocked() {
	for c := classes - 1; c >= 0 && p.idle > 0 && p.held+p.idle > p.budget; c-- {
		for len(p.free[c]) > 0 && p.held+p.idle > p.budget {
			p.popLocked(c)
		}
	}
}

// popLocked takes the buffer out that came last into a class.
func (p *Pool) popLocked(c int) []byte {
	last := len(p.free[c]) - 1
	b := p.free[c][last]
	p.free[c][last] = nil
	p.free[c] = p.free[c][:last]
	p.idle -= int64(cap(b))
	return b
}

// giveBackLocked counts n bytes as held no longer.
func (p *Pool) giveBackLocked(n int64) {
	p.held -= n
	p.grantLocked()
}

func (p *Pool) grantLocked() {
	for len(p.wait) > 0 && p.fitsLocked(p.wait[0].n) {
		w := p.wait[0]
		p.wait = p.wait[1:]
		p.takeLocked(w.n)
		close(w.granted)
	}
	for i := 1; i < len(p.wait) && p.wait[0].passed < maxPasses && p.held+smallest < p.budget; i++ {
		if w := p.wait[i]; p.fitsLocked(w.n) {
			p.wait[0].passed++
			p.wait = append(p.wait[:i], p.wait[i+1:]...)
			i--
			p.takeLocked(w.n)
			close(w.granted)
		}
	}
	p.noteLocked()
}

// noteLocked keeps pressed and the limit for idle memory up to date.
func (p *Pool) noteLocked() {
	p.pressed.Store(len(p.wait) > 0 || p.held > p.budget-p.budget/8)
	p.trimLocked()
}

// Reservation is a promise of memory. It is used by one goroutine and ended by Done.
type Reservation struct {
	p    *Pool
	left int64
}

// Buffer returns a buffer of n bytes, whose content is arbitrary, with one holder. What
// goes beyond the reservation is counted all the same.
func (r *Reservation) Buffer(n int) *Buffer {
	p := r.p
	c, size := class(n)
	p.mu.Lock()
	var b []byte
	if c >= 0 && len(p.free[c]) > 0 {
		b = p.popLocked(c)
	}
	if r.left >= int64(size) {
		r.left -= int64(size)
	} else {
		p.held += int64(size) - r.left
		r.left = 0
		p.noteLocked()
	}
	p.mu.Unlock()
	if b == nil {
		b = make([]byte, size)
	}
	x := &Buffer{p: p, b: b[:n]}
	x.refs.Store(1)
	return x
}

// Done gives back what was not used. Calling it again does nothing.
func (r *Reservation) Done() {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	left := r.left
	r.left = 0
	p.giveBackLocked(left)
}

// class returns the size that buffers of n bytes have, and its number, -1 if they are
// not kept.
func class(n int) (c, size int) {
	if n <= smallest {
		if n == smallest {
			return 0, n
		}
		return -1, n
	}
	// n-1 = 1xx…b: the power of two below it, and the quarter of the way to the next.
	exp := bits.Len(uint(n-1)) - 1
	step := 1 << exp / steps
	quarters := (n - 1<<exp + step - 1) / step // 1 to 4
	size = 1<<exp + quarters*step
	c = (exp-bits.Len(smallest-1))*steps + quarters
	if c >= classes {
		return -1, n
	}
	return c, size
}

// Buffer is memory of a Pool with a count of its holders. All methods may be called at
// any time from any goroutine by who holds it; a nil *Buffer stands for memory that is
// nobody's but the collector's.
type Buffer struct {
	p    *Pool
	b    []byte
	refs atomic.Int32
}

// Bytes is the memory.
func (b *Buffer) Bytes() []byte { return b.b }

// Size is what the buffer takes of the budget.
func (b *Buffer) Size() int64 {
	if b == nil {
		return 0
	}
	return int64(cap(b.b))
}

// Retain adds a holder. The caller must be, or be lent by, a holder.
func (b *Buffer) Retain() {
	if b != nil && b.refs.Add(1) <= 1 {
		panic("pool: a buffer was retained after its last release")
	}
}

// Release takes a holder away, and the memory with the last.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	switch left := b.refs.Add(-1); {
	case left > 0:
		return
	case left < 0:
		panic("pool: a buffer was released more often than it was held")
	}
	mem := b.b[:cap(b.b)]
	b.b = nil
	p := b.p
	if p.poison {
		for i := range mem {
			mem[i] = poisonByte
		}
	}
	c, size := class(len(mem))
	p.mu.Lock()
	defer p.mu.Unlock()
	if c >= 0 && size == len(mem) {
		p.free[c] = append(p.free[c], mem)
		p.idle += int64(len(mem))
	}
	p.giveBackLocked(int64(len(mem)))
}
