package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a partition in memory. It sends one batch and a half per read.
type memory struct {
	batches    []batch.Batch
	start, end int64
	moved      func(m *memory) // called before each read
}

func newMemory(batches ...batch.Batch) *memory {
	m := &memory{batches: batches}
	if n := len(batches); n > 0 {
		m.start, m.end = batches[0].BaseOffset(), batches[n-1].NextOffset()
	}
	return m
}

func (m *memory) Bounds(context.Context) (int64, int64, error) { return m.start, m.end, nil }

func (m *memory) Read(_ context.Context, offset int64) ([]byte, int64, error) {
	if m.moved != nil {
		m.moved(m)
	}
	if offset < m.start {
		return nil, 0, ErrOffsetOutOfRange
	}
	i := slices.IndexFunc(m.batches, func(b batch.Batch) bool { return b.LastOffset() >= offset })
	if i < 0 || m.batches[i].BaseOffset() >= m.end {
		return nil, m.end, nil
	}
	out := bytes.Clone(m.batches[i])
	if i+1 < len(m.batches) {
		out = append(out, m.batches[i+1][:len(m.batches[i+1])/2]...)
	}
	return out, m.end, nil
}

var (
	tagger   = batch.NewTagger("source", "mirror")
	producer = batchtest.Producer{ID: 7, Epoch: 3, Sequence: 40}
)

// logs returns a source's batches and the mirror's, of all kinds.
func logs() (src, dst []batch.Batch) {
	for i, spec := range []batchtest.Spec{
		{Records: batchtest.Values("a", "b", "c")},
		{Codec: batch.Gzip, Producer: &producer, Records: batchtest.Values("d", "e")},
		{Codec: batch.Zstd, Producer: &producer, Transactional: true, Records: batchtest.Values("f", "g"), LastOffsetDelta: 5},
	} {
		spec.BaseOffset, spec.Timestamp = int64(10*i), 1_700_000_000_000
		src = append(src, batchtest.Build(spec))
	}
	src = append(src, batchtest.Marker(30, producer, true, 5), batchtest.Plain(31, 4))
	for _, b := range src {
		d := batch.Batch(bytes.Clone(b))
		d.SetLeaderEpoch(17)
		d.SetProducerID(tagger.Map(d.ProducerID()))
		dst = append(dst, d)
	}
	return src, dst
}

func reseal(b batch.Batch) { b.SetProducerID(b.ProducerID()) } // small batches: a new checksum

