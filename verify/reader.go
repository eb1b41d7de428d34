package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readWait    = 500 * time.Millisecond
	retryPause  = 250 * time.Millisecond
	readRetries = 60 // of one request: about 15 s, enough for a leader election
	// debuggingReplica is the replica id with which a follower answers ListOffsets.
	debuggingReplica = -2
)

// reader reads a partition of a real cluster from its leader or from a chosen replica.
type reader struct {
	cl       *kgo.Client
	tp       TopicPartition
	choose   func(TopicPartition) int32
	maxBytes int32

	// What metadata said last; known is false when it must be asked again.
	known  bool
	id     [16]byte
	leader int32
	epoch  int32
	// preferred is where the leader sends readers, -1 for nowhere else.
	preferred int32
}

func newReader(cl *kgo.Client, tp TopicPartition, choose func(TopicPartition) int32, maxBytes int32) *reader {
	return &reader{cl: cl, tp: tp, choose: choose, maxBytes: orDefault(maxBytes, 4<<20), preferred: -1}
}

// broker returns whom to read from, and whether that is a replica chosen by the caller.
func (r *reader) broker() (id int32, chosen bool) {
	if r.choose != nil {
		if id := r.choose(r.tp); id >= 0 {
			return id, true
		}
	}
	if r.preferred >= 0 {
		return r.preferred, false
	}
	return r.leader, false
}

func (r *reader) locate(ctx context.Context) error {
	if r.known {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(r.tp.Topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if p.Partition != r.tp.Partition {
				continue
			}
			if p.Leader < 0 {
				return kerr.LeaderNotAvailable
			}
			r.id, r.leader, r.epoch, r.preferred, r.known = t.TopicID, p.Leader, p.LeaderEpoch, -1, true
			return nil
		}
	}
	return kerr.UnknownTopicOrPartition
}

// retry runs fn until it succeeds, fails for good, or has failed too often.
func (r *reader) retry(ctx context.Context, fn func() error) error {
	var err error
	for range readRetries {
		if err = r.locate(ctx); err == nil {
			if err = fn(); err == nil {
				return nil
			}
		}
		var ke *kerr.Error
		if errors.Is(err, ErrOffsetOutOfRange) || ctx.Err() != nil || (errors.As(err, &ke) && !ke.Retriable) {
			return err
		}
		r.known = false
		if perr := pause(ctx); perr != nil {
			return errors.Join(perr, err)
		}
	}
	return fmt.Errorf("after %d tries: %w", readRetries, err)
}

func pause(ctx context.Context) error {
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Bounds implements Reader.
func (r *reader) Bounds(ctx context.Context) (start, end int64, err error) {
	err = r.retry(ctx, func() error {
		if start, err = r.offset(ctx, -2); err != nil {
			return err
		}
		end, err = r.offset(ctx, -1)
		return err
	})
	return start, end, err
}

func (r *reader) offset(ctx context.Context, timestamp int64) (int64, error) {
	broker, replica := r.leader, int32(-1)
	if id, chosen := r.broker(); chosen {
		broker, replica = id, debuggingReplica
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = replica
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = r.tp.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = r.tp.Partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := r.cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("ask broker %d for offsets: %w", broker, err)
	}
	resp := raw.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("broker %d answers a question for offsets with nothing", broker)
	}
	rp := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		return 0, fmt.Errorf("ask broker %d for offsets: %w", broker, err)
	}
	return rp.Offset, nil
}

// Read implements Reader.
func (r *reader) Read(ctx context.Context, offset int64) (data []byte, end int64, err error) {
	err = r.retry(ctx, func() error {
		data, end, err = r.fetch(ctx, offset)
		return err
	})
	return data, end, err
}

func (r *reader) fetch(ctx context.Context, offset int64) ([]byte, int64, error) {
	broker, chosen := r.broker()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(readWait/time.Millisecond), 1, r.maxBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.tp.Topic, r.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = r.tp.Partition, offset, r.maxBytes, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	var kreq kmsg.Request = req
	if r.id == [16]byte{} {
		kreq = &namedFetch{req}
	}
	raw, err := r.cl.Broker(int(broker)).Request(ctx, kreq)
	if err != nil {
		return nil, 0, fmt.Errorf("fetch from broker %d: %w", broker, err)
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, fmt.Errorf("fetch from broker %d: %w", broker, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, fmt.Errorf("broker %d answers a fetch with nothing", broker)
	}
	rp := &resp.Topics[0].Partitions[0]
	switch err := kerr.ErrorForCode(rp.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return r.outOfRange(ctx, broker, offset)
	case err != nil:
		return nil, 0, fmt.Errorf("fetch from broker %d: %w", broker, err)
	}
	// A mirror's leader has no data; it sends readers to a real replica.
	if to := rp.PreferredReadReplica; to >= 0 && to != broker && !chosen && len(rp.RecordBatches) == 0 {
		r.preferred = to
		return r.fetch(ctx, offset)
	}
	return rp.RecordBatches, rp.HighWatermark, nil
}

// outOfRange tells a replica that lags, which is to be asked again, from an offset that
// is gone.
func (r *reader) outOfRange(ctx context.Context, broker int32, offset int64) ([]byte, int64, error) {
	start, err := r.offset(ctx, -2)
	if err != nil {
		return nil, 0, err
	}
	if offset < start {
		return nil, 0, fmt.Errorf("broker %d: %w: offset %d is below %d", broker, ErrOffsetOutOfRange, offset, start)
	}
	end, err := r.offset(ctx, -1)
	if err != nil {
		return nil, 0, err
	}
	if offset > end {
		// It has not come that far: nothing to read yet. Read waits in that case.
		return nil, end, pause(ctx)
	}
	return nil, 0, fmt.Errorf("broker %d: %w", broker, kerr.OffsetNotAvailable)
}

// namedFetch holds a request at the last version that names topics.
type namedFetch struct{ *kmsg.FetchRequest }

func (*namedFetch) MaxVersion() int16 { return 12 }
