package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Writer appends primitives to a message.
type Writer struct {
	b   []byte
	err error
}

// NewWriter appends to b.
func NewWriter(b []byte) *Writer { return &Writer{b: b} }

// Bytes is what was written so far, after what NewWriter was given.
func (w *Writer) Bytes() []byte { return w.b }

// Err is the first value that did not fit its field. Only classic strings and arrays
// have such a limit in practice.
func (w *Writer) Err() error { return w.err }

// Bool writes one byte.
func (w *Writer) Bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

// Int8 writes one byte.
func (w *Writer) Int8(v int8) { w.b = append(w.b, byte(v)) }

// Int16 writes two bytes.
func (w *Writer) Int16(v int16) { w.Uint16(uint16(v)) }

// Uint16 writes two bytes.
func (w *Writer) Uint16(v uint16) { w.b = binary.BigEndian.AppendUint16(w.b, v) }

// Int32 writes four bytes.
func (w *Writer) Int32(v int32) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }

// Int64 writes eight bytes.
func (w *Writer) Int64(v int64) { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }

// UUID writes sixteen bytes.
func (w *Writer) UUID(v ids.UUID) { w.b = append(w.b, v[:]...) }

// Uvarint writes an unsigned varint.
func (w *Writer) Uvarint(v uint32) { w.b = binary.AppendUvarint(w.b, uint64(v)) }

func (w *Writer) length(n int, compact, narrow bool) {
	switch {
	case compact && n < math.MaxInt32:
		w.Uvarint(uint32(n + 1))
	case !compact && narrow && n <= math.MaxInt16:
		w.Int16(int16(n))
	case !compact && !narrow && n <= math.MaxInt32:
		w.Int32(int32(n))
	case w.err == nil:
		w.err = fmt.Errorf("%w: %d is too long for its field", ErrInvalid, n)
	}
}

// String writes a string.
func (w *Writer) String(s string, compact bool) {
	w.length(len(s), compact, true)
	w.b = append(w.b, s...)
}

// NullableString writes a string or, for nil, null.
func (w *Writer) NullableString(s *string, compact bool) {
	if s == nil {
		w.length(-1, compact, true)
		return
	}
	w.String(*s, compact)
}

// ArrayLen writes the length of an array, -1 for null.
func (w *Writer) ArrayLen(n int, compact bool) { w.length(n, compact, false) }

// Tags writes a tag section: the fields of the layout and the tags that were kept. A
// kept tag gives way to a field of the same number, which is the newer knowledge.
func (w *Writer) Tags(fields, kept []Tag) {
	if len(fields) == 0 && len(kept) == 0 {
		w.Uvarint(0)
		return
	}
	all := slices.Clone(fields)
	for _, t := range kept {
		if !slices.ContainsFunc(all, func(f Tag) bool { return f.Tag == t.Tag }) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b Tag) int { return cmp.Compare(a.Tag, b.Tag) })
	w.Uvarint(uint32(len(all)))
	for _, t := range all {
		w.Uvarint(t.Tag)
		w.Uvarint(uint32(len(t.Value)))
		w.b = append(w.b, t.Value...)
	}
}

// Field renders the value of one tagged field.
func (w *Writer) Field(tag uint32, write func(*Writer)) Tag {
	f := NewWriter(nil)
	write(f)
	if f.err != nil && w.err == nil {
		w.err = f.err
	}
	return Tag{Tag: tag, Value: f.b}
}