func run(t *testing.T, src, dst *memory, start, end int64, wait time.Duration) (counts, *Difference) {
	t.Helper()
	n, d, err := compare(t.Context(), src, dst, start, end, wait, tagger, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n, d
}

func TestEqual(t *testing.T) {
	src, dst := logs()
	var size int64
	for _, b := range src {
		size += int64(len(b))
	}
	n, d := run(t, newMemory(src...), newMemory(dst...), 0, 35, 0)
	if d != nil || n != (counts{5, 12, size}) {
		t.Errorf("%+v, %v", n, d)
	}
	// From inside a batch, and up to the end of another.
	if n, d := run(t, newMemory(src...), newMemory(dst...), 11, 31, 0); d != nil || n.batches != 3 {
		t.Errorf("%+v, %v", n, d)
	}
	if n, d := run(t, newMemory(src...), newMemory(dst...), 35, 35, 0); d != nil || n.batches != 0 {
		t.Errorf("%+v, %v", n, d)
	}
}

func TestPlantedDifferences(t *testing.T) {
	at := func(pos int, of int) func([]batch.Batch) []batch.Batch {
		return func(d []batch.Batch) []batch.Batch { d[of][pos] ^= 1; reseal(d[of]); return d }
	}
	for _, c := range []struct {
		name   string
		plant  func(d []batch.Batch) []batch.Batch
		field  string
		offset int64
	}{
		{"last offset", at(26, 2), FieldLastOffset, 20},
		{"count", at(60, 1), FieldCount, 10},
		{"producer id", func(d []batch.Batch) []batch.Batch { d[1].SetProducerID(7); return d }, FieldProducerID, 10},
		{"producer id of nobody", func(d []batch.Batch) []batch.Batch { d[4].SetProducerID(0); return d }, FieldProducerID, 31},
		{"producer epoch", at(52, 1), FieldProducerEpoch, 10},
		{"sequence", at(56, 2), FieldBaseSequence, 20},
		{"base timestamp", at(34, 0), FieldBaseTimestamp, 0},
		{"max timestamp", at(42, 0), FieldMaxTimestamp, 0},
		{"codec", at(22, 1), FieldAttributes, 10},
		{"delete horizon", func(d []batch.Batch) []batch.Batch { d[0][22] ^= 0x40; reseal(d[0]); return d }, FieldAttributes, 0},
		{"payload", at(70, 1), FieldPayload, 10},
		{"recompressed", func(d []batch.Batch) []batch.Batch {
			p := producer
			p.ID = tagger.Map(p.ID)
			d[1] = batchtest.Build(batchtest.Spec{BaseOffset: 10, Timestamp: 1_700_000_000_000, Codec: batch.Gzip, Producer: &p, Records: batchtest.Values("d", "E")})
			return d
		}, FieldPayload, 10},
		{"abort for commit", func(d []batch.Batch) []batch.Batch {
			p := producer
			p.ID = tagger.Map(p.ID)
			d[3] = batchtest.Marker(30, p, false, 5)
			return d
		}, FieldControl, 30},
		{"lost", func(d []batch.Batch) []batch.Batch { return slices.Delete(d, 1, 2) }, FieldMissing, 10},
		{"lost first", func(d []batch.Batch) []batch.Batch { return d[1:] }, FieldMissing, 0},
		{"lost last", func(d []batch.Batch) []batch.Batch { return d[:4] }, FieldEnd, 31},
		{"foreign", func(d []batch.Batch) []batch.Batch { return slices.Insert(d, 1, batchtest.Plain(5, 1)) }, FieldExtra, 5},
		{"doubled elsewhere", func(d []batch.Batch) []batch.Batch { return slices.Insert(d, 2, batchtest.Plain(13, 2)) }, FieldExtra, 13},
		{"swapped", func(d []batch.Batch) []batch.Batch {
			a := bytes.Clone(d[4])
			copy(a[61:], batchtest.Build(batchtest.Spec{Records: batchtest.Values("value-32", "value-31", "value-33", "value-34")}).Payload())
			d[4] = a
			reseal(d[4])
			return d
		}, FieldPayload, 31},
		{"split", func(d []batch.Batch) []batch.Batch {
			return slices.Replace(d, 4, 5, batchtest.Plain(31, 2), batchtest.Plain(33, 2))
		}, FieldLastOffset, 31},
		{"damaged mirror", func(d []batch.Batch) []batch.Batch { d[2][80] ^= 1; return d }, FieldMirrorIntegrity, 20},
		{"old format", func(d []batch.Batch) []batch.Batch { d[2][16] = 1; return d }, FieldMirrorIntegrity, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs()
			m := newMemory(c.plant(dst)...)
			m.start = 0
			_, d := run(t, newMemory(src...), m, 0, 35, 0)
			if d == nil || d.Field != c.field {
				t.Fatalf("%v, want %s", d, c.field)
			}
			if d.Offset != c.offset && c.field != FieldMirrorIntegrity {
				t.Errorf("%v, want it at %d", d, c.offset)
			}
			if !strings.Contains(d.String(), c.field) || d.Source == d.Mirror {
				t.Errorf("%v does not say what differs", d)
			}
		})
	}
	src, dst := logs()
	src[1][80] ^= 1
	if _, d := run(t, newMemory(src...), newMemory(dst...), 0, 35, 0); d == nil || d.Field != FieldSourceIntegrity {
		t.Errorf("a damaged source: %v", d)
	}
}

