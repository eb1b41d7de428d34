package check

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// Record is what the comparison keeps of a record.
type Record struct {
	Offset int64
	// Number is the record's place in what its producer made, -1 for what no producer of the
	// load made.
	Number int64
	// Sum is over key, value, headers and timestamp.
	Sum uint64
	// Key is a sum of the key; Tombstone says that there is no value.
	Key       uint64
	Tombstone bool
	// Aborted says that a marker in the same log aborts the record's transaction.
	Aborted bool
}

// Numberer reads a record's number, and fails if the record is not as the load made it.
type Numberer func(*kgo.Record) (int64, error)

// Decoder turns raw batches of one partition, in the order of their offsets, into records.
type Decoder struct {
	Topic     string
	Partition int32
	Number    Numberer

	records []Record
	open    map[int64][]int // indexes of the records of transactions in progress, by producer id
	unzip   kgo.Decompressor
	next    int64
}

// Log is what a Decoder has read.
type Log struct {
	Records []Record
	// End is the offset after the last batch, also when it has no records any more.
	End int64
}

// Add decodes whole batches; a part of one at the end is left out. Batches that end before
// from are skipped.
func (d *Decoder) Add(data []byte, from int64) error {
	if d.open == nil {
		d.open, d.unzip = map[int64][]int{}, kgo.DefaultDecompressor()
	}
	for b, err := range batch.Iterate(data) {
		if err != nil {
			return fmt.Errorf("%s-%d: %w", d.Topic, d.Partition, err)
		}
		if b.LastOffset() < from {
			continue
		}
		if err := b.Verify(); err != nil {
			return fmt.Errorf("%s-%d: %w", d.Topic, d.Partition, err)
		}
		d.next = b.NextOffset()
		if b.IsControl() {
			d.marker(b)
			continue
		}
		if err := d.data(b); err != nil {
			return err
		}
	}
	return nil
}

// Log gives what was decoded.
func (d *Decoder) Log() Log { return Log{Records: d.records, End: d.next} }

// control record types
const (
	markerAbort  = 0
	markerCommit = 1
)

func (d *Decoder) marker(b batch.Batch) {
	if b.Count() == 0 {
		return // the cleaner took the marker out of it
	}
	kind, ok := markerType(b)
	if !ok || kind != markerAbort && kind != markerCommit {
		return
	}
	if kind == markerAbort {
		for _, i := range d.open[b.ProducerID()] {
			d.records[i].Aborted = true
		}
	}
	delete(d.open, b.ProducerID())
}

// markerType reads the type of a control batch's only record: its key is a version and a type.
func markerType(b batch.Batch) (int16, bool) {
	p := b.Payload()
	varint := func() (v int64, ok bool) {
		v, n := binary.Varint(p)
		if n > 0 {
			p = p[n:]
		}
		return v, n > 0
	}
	// length, attributes (a byte), timestamp delta, offset delta, length of the key
	var v int64
	for i := range 4 {
		var ok bool
		if v, ok = varint(); !ok || len(p) == 0 {
			return 0, false
		}
		if i == 0 {
			p = p[1:]
		}
	}
	if v < 4 || len(p) < 4 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(p[2:])), true
}

func (d *Decoder) data(b batch.Batch) error {
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: b.BaseOffset(), IsolationLevel: kgo.ReadUncommitted(), Topic: d.Topic, Partition: d.Partition,
	}, &kmsg.FetchResponseTopicPartition{Partition: d.Partition, RecordBatches: b}, d.unzip, nil)
	if fp.Err != nil {
		return fmt.Errorf("%s-%d: decode the batch at offset %d: %w", d.Topic, d.Partition, b.BaseOffset(), fp.Err)
	}
	for _, r := range fp.Records {
		if b.IsTransactional() {
			d.open[b.ProducerID()] = append(d.open[b.ProducerID()], len(d.records))
		}
		d.records = append(d.records, Of(r, d.Number))
	}
	return nil
}

// Of gives what the comparison keeps of a record.
func Of(r *kgo.Record, number Numberer) Record {
	n, err := number(r)
	if err != nil {
		n = -1
	}
	return Record{Offset: r.Offset, Number: n, Sum: sum(r), Key: sumOf(r.Key), Tombstone: r.Value == nil}
}

func sumOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

func sum(r *kgo.Record) uint64 {
	h := fnv.New64a()
	part := func(b []byte) {
		n := int64(len(b))
		if b == nil {
			n = -1
		}
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(n))
		h.Write(size[:])
		h.Write(b)
	}
	part(r.Key)
	part(r.Value)
	for _, hd := range r.Headers {
		part([]byte(hd.Key))
		part(hd.Value)
	}
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(r.Timestamp.UnixMilli()))
	h.Write(at[:])
	return h.Sum64()
}
