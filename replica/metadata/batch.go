package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
)

// batch is a batch of the metadata log, decoded in full before any of it is applied.
type batch struct {
	base, last  int64
	leaderEpoch int32
	records     []record // those of types that matter here; none in a control batch
}

type record struct {
	offset int64
	value  metadatarecords.Record
}

// Layout of a record batch of magic 2.
const (
	batchHeader     = 61
	atLength        = 8
	atLeaderEpoch   = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21
	atLastDelta     = 23
	atRecordCount   = 57
	compressionMask = 0x07
	controlBit      = 0x20
)

var errTruncated = errors.New("record ends before its fields do")

// nextBatch decodes the batch at the start of b and returns it with its size in bytes;
// size 0 when b holds the beginning of a batch only.
func nextBatch(b []byte, crcTable *crc32.Table) (batch, int, error) {
	if len(b) < batchHeader {
		return batch{}, 0, nil
	}
	base := int64(binary.BigEndian.Uint64(b))
	length := int64(int32(binary.BigEndian.Uint32(b[atLength:])))
	size := length + atLeaderEpoch
	if size < batchHeader {
		return batch{}, 0, fmt.Errorf("batch at offset %d: length %d", base, length)
	}
	if size > int64(len(b)) {
		return batch{}, 0, nil
	}
	b = b[:size]
	if b[atMagic] != 2 {
		return batch{}, 0, fmt.Errorf("batch at offset %d: magic %d", base, b[atMagic])
	}
	if got, want := crc32.Checksum(b[atAttributes:], crcTable), binary.BigEndian.Uint32(b[atCRC:]); got != want {
		return batch{}, 0, fmt.Errorf("batch at offset %d: CRC is %08x, its header says %08x", base, got, want)
	}
	out := batch{
		base:        base,
		last:        base + int64(int32(binary.BigEndian.Uint32(b[atLastDelta:]))),
		leaderEpoch: int32(binary.BigEndian.Uint32(b[atLeaderEpoch:])),
	}
	if out.last < out.base {
		return batch{}, 0, fmt.Errorf("batch at offset %d ends at %d", base, out.last)
	}
	attributes := binary.BigEndian.Uint16(b[atAttributes:])
	if attributes&controlBit != 0 {
		// Leader changes, snapshot headers and footers, voter sets: the quorum's own.
		return out, int(size), nil
	}
	if c := attributes & compressionMask; c != 0 {
		// No controller of the versions covered writes these.
		return batch{}, 0, fmt.Errorf("batch at offset %d: compressed (type %d), which this build does not read", base, c)
	}
	count := int32(binary.BigEndian.Uint32(b[atRecordCount:]))
	rest := b[batchHeader:]
	for n := range count {
		l, k := binary.Varint(rest)
		if k <= 0 || l < 0 || l > int64(len(rest)-k) {
			return batch{}, 0, fmt.Errorf("batch at offset %d, record %d of %d: %w", base, n, count, errTruncated)
		}
		delta, value, err := recordValue(rest[k : k+int(l)])
		if err != nil {
			return batch{}, 0, fmt.Errorf("batch at offset %d, record %d of %d: %w", base, n, count, err)
		}
		rest = rest[k+int(l):]
		rec, skipped, err := metadatarecords.Decode(value)
		if err != nil {
			return batch{}, 0, fmt.Errorf("offset %d: %w", base+delta, err)
		}
		if skipped == nil {
			out.records = append(out.records, record{offset: base + delta, value: rec})
		}
	}
	return out, int(size), nil
}

// recordValue returns the offset delta and the value of a record without its length.
func recordValue(b []byte) (delta int64, value []byte, err error) {
	if len(b) < 1 {
		return 0, nil, errTruncated
	}
	b = b[1:] // attributes
	field := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			err = errTruncated
			return 0
		}
		b = b[n:]
		return v
	}
	field() // timestamp delta
	delta = field()
	if l := field(); l > int64(len(b)) {
		err = errTruncated
	} else if l > 0 {
		b = b[l:] // key
	}
	l := field()
	if l < 0 || l > int64(len(b)) {
		err = errTruncated
	}
	if err != nil {
		return 0, nil, err
	}
	return delta, b[:l], nil
}
