package replica

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// another tells whether the source's log is certainly not the one that real replicas hold below an
// offset, although their epochs agree: a source that was restored from a backup goes on under epochs
// that were used before. The last batch that a replica shows is compared. What the cleaner took out
// on either side, what the source deleted below start, and replicas that do not answer, prove nothing.
func (p *partition) another(ctx context.Context, src Source, below, start int64) (bool, error) {
	img := p.m.image.Partition(p.tp)
	if img == nil {
		return false, nil
	}
	for _, id := range p.m.cfg.Virtual.Real(img.ISR) {
		here, err := p.m.lastBatch(ctx, id, p, below)
		if err != nil {
			p.log.Warn("asking a replica for its last batch", "broker", id, "error", err)
			continue
		}
		if here == nil || here.LastOffset() < start {
			continue
		}
		there, err := src.BatchAt(ctx, p.topic, p.tp.Partition, here.LastOffset())
		if err != nil {
			return false, err
		}
		if there != nil && here.Anchor().Refutes(there.Anchor()) {
			p.log.Warn("the source holds another batch than the mirror", "broker", id, "offset", here.BaseOffset(), "theirs", there.BaseOffset())
			return true, nil
		}
		return false, nil
	}
	return false, nil
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
