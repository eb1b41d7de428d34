package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
)

func TestAccessors(t *testing.T) {
	b := batchtest.Build(batchtest.Spec{
		BaseOffset: 1000, LeaderEpoch: 7, Codec: batch.Zstd, Timestamp: 1_700_000_000_000, Transactional: true,
		Producer:        &batchtest.Producer{ID: 42, Epoch: 3, Sequence: 9},
		Records:         batchtest.Values("a", "b", "c"),
		LastOffsetDelta: 10, // the cleaner took what was behind the third
	})
	if err := b.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"base offset", b.BaseOffset(), int64(1000)},
		{"last offset", b.LastOffset(), int64(1010)},
		{"next offset", b.NextOffset(), int64(1011)},
		{"length", int(b.Length()), len(b) - 12},
		{"leader epoch", b.LeaderEpoch(), int32(7)},
		{"magic", b.Magic(), int8(2)},
		{"codec", b.Codec(), batch.Zstd},
		{"attributes", b.Attributes(), int16(0x14)},
		{"transactional", b.IsTransactional(), true},
		{"control", b.IsControl(), false},
		{"base timestamp", b.BaseTimestamp(), int64(1_700_000_000_000)},
		{"max timestamp", b.MaxTimestamp(), int64(1_700_000_000_002)},
		{"producer id", b.ProducerID(), int64(42)},
		{"producer epoch", b.ProducerEpoch(), int16(3)},
		{"base sequence", b.BaseSequence(), int32(9)},
		{"count", b.Count(), int32(3)},
		{"payload", len(b.Payload()), len(b) - 61},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	b.SetLeaderEpoch(99)
	if b.LeaderEpoch() != 99 {
		t.Errorf("leader epoch is %d", b.LeaderEpoch())
	}
	if err := b.Verify(); err != nil {
		t.Errorf("the leader epoch must not be under the checksum: %v", err)
	}
}

