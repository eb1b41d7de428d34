package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// another tells whether the source's log is certainly not the one that these real replicas hold below an
// offset, although their epochs agree: a source that was restored from a backup goes on under epochs
// that were used before. The last batch that the replicas show is compared. What the cleaner took out
// on either side, what the source deleted below start, and replicas that do not answer, prove nothing.
func (p *partition) another(ctx context.Context, src Source, of []int32, below, start int64) (bool, error) {
	here := p.lastShown(ctx, of, below)
	if here == nil || here.LastOffset() < start {
		return false, nil
	}
	// After a divergence the source may end within the batch.
	there, err := src.BatchAt(ctx, p.topic, p.tp.Partition, min(here.LastOffset(), below-1))
	if err != nil || there == nil || !here.Anchor().Refutes(there.Anchor()) {
		return false, err
	}
	p.log.Warn("the source holds another batch than the mirror", "offset", here.BaseOffset(), "theirs", there.BaseOffset())
	return true, nil
}

// showWait is how long a replica has to show its last batch.
const showWait = 3 * time.Second

// lastShown returns the highest batch below an offset that one of the replicas shows, nil if none
// shows any. What is visible some show and others not yet: one that was just restarted shows little.
func (p *partition) lastShown(ctx context.Context, replicas []int32, below int64) (best batch.Batch) {
	for _, id := range replicas {
		ctx, cancel := context.WithTimeout(ctx, showWait)
		b, err := p.m.lastBatch(ctx, id, p, below)
		cancel()
		switch {
		case err != nil:
			p.log.Warn("asking a replica for its last batch", "broker", id, "error", err)
		case b != nil && (best == nil || b.LastOffset() > best.LastOffset()):
			best = b
		}
		if best != nil && best.LastOffset() >= below-1 {
			break // none shows more
		}
	}
	return best
}

// lastBatch returns a replica's last batch below an offset, or below its high watermark if that is
// lower; nil if it shows none there.
func (m *Manager) lastBatch(ctx context.Context, id int32, p *partition, below int64) (batch.Batch, error) {
	for range 2 {
		if below <= 0 {
			return nil, nil
		}
		got, err := m.fetchOne(ctx, m.calls, id, p.tp, p.topic, fetchArgs{replica: -1, epoch: -1, leaderEpoch: -1, offset: below - 1, lastEpoch: -1, maxBytes: 1})
		if err != nil {
			return nil, err
		}
		if len(got.RecordBatches) == 0 && got.HighWatermark < below {
			below = got.HighWatermark
			continue
		}
		b, _, err := batch.Next(got.RecordBatches)
		if err != nil {
			return nil, fmt.Errorf("batch at %d on broker %d: %w", below-1, id, err)
		}
		if b == nil || !b.Anchor().Covers(below-1) {
			return nil, nil
		}
		return b, nil
	}
	return nil, nil
}
