package replica

import (
	"bytes"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

// filled returns a buffer of answers with the batches of each, whose memory is all held
// by the buffer, and the bytes of all.
func filled(t *testing.T, p *pool.Pool, answers ...[]batch.Batch) (*buffer, []byte) {
	t.Helper()
	b := &buffer{}
	var all []byte
	for _, batches := range answers {
		data := batchtest.Join(batches...)
		all = append(all, data...)
		r, err := p.Reserve(t.Context(), len(data))
		if err != nil {
			t.Fatal(err)
		}
		in := r.Buffer(len(data))
		r.Done()
		copy(in.Bytes(), data)
		for x, err := range batch.Iterate(in.Bytes()) {
			if err != nil {
				t.Fatal(err)
			}
			b.appendFrom(x, in)
		}
		in.Release()
	}
	return b, all
}

func TestBufferHoldsAnswersUntilTheirLastBatchIsEvicted(t *testing.T) {
	p := pool.New(1 << 30)
	p.Poison()
	big := func(base int64) batch.Batch { return batchtest.Sized(base, 20<<10, nil) }
	b, _ := filled(t, p, []batch.Batch{big(0), big(1)}, []batch.Batch{big(2)}, []batch.Batch{batchtest.Plain(3, 2)})
	own := batchtest.Plain(5, 1) // as the record that resets producer ids
	b.append(own)
	if u := p.Usage(); u.Held+int64(len(own)) != b.bytes {
		t.Fatalf("%d bytes are held, the buffer counts %d", u.Held+int64(len(own)), b.bytes)
	}
	for _, c := range []struct {
		below  int64
		gone   int // answers
		starts int64
		ok     bool
	}{
		{0, 0, 0, false},
		{1, 0, 1, true}, // the answer's other batch keeps its memory
		{2, 1, 2, true},
		{3, 2, 3, true},
		{4, 2, 0, false}, // in the middle of a batch
		{5, 3, 5, true},
		{6, 3, 6, true},
	} {
		before := b.bytes
		start, ok := b.evict(c.below, 0)
		if ok != c.ok || (ok && start != c.starts) {
			t.Errorf("evict below %d: %d, %v", c.below, start, ok)
		}
		if held := p.Usage().Held; c.below < 6 && b.bytes != held+int64(len(own)) {
			t.Errorf("evict below %d: the buffer counts %d of before %d, the pool %d", c.below, b.bytes, before, held)
		}
	}
	if b.bytes != 0 || p.Usage().Held != 0 {
		t.Errorf("%d bytes are counted in the end, %d held", b.bytes, p.Usage().Held)
	}
}

// What is being written stays, whatever becomes of the buffer meanwhile.
func TestBufferReadHolds(t *testing.T) {
	for name, end := range map[string]func(b *buffer){
		"evicted": func(b *buffer) { b.evict(100, 0) },
		"reset":   func(b *buffer) { b.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			p := pool.New(1 << 30)
			p.Poison()
			b, all := filled(t, p,
				[]batch.Batch{batchtest.Sized(0, 20<<10, nil), batchtest.Sized(1, 20<<10, nil)},
				[]batch.Batch{batchtest.Sized(2, 20<<10, nil)}, []batch.Batch{batchtest.Sized(3, 20<<10, nil)})
			r := PartitionReply{}
			r.Records, r.hold, r.Size = b.read(0, 100, 1<<20)
			if len(r.Records) != 4 || len(r.hold) != 3 || r.Size != len(all) {
				t.Fatalf("%d batches in %d buffers, %d bytes", len(r.Records), len(r.hold), r.Size)
			}
			end(b)
			if !bytes.Equal(bytes.Join(r.Records, nil), all) {
				t.Error("what is being written was overwritten")
			}
			held := r.Records
			r.drop()
			if u := p.Usage(); u.Held != 0 {
				t.Errorf("%d bytes are held after the answer was written", u.Held)
			}
			if bytes.Equal(bytes.Join(held, nil), all) {
				t.Error("nothing was reused, so that this test shows nothing")
			}
		})
	}
}

func TestBufferReadsFromTheMiddleUpToABound(t *testing.T) {
	p := pool.New(1 << 30)
	b, _ := filled(t, p, []batch.Batch{batchtest.Plain(0, 2), batchtest.Plain(2, 2)}, []batch.Batch{batchtest.Plain(4, 2), batchtest.Plain(6, 2)})
	size := len(batchtest.Plain(0, 2))
	for _, c := range []struct {
		offset, end int64
		max, n      int
	}{
		{0, 8, 1 << 20, 4},
		{1, 8, 1 << 20, 4}, // the batch that contains it
		{2, 8, 1 << 20, 3},
		{2, 7, 1 << 20, 2}, // not the batch that ends above
		{2, 8, 1, 1},       // one, whatever its size
		{2, 8, 2 * size, 2},
		{8, 9, 1 << 20, 0},
	} {
		got, hold, n := b.read(c.offset, c.end, c.max)
		if len(got) != c.n || n != c.n*size {
			t.Errorf("%+v: %d batches of %d bytes", c, len(got), n)
		}
		for _, h := range hold {
			h.Release()
		}
	}
	b.reset()
	if u := p.Usage(); u.Held != 0 {
		t.Errorf("%d bytes held in the end", u.Held)
	}
}

// TestBufferNeeded: what is told as pinned is what evicting leaves.
func TestBufferNeeded(t *testing.T) {
	for below := int64(-1); below <= 6; below++ {
		p := pool.New(1 << 30)
		b, _ := filled(t, p,
			[]batch.Batch{batchtest.Sized(0, 20<<10, nil), batchtest.Sized(1, 20<<10, nil)},
			[]batch.Batch{batchtest.Sized(2, 20<<10, nil)}, []batch.Batch{batchtest.Sized(3, 20<<10, nil), batchtest.Sized(4, 30<<10, nil)})
		want := b.needed(below)
		b.evict(below, 0)
		if b.bytes != want {
			t.Errorf("below %d: %d bytes are told as needed, %d are left", below, want, b.bytes)
		}
		b.reset()
	}
}
