package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
)

// Fault is a kind of damage to a log.
type Fault string

// What can be planted, one of each kind that Counts counts.
const (
	Lost      Fault = "lost"
	Doubled   Fault = "doubled"
	Swapped   Fault = "swapped"
	Diverged  Fault = "diverged"
	Foreigner Fault = "foreign"
)

// Faults lists them.
func Faults() []Fault { return []Fault{Lost, Doubled, Swapped, Diverged, Foreigner} }

// Of gives the count that must tell of a planted fault.
func (f Fault) Of(c Counts) int64 {
	switch f {
	case Lost:
		return c.Lost
	case Doubled:
		return c.Doubled
	case Swapped:
		return c.Reordered
	case Diverged:
		return c.Diverged
	default:
		return c.Foreign
	}
}

// Plant gives a copy of a log's raw batches with one fault in it, every checksum in order: a
// broker would serve it without a word. Of the batches with records at least one must have two.
func Plant(data []byte, f Fault) ([]byte, error) {
	var out []byte
	planted := false
	end := int64(0)
	var victim batch.Batch
	for b, err := range batch.Iterate(data) {
		if err != nil {
			return nil, fmt.Errorf("plant %s: %w", f, err)
		}
		end = b.NextOffset()
		if planted || b.IsControl() || b.Count() < 2 {
			out = append(out, b...)
			continue
		}
		victim, planted = b, true
		if f == Doubled || f == Foreigner { // these go behind the end
			out = append(out, b...)
			continue
		}
		records, err := decode(b)
		if err != nil {
			return nil, fmt.Errorf("plant %s: %w", f, err)
		}
		out = append(out, rebuild(b, damage(records, f))...)
	}
	if !planted {
		return nil, errors.New("plant: no batch of two records")
	}
	switch f {
	case Doubled:
		records, err := decode(victim)
		if err != nil {
			return nil, fmt.Errorf("plant %s: %w", f, err)
		}
		again := records[0]
		again.Offset = end
		out = append(out, build(end, victim, []*kgo.Record{again})...)
	case Foreigner:
		out = append(out, build(end, victim, []*kgo.Record{{
			Offset: end, Key: []byte("rogue"), Value: []byte("nobody made this"), Timestamp: time.UnixMilli(victim.BaseTimestamp()),
		}})...)
	}
	return out, nil
}

func damage(records []*kgo.Record, f Fault) []*kgo.Record {
	switch f {
	case Lost:
		return slices.Delete(records, 0, 1)
	case Swapped:
		records[0].Offset, records[1].Offset = records[1].Offset, records[0].Offset
		records[0], records[1] = records[1], records[0]
	case Diverged:
		records[0].Headers = append(records[0].Headers, kgo.RecordHeader{Key: "planted"})
	}
	return records
}

func decode(b batch.Batch) ([]*kgo.Record, error) {
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: b.BaseOffset(), IsolationLevel: kgo.ReadUncommitted()},
		&kmsg.FetchResponseTopicPartition{RecordBatches: bytes.Clone(b)}, kgo.DefaultDecompressor(), nil)
	return fp.Records, fp.Err
}

// rebuild puts other records into a batch that covers the same offsets.
func rebuild(b batch.Batch, records []*kgo.Record) batch.Batch {
	out := build(b.BaseOffset(), b, records)
	binary.BigEndian.PutUint32(out[23:], uint32(b.LastOffsetDelta()))
	out.SetProducerID(b.ProducerID()) // and the checksum
	return out
}

func build(base int64, like batch.Batch, records []*kgo.Record) batch.Batch {
	spec := batchtest.Spec{
		BaseOffset: base, LeaderEpoch: like.LeaderEpoch(), Timestamp: like.BaseTimestamp(), Transactional: like.IsTransactional(),
		Producer: &batchtest.Producer{ID: like.ProducerID(), Epoch: like.ProducerEpoch(), Sequence: like.BaseSequence()},
	}
	for _, r := range records {
		var headers []batchtest.Header
		for _, h := range r.Headers {
			headers = append(headers, batchtest.Header{Key: h.Key, Value: h.Value})
		}
		spec.Records = append(spec.Records, batchtest.Record{
			OffsetDelta: int32(r.Offset - base), TimestampDelta: r.Timestamp.UnixMilli() - like.BaseTimestamp(),
			Key: r.Key, Value: r.Value, Headers: headers,
		})
	}
	return batchtest.Build(spec)
}
