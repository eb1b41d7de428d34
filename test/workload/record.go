package workload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// numberHeader carries the number of a record whose value cannot.
const numberHeader = "n"

// keysPerPartition is small: every key is overwritten several times a second.
const keysPerPartition = 40

// filler is what values are cut from: half of it compresses well.
type filler []byte

func newFiller(valueBytes int) filler {
	f := make(filler, valueBytes+1<<16)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range f {
		if i/64%2 == 0 {
			f[i] = 'a' + byte(i/128%26)
		} else {
			f[i] = byte(rng.UintN(256))
		}
	}
	return f
}

// value is a function of the number and the size alone, so that a reader can check it.
func (f filler) value(n int64, size int) []byte {
	v := strconv.AppendInt(make([]byte, 0, size+20), n, 10)
	v = append(v, ':')
	if rest := size - len(v); rest > 0 {
		from := int(n * 61 % (1 << 16))
		v = append(v, f[from:from+rest]...)
	}
	return v
}

// record makes number n of a partition.
func (f filler) record(topic string, kind Kind, partition int32, n int64, size int) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "key-%d", n), Value: f.value(n, size)}
	switch {
	case kind.compacted():
		r.Key = fmt.Appendf(nil, "k%02d", n%keysPerPartition)
		if n%3 == 0 {
			// Hot keys among the others: the cleaner takes some records of a batch and leaves some.
			r.Key = fmt.Appendf(nil, "hot%d", n%4)
		}
		if n/keysPerPartition%5 == 4 && n%4 == 1 {
			tombstone(r, n)
		}
	case kind == Shapes:
		shape(r, n)
	}
	return r
}

func tombstone(r *kgo.Record, n int64) {
	r.Value = nil
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: numberHeader, Value: strconv.AppendInt(nil, n, 10)})
}

// shape gives each record one of the forms that a careless copy would change.
func shape(r *kgo.Record, n int64) {
	switch n % 8 {
	case 0:
		tombstone(r, n)
	case 1: // several headers of one name, an empty and a missing value
		r.Headers = []kgo.RecordHeader{
			{Key: "trace", Value: []byte{0, 1, 2, 255}},
			{Key: "trace", Value: []byte("again")},
			{Key: "empty", Value: []byte{}},
			{Key: "none", Value: nil},
			{Key: "", Value: []byte("no name")},
		}
	case 2: // an empty value is no tombstone
		tombstone(r, n)
		r.Value = []byte{}
	case 3:
		r.Key = nil
	case 4:
		r.Key = []byte{}
	case 5: // before the epoch of most systems, but after Kafka's
		r.Timestamp = time.UnixMilli(n)
	case 6:
		r.Timestamp = time.Date(1999, 12, 31, 23, 59, 59, int(n%1000)*1e6, time.UTC)
	case 7:
		r.Timestamp = time.Date(2199, 1, 1, 0, 0, 0, int(n%1000)*1e6, time.UTC)
	}
}

// numberOf reads a record's number, and says whether the record is as it was made.
func (f filler) numberOf(r *kgo.Record) (int64, error) {
	text := []byte(nil)
	for _, h := range r.Headers {
		if h.Key == numberHeader {
			text = h.Value
		}
	}
	if text == nil {
		head, _, ok := bytes.Cut(r.Value, []byte{':'})
		if !ok {
			return 0, fmt.Errorf("offset %d carries no number", r.Offset)
		}
		text = head
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("offset %d: bad number: %w", r.Offset, err)
	}
	damaged := len(r.Value) > len(f)-1<<16+20 || !bytes.Equal(r.Value, f.value(n, len(r.Value)))
	if len(r.Value) > 0 && damaged {
		return n, fmt.Errorf("offset %d, number %d: the value is not what was produced", r.Offset, n)
	}
	return n, nil
}
