package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// Places of the header's fields. The CRC covers everything from the attributes on,
// so the leader epoch may be changed freely and the producer id may not.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	// HeaderSize is the size of a batch without records.
	HeaderSize = 61
	// lengthOverhead is what the length field does not count: base offset and itself.
	lengthOverhead = 12
	// magic is the only record format that a mirror carries.
	magic = 2
)

// Attribute bits.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Codec is the compression of a batch's records.
type Codec uint8

// The codecs that Kafka knows.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	default:
		return fmt.Sprintf("codec(%d)", uint8(c))
	}
}

// Batch is one whole record batch of magic 2. Its bytes belong to whoever holds it
// and usually share a buffer with others; the setters write in place.
//
// The accessors do not check: a Batch comes from Next or Iterate, which do.
type Batch []byte

// BaseOffset is the offset that the record deltas count from. In a compacted batch
// it may be the offset of a record that is gone.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[posBaseOffset:])) }

// LastOffset is the last offset the batch covers, whether its record still exists or
// not: compaction keeps it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the first offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LastOffsetDelta is LastOffset relative to BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])) }

// Length is the length field: the size of the batch without its first 12 bytes.
func (b Batch) Length() int32 { return int32(binary.BigEndian.Uint32(b[posLength:])) }

// LeaderEpoch is the leader epoch under which the batch was appended.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])) }

// Magic is the version of the record format, always 2 here.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// Attributes are the batch's flag bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[posAttributes:])) }

// Codec is the compression of the payload.
func (b Batch) Codec() Codec { return Codec(b[posAttributes+1] & attrCodec) }

// IsTransactional tells whether the batch is part of a transaction, as its data or
// as its marker.
func (b Batch) IsTransactional() bool { return b[posAttributes+1]&attrTransactional != 0 }

// IsControl tells whether the batch holds control records, such as transaction markers.
func (b Batch) IsControl() bool { return b[posAttributes+1]&attrControl != 0 }

// IsLogAppendTime tells whether MaxTimestamp is the time of the append and stands for
// every record.
func (b Batch) IsLogAppendTime() bool { return b[posAttributes+1]&attrLogAppendTime != 0 }

// HasDeleteHorizon tells whether the cleaner put its delete horizon into BaseTimestamp.
func (b Batch) HasDeleteHorizon() bool { return b[posAttributes+1]&attrDeleteHorizon != 0 }

// BaseTimestamp is what the records' timestamp deltas count from.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])) }

// MaxTimestamp is the highest timestamp of the batch.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])) }

// ProducerID is the id of the idempotent producer, -1 without one.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[posProducerID:])) }

// ProducerEpoch is the producer's epoch, -1 without one.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[posProducerEpoch:])) }

// BaseSequence is the sequence number of the first record, -1 without one.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[posBaseSequence:])) }

// Count is the number of records that are really there.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[posCount:])) }

// Payload is the records as they are stored, compressed or not.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// SetLeaderEpoch writes the leader epoch, which no checksum covers.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}

// Verify checks the checksum and that the header's counts can be true. Its errors are
// *CRCError and *HeaderError.
func (b Batch) Verify() error {
	if got := crc32.Checksum(b[posAttributes:], castagnoli); got != b.CRC() {
		return &CRCError{BaseOffset: b.BaseOffset(), Stored: b.CRC(), Computed: got}
	}
	switch {
	case b.BaseOffset() < 0:
		return &HeaderError{BaseOffset: b.BaseOffset(), Field: "base offset", Value: b.BaseOffset()}
	case b.LastOffsetDelta() < 0:
		return &HeaderError{BaseOffset: b.BaseOffset(), Field: "last offset delta", Value: int64(b.LastOffsetDelta())}
	case b.NextOffset() < 0: // an overflow
		return &HeaderError{BaseOffset: b.BaseOffset(), Field: "last offset", Value: b.LastOffset()}
	case b.Count() < 0:
		return &HeaderError{BaseOffset: b.BaseOffset(), Field: "record count", Value: int64(b.Count())}
	}
	return nil
}

// CRCError says that a batch's bytes are not those its writer wrote.
type CRCError struct {
	BaseOffset       int64
	Stored, Computed uint32
}

func (e *CRCError) Error() string {
	return fmt.Sprintf("record batch at offset %d: checksum is %08x, its bytes give %08x", e.BaseOffset, e.Stored, e.Computed)
}

// HeaderError says that a header field has a value that no broker writes.
type HeaderError struct {
	BaseOffset int64
	Field      string
	Value      int64
}

func (e *HeaderError) Error() string {
	return fmt.Sprintf("record batch at offset %d: impossible %s %d", e.BaseOffset, e.Field, e.Value)
}

// MagicError says that a batch is of a record format other than 2. Brokers since 4.0
// store no other, and a mirror cannot carry the older ones unchanged.
type MagicError struct {
	BaseOffset int64
	Magic      int8
}

func (e *MagicError) Error() string {
	return fmt.Sprintf("record batch at offset %d: record format %d, only %d can be mirrored", e.BaseOffset, e.Magic, magic)
}

// LengthError says that a length field cannot be true, so that nothing behind it can
// be found.
type LengthError struct {
	BaseOffset int64
	Length     int32
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("record batch at offset %d: impossible length %d", e.BaseOffset, e.Length)
}

// Next takes the first batch off b. A Fetch answer may end in the middle of a batch:
// when no whole batch is left, Next returns a nil Batch, no error, and the bytes of
// the part as rest (none at the true end). Its errors are *MagicError and
// *LengthError; rest then begins at the batch that is wrong.
func Next(b []byte) (first Batch, rest []byte, err error) {
	if len(b) < lengthOverhead {
		return nil, b, nil
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	base := int64(binary.BigEndian.Uint64(b[posBaseOffset:]))
	if length <= posMagic-lengthOverhead { // not even a magic byte
		return nil, b, &LengthError{BaseOffset: base, Length: length}
	}
	if len(b) <= posMagic {
		return nil, b, nil
	}
	if m := int8(b[posMagic]); m != magic {
		return nil, b, &MagicError{BaseOffset: base, Magic: m}
	}
	if length < HeaderSize-lengthOverhead {
		return nil, b, &LengthError{BaseOffset: base, Length: length}
	}
	size := int64(length) + lengthOverhead
	if int64(len(b)) < size {
		return nil, b, nil
	}
	return Batch(b[:size:size]), b[size:], nil
}

// PartialSize returns the size that the batch whose first bytes are b will have, or 0
// when too few bytes are there to tell. A reader that got nothing but a part asks for
// that many bytes next time.
func PartialSize(b []byte) int64 {
	if len(b) < lengthOverhead {
		return 0
	}
	return int64(int32(binary.BigEndian.Uint32(b[posLength:]))) + lengthOverhead
}

// Iterate walks the whole batches of b in order. It ends at the true end, at a partial
// last batch (which is left out), or after yielding an error of Next once.
func Iterate(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			first, rest, err := Next(b)
			if err != nil {
				yield(nil, err)
				return
			}
			if first == nil || !yield(first, nil) {
				return
			}
			b = rest
		}
	}
}