// A mirror that is behind is waited for as long as it moves.
func TestLag(t *testing.T) {
	src, dst := logs()
	m := newMemory(dst...)
	m.end = 10
	reads := 0
	m.moved = func(m *memory) {
		if reads++; reads%50 == 0 {
			m.end = min(35, m.end+5)
		}
	}
	if n, d := run(t, newMemory(src...), m, 0, 35, time.Minute); d != nil || n.batches != 5 {
		t.Errorf("%+v, %v", n, d)
	}
	m.moved, m.end = nil, 20
	if _, d := run(t, newMemory(src...), m, 0, 35, time.Millisecond); d == nil || d.Field != FieldEnd || d.Offset != 20 || d.Source != "35" {
		t.Errorf("a mirror that stands still: %v", d)
	}
	// It has the records up to an end that is below the source's.
	if _, d := run(t, newMemory(src...), newMemory(dst...), 0, 50, 0); d == nil || d.Field != FieldEnd {
		t.Errorf("an end that nobody has: %v", d)
	}
}

func TestComparePartition(t *testing.T) {
	tp := TopicPartition{"a", 1}
	go1 := func(src, dst *memory, o Options) (PartitionReport, error) {
		o.Wait = -1
		r := PartitionReport{Topic: "a", Partition: 1}
		err := comparePartition(t.Context(), src, dst, tp, o, tagger, &r, nil)
		return r, err
	}
	s, d := logs()
	// Either log start may be the higher one.
	for _, c := range []struct{ src, dst, start, batches int64 }{{0, 0, 0, 5}, {11, 0, 11, 4}, {0, 20, 20, 3}, {35, 0, 35, 0}, {0, 40, 40, 0}} {
		src, dst := newMemory(s...), newMemory(d...)
		src.start, dst.start = c.src, c.dst
		r, err := go1(src, dst, Options{})
		if err != nil || r.Difference != nil || r.Start != c.start || r.Batches != c.batches || r.End < r.Start {
			t.Errorf("starts %d and %d: %+v, %v", c.src, c.dst, r, err)
		}
	}
	// A mirror that was stopped at 31 and written to since.
	dst := newMemory(append(slices.Clone(d[:4]), batchtest.Plain(31, 9))...)
	if r, _ := go1(newMemory(s...), dst, Options{}); r.Difference == nil {
		t.Error("foreign writes were not seen")
	}
	if r, err := go1(newMemory(s...), dst, Options{UpTo: map[TopicPartition]int64{tp: 31}}); err != nil || r.Difference != nil || r.End != 31 || r.Batches != 4 {
		t.Errorf("up to 31: %+v, %v", r, err)
	}
	// Retention runs meanwhile.
	src := newMemory(s...)
	reads := 0
	src.moved = func(m *memory) {
		if reads++; reads == 2 {
			m.start = 20
		}
	}
	if r, err := go1(src, newMemory(d...), Options{}); err != nil || r.Difference != nil || r.Start != 20 {
		t.Errorf("retention: %+v, %v", r, err)
	}
	src.moved = func(m *memory) { m.start += 1 << 20; m.end = m.start + 5 }
	if _, err := go1(src, newMemory(d...), Options{}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("retention without end: %v", err)
	}
}

func TestReportIsJSON(t *testing.T) {
	r := Report{SourceClusterID: "s", MirrorClusterID: "m", Partitions: []PartitionReport{{Topic: "a", End: 5, Difference: &Difference{Offset: 3, Field: FieldCount, Source: "1", Mirror: "2"}}}}
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"difference":{"offset":3,"field":"record count","source":"1","mirror":"2"}`) {
		t.Errorf("%s, %v", b, err)
	}
	if r.Equal() || !(Report{Partitions: []PartitionReport{{}}}).Equal() || (Report{Partitions: []PartitionReport{{Error: "x"}}}).Equal() {
		t.Error("Equal is wrong")
	}
}
