package fetcher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
)

func TestIngest(t *testing.T) {
	epoch := func(b batch.Batch, e int32) batch.Batch { b.SetLeaderEpoch(e); return b }
	flip := func(b batch.Batch) batch.Batch { b[len(b)-1] ^= 1; return b }
	magic := func(b batch.Batch) batch.Batch { b[16] = 1; return b }
	length := func(b batch.Batch) batch.Batch { binary.BigEndian.PutUint32(b[8:], 20); return b }
	plain := batchtest.Plain

	for _, c := range []struct {
		name  string
		data  []byte
		at    int64
		n     int
		next  int64
		epoch int32
		part  bool
		err   any
	}{
		{"nothing", nil, 7, 0, 7, -1, false, nil},
		{"two", batchtest.Join(plain(0, 2), epoch(plain(2, 3), 4)), 0, 2, 5, 4, false, nil},
		{"begins below", plain(0, 10), 5, 1, 10, 0, false, nil},
		{"a gap between", batchtest.Join(plain(0, 2), plain(10, 1)), 0, 2, 11, 0, false, nil},
		{"ends in a part", batchtest.Join(plain(0, 2), plain(2, 3)[:70]), 0, 1, 2, 0, true, nil},
		{"only a part", plain(0, 2)[:70], 0, 0, 0, -1, true, nil},
		{"all before what is due", plain(0, 5), 5, 0, 5, -1, false, new(*OrderError)},
		{"overlap", batchtest.Join(plain(0, 5), plain(4, 5)), 0, 1, 5, 0, false, new(*OrderError)},
		{"backwards", batchtest.Join(plain(10, 5), plain(0, 5)), 0, 1, 15, 0, false, new(*OrderError)},
		{"twice", batchtest.Join(plain(0, 5), plain(0, 5)), 0, 1, 5, 0, false, new(*OrderError)},
		{"corrupt first", flip(plain(0, 5)), 0, 0, 0, -1, false, new(*batch.CRCError)},
		{"corrupt second", batchtest.Join(plain(0, 5), flip(plain(5, 5))), 0, 1, 5, 0, false, new(*batch.CRCError)},
		{"magic 1 second", batchtest.Join(plain(0, 5), magic(plain(5, 5))), 0, 1, 5, 0, false, new(*batch.MagicError)},
		{"nonsense length", batchtest.Join(plain(0, 5), length(plain(5, 5))), 0, 1, 5, 0, false, new(*batch.LengthError)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := ingest(c.data, c.at, batch.Tagger{})
			if len(in.batches) != c.n || in.next != c.next || in.epoch != c.epoch || (in.partial > 0) != c.part {
				t.Errorf("%d batches, next %d, epoch %d, partial %d", len(in.batches), in.next, in.epoch, in.partial)
			}
			if c.err == nil {
				if in.err != nil {
					t.Error(in.err)
				}
			} else if !errors.As(in.err, c.err) {
				t.Errorf("error %v, want %T", in.err, c.err)
			}
		})
	}
}

func TestIngestTags(t *testing.T) {
	tagger := batch.NewTagger("source", "own")
	p := batchtest.Producer{ID: 77, Epoch: 2, Sequence: 5}
	data := batchtest.Join(
		batchtest.Build(batchtest.Spec{Producer: &p, Transactional: true, Codec: batch.LZ4, Records: batchtest.Values("a", "b")}),
		batchtest.Sized(2, 100_000, &p),
		batchtest.Marker(3, p, false, 9),
		batchtest.Plain(4, 1),
	)
	before := bytes.Clone(data)
	in := ingest(data, 0, tagger)
	if in.err != nil || len(in.batches) != 4 || in.records != 5 || in.size != len(data) {
		t.Fatalf("%d batches, %d records, %d bytes, %v", len(in.batches), in.records, in.size, in.err)
	}
	for i, b := range in.batches {
		want := tagger.Map(77)
		if i == 3 {
			want = -1
		}
		if b.ProducerID() != want {
			t.Errorf("batch %d: producer id %x, want %x", i, b.ProducerID(), want)
		}
		if err := b.Verify(); err != nil {
			t.Error(err)
		}
		b.SetProducerID(77) // and back
		if i == 3 {
			b.SetProducerID(-1)
		}
	}
	if !bytes.Equal(before, data) {
		t.Error("something besides the producer id and the checksum changed, or the batches are copies")
	}
}

func BenchmarkIngest(b *testing.B) {
	tagger := batch.NewTagger("source", "own")
	for _, size := range []int{1 << 10, 16 << 10, 100 << 10} {
		for _, pid := range []int64{-1, 5} {
			var data []byte
			var next int64
			for len(data) < 1<<20 {
				data = append(data, batchtest.Sized(next, size, &batchtest.Producer{ID: pid})...)
				next++
			}
			b.Run(fmt.Sprintf("batch=%dKiB/producer=%d", size>>10, pid), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for range b.N {
					// The tagged id stays tagged in later rounds; it is mapped all the same and
					// written only in the first, so write it back.
					if in := ingest(data, 0, tagger); in.err != nil {
						b.Fatal(in.err)
					} else if pid >= 0 {
						for _, x := range in.batches {
							x.SetProducerID(pid)
						}
					}
				}
			})
		}
	}
}
