package pool

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func reserve(t *testing.T, p *Pool, n int) *Reservation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := p.Reserve(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClass(t *testing.T) {
	last, lastSize := -1, 0
	for n := smallest; n <= 64<<20; n += 1 + n/7 {
		c, size := class(n)
		if size < n || size > n+n/steps+1 {
			t.Fatalf("%d bytes get %d", n, size)
		}
		if again, same := class(size); again != c || same != size {
			t.Fatalf("class(%d) = %d, %d, but class(%d) = %d, %d", n, c, size, size, again, same)
		}
		if c < last || (c == last) != (size == lastSize) {
			t.Fatalf("class %d of %d bytes after class %d of %d", c, size, last, lastSize)
		}
		last, lastSize = c, size
	}
	for _, n := range []int{0, 1, smallest - 1, 1 << 31} {
		if c, size := class(n); c != -1 || size != n {
			t.Errorf("class(%d) = %d, %d", n, c, size)
		}
	}
}

func TestReuseIsLastInFirstOut(t *testing.T) {
	p := New(100 << 20)
	r := reserve(t, p, 4<<20)
	a, b := r.Buffer(1<<20), r.Buffer(1<<20)
	r.Done()
	memA, memB := &a.Bytes()[0], &b.Bytes()[0]
	b.Retain()
	a.Release()
	b.Release()
	if u := p.Usage(); u.Held != 1<<20 || u.Idle != 1<<20 {
		t.Errorf("usage %+v with one of two held", u)
	}
	b.Release()
	if u := p.Usage(); u.Held != 0 || u.Idle != 2<<20 {
		t.Errorf("usage %+v with all released", u)
	}
	r = reserve(t, p, 3<<20)
	defer r.Done()
	// A little smaller is the same class.
	if x := r.Buffer(1<<20 - 7); &x.Bytes()[0] != memB || len(x.Bytes()) != 1<<20-7 || x.Size() != 1<<20 {
		t.Error("the buffer that was released last was not taken first")
	}
	if x := r.Buffer(1 << 20); &x.Bytes()[0] != memA {
		t.Error("the other buffer was not taken")
	}
}

// Idle memory makes way for what is needed.
func TestIdleIsInTheBudget(t *testing.T) {
	p := New(8 << 20)
	r := reserve(t, p, 4<<20)
	var all []*Buffer
	for range 4 {
		all = append(all, r.Buffer(1<<20))
	}
	r.Done()
	for _, b := range all {
		b.Release()
	}
	r = reserve(t, p, 5<<20)
	if u := p.Usage(); u.Held+u.Idle > 8<<20 {
		t.Errorf("usage %+v exceeds the budget", u)
	}
	r.Done()
}

func TestReserveWaitsInOrder(t *testing.T) {
	p := New(10 << 20)
	first := reserve(t, p, 6<<20)
	order := make(chan int, 2)
	var wg sync.WaitGroup
	wait := func(i, n, queue int) {
		wg.Go(func() {
			r, err := p.Reserve(t.Context(), n)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			r.Done()
		})
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			p.mu.Lock()
			n := len(p.wait)
			p.mu.Unlock()
			if n == queue {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d wait, want %d", n, queue)
			}
		}
	}
	wait(1, 5<<20, 1)
	wait(2, 4<<20, 2)
	if !p.Pressed() {
		t.Error("somebody waits and memory is not scarce")
	}
	first.Done()
	if a, b := <-order, <-order; a != 1 || b != 2 {
		t.Errorf("granted in the order %d, %d", a, b)
	}
	wg.Wait()
	if u := p.Usage(); u.Held != 0 || p.Pressed() {
		t.Errorf("%+v is held in the end, pressed %v", u, p.Pressed())
	}
}

