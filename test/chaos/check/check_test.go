package check

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
)

func number(r *kgo.Record) (int64, error) {
	text, ok := strings.CutPrefix(string(r.Value), "n")
	if !ok {
		return 0, errors.New("no number")
	}
	return strconv.ParseInt(text, 10, 64)
}

// raw is a log of idempotent, plain and transactional batches with an aborted transaction and a
// gap; number n is at offset n up to 14, above that two further.
func raw(codec batch.Codec) []byte {
	producer := batchtest.Producer{ID: 7, Epoch: 1}
	var batches []batch.Batch
	add := func(base int64, from, n int, p *batchtest.Producer, transactional bool) {
		var values []string
		for i := range n {
			values = append(values, fmt.Sprintf("n%d", from+i))
		}
		batches = append(batches, batchtest.Build(batchtest.Spec{
			BaseOffset: base, Timestamp: 1_700_000_000_000, Codec: codec, Producer: p, Transactional: transactional, Records: batchtest.Values(values...),
		}))
	}
	add(0, 0, 1, nil, false)
	add(1, 1, 9, &producer, false)
	add(10, 10, 5, &producer, true)
	batches = append(batches, batchtest.Marker(15, producer, false, 3))
	add(17, 15, 5, nil, false) // 16 is a gap
	return batchtest.Join(batches...)
}

func records(t *testing.T, data []byte) []Record {
	t.Helper()
	d := Decoder{Topic: "t", Number: number}
	if err := d.Add(data, 0); err != nil {
		t.Fatal(err)
	}
	return d.Log().Records
}

var all = Range{From: 0, To: math.MaxInt64}

func TestDecoder(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Zstd} {
		d := Decoder{Topic: "t", Number: number}
		if err := d.Add(raw(codec), 0); err != nil {
			t.Fatal(err)
		}
		log := d.Log()
		if len(log.Records) != 20 || log.End != 22 {
			t.Fatalf("%s: %d records, end %d", codec, len(log.Records), log.End)
		}
		for _, r := range log.Records {
			want := r.Offset
			if want > 15 {
				want -= 2
			}
			if r.Number != want || r.Aborted != (r.Offset >= 10 && r.Offset < 15) {
				t.Errorf("%s: %+v", codec, r)
			}
		}
	}
	d := Decoder{Topic: "t", Number: number}
	if err := d.Add(raw(batch.None), 12); err != nil {
		t.Fatal(err)
	}
	if got := d.Log().Records[0].Offset; got != 10 {
		t.Errorf("from 12 on begins at %d", got)
	}
	damaged := raw(batch.None)
	damaged[len(damaged)-1] ^= 1
	if err := (&Decoder{Number: number}).Add(damaged, 0); err == nil {
		t.Error("a wrong checksum was taken")
	}
}

// TestPlantedFaultsAreFound: each kind in the raw bytes of a log, found as what it is.
func TestPlantedFaultsAreFound(t *testing.T) {
	source := records(t, raw(batch.Zstd))
	if f := Compare("t-0", source, records(t, raw(batch.Zstd)), all); !f.Zero() {
		t.Fatalf("equal logs: %+v", f)
	}
	for _, fault := range Faults() {
		data, err := Plant(raw(batch.Zstd), fault)
		if err != nil {
			t.Fatal(err)
		}
		mirror := records(t, data)
		f := Compare("t-0", source, mirror, all)
		want := int64(1)
		if fault == Swapped {
			want = 2 // both are in the other's place
		}
		if fault.Of(f.Counts) != want || f.Plus(Counts{}) != f.Counts || total(f.Counts) != want {
			t.Errorf("%s: %+v", fault, f)
		}
		if same := Same("t-0", source, mirror, all); same.Diverged != 1 {
			t.Errorf("%s: replicas: %+v", fault, same)
		}
	}
}

func total(c Counts) int64 { return c.Lost + c.Doubled + c.Reordered + c.Diverged + c.Foreign }

