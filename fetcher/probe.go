package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// ProbeResult is what the source's leader says about an offset and the epoch before it.
type ProbeResult struct {
	// ErrorCode is 0, or one that trying again does not cure, OFFSET_OUT_OF_RANGE
	// foremost.
	ErrorCode int16
	// HighWatermark and LogStart are the leader's; LogEnd is the end that consumers
	// see. After OFFSET_OUT_OF_RANGE they come from a look-up.
	HighWatermark, LogStart, LogEnd int64
	// Diverging is set when the source's log does not have lastFetchedEpoch there.
	Diverging *Diverging
	// LeaderEpoch is that of the leader that was asked, -1 if it is not known.
	LeaderEpoch int32
	// TopicID is the id of the topic that answered, zero if the source has no ids.
	TopicID ids.UUID
}

// Probe asks the leader of a source partition for offset, as a fetch would, and keeps
// no data. It has a connection of its own and never waits behind a poll. Leader
// changes, lost connections and the like are retried until ctx ends.
func (f *Fetcher) Probe(ctx context.Context, topic string, partition int32, offset int64, lastFetchedEpoch int32) (ProbeResult, error) {
	k := partKey{topic, partition}
	var last error
	for attempt := 0; ; attempt++ {
		if attempt > 1 { // at once after the first failure: the leader may just have moved
			if !f.pause(ctx) {
				return ProbeResult{}, fmt.Errorf("mirror %s: probe source topic %s partition %d at offset %d: %w", f.cfg.Mirror, topic, partition, offset, errors.Join(ctx.Err(), last))
			}
		}
		l, err := f.leaderOf(ctx, k)
		if err == nil {
			var res ProbeResult
			if res, err = f.probe(ctx, k, l, l.id, offset, lastFetchedEpoch); err == nil {
				return res, nil
			}
			f.mu.Lock()
			if f.leaders[k] == l {
				delete(f.leaders, k)
			}
			f.mu.Unlock()
		}
		var serr *SourceError
		if errors.As(err, &serr) && (!transient(serr.Code) || (serr.Code == kerr.UnknownTopicOrPartition.Code && attempt >= goneAfter)) {
			return ProbeResult{ErrorCode: serr.Code, HighWatermark: -1, LogStart: -1, LogEnd: -1, LeaderEpoch: -1}, nil
		}
		if f.ctlErr != nil || ctx.Err() != nil || f.ctx.Err() != nil {
			// The try that ctx ended says less than the one before it.
			return ProbeResult{}, fmt.Errorf("mirror %s: probe source topic %s partition %d at offset %d: %w", f.cfg.Mirror, topic, partition, offset, errors.Join(err, last))
		}
		last = err
	}
}

// pause waits for the backoff and tells whether neither context ended.
func (f *Fetcher) pause(ctx context.Context) bool {
	t := time.NewTimer(f.cfg.Backoff)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// leaderOf returns the leader of a partition, from what is known or from metadata.
func (f *Fetcher) leaderOf(ctx context.Context, k partKey) (leader, error) {
	f.mu.Lock()
	l, ok := f.leaders[k]
	f.mu.Unlock()
	if ok {
		return l, nil
	}
	found, err := f.metadata(ctx, []string{k.topic})
	if err != nil {
		return leader{}, err
	}
	serr := &SourceError{Topic: k.topic, Partition: k.partition, Code: kerr.UnknownTopicOrPartition.Code, LogStart: -1, LogEnd: -1}
	if t := found[k.topic]; t != nil {
		if t.ErrorCode != 0 {
			serr.Code = t.ErrorCode
			return leader{}, serr
		}
		for _, p := range t.Partitions {
			if p.Partition != k.partition {
				continue
			}
			if p.Leader < 0 {
				return leader{}, errNoLeader
			}
			return leader{topicID: ids.UUID(t.TopicID), id: p.Leader, epoch: p.LeaderEpoch}, nil
		}
	}
	return leader{}, serr
}

// probe asks broker, which is the leader l or a replica that it named.
func (f *Fetcher) probe(ctx context.Context, k partKey, l leader, broker int32, offset int64, lastEpoch int32) (ProbeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	rp, err := f.fetchOne(ctx, k, l, broker, offset, lastEpoch)
	if err != nil {
		return ProbeResult{}, err
	}
	return f.probed(ctx, k, l, broker, offset, lastEpoch, rp)
}

// fetchOne asks a broker for at most one batch, at once.
func (f *Fetcher) fetchOne(ctx context.Context, k partKey, l leader, broker int32, offset int64, lastEpoch int32) (*kmsg.FetchResponseTopicPartition, error) {
	req := newFetch()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = k.topic, l.topicID
	t.Partitions = append(t.Partitions, fetchPartition(k.partition, l.epoch, offset, lastEpoch, 1))
	req.Topics = append(req.Topics, t)
	raw, err := f.ctl.Broker(int(broker)).Request(ctx, versioned(req, l.topicID.IsZero()))
	if err != nil {
		return nil, fmt.Errorf("ask broker %d: %w", broker, err)
	}
	resp := raw.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("broker %d answers a fetch with %s", broker, codeName(resp.ErrorCode))
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if rp.Partition != k.partition {
				continue
			}
			return &rp, nil
		}
	}
	return nil, fmt.Errorf("ask broker %d: %w", broker, errAbsent)
}

