package batch

// Anchor is what tells a batch from another one that a log may hold in its place. It does not
// depend on the leader epoch that was written into the batch.
type Anchor struct {
	Base, Last int64
	count      int32
	crc        uint32
	cleaned    bool
}

// Anchor gives a batch's anchor.
func (b Batch) Anchor() Anchor {
	return Anchor{Base: b.BaseOffset(), Last: b.LastOffset(), count: b.Count(), crc: b.CRC(), cleaned: b.HasDeleteHorizon()}
}

// Covers tells whether an offset is the batch's.
func (a Anchor) Covers(offset int64) bool { return a.Base <= offset && offset <= a.Last }

// Refutes tells whether another log, which holds b, is certainly not the one that holds a: the two
// overlap and are not the same batch. A batch that the cleaner has been at proves nothing: it takes
// records out, or writes down when it will, but leaves the first and the last offset as they are.
func (a Anchor) Refutes(b Anchor) bool {
	switch {
	case b.Base > a.Last || b.Last < a.Base:
		return false
	case a.Base != b.Base || a.Last != b.Last:
		return true
	case a.count != b.count || a.cleaned || b.cleaned:
		return false
	}
	return a.crc != b.crc
}