func TestCompareRecords(t *testing.T) {
	rec := func(offset, number int64) Record {
		return Record{Offset: offset, Number: number, Sum: uint64(number), Key: uint64(number % 3)}
	}
	source := []Record{rec(0, 0), rec(1, 1), rec(2, 2), rec(4, 3), rec(5, 4)}
	for _, tt := range []struct {
		name   string
		mirror []Record
		part   Range
		want   Counts
	}{
		{"equal", source, all, Counts{}},
		{"the end is not asked for", source[:3], Range{0, 4}, Counts{}},
		{"the start is not asked for", source[2:], Range{2, 100}, Counts{}},
		{"all lost", nil, all, Counts{Lost: 5}},
		{"lost at the end", source[:4], all, Counts{Lost: 1}},
		{"written over", []Record{rec(0, 0), rec(1, 1), rec(2, 1), rec(4, 3), rec(5, 4)}, all, Counts{Lost: 1, Doubled: 1}},
		{"doubled at one offset", []Record{rec(0, 0), rec(1, 1), rec(1, 1), rec(2, 2), rec(4, 3), rec(5, 4)}, all, Counts{Doubled: 1}},
		{"shifted", []Record{rec(0, 0), rec(1, 1), rec(2, 2), rec(3, 3), rec(4, 4)}, all, Counts{Reordered: 2}},
		{"foreign in a gap", append(source[:3:3], append([]Record{rec(3, 9)}, source[3:]...)...), all, Counts{Foreign: 1}},
		{"foreign over another", []Record{rec(0, 0), rec(1, -1), rec(2, 2), rec(4, 3), rec(5, 4)}, all, Counts{Lost: 1, Foreign: 1}},
		{"backwards", []Record{rec(0, 0), rec(2, 2), rec(1, 1), rec(4, 3), rec(5, 4)}, all, Counts{Doubled: 1}},
	} {
		if f := Compare(tt.name, source, tt.mirror, tt.part); f.Counts != tt.want {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}

func TestCompareCompacted(t *testing.T) {
	rec := func(number int64, key uint64) Record {
		return Record{Offset: 2 * number, Number: number, Sum: uint64(number), Key: key}
	}
	gone := func(number int64, key uint64) Record {
		r := rec(number, key)
		r.Tombstone = true
		return r
	}
	with := func(records []Record, i int, change func(*Record)) []Record {
		out := slices.Clone(records)
		change(&out[i])
		return out
	}
	// Key 1: 0, 3, 6; key 2: 1, 4 and then a tombstone 7; key 3: 2, 5.
	source := []Record{rec(3, 1), rec(5, 3), rec(6, 1), gone(7, 2)}
	full := []Record{rec(0, 1), rec(1, 2), rec(2, 3), rec(3, 1), rec(4, 2), rec(5, 3), rec(6, 1), gone(7, 2)}
	for _, tt := range []struct {
		name           string
		source, mirror []Record
		want           Counts
	}{
		{"nothing compacted here", source, full, Counts{}},
		{"more compacted here", source, []Record{rec(5, 3), rec(6, 1)}, Counts{}},
		{"the tombstone is gone at the source", source[:3], full, Counts{}},
		{"the newest of a key is lost", source, append(slices.Clone(full[:6]), gone(7, 2)), Counts{Lost: 1}},
		{"a key is lost", source, []Record{rec(3, 1), rec(6, 1), gone(7, 2)}, Counts{Lost: 1}},
		{"a deleted key is back", source[:3], full[:7], Counts{Lost: 1}},
		{"doubled", source, append(slices.Clone(full), func() Record { r := rec(5, 3); r.Offset = 20; return r }()), Counts{Doubled: 1}},
		{"diverged", source, with(full, 3, func(r *Record) { r.Sum++ }), Counts{Diverged: 1}},
		{"foreign", source, append(slices.Clone(full), Record{Offset: 30, Number: -1, Key: 9}), Counts{Foreign: 1}},
		{"never made", source, append(slices.Clone(full), rec(8, 3)), Counts{Foreign: 1}},
	} {
		f := CompareCompacted(tt.name, tt.source, tt.mirror, all, 8)
		got := f.Counts
		if tt.name == "doubled" || tt.name == "foreign" || tt.name == "never made" {
			got.Lost = 0 // what is behind the newest of a key also looks like a lost deletion
		}
		if got != tt.want {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
	swapped := slices.Clone(full)
	swapped[3].Offset, swapped[5].Offset = swapped[5].Offset, swapped[3].Offset
	swapped[3], swapped[5] = swapped[5], swapped[3]
	if f := CompareCompacted("swapped", source, swapped, all, 8); f.Reordered == 0 {
		t.Errorf("swapped: %+v", f)
	}
}
