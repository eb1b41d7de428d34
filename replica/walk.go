package replica

import (
	"context"
	"fmt"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// maxEpochWalk bounds the walk down a real leader's epochs.
const maxEpochWalk = 10_000

// walk finds the epochs of a real leader's log by asking OffsetForLeaderEpoch downwards,
// and gives each the source epochs that are on record for it (R11).
type walk struct {
	leaderEpoch int32
	logStart    int64
	// first is the epoch and base offset of the first batch that is visible, nil if none
	// is. The answers alone do not tell the lowest known epoch from those below it.
	first  *lineage.Entry
	record lineage.Record
	// link, if set, asks the other end (see State.Link).
	link func() (lineage.Link, bool, error)
	// ask returns the largest known epoch at or below the one asked for and its end, as
	// LeaderEpochFileCache.endOffsetFor does.
	ask func(epoch int32) (int32, int64, error)
}

// cached is one entry of the leader's epoch cache.
type cached struct {
	epoch int32
	start int64
}

// chain returns the chain of the leader's log, without epochs before the leader's own that
// have no records, where that one begins, and whether the log has records of clients behind
// what was mirrored.
func (w walk) chain() (c lineage.Chain, start int64, behind bool, err error) {
	cache, logEnd, err := w.cache()
	if err != nil {
		return nil, 0, false, err
	}
	start = logEnd
	known := make(lineage.Chain, len(cache))
	for i, k := range cache {
		known[i] = lineage.Entry{Epoch: k.epoch, SourceEpoch: lineage.NoSource, Start: k.start}
		if k.epoch == w.leaderEpoch {
			start = k.start
		}
	}
	seeded := w.record.Seed(known, logEnd)
	if w.link != nil && len(seeded.Cut(logEnd)) > 0 {
		link, ok, err := w.link()
		if err != nil {
			return nil, 0, false, err
		}
		if ok {
			seeded = w.record.SeedLinked(known, logEnd, link)
		}
	}
	seeded = seeded.Cut(logEnd)
	behind = seeded.WrittenBehind()
	if start >= logEnd {
		// Clients may write under the leader's epoch from now on, where nothing keeps them from
		// it: what they do is not to be taken for the mirror's (C12).
		seeded = append(seeded, lineage.Entry{Epoch: w.leaderEpoch, SourceEpoch: lineage.NoSource, Start: start})
	}
	return seeded, start, behind, nil
}

// cache returns the leader's epoch cache, ascending.
func (w walk) cache() (out []cached, logEnd int64, err error) {
	epoch, logEnd, err := w.ask(w.leaderEpoch)
	if err != nil {
		return nil, 0, err
	}
	above := logEnd
	for range maxEpochWalk {
		if epoch < 0 || w.first != nil && epoch < w.first.Epoch {
			break // no batch has it
		}
		if w.first != nil && epoch == w.first.Epoch {
			out = append(out, cached{epoch, w.first.Start})
			break
		}
		if epoch == 0 {
			// Nothing tells a known epoch 0 from none. What was mirrored is on record; a
			// log that was never mirrored may have it.
			if len(out) == 0 || len(w.record.Chains) == 0 || w.record.Chains[0] != nil {
				out = append(out, cached{0, w.logStart})
			}
			break
		}
		// The answer for the epoch below says where this one begins. Below the lowest known
		// epoch it repeats that one's start, under whatever epoch was asked for.
		lower, begin, err := w.ask(epoch - 1)
		if err != nil {
			return nil, 0, err
		}
		if len(out) > 0 && begin >= above {
			break
		}
		out = append(out, cached{epoch, begin})
		if begin <= w.logStart {
			break
		}
		epoch, above = lower, begin
	}
	slices.Reverse(out)
	return out, logEnd, nil
}

// recordAt returns the epoch of a replica's record at offset, with the offset as Start, by a
// consumer Fetch, so only below its high watermark; nil if it shows none that covers it.
func (m *Manager) recordAt(ctx context.Context, id int32, tp ids.TopicPartition, topic string, offset int64) (*lineage.Entry, error) {
	if offset < 0 {
		return nil, nil
	}
	got, err := m.fetchOne(ctx, m.calls, id, tp, topic, fetchArgs{replica: -1, epoch: -1, leaderEpoch: -1, offset: offset, lastEpoch: -1, maxBytes: 1})
	if err != nil {
		if start, serr := m.listOffset(ctx, id, tp, topic, -2); serr == nil && start > offset {
			return nil, nil // deleted there
		}
		return nil, err
	}
	b, _, err := batch.Next(got.RecordBatches)
	if err != nil {
		return nil, fmt.Errorf("batch of %s-%d at %d on broker %d: %w", topic, tp.Partition, offset, id, err)
	}
	if len(b) == 0 || b.BaseOffset() > offset {
		return nil, nil
	}
	return &lineage.Entry{Epoch: b.LeaderEpoch(), SourceEpoch: lineage.NoSource, Start: offset}, nil
}
