// Package batchtest builds record batches for tests: plain, idempotent, transactional
// and control batches, with gaps as compaction leaves them, in every codec.
package batchtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a batch. A nil Key or Value is null.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key, Value     []byte
	Headers        []Header
}

// Spec describes a batch. The zero value with a BaseOffset and Records is a plain,
// uncompressed batch without a producer (ids of 0 mean none, see Producer).
type Spec struct {
	BaseOffset  int64
	LeaderEpoch int32
	Codec       batch.Codec
	Timestamp   int64
	// LogAppendTime and DeleteHorizon set their attribute bits.
	LogAppendTime, DeleteHorizon bool
	Transactional, Control       bool
	// Producer is nil for a batch without producer id.
	Producer *Producer
	Records  []Record
	// LastOffsetDelta, when above that of the last record, leaves a gap at the end, as
	// compaction does.
	LastOffsetDelta int32
}

// Producer is the idempotent producer of a batch.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
}

// Values returns records with consecutive offsets, one for each value.
func Values(values ...string) []Record {
	rs := make([]Record, len(values))
	for i, v := range values {
		rs[i] = Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Key: []byte(fmt.Sprintf("k%d", i)), Value: []byte(v)}
	}
	return rs
}

// Plain returns n small records from base on, without a producer.
func Plain(base int64, n int) batch.Batch {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("value-%d", base+int64(i))
	}
	return Build(Spec{BaseOffset: base, Timestamp: 1_700_000_000_000 + base, Records: Values(values...)})
}

// Sized returns one batch of one record at base, with a payload of about size bytes.
func Sized(base int64, size int, p *Producer) batch.Batch {
	v := make([]byte, size)
	for i := range v {
		v[i] = byte(i * 7)
	}
	return Build(Spec{BaseOffset: base, Timestamp: 1_700_000_000_000, Producer: p, Records: []Record{{Value: v}}})
}

// Marker returns a transaction marker: the one-record control batch that ends a
// transaction of p, as commit or as abort.
func Marker(base int64, p Producer, commit bool, coordinatorEpoch int32) batch.Batch {
	key := []byte{0, 0, 0, 0} // version 0, type 0: abort
	if commit {
		key[3] = 1
	}
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	p.Sequence = -1
	return Build(Spec{
		BaseOffset: base, Timestamp: 1_700_000_000_000, Transactional: true, Control: true,
		Producer: &p, Records: []Record{{Key: key, Value: value}},
	})
}

// Build returns the batch that s describes. It panics when s asks for an impossible
// codec: it is for tests.
func Build(s Spec) batch.Batch {
	var payload []byte
	last, maxTS := s.LastOffsetDelta, int64(0)
	for _, r := range s.Records {
		payload = appendRecord(payload, r)
		last = max(last, r.OffsetDelta)
		maxTS = max(maxTS, r.TimestampDelta)
	}
	payload = compress(s.Codec, payload)

	attributes := uint16(s.Codec)
	for bit, on := range map[uint16]bool{0x08: s.LogAppendTime, 0x10: s.Transactional, 0x20: s.Control, 0x40: s.DeleteHorizon} {
		if on {
			attributes |= bit
		}
	}
	p := Producer{ID: -1, Epoch: -1, Sequence: -1}
	if s.Producer != nil {
		p = *s.Producer
	}
	be := binary.BigEndian
	b := be.AppendUint64(nil, uint64(s.BaseOffset))
	b = be.AppendUint32(b, uint32(batch.HeaderSize-12+len(payload)))
	b = be.AppendUint32(b, uint32(s.LeaderEpoch))
	b = append(b, 2)
	b = be.AppendUint32(b, 0) // the checksum, below
	b = be.AppendUint16(b, attributes)
	b = be.AppendUint32(b, uint32(last))
	b = be.AppendUint64(b, uint64(s.Timestamp))
	b = be.AppendUint64(b, uint64(s.Timestamp+maxTS))
	b = be.AppendUint64(b, uint64(p.ID))
	b = be.AppendUint16(b, uint16(p.Epoch))
	b = be.AppendUint32(b, uint32(p.Sequence))
	b = be.AppendUint32(b, uint32(len(s.Records)))
	b = append(b, payload...)
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch.Batch(b)
}

// Join returns the bytes of batches one after the other, as a Fetch answer has them.
func Join(batches ...batch.Batch) []byte {
	var b []byte
	for _, x := range batches {
		b = append(b, x...)
	}
	return b
}

func appendRecord(dst []byte, r Record) []byte {
	body := []byte{0} // attributes
	body = kbin.AppendVarlong(body, r.TimestampDelta)
	body = kbin.AppendVarint(body, r.OffsetDelta)
	body = kbin.AppendVarintBytes(body, r.Key)
	body = kbin.AppendVarintBytes(body, r.Value)
	body = kbin.AppendVarint(body, int32(len(r.Headers)))
	for _, h := range r.Headers {
		body = kbin.AppendVarintString(body, h.Key)
		body = kbin.AppendVarintBytes(body, h.Value)
	}
	dst = kbin.AppendVarint(dst, int32(len(body)))
	return append(dst, body...)
}

func compress(c batch.Codec, src []byte) []byte {
	codecs := map[batch.Codec]kgo.CompressionCodec{
		batch.Gzip:   kgo.GzipCompression(),
		batch.Snappy: kgo.SnappyCompression(),
		batch.LZ4:    kgo.Lz4Compression(),
		batch.Zstd:   kgo.ZstdCompression(),
	}
	if c == batch.None {
		return src
	}
	codec, ok := codecs[c]
	if !ok {
		panic(fmt.Sprintf("batchtest: no codec %v", c))
	}
	comp, err := kgo.DefaultCompressor(codec)
	if err != nil {
		panic(fmt.Sprintf("batchtest: %v: %v", c, err))
	}
	out, used := comp.Compress(new(bytes.Buffer), src)
	if batch.Codec(used) != c {
		panic(fmt.Sprintf("batchtest: asked for %v, got codec %d", c, used))
	}
	return bytes.Clone(out)
}