func TestCodecs(t *testing.T) {
	for c := batch.None; c <= batch.Zstd; c++ {
		b := batchtest.Build(batchtest.Spec{Codec: c, Records: batchtest.Values("some value", "some value", "some value")})
		if b.Codec() != c {
			t.Errorf("%v: codec reads as %v", c, b.Codec())
		}
		if err := b.Verify(); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestVerify(t *testing.T) {
	ok := func() batch.Batch { return batchtest.Plain(5, 3) }
	for i := 21; i < len(ok()); i++ {
		b := ok()
		b[i] ^= 0x40
		var crc *batch.CRCError
		if err := b.Verify(); !errors.As(err, &crc) || crc.BaseOffset != 5 {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for name, spec := range map[string]func(batch.Batch){
		"last offset delta": func(b batch.Batch) { binary.BigEndian.PutUint32(b[23:], 1<<31) },
		"record count":      func(b batch.Batch) { binary.BigEndian.PutUint32(b[57:], 1<<31) },
		"base offset":       func(b batch.Batch) { binary.BigEndian.PutUint64(b, 1<<63) },
		"last offset":       func(b batch.Batch) { binary.BigEndian.PutUint64(b, 1<<63-1) },
	} {
		b := ok()
		spec(b)
		b.SetProducerID(1) // small batch: makes the checksum right again
		var h *batch.HeaderError
		if err := b.Verify(); !errors.As(err, &h) || h.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNext(t *testing.T) {
	one, two := batchtest.Plain(0, 2), batchtest.Plain(2, 3)
	both := batchtest.Join(one, two)
	old := bytes.Clone(one)
	old[16] = 1
	short := bytes.Clone(one)
	binary.BigEndian.PutUint32(short[8:], 48) // one byte less than an empty batch
	negative := bytes.Clone(one)
	binary.BigEndian.PutUint32(negative[8:], 1<<31)
	tiny := bytes.Clone(one)
	binary.BigEndian.PutUint32(tiny[8:], 4)

	for _, c := range []struct {
		name  string
		in    []byte
		first int // size
		rest  int
		err   any
	}{
		{"nothing", nil, 0, 0, nil},
		{"part of the length", both[:11], 0, 11, nil},
		{"up to the magic byte", both[:16], 0, 16, nil},
		{"part of the header", both[:40], 0, 40, nil},
		{"one byte missing", one[:len(one)-1], 0, len(one) - 1, nil},
		{"whole", one, len(one), 0, nil},
		{"two", both, len(one), len(two), nil},
		{"whole and a part", both[:len(one)+20], len(one), 20, nil},
		{"magic 1", old, 0, len(old), new(*batch.MagicError)},
		{"magic 1, partial", old[:17], 0, 17, new(*batch.MagicError)},
		{"shorter than a header", short, 0, len(short), new(*batch.LengthError)},
		{"negative", negative, 0, len(negative), new(*batch.LengthError)},
		{"no magic byte", tiny, 0, len(tiny), new(*batch.LengthError)},
	} {
		first, rest, err := batch.Next(c.in)
		if len(first) != c.first || len(rest) != c.rest {
			t.Errorf("%s: %d bytes and %d left, want %d and %d", c.name, len(first), len(rest), c.first, c.rest)
		}
		if (first == nil) != (c.first == 0) {
			t.Errorf("%s: first is nil: %v", c.name, first == nil)
		}
		switch {
		case c.err == nil:
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		case !errors.As(err, c.err):
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got := batch.PartialSize(one[:12]); got != int64(len(one)) {
		t.Errorf("PartialSize %d, want %d", got, len(one))
	}
	if got := batch.PartialSize(one[:11]); got != 0 {
		t.Errorf("PartialSize of too little: %d", got)
	}
	var n int
	for b, err := range batch.Iterate(both[:len(both)-1]) {
		if err != nil || b.BaseOffset() != 0 {
			t.Fatal(b, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d batches, want 1: the partial one is left out", n)
	}
}

func TestSetProducerID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64()
		b := batchtest.Sized(rapid.Int64Range(0, 1<<40).Draw(t, "base"),
			rapid.IntRange(0, 300_000).Draw(t, "size"), &batchtest.Producer{ID: id.Draw(t, "old")})
		to := id.Draw(t, "new")
		patched, recomputed, chosen := bytes.Clone(b), bytes.Clone(b), bytes.Clone(b)
		batch.PatchProducerID(patched, to)
		batch.RecomputeProducerID(recomputed, to)
		batch.Batch(chosen).SetProducerID(to)
		if !bytes.Equal(patched, recomputed) || !bytes.Equal(chosen, recomputed) {
			t.Fatalf("patched and recomputed differ: %08x and %08x", batch.Batch(patched).CRC(), batch.Batch(recomputed).CRC())
		}
		if err := batch.Batch(patched).Verify(); err != nil {
			t.Fatal(err)
		}
		if batch.Batch(patched).ProducerID() != to {
			t.Fatalf("producer id is %d", batch.Batch(patched).ProducerID())
		}
	})
}

func FuzzIterate(f *testing.F) {
	both := batchtest.Join(batchtest.Plain(0, 2), batchtest.Marker(2, batchtest.Producer{ID: 5}, true, 3))
	f.Add(both)
	f.Add(both[:len(both)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		at := 0
		for b, err := range batch.Iterate(in) {
			if err != nil {
				var m *batch.MagicError
				var l *batch.LengthError
				if !errors.As(err, &m) && !errors.As(err, &l) {
					t.Fatalf("untyped error %v", err)
				}
				return
			}
			if len(b) < batch.HeaderSize || int(b.Length())+12 != len(b) || b.Magic() != 2 {
				t.Fatalf("not a whole batch: %d bytes, length %d", len(b), b.Length())
			}
			if cap(b) != len(b) {
				t.Fatal("an append to one batch could write into the next")
			}
			if !bytes.Equal(b, in[at:at+len(b)]) {
				t.Fatal("not the bytes of the input")
			}
			at += len(b)
			if b.Verify() == nil {
				old := b.ProducerID()
				b.SetProducerID(^old)
				if err := b.Verify(); err != nil {
					t.Fatal(err)
				}
				b.SetProducerID(old)
			}
		}
	})
}

var sizes = []struct {
	name string
	n    int
}{{"100B", 100}, {"500B", 500}, {"1KiB", 1 << 10}, {"2KiB", 2 << 10}, {"4KiB", 4 << 10}, {"16KiB", 16 << 10}, {"128KiB", 128 << 10}, {"1MiB", 1 << 20}}

func BenchmarkSetProducerID(b *testing.B) {
	for _, s := range sizes {
		x := batchtest.Sized(0, s.n, &batchtest.Producer{ID: 5})
		for name, f := range map[string]func(batch.Batch, int64){"patch": batch.PatchProducerID, "recompute": batch.RecomputeProducerID} {
			b.Run(s.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(x)))
				for i := range b.N {
					f(x, int64(i))
				}
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, s := range sizes {
		x := batchtest.Sized(0, s.n, nil)
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(x)))
			for range b.N {
				if err := x.Verify(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
