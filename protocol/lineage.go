package protocol

import (
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Lineage turns what messages and records carry into what the rules work on. Where there
// are no chains but a history (a writer that knows of no chains), the history is the chain
// in force under the epoch of its last entry.
func Lineage(lastMirrorEpoch int32, lastMirrorOffset int64, history []LineageEntry, chains []LineageChain) lineage.Record {
	rec := lineage.Record{
		LastMirrorEpoch:  lastMirrorEpoch,
		LastMirrorOffset: lastMirrorOffset,
		Chains:           make(map[int32]lineage.Chain, max(len(chains), 1)),
	}
	for _, c := range chains {
		rec.Chains[c.LeaderEpoch] = toChain(c.Entries)
		if c.Written {
			rec = rec.WithWritten(c.LeaderEpoch)
		}
	}
	if len(chains) == 0 && len(history) > 0 {
		rec.Chains[history[len(history)-1].DestinationEpoch] = toChain(history)
	}
	return rec
}

// LineageFields is the reverse of Lineage: all chains in the order of their leader epochs,
// and the newest one as the history.
func LineageFields(rec lineage.Record) (history []LineageEntry, chains []LineageChain) {
	for _, epoch := range slices.Sorted(maps.Keys(rec.Chains)) {
		c := NewLineageChain()
		c.LeaderEpoch = epoch
		c.Entries = fromChain(rec.Chains[epoch])
		c.Written = rec.Written[epoch]
		chains = append(chains, c)
		history = c.Entries
	}
	return slices.Clone(history), chains
}

// Lineage is the lineage that the record holds.
func (m *LastMirrorEpochsValue) Lineage() lineage.Record {
	return Lineage(m.LastMirrorEpoch, m.LastMirrorOffset, m.History, m.Chains)
}

// SetLineage replaces the lineage that the record holds and leaves its unknown tags alone.
func (m *LastMirrorEpochsValue) SetLineage(rec lineage.Record) {
	m.LastMirrorEpoch, m.LastMirrorOffset = rec.LastMirrorEpoch, rec.LastMirrorOffset
	m.History, m.Chains = LineageFields(rec)
}

func toChain(entries []LineageEntry) lineage.Chain {
	c := make(lineage.Chain, len(entries))
	for i, e := range entries {
		c[i] = lineage.Entry{Epoch: e.DestinationEpoch, SourceEpoch: e.SourceEpoch, Start: e.StartOffset}
	}
	return c
}

func fromChain(c lineage.Chain) []LineageEntry {
	if len(c) == 0 {
		return nil
	}
	entries := make([]LineageEntry, len(c))
	for i, e := range c {
		entries[i] = NewLineageEntry()
		entries[i].DestinationEpoch, entries[i].SourceEpoch, entries[i].StartOffset = e.Epoch, e.SourceEpoch, e.Start
	}
	return entries
}

// Link turns the answer to a lookup into what a lineage is seeded with.
func Link(p LookupPartition) lineage.Link {
	return lineage.Link{LastEpoch: p.LastMirrorEpoch, LastOffset: p.LastMirrorOffset, History: toChain(p.History)}
}
