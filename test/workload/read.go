package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readUncommitted int8 = 0
	readCommitted   int8 = 1
	// stalled is how long a reader goes on without getting further: elections and restarts
	// are over by then.
	stalled = 45 * time.Second
)

// reader reads whole partitions with plain Fetch requests. A consumer would not say when
// it has reached the end of a log that ends with a control batch or a gap.
type reader struct {
	client    *kgo.Client
	admin     *kadm.Client
	isolation int8
	unzip     kgo.Decompressor
}

func newReader(cl *kgo.Client, isolation int8) *reader {
	return &reader{client: cl, admin: kadm.NewClient(cl), isolation: isolation, unzip: kgo.DefaultDecompressor()}
}

// rawBatch is what a batch's header says.
type rawBatch struct {
	base, last int64 // offsets
	records    int32
}

// chunk is one answer to a Fetch.
type chunk struct {
	batches []rawBatch
	records []*kgo.Record
}

// end is where reading a partition ended and what its log said.
type end struct {
	logStart, next, highWatermark, lastStable int64
}

// read calls each with what the partition holds between its log start and the high
// watermark (read committed: last stable offset) that the first answer names.
func (r *reader) read(ctx context.Context, topic string, partition int32, each func(chunk) error) (end, error) {
	var e end
	wrap := func(err error) error { return fmt.Errorf("workload: read %s-%d: %w", topic, partition, err) }
	leader, id, err := r.leader(ctx, topic, partition)
	if err != nil {
		return e, wrap(err)
	}
	at, limit := int64(-1), int64(-1)
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	progress, last := time.Now(), errors.New("no leader")
	for {
		if time.Since(progress) > stalled {
			return e, wrap(fmt.Errorf("no progress for %s at offset %d, leader %d: %w", stalled, at, leader, last))
		}
		if at < 0 {
			starts, err := r.admin.ListStartOffsets(ctx, topic)
			if err != nil {
				return e, wrap(err)
			}
			if o, ok := starts.Lookup(topic, partition); ok && o.Err == nil {
				at = o.Offset
				e.logStart = at
			}
		}
		var p *kmsg.FetchResponseTopicPartition
		if at >= 0 && leader >= 0 {
			p, err = r.fetch(ctx, leader, topic, id, partition, at)
			if err == nil && p.PreferredReadReplica >= 0 && p.PreferredReadReplica != leader {
				leader = p.PreferredReadReplica
				continue
			}
			if err == nil {
				err = kerr.ErrorForCode(p.ErrorCode)
			}
			if errors.Is(err, kerr.OffsetOutOfRange) && limit < 0 {
				at = -1 // the log start has moved meanwhile
			}
		}
		if p == nil || err != nil {
			if err != nil && errors.Is(err, kerr.OffsetOutOfRange) && limit >= 0 {
				return e, wrap(fmt.Errorf("offset %d: %w", at, err))
			}
			// A new leader, or a broker that is away.
			select {
			case <-ctx.Done():
				return e, wrap(errors.Join(ctx.Err(), err))
			case <-retry.C:
			}
			if err != nil {
				last = err
			}
			if leader, id, err = r.leader(ctx, topic, partition); err != nil {
				return e, wrap(err)
			}
			continue
		}
		if limit < 0 {
			e.highWatermark, e.lastStable = p.HighWatermark, p.LastStableOffset
			limit = p.HighWatermark
			if r.isolation == readCommitted {
				limit = p.LastStableOffset
			}
		}
		c, next, err := r.decode(topic, partition, at, p)
		if err != nil {
			return e, wrap(err)
		}
		if err := each(c); err != nil {
			return e, err
		}
		if next > at {
			at, progress = next, time.Now()
		}
		e.next = at
		if at >= limit {
			return e, nil
		}
	}
}

func (r *reader) decode(topic string, partition int32, at int64, p *kmsg.FetchResponseTopicPartition) (chunk, int64, error) {
	var c chunk
	next := at
	for raw := p.RecordBatches; len(raw) >= 61; {
		size := 12 + int(binary.BigEndian.Uint32(raw[8:]))
		if size > len(raw) {
			break // a batch cut off at the end of the answer
		}
		b := rawBatch{
			base:    int64(binary.BigEndian.Uint64(raw)),
			records: int32(binary.BigEndian.Uint32(raw[57:])),
			last:    int64(int32(binary.BigEndian.Uint32(raw[23:]))),
		}
		b.last += b.base
		c.batches = append(c.batches, b)
		next = b.last + 1
		raw = raw[size:]
	}
	level := kgo.ReadUncommitted()
	if r.isolation == readCommitted {
		level = kgo.ReadCommitted()
	}
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: level, Topic: topic, Partition: partition,
	}, p, r.unzip, nil)
	if fp.Err != nil {
		return c, next, fp.Err
	}
	c.records = fp.Records
	return c, next, nil
}

// leader returns -1 if there is none at the moment.
func (r *reader) leader(ctx context.Context, topic string, partition int32) (int32, [16]byte, error) {
	md, err := r.admin.Metadata(ctx, topic)
	if err != nil {
		return -1, [16]byte{}, err
	}
	t := md.Topics[topic]
	p, ok := t.Partitions[partition]
	if t.Err != nil || !ok || p.Err != nil {
		return -1, [16]byte{}, nil //nolint:nilerr // asked again until ctx ends
	}
	return p.Leader, t.ID, nil
}

func (r *reader) fetch(ctx context.Context, broker int32, topic string, id [16]byte, partition int32, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 200
	req.MinBytes = 1
	req.MaxBytes = 16 << 20
	req.IsolationLevel = r.isolation
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, at, 4<<20
	p.CurrentLeaderEpoch = -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := r.client.Broker(int(broker)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("a %T as answer to a fetch", kresp)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("an answer without the partition")
	}
	return &resp.Topics[0].Partitions[0], nil
}