// What fits passes what does not, so that memory that nobody gives back does not hold up
// everybody; but no stream of small ones keeps a large one from what is given back.
func TestSmallerOnesPass(t *testing.T) {
	p := New(10 << 20)
	pinned := reserve(t, p, 6<<20)
	large := make(chan *Reservation)
	go func() {
		r, err := p.Reserve(t.Context(), 5<<20)
		if err != nil {
			t.Error(err)
		}
		large <- r
	}()
	for end := time.Now().Add(30 * time.Second); !p.Pressed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	for range maxPasses {
		reserve(t, p, 1).Done()
	}
	began := time.Now()
	reserve(t, p, 1).Done() // not before all that moves could be given back
	if took := time.Since(began); took < patience/2 {
		t.Errorf("one more passed after %v", took)
	}
	select {
	case <-large:
		t.Fatal("granted beside what is pinned")
	default:
	}
	pinned.Done()
	if r := <-large; r != nil {
		r.Done()
	}
	if u := p.Usage(); u.Held != 0 || p.Pressed() {
		t.Errorf("%+v is held in the end, pressed %v", u, p.Pressed())
	}
}

// More than all there is goes to who is alone.
func TestLargerThanTheBudget(t *testing.T) {
	p := New(1 << 20)
	r := reserve(t, p, 5<<20)
	b := r.Buffer(5 << 20)
	r.Done()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("granted beside what exceeds the budget: %v", err)
	}
	b.Release()
	reserve(t, p, 1).Done()
	if u := p.Usage(); u.Held != 0 || u.Idle > 1<<20 {
		t.Errorf("usage %+v in the end", u)
	}
}

func TestReleasedTooOften(t *testing.T) {
	p := New(1 << 20)
	for name, wrong := range map[string]func(*Buffer){"release": (*Buffer).Release, "retain": (*Buffer).Retain} {
		r := reserve(t, p, 100)
		b := r.Buffer(100)
		r.Done()
		b.Release()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s after the last release went unnoticed", name)
				}
			}()
			wrong(b)
		}()
	}
	var none *Buffer
	none.Retain()
	none.Release()
	if none.Size() != 0 {
		t.Error("no buffer has a size")
	}
}

func TestPoison(t *testing.T) {
	p := New(1 << 20)
	p.Poison()
	r := reserve(t, p, 64<<10)
	defer r.Done()
	b := r.Buffer(30 << 10)
	mem := b.Bytes()
	clear(mem)
	b.Retain()
	b.Release()
	if mem[0] != 0 {
		t.Error("poisoned while it was held")
	}
	b.Release()
	if !bytes.Equal(mem, bytes.Repeat([]byte{poisonByte}, len(mem))) {
		t.Error("not poisoned")
	}
}

// Many at once, each of which writes a pattern of its own: nobody sees another's, the
// budget holds at every moment, and in the end nothing is held.
func TestConcurrentUse(t *testing.T) {
	const budget = 4 << 20
	p := New(budget)
	p.Poison()
	var wg sync.WaitGroup
	for id := range byte(8) {
		rng := rand.New(rand.NewPCG(1, uint64(id)))
		wg.Go(func() {
			for range 200 {
				n := 1 + rng.IntN(200<<10)
				r, err := p.Reserve(t.Context(), 2*n)
				if err != nil {
					t.Error(err)
					return
				}
				if u := p.Usage(); u.Held+u.Idle > budget {
					t.Errorf("usage %+v", u)
				}
				a, b := r.Buffer(n), r.Buffer(n/2)
				r.Done()
				fill := func(m []byte) {
					for i := range m {
						m[i] = id
					}
				}
				fill(a.Bytes())
				fill(b.Bytes())
				b.Retain()
				b.Release()
				if bytes.Count(a.Bytes(), []byte{id}) != n || bytes.Count(b.Bytes(), []byte{id}) != n/2 {
					t.Error("somebody else wrote to a held buffer")
				}
				a.Release()
				b.Release()
			}
		})
	}
	wg.Wait()
	if u := p.Usage(); u.Held != 0 {
		t.Errorf("usage %+v in the end", u)
	}
}