// BatchAt returns the batch that covers an offset of a source partition, verified and tagged as
// those that are fetched are; nil if the source has none there that consumers see, or one that is
// damaged or of an old format, which fetching finds too. It asks once.
func (f *Fetcher) BatchAt(ctx context.Context, topic string, partition int32, offset int64) (batch.Batch, error) {
	k := partKey{topic, partition}
	b, err := f.batchAt(ctx, k, offset)
	if err != nil {
		f.mu.Lock()
		delete(f.leaders, k) // it may have moved
		f.mu.Unlock()
		return nil, fmt.Errorf("mirror %s: source topic %s partition %d, the batch at offset %d: %w", f.cfg.Mirror, topic, partition, offset, err)
	}
	return b, nil
}

func (f *Fetcher) batchAt(ctx context.Context, k partKey, offset int64) (batch.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	l, err := f.leaderOf(ctx, k)
	if err != nil {
		return nil, err
	}
	broker := l.id
	for range 2 { // the leader may name a replica
		rp, err := f.fetchOne(ctx, k, l, broker, offset, -1)
		if err != nil {
			return nil, err
		}
		switch {
		case rp.ErrorCode == kerr.OffsetOutOfRange.Code && broker == l.id:
			return nil, nil // deleted, or not there yet
		case rp.ErrorCode != 0:
			return nil, &SourceError{Topic: k.topic, Partition: k.partition, Code: rp.ErrorCode, LogStart: -1, LogEnd: -1}
		}
		if r := rp.PreferredReadReplica; r >= 0 && r != broker && len(rp.RecordBatches) == 0 {
			broker = r
			continue
		}
		in := ingest(rp.RecordBatches, offset, f.cfg.Tagger)
		if len(in.batches) == 0 || !in.batches[0].Anchor().Covers(offset) {
			return nil, nil
		}
		return in.batches[0], nil
	}
	return nil, nil
}

func (f *Fetcher) probed(ctx context.Context, k partKey, l leader, broker int32, offset int64, lastEpoch int32, rp *kmsg.FetchResponseTopicPartition) (ProbeResult, error) {
	switch {
	case rp.ErrorCode == kerr.OffsetOutOfRange.Code:
		start, end, err := f.bounds(ctx, k, l)
		if err != nil {
			return ProbeResult{}, err
		}
		if broker != l.id && start <= offset && offset <= end {
			return ProbeResult{}, fmt.Errorf("replica %d does not have offset %d yet", broker, offset)
		}
		return ProbeResult{TopicID: l.topicID, LeaderEpoch: l.epoch, ErrorCode: rp.ErrorCode, HighWatermark: end, LogStart: start, LogEnd: end}, nil
	case rp.ErrorCode != 0:
		return ProbeResult{}, &SourceError{Topic: k.topic, Partition: k.partition, Code: rp.ErrorCode, LogStart: -1, LogEnd: -1}
	}
	if r := rp.PreferredReadReplica; r >= 0 && r != broker && broker == l.id && len(rp.RecordBatches) == 0 {
		return f.probe(ctx, k, l, r, offset, lastEpoch)
	}
	res := ProbeResult{TopicID: l.topicID, LeaderEpoch: l.epoch, HighWatermark: rp.HighWatermark, LogStart: rp.LogStartOffset, LogEnd: rp.HighWatermark}
	if rp.DivergingEpoch.Epoch >= 0 || rp.DivergingEpoch.EndOffset >= 0 {
		res.Diverging = &Diverging{Epoch: rp.DivergingEpoch.Epoch, EndOffset: rp.DivergingEpoch.EndOffset}
	}
	return res, nil
}
