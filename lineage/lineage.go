package lineage

// NoSource is the source epoch of an entry that no virtual broker led: data that
// was written here by clients, before the mirror began or around it.
const NoSource int32 = -1

// Entry says that from offset Start on, batches carry leader epoch Epoch of this
// cluster and were, at the source, of leader epoch SourceEpoch.
type Entry struct {
	Epoch       int32 // destination leader epoch (DLE)
	SourceEpoch int32 // source leader epoch (SLE), NoSource for local data
	Start       int64 // base offset of the first batch under (Epoch, SourceEpoch)
}

// Chain is the lineage of one log, ascending in Start and Epoch. One Epoch may have
// several entries, one for each source epoch that was mirrored under it.
type Chain []Entry

// Record is what the state topic keeps of one partition (record type 1): the chain in
// force for each destination epoch that a real replica's log may still end with (R11).
type Record struct {
	// LastMirrorEpoch and LastMirrorOffset are set by a stop: the source epoch of the
	// last mirrored batch, and the log end. Both are -1 otherwise.
	LastMirrorEpoch  int32
	LastMirrorOffset int64
	// Chains maps a destination leader epoch to the chain in force under it.
	Chains map[int32]Chain
	// Written are the epochs, of those in Chains, whose leader was a real broker and had
	// records of clients behind what was mirrored. The chain does not tell: it has the entry of
	// that leader also while the leader has taken nothing.
	Written map[int32]bool
}
