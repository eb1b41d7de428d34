package leading

import (
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Fetch answers one partition of a follower's Fetch, and learns from it.
func (m *Machine) Fetch(now time.Time, r FetchRequest) Decision {
	d := Decision{HighWatermark: lineage.Undefined, LogStart: lineage.Undefined, Offset: r.Offset}
	if code := m.epochError(r.CurrentLeaderEpoch); code != CodeNone {
		d.Code = code
		return d
	}
	if r.Replica == m.cfg.Self || !slices.Contains(m.view.Replicas, r.Replica) {
		d.Code = CodeNotLeaderOrFollower
		return d
	}
	if registered := m.view.Brokers[r.Replica].Epoch; r.BrokerEpoch == lineage.Undefined {
		// Fetch below v15 carries no broker epoch.
		r.BrokerEpoch = registered
	} else if r.BrokerEpoch != registered {
		// A late Fetch of a process that died since, or our view is behind: its log end
		// must not count (KIP-903), so it is asked to come again.
		d.Code = CodeUnknownLeaderEpoch
		return d
	}
	f := m.note(now, r)
	if m.phase != Leading {
		m.progress(now)
		// R4: an answer now would carry a high watermark that may lie below the
		// follower's, which would take it over.
		if m.phase != Leading {
			d.Code = CodeUnknownLeaderEpoch
			return d
		}
	}
	if m.cfg.Virtual.Is(r.Replica) {
		return m.fetchVirtual(now, f)
	}
	if m.diverges(&d, r) || m.outOfRange(&d, r) {
		// R1: this end counts for nothing but S.
		f.valid = false
		m.progress(now)
		return d
	}
	f.valid, f.end, f.quiesced = true, r.Offset, m.quiescing
	m.catchUp(now, f, r.Offset >= m.durable, r.Offset >= f.lastOffered)
	m.progress(now)
	return m.serve(f, r.Offset, r.LastFetchedEpoch)
}

// Again answers a waiting Fetch once more, without learning from it: nothing new was
// heard from the follower.
func (m *Machine) Again(r FetchRequest) Decision {
	d := Decision{HighWatermark: lineage.Undefined, LogStart: lineage.Undefined, Offset: r.Offset}
	if d.Code = m.epochError(r.CurrentLeaderEpoch); d.Code != CodeNone {
		return d
	}
	f := m.followers[r.Replica]
	if m.phase != Leading || f == nil {
		d.Code = CodeUnknownLeaderEpoch
		return d
	}
	if m.cfg.Virtual.Is(r.Replica) {
		d.HighWatermark, d.LogStart = m.hw, m.logStart()
		return d
	}
	if m.diverges(&d, r) || m.outOfRange(&d, r) {
		return d
	}
	return m.serve(f, r.Offset, r.LastFetchedEpoch)
}

// NewsFor tells whether a waiting Fetch has something to be answered with: an error, data
// or a high watermark that the follower was not told.
func (m *Machine) NewsFor(replica int32, currentLeaderEpoch int32, offset int64) bool {
	if m.epochError(currentLeaderEpoch) != CodeNone {
		return true
	}
	f := m.followers[replica]
	if m.phase != Leading || f == nil {
		return false
	}
	if m.cfg.Virtual.Is(replica) {
		return false
	}
	switch {
	case m.hw > f.toldHW || offset < m.earliest() || offset > m.LogEnd():
		return true
	case offset >= m.durable:
		return false
	case offset >= m.bufferStart && !m.atSeam(offset):
		return true
	}
	// Below the buffer with nobody to serve it: an answer would be empty, and asked for
	// again at once.
	return len(m.replicasFor(f, offset)) > 0 && offset < m.hw
}

// atSeam tells whether the buffer has nothing at offset, nor will have: reading ended
// behind a compaction gap. Real replicas that were there before it have the records.
func (m *Machine) atSeam(offset int64) bool { return m.seam >= 0 && m.seam <= offset && offset < m.s }

// Told notes that an answer with the high watermark hw goes to the follower.
func (m *Machine) Told(replica int32, hw int64) {
	if f := m.followers[replica]; f != nil && hw > f.toldHW {
		f.toldHW = hw
	}
}

// EvictBelow returns the offset below which no in-sync follower needs the buffer: they
// have it, and know that it is visible, so that each can serve a laggard up to there.
// What is above the high watermark is never evicted.
func (m *Machine) EvictBelow() int64 {
	o := m.hw
	for _, id := range m.cfg.Virtual.Real(m.view.ISR) {
		f := m.followers[id]
		if f == nil || !f.valid {
			return m.bufferStart
		}
		o = min(o, f.toldHW, f.end)
	}
	return o
}

// Evicted notes that the driver's buffer begins at start now.
func (m *Machine) Evicted(start int64) { m.bufferStart = max(m.bufferStart, start) }

// EpochError is Kafka's check of a request's CurrentLeaderEpoch; -1 is not checked.
func (m *Machine) EpochError(current int32) int16 {
	if current == lineage.Undefined && m.phase != Off {
		return CodeNone
	}
	return m.epochError(current)
}

func (m *Machine) epochError(current int32) int16 {
	switch {
	case m.phase == Off:
		if current > m.view.LeaderEpoch {
			return CodeUnknownLeaderEpoch
		}
		return CodeNotLeaderOrFollower
	case current < m.epoch:
		return CodeFencedLeaderEpoch
	case current > m.epoch:
		return CodeUnknownLeaderEpoch
	case m.phase == Resigned:
		return CodeNotLeaderOrFollower
	}
	return CodeNone
}

func (m *Machine) note(now time.Time, r FetchRequest) *follower {
	f := m.followers[r.Replica]
	if f == nil || f.brokerEpoch != r.BrokerEpoch {
		f = &follower{brokerEpoch: r.BrokerEpoch, toldHW: lineage.Undefined}
		m.followers[r.Replica] = f
	}
	f.seen, f.heard, f.offset, f.lastEpoch, f.logStart = true, now, r.Offset, r.LastFetchedEpoch, r.LogStart
	if m.phase != Leading {
		// Nothing is offered yet, so whoever asks is caught up.
		f.lastFetch, f.caughtUp = now, now
	}
	return f
}

// fetchVirtual answers the following virtual broker: it holds no data and is told none;
// its Fetch says that it is ready to lead.
func (m *Machine) fetchVirtual(now time.Time, f *follower) Decision {
	m.catchUp(now, f, true, true)
	m.progress(now)
	return Decision{HighWatermark: m.hw, LogStart: m.logStart(), Offset: f.offset}
}

func (m *Machine) catchUp(now time.Time, f *follower, atEnd, atLastOffer bool) {
	switch {
	case atEnd:
		f.caughtUp = now
	case atLastOffer && f.lastFetch.After(f.caughtUp):
		f.caughtUp = f.lastFetch
	}
	f.lastFetch, f.lastOffered = now, m.durable
}

// follow is the chain as followers see it: the epoch begins at S even before its first
// batch, as a stock leader assigns it.
func (m *Machine) follow() lineage.Chain {
	if last, ok := lastOf(m.chain); ok && last.Epoch == m.epoch {
		return m.chain
	}
	return append(slices.Clone(m.chain), lineage.Entry{Epoch: m.epoch, SourceEpoch: lineage.NoSource, Start: m.s})
}

// diverges checks a follower's log against the lineage, and by nothing else (R12).
func (m *Machine) diverges(d *Decision, r FetchRequest) bool {
	if r.LastFetchedEpoch == lineage.Undefined {
		return false
	}
	e, o := m.follow().EndOffsetFor(r.LastFetchedEpoch, m.LogEnd())
	switch {
	case e == lineage.Undefined:
		d.Code, d.LogStart = CodeOffsetOutOfRange, m.logStart()
		return true
	case e < r.LastFetchedEpoch || o < r.Offset:
		d.Diverging, d.DivergingTo = true, lineage.Entry{Epoch: e, Start: o}
		// As Kafka's leader does, a diverging answer carries the real marks.
		d.HighWatermark, d.LogStart = m.hw, m.logStart()
		return true
	}
	return false
}

func (m *Machine) outOfRange(d *Decision, r FetchRequest) bool {
	if r.Offset > m.LogEnd() || r.Offset < m.earliest() {
		d.Code, d.LogStart = CodeOffsetOutOfRange, m.logStart()
		return true
	}
	return false
}

// serve decides where the records come from.
func (m *Machine) serve(f *follower, offset int64, lastEpoch int32) Decision {
	d := Decision{HighWatermark: m.hw, LogStart: m.logStart(), Offset: offset}
	switch {
	case offset >= m.durable:
	case offset >= m.bufferStart && !m.atSeam(offset):
		// R10: offsets ascend with epochs, so the only batch that could carry an epoch
		// below the follower's last one is one below its end.
		if e, ok := m.follow().At(offset); ok && e.Epoch < lastEpoch {
			d.Code, d.LogStart = CodeOffsetOutOfRange, m.logStart()
			return d
		}
		d.Serve, d.End = ServeBuffer, m.durable
	default:
		end := m.bufferStart
		if m.atSeam(offset) {
			end = m.s
		}
		if from := m.replicasFor(f, offset); len(from) > 0 && offset < m.hw {
			d.Serve, d.From, d.End = ServeReplica, from[0], min(m.hw, end)
		}
	}
	return d
}

// PastGap goes on after the replica of a ServeReplica decision d, whose high watermark is
// replicaHW, has shown that it holds nothing in [d.Offset, d.End): with a compaction gap at
// the seam the next record is the buffer's first, and a follower below would wait for ever.
func (m *Machine) PastGap(r FetchRequest, d Decision, replicaHW int64) Decision {
	f := m.followers[r.Replica]
	if m.epochError(r.CurrentLeaderEpoch) != CodeNone || m.phase != Leading || f == nil || replicaHW < d.End || d.End < m.bufferStart {
		d.Serve = ServeNothing
		return d
	}
	return m.serve(f, d.End, r.LastFetchedEpoch)
}

// Candidates returns who else than From of a ServeReplica decision has what a follower asks
// for, From included: those that are alive by the metadata log, which hears of a death late.
func (m *Machine) Candidates(r FetchRequest) []int32 {
	f := m.followers[r.Replica]
	if m.epochError(r.CurrentLeaderEpoch) != CodeNone || m.phase != Leading || f == nil {
		return nil
	}
	return m.replicasFor(f, r.Offset)
}

// replicasFor returns the in-sync real replicas that hold offset.
func (m *Machine) replicasFor(f *follower, offset int64) []int32 {
	var out []int32
	for _, id := range m.cfg.Virtual.Real(m.view.ISR) {
		g := m.followers[id]
		if g != nil && g != f && g.valid && g.logStart <= offset && g.end > offset && !m.view.Brokers[id].Fenced {
			out = append(out, id)
		}
	}
	return out
}

// logStart is the log start that answers carry: never above the high watermark, which
// would mark the follower's partition failed (B9).
func (m *Machine) logStart() int64 {
	l := m.sourceStart
	if low, ok := m.lowestStart(); ok {
		l = max(l, low)
	}
	return min(m.hw, l)
}

// earliest is the lowest offset that can be served: below it a follower is out of range.
// Between the high watermark and the buffer there is nothing that could be served: the
// source has lost it, and no replica shows what is above its high watermark. After a jump
// that is everything below the source's log start (R14).
func (m *Machine) earliest() int64 {
	if m.bufferStart > m.hw {
		return m.bufferStart
	}
	return m.logStart()
}

// LogStart is what ListOffsets EARLIEST answers to a follower.
func (m *Machine) LogStart() int64 { return m.earliest() }

// LogEnd is what ListOffsets LATEST answers to a follower.
func (m *Machine) LogEnd() int64 { return max(m.durable, m.s) }

// HighWatermark is the offset below which everything is visible.
func (m *Machine) HighWatermark() int64 { return m.hw }

// EndOffsetFor answers OffsetForLeaderEpoch; ready is false before the takeover is done.
func (m *Machine) EndOffsetFor(epoch int32) (e int32, end int64, ready bool) {
	if m.phase != Leading {
		return lineage.Undefined, lineage.Undefined, false
	}
	e, end = m.follow().EndOffsetFor(epoch, m.LogEnd())
	return e, end, true
}

// lowestStart is the log start of the in-sync real replica that reaches down furthest: it
// serves laggards.
func (m *Machine) lowestStart() (int64, bool) {
	low, ok := int64(0), false
	for _, id := range m.cfg.Virtual.Real(m.view.ISR) {
		if f := m.followers[id]; f != nil && f.valid && (!ok || f.logStart < low) {
			low, ok = f.logStart, true
		}
	}
	return low, ok
}

// ClientEndOffsetFor answers a client's OffsetForLeaderEpoch. It does not wait for the source as
// followers do: a client has seen nothing above S, which is on every in-sync replica, and reads
// on from these while the source is away. Where S is not known, an answer would rewind it to the start.
func (m *Machine) ClientEndOffsetFor(epoch int32) (e int32, end int64, ready bool) {
	if m.phase != Probing && m.phase != Refused {
		return m.EndOffsetFor(epoch)
	}
	if !m.clients.known {
		return lineage.Undefined, lineage.Undefined, false
	}
	at := Machine{epoch: m.epoch, s: m.clients.s, chain: m.clients.chain}
	e, end = at.follow().EndOffsetFor(epoch, at.s)
	return e, end, true
}
