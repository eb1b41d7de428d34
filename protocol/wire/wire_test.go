package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"runtime"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func TestPrimitivesRoundTrip(t *testing.T) {
	s := "text"
	for _, compact := range []bool{true, false} {
		w := NewWriter([]byte("head"))
		w.Bool(true)
		w.Bool(false)
		w.Int8(math.MinInt8)
		w.Int16(math.MinInt16)
		w.Uint16(math.MaxUint16)
		w.Int32(math.MinInt32)
		w.Int64(math.MinInt64)
		w.UUID(ids.UUID{1, 2, 3})
		w.Uvarint(math.MaxUint32)
		w.String(s, compact)
		w.NullableString(nil, compact)
		w.NullableString(&s, compact)
		w.ArrayLen(-1, compact)
		w.ArrayLen(0, compact)
		if err := w.Err(); err != nil {
			t.Fatal(err)
		}
		b, ok := bytes.CutPrefix(w.Bytes(), []byte("head"))
		if !ok {
			t.Fatal("what was there is gone")
		}
		r := NewReader(b)
		got := []any{
			r.Bool(), r.Bool(), r.Int8(), r.Int16(), r.Uint16(), r.Int32(), r.Int64(), r.UUID(), r.Uvarint(),
			r.String(compact), r.NullableString(compact), *r.NullableString(compact),
			r.NullableArrayLen(compact, 1), r.ArrayLen(compact, 1),
		}
		want := []any{
			true, false, int8(math.MinInt8), int16(math.MinInt16), uint16(math.MaxUint16), int32(math.MinInt32),
			int64(math.MinInt64),
			ids.UUID{1, 2, 3},
			uint32(math.MaxUint32), s, (*string)(nil), s, -1, 0,
		}
		if err := r.Finish(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("compact %t: %v, %v", compact, got, err)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    []byte
		read func(*Reader)
		want error
	}{
		{"short int", []byte{1, 2, 3}, func(r *Reader) { r.Int32() }, ErrShort},
		{"left over", []byte{1, 2, 3}, func(r *Reader) { r.Int16() }, ErrInvalid},
		{"varint of 33 bits", []byte{0xff, 0xff, 0xff, 0xff, 0x1f}, func(r *Reader) { r.Uvarint() }, ErrInvalid},
		{"varint of six bytes", []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, func(r *Reader) { r.Uvarint() }, ErrInvalid},
		{"string past the end", []byte{9, 'a'}, func(r *Reader) { _ = r.String(true) }, ErrShort},
		{"null string", []byte{0}, func(r *Reader) { _ = r.String(true) }, ErrInvalid},
		{"length -2", []byte{0xff, 0xfe}, func(r *Reader) { _ = r.String(false) }, ErrInvalid},
		{"null array", []byte{0xff, 0xff, 0xff, 0xff}, func(r *Reader) { r.ArrayLen(false, 4) }, ErrInvalid},
		{"array past the end", []byte{0x7f, 0xff, 0xff, 0xff}, func(r *Reader) { r.NullableArrayLen(false, 4) }, ErrShort},
		{"tags announced", []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, func(r *Reader) { r.Tags(true, nil) }, ErrShort},
		{"tag past the end", []byte{1, 0, 9, 1}, func(r *Reader) { r.Tags(true, nil) }, ErrShort},
		{"tag twice", []byte{2, 3, 0, 3, 0}, func(r *Reader) { r.Tags(true, nil) }, ErrInvalid},
		{"known tag not read to its end", []byte{1, 3, 2, 0, 0}, func(r *Reader) {
			r.Tags(true, func(_ uint32, v *Reader) bool { v.Int8(); return true })
		}, ErrInvalid},
		{"known tag too short", []byte{1, 3, 2, 0, 0}, func(r *Reader) {
			r.Tags(true, func(_ uint32, v *Reader) bool { v.Int64(); return true })
		}, ErrShort},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := NewReader(tc.b)
			tc.read(r)
			if err := r.Finish(); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			// After the first error everything is zero and the error stays.
			if r.Int64() != 0 || r.NullableArrayLen(true, 1) > 0 || !errors.Is(r.Err(), tc.want) {
				t.Fatal("reading went on")
			}
		})
	}
}

func TestWriterRefusesWhatDoesNotFit(t *testing.T) {
	w := NewWriter(nil)
	w.String(string(make([]byte, math.MaxInt16+1)), false)
	if !errors.Is(w.Err(), ErrInvalid) {
		t.Fatal(w.Err())
	}
	w = NewWriter(nil)
	w.Tags([]Tag{w.Field(0, func(w *Writer) { w.String(string(make([]byte, math.MaxInt16+1)), false) })}, nil)
	if !errors.Is(w.Err(), ErrInvalid) {
		t.Fatal("an error inside of a tag is lost")
	}
}

func TestTagsAreKeptAndMerged(t *testing.T) {
	w := NewWriter(nil)
	w.Tags([]Tag{{2, []byte("new")}}, []Tag{{9, nil}, {1, []byte("a")}, {2, []byte("old")}})
	r := NewReader(w.Bytes())
	got := r.Tags(true, nil)
	want := []Tag{{1, []byte("a")}, {2, []byte("new")}, {9, nil}}
	if err := r.Finish(); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
	r = NewReader(w.Bytes())
	if got := r.Tags(false, nil); got != nil || r.Finish() != nil {
		t.Fatalf("kept %v", got)
	}
}

// A hostile length must not cost memory.
func TestHugeLengthsAllocateNothing(t *testing.T) {
	hostile := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0x0f},
		append([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, make([]byte, 100)...),
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range hostile {
		_ = NewReader(b).String(true)
		NewReader(b).NullableString(true)
		if n := NewReader(b).ArrayLen(true, 1); n > len(b) {
			t.Errorf("length %d from %d bytes", n, len(b))
		}
		NewReader(b).Tags(true, nil)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

func TestObject(t *testing.T) {
	var o Object
	o.Field("s", "<&>")
	o.Field("id", ids.UUID{})
	o.Field("ids", []ids.UUID{{1}})
	o.Field("none", []ids.UUID(nil))
	o.Field("empty", List([]int32(nil)))
	o.Field("null", (*string)(nil))
	b, err := o.JSON()
	want := `{"s":"<&>","id":"AAAAAAAAAAAAAAAAAAAAAA","ids":["AQAAAAAAAAAAAAAAAAAAAA"],"none":null,"empty":[],"null":null}`
	if err != nil || string(b) != want || !json.Valid(b) {
		t.Fatalf("got  %s, %v\nwant %s", b, err, want)
	}
	var bad Object
	bad.Field("f", func() {})
	if _, err := bad.JSON(); err == nil {
		t.Error("a function was rendered")
	}
}
