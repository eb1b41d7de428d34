package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

var (
	// ErrShort says that the bytes ended before the message did.
	ErrShort = errors.New("message is cut short")
	// ErrInvalid says that the bytes cannot be such a message.
	ErrInvalid = errors.New("message is malformed")
)

// Reader takes primitives off the front of a message.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b, which the caller must leave alone until it has finished.
// Everything handed out is a copy.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err is the first error met.
func (r *Reader) Err() error { return r.err }

// Left is how many bytes have not been read.
func (r *Reader) Left() int { return len(r.b) }

// Finish returns the first error, or an error if bytes are left over: a message that
// is longer than its layout was written under a layout we do not know.
func (r *Reader) Finish() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail(fmt.Errorf("%w: %d bytes left over", ErrInvalid, len(r.b)))
	}
	return r.err
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.b) { // below zero: a 32-bit platform
		r.fail(fmt.Errorf("%w: %d bytes wanted, %d left", ErrShort, n, len(r.b)))
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

// Bool reads one byte; anything but zero is true, as in Kafka.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 reads one byte.
func (r *Reader) Int8() int8 {
	if p := r.take(1); p != nil {
		return int8(p[0])
	}
	return 0
}

// Int16 reads two bytes.
func (r *Reader) Int16() int16 { return int16(r.Uint16()) }

// Uint16 reads two bytes.
func (r *Reader) Uint16() uint16 {
	if p := r.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

// Int32 reads four bytes.
func (r *Reader) Int32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Int64 reads eight bytes.
func (r *Reader) Int64() int64 {
	if p := r.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// UUID reads sixteen bytes.
func (r *Reader) UUID() ids.UUID {
	var u ids.UUID
	copy(u[:], r.take(len(u)))
	return u
}

// Uvarint reads an unsigned varint of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	var v uint64
	for i := range 5 {
		p := r.take(1)
		if p == nil {
			return 0
		}
		v |= uint64(p[0]&0x7f) << (7 * i)
		if p[0]&0x80 == 0 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(fmt.Errorf("%w: varint exceeds 32 bits", ErrInvalid))
	return 0
}

// length reads the length of a string or array; null is -1.
func (r *Reader) length(compact, narrow bool) int {
	var n int
	switch {
	case compact:
		n = int(int64(r.Uvarint()) - 1)
	case narrow:
		n = int(r.Int16())
	default:
		n = int(r.Int32())
	}
	if r.err != nil {
		return 0
	}
	if n < -1 {
		r.fail(fmt.Errorf("%w: length %d", ErrInvalid, n))
		return 0
	}
	return n
}

func (r *Reader) notNull(n int) int {
	if n < 0 {
		r.fail(fmt.Errorf("%w: null where there must be a value", ErrInvalid))
		return 0
	}
	return n
}

// String reads a string that must not be null.
func (r *Reader) String(compact bool) string {
	return string(r.take(r.notNull(r.length(compact, true))))
}

// NullableString reads a string that may be null.
func (r *Reader) NullableString(compact bool) *string {
	n := r.length(compact, true)
	if n < 0 {
		return nil
	}
	p := r.take(n)
	if r.err != nil {
		return nil
	}
	s := string(p)
	return &s
}

// ArrayLen reads the length of an array that must not be null. minSize is the least
// number of bytes that one element takes, which bounds what is allocated for it.
func (r *Reader) ArrayLen(compact bool, minSize int) int {
	return r.fits(r.notNull(r.length(compact, false)), minSize)
}

// NullableArrayLen is ArrayLen for an array that may be null, which is -1.
func (r *Reader) NullableArrayLen(compact bool, minSize int) int {
	n := r.length(compact, false)
	if n < 0 {
		return n
	}
	n = r.fits(n, minSize)
	if r.err != nil {
		return -1
	}
	return n
}

func (r *Reader) fits(n, minSize int) int {
	if n > len(r.b)/max(minSize, 1) {
		r.fail(fmt.Errorf("%w: %d elements announced in %d bytes", ErrShort, n, len(r.b)))
		return 0
	}
	return n
}

// Tag is a tagged field that this build has no name for. It is kept, and written again,
// so that an older process does not drop what a newer one wrote.
type Tag struct {
	Tag   uint32
	Value []byte
}

// Tags reads a tag section. known reads the value of a tag it has a name for and
// returns true; it must read all of it, and may be nil. The others are returned if keep
// is set.
func (r *Reader) Tags(keep bool, known func(tag uint32, v *Reader) bool) []Tag {
	n := r.fits(int(r.Uvarint()), 2)
	var kept []Tag
	last := int64(-1)
	for range n {
		tag := r.Uvarint()
		size := int(r.Uvarint())
		p := r.take(size)
		if r.err != nil {
			return nil
		}
		if int64(tag) <= last {
			// Kafka never writes this, and two values for one field have no meaning.
			r.fail(fmt.Errorf("%w: tag %d follows tag %d", ErrInvalid, tag, last))
			return nil
		}
		last = int64(tag)
		v := &Reader{b: p}
		if known != nil && known(tag, v) {
			if err := v.Finish(); err != nil {
				r.fail(fmt.Errorf("tag %d: %w", tag, err))
				return nil
			}
			continue
		}
		if keep {
			kept = append(kept, Tag{Tag: tag, Value: append([]byte(nil), p...)})
		}
	}
	return kept
}
