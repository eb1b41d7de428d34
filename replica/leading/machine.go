package leading

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Machine leads one partition. It is not safe for concurrent use; the driver owns it and
// holds its own lock around every call, and carries out Take's actions in their order.
type Machine struct {
	cfg     Config
	view    View
	epoch   int32 // leader epoch of the takeover under way; -1 while Off
	phase   Phase
	consent Consent

	followers map[int32]*follower

	// Takeover.
	record    lineage.Record // what the state topic keeps, with this epoch's chain once it is decided
	s         int64          // S: everything below is agreed, everything from here on carries epoch
	refStart  int64          // lowest start of the logs that S was computed from
	refEnd    int64          // end of the longest of them
	refShort  int64          // end of the shortest: nothing visible is above. S may lie below all of it
	ref       []int32        // the members S was computed from (R16)
	refLogs   []lineage.Log  // and their logs
	asked     []int32        // those that have to be asked for a record
	asks      int            // counts over takeovers: only the last one's answer counts
	knownHW   int64
	shownHW   bool  // a member that S was computed from is among those that told
	jumpStart int64 // log start after a jump over a hole; 0 if there was none (R14)
	jumpedAt  int64 // what was agreed before the jump
	unknown   bool  // some member's history is not on record, so nothing is agreed
	clients   agreed
	abandoned bool // S is what the best of those alive has: a replica that may have more was given up

	// Leading.
	chain       lineage.Chain // in force now, including entries that are not yet durable
	hw          int64
	bufferStart int64
	end         int64 // end of what was ingested
	readFrom    int64 // where reading began last: that may be within a batch
	durable     int64 // followers get nothing above: the lineage for it is not persisted
	unsaved     []int64
	persistSeq  int
	persistBusy bool
	persistUpTo int64
	sourceStart int64
	reading     bool
	failed      bool

	pending    *pendingISR
	alterAfter time.Time // no AlterPartition before this, after a refusal

	aligned bool // see align.go

	// See pause.go.
	paused, rested, barred bool
	// seam is where the buffer's records end when reading ended below S, since the source
	// has compacted what lies in between; lineage.Undefined if it did not.
	seam int64

	quiescing bool
	quiesced  bool
	// withReset: a stop ends with a record that resets producer state; resetAt is its offset
	// once it was appended.
	withReset bool
	resetAt   int64
	// quiesceFrom is when Quiesce was called.
	quiesceFrom time.Time
	started     time.Time

	// See silent.go. silences is kept over epochs.
	// gaveUp is up to where the mirror was visible when the operator gave up who has all of it, as far
	// as this leader knew; it is kept for the epoch that goes on without.
	gaveUp int64

	alive    map[int32]seenAlive
	silences map[int32]silence
	silent   []int32

	out []Action
}

// follower is what this leader epoch has seen of a replica.
type follower struct {
	// From any Fetch of this epoch: counts for S only (R1).
	seen        bool
	brokerEpoch int64
	offset      int64
	lastEpoch   int32
	// From a Fetch that passed the lineage check: counts for HW and ISR (R1).
	valid    bool
	end      int64
	logStart int64

	caughtUp    time.Time
	heard       time.Time // the last Fetch, whatever it was answered
	lastFetch   time.Time
	lastOffered int64 // what was offered at lastFetch: "caught up" means this, not the source's end
	toldHW      int64
	quiesced    bool // has fetched since quiesce began
}

// agreed is S as the members' logs say, with the chain below it, for clients: what the source says may
// lower S before the takeover is refused, and nothing went by then.
type agreed struct {
	known bool
	s     int64
	chain lineage.Chain
}

// pendingISR is an AlterPartition on its way. Its members count for the maximal ISR until
// the metadata log has settled it.
type pendingISR struct {
	isr            []Member
	partitionEpoch int32
	// uncertain: an earlier sending of it got no answer and may have been applied.
	uncertain bool
}

// New returns a machine that leads nothing.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, epoch: lineage.Undefined, resetAt: lineage.Undefined, seam: lineage.Undefined, followers: map[int32]*follower{}}
}

// Take returns the actions since the last call, in order.
func (m *Machine) Take() []Action {
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// Metadata takes a change of the partition or of its brokers.
func (m *Machine) Metadata(now time.Time, v View) {
	m.view = v
	if v.Leader != m.cfg.Self {
		if m.phase != Off {
			m.do(StopReading{m.epoch})
			m.do(Drop{})
		}
		m.reset(Off, lineage.Undefined, now)
		return
	}
	if v.LeaderEpoch != m.epoch {
		m.do(StopReading{m.epoch})
		m.do(Drop{})
		m.reset(ReadingState, v.LeaderEpoch, now)
		m.do(ReadState{m.epoch})
		return
	}
	if p := m.pending; p != nil && v.PartitionEpoch > p.partitionEpoch {
		m.pending = nil
	}
	for id, f := range m.followers {
		// A broker that registered again may have lost its tail (KIP-903): what its former
		// process told counts for nothing.
		if b, ok := v.Brokers[id]; !ok || b.Epoch != f.brokerEpoch {
			f.seen, f.valid = false, false
		}
	}
	m.noteAlive(now)
	m.progress(now)
}

func (m *Machine) reset(p Phase, epoch int32, now time.Time) {
	cfg, view, out, silences, gaveUp, asks := m.cfg, m.view, m.out, m.silences, m.gaveUp, m.asks
	*m = Machine{
		cfg: cfg, view: view, out: out, phase: p, epoch: epoch, started: now, resetAt: lineage.Undefined, seam: lineage.Undefined,
		followers: map[int32]*follower{}, silences: silences, gaveUp: gaveUp, asks: asks,
	}
	if p != Off {
		m.noteAlive(now)
	}
}

// StateRead takes the partition's lineage, read behind a barrier, and what the state
// allows.
func (m *Machine) StateRead(now time.Time, epoch int32, rec lineage.Record, c Consent) {
	if epoch != m.epoch || m.phase != ReadingState {
		return
	}
	m.record, m.consent = rec, c
	if !c.GiveUp {
		m.gaveUp = 0
	}
	m.phase = Collecting
	m.progress(now)
}

// progress moves the takeover and the ISR on as far as what is known allows.
func (m *Machine) progress(now time.Time) {
	switch m.phase {
	case Collecting:
		m.collect()
	case AskingHW:
		m.retake()
	case Probing:
		if m.asItIs() {
			m.lead(now)
			return
		}
		m.retake()
	case Refused:
		m.await()
	case Leading:
		m.align()
		m.advance()
		m.reread()
		m.retake()
		m.regain()
	}
	m.maintainISR(now)
	m.rest()
	m.quiesce(now)
	m.listen(now)
}

// collect computes S once every real member of the ISR has fetched (R4, R5); without a
// real member, once the candidates of R15 have.
func (m *Machine) collect() {
	may := m.consent.Truncate || m.consent.AsItIs
	if !may && len(m.cfg.Virtual.Real(m.view.ISR)) > 0 {
		m.refuse(0, notMirrored)
		return
	}
	members, ok := m.members()
	if !ok {
		return
	}
	var ask []int32
	m.refLogs, m.refEnd = make([]lineage.Log, len(members)), 0
	for i, id := range members {
		f := m.followers[id]
		m.refLogs[i] = lineage.Log{End: f.offset, LastEpoch: f.lastEpoch}
		if may && m.record.Ambiguous(m.refLogs[i]) {
			if m.view.Brokers[id].Fenced {
				return // it cannot be asked yet
			}
			ask = append(ask, id)
		}
		if i == 0 || f.logStart < m.refStart {
			m.refStart = f.logStart
		}
		if i == 0 || f.offset < m.refShort {
			m.refShort = f.offset
		}
		m.refEnd = max(m.refEnd, f.offset)
	}
	m.ref, m.asked = members, ask
	m.agree()
	if !may {
		m.refuse(0, notMirrored)
		return
	}
	m.phase = AskingHW
	at := map[int32]int64{}
	for _, id := range m.cfg.Virtual.Real(m.view.Replicas) {
		if b, ok := m.view.Brokers[id]; !ok || b.Fenced {
			continue
		}
		at[id] = lineage.Undefined
		if f := m.followers[id]; f != nil && f.seen {
			at[id] = f.offset
		}
	}
	if len(ask) > 0 {
		ask = m.live(members)
	}
	m.asks++
	m.do(AskHighWatermarks{m.epoch, at, ask, m.asks})
}

const notMirrored = "the state of the partition is neither LOG_TRUNCATION nor MIRRORING"

// await goes on waiting for a real replica after a takeover was refused: whoever has all
// that is visible may join, so that there is somebody to hand back to (R16).
func (m *Machine) await() {
	if m.ref == nil && len(m.cfg.Virtual.Real(m.view.ISR)) == 0 {
		m.phase = Collecting
		m.collect()
	}
	m.retake()
}

// agree computes S (R5).
func (m *Machine) agree() {
	s, chain, known := m.record.Agree(m.refLogs)
	if !known {
		// Records of an epoch that no sidecar has ever read the history of. Only consent
		// may drop them.
		s, chain = 0, nil
	}
	m.s, m.chain, m.unknown = s, chain, !known
	// Before a record was asked for, S may lie far below what is visible.
	told := m.phase == AskingHW || !slices.ContainsFunc(m.refLogs, m.record.Ambiguous)
	m.clients = agreed{known && told, s, chain}
}

// members returns the real replicas from whose logs S is computed.
func (m *Machine) members() ([]int32, bool) {
	m.abandoned = false
	real := m.cfg.Virtual.Real(m.view.ISR)
	if len(real) > 0 {
		for _, id := range real {
			if !m.reported(id) {
				return nil, false
			}
		}
		return real, true
	}
	if c := m.cfg.Virtual.Real(m.view.ELR); len(c) > 0 {
		// Every member of the ELR holds all that is visible: one is enough.
		if first, ok := m.firstReported(c); ok || !m.consent.GiveUp {
			return first, ok
		}
	}
	all, last := m.cfg.Virtual.Real(m.view.Replicas), m.lastRealISR()
	if m.consent.GiveUp {
		// What is visible those of the ELR and of the last ISR have, or anybody if there were none.
		had := append(m.cfg.Virtual.Real(m.view.ELR), last...)
		if len(had) == 0 {
			had = all
		}
		all = m.live(all)
		last = m.live(last)
		m.abandoned = len(m.live(had)) < len(had)
	}
	for _, id := range all {
		// A last member may have lost its tail in a crash: without ELR everybody must
		// have been heard.
		if !m.reported(id) {
			return nil, false
		}
	}
	best := int32(-1)
	for _, id := range all {
		if len(last) > 0 && !slices.Contains(last, id) {
			continue
		}
		if best < 0 {
			best = id
		}
	}
	if best < 0 {
		return nil, false
	}
	for _, id := range all {
		if id != best && m.extends(id, best, len(last) == 0) {
			best = id
		}
	}
	return []int32{best}, true
}

// extends tells whether a's log holds all of b's and more; with anyLog, whether a's last
// record is newer.
func (m *Machine) extends(a, b int32, anyLog bool) bool {
	fa, fb := m.followers[a], m.followers[b]
	la, lb := lineage.Log{End: fa.offset, LastEpoch: fa.lastEpoch}, lineage.Log{End: fb.offset, LastEpoch: fb.lastEpoch}
	if anyLog {
		ea, eb := m.lastRecordEpoch(la), m.lastRecordEpoch(lb)
		return ea > eb || ea == eb && la.End > lb.End
	}
	if la.End <= lb.End {
		return false
	}
	ca, enda, ok1 := m.record.ChainOf(la)
	cb, endb, ok2 := m.record.ChainOf(lb)
	return ok1 && ok2 && lineage.CommonPrefix(ca, enda, cb, endb) >= lb.End
}

func (m *Machine) lastRecordEpoch(l lineage.Log) int32 {
	c, end, _ := m.record.ChainOf(l)
	if e, ok := c.At(end - 1); ok && end > 0 {
		return e.Epoch
	}
	return lineage.Undefined
}

func (m *Machine) firstReported(ids []int32) ([]int32, bool) {
	for _, id := range ids {
		if m.reported(id) && !m.view.Brokers[id].Fenced {
			return []int32{id}, true
		}
	}
	return nil, false
}

func (m *Machine) live(all []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(all), func(id int32) bool {
		b, ok := m.view.Brokers[id]
		return !ok || b.Fenced
	})
}

// reported: a Fetch of this leader epoch with the broker epoch that is registered now.
func (m *Machine) reported(id int32) bool {
	f := m.followers[id]
	return f != nil && f.seen && f.brokerEpoch == m.view.Brokers[id].Epoch
}

// HighWatermarks takes what live real replicas answered (R6). records are what was asked
// for beside that, by their Epoch and Start: the history of a log that ends with the epoch
// of a real leader that no sidecar followed is told by a record of it (R5).
func (m *Machine) HighWatermarks(now time.Time, epoch int32, seq int, known map[int32]int64, records map[int32]lineage.Entry) {
	if epoch != m.epoch || m.phase != AskingHW || seq != m.asks {
		return
	}
	m.knownHW, m.shownHW = 0, false
	for id, hw := range known {
		if !m.cfg.Virtual.Is(id) {
			m.knownHW = max(m.knownHW, hw)
			m.shownHW = m.shownHW || slices.Contains(m.ref, id)
		}
	}
	for _, id := range m.asked {
		if _, ok := known[id]; !ok {
			m.phase = Collecting // asked again: S may lie far below what is visible
			return
		}
	}
	m.tellHistories(records)
	m.agree()
	m.phase = Probing
	if !m.asItIs() {
		m.probe()
	}
	m.progress(now)
}

// tellHistories gives the logs whose history is not on record the highest record that any
// member shows: what is visible, every member of the ISR holds. One that was a leader's may
// show less than it has, or nothing.
func (m *Machine) tellHistories(records map[int32]lineage.Entry) {
	for i, id := range m.ref {
		if !slices.Contains(m.asked, id) {
			continue
		}
		l := &m.refLogs[i]
		for _, other := range m.ref {
			if r, ok := records[other]; ok && r.Start < l.End && (l.Visible == nil || r.Start > l.Visible.Start) {
				l.Visible = &r
			}
		}
	}
}

func (m *Machine) probe() {
	if m.barred {
		return
	}
	m.do(ProbeSource{m.epoch, m.s, m.chain.SourceEpochBefore(m.s)})
}

// ProbeAnswer is the source's answer at S.
type ProbeAnswer struct {
	// OutOfRange, with SourceStart and SourceEnd looked up.
	OutOfRange  bool
	Diverging   bool
	DivergesAt  lineage.Entry // SourceEpoch and Start: the source's largest epoch at or below ours, and its end
	SourceStart int64
	SourceEnd   int64
	// Another: the source's log is not the one that was mirrored, whatever its epochs say: it holds
	// something else below the offset asked for than real replicas do, or, if Diverging, has lost
	// records although nobody was elected there since.
	Another bool
}

// Probed takes the source's answer (R7). A source that lost S and all below it to
// retention means a jump (R14); one that ends below S without a divergence was restored
// or recreated, and nothing is dropped for it: the problem is returned and the driver
// reports FAILED. So does a source that holds something else below S. With the operator's
// consent S goes back, epoch by epoch, to where the source has what is here.
func (m *Machine) Probed(now time.Time, epoch int32, a ProbeAnswer) error {
	if epoch != m.epoch || m.phase != Probing || m.quiesced || m.barred {
		// After an incomplete hand-back was reported nothing may be truncated any more.
		return nil
	}
	m.sourceStart = a.SourceStart
	if (a.Another || a.OutOfRange && a.SourceStart <= m.s) && m.consent.AllowUnknown && !m.shownHW && len(m.chain) > 0 {
		m.phase = Collecting // asked again: what replicas show bounds what goes, and nobody has told
		return nil
	}
	switch {
	case a.Diverging && a.Another && !m.consent.AllowUnknown:
		return fmt.Errorf("the source's epoch %d ends at %d, the mirror is at %d, and nobody was elected there since: the source was restored from a backup; nothing is dropped here",
			a.DivergesAt.SourceEpoch, a.DivergesAt.Start, m.s)
	case a.Diverging:
		to := m.chain.SourceTruncation(a.DivergesAt.SourceEpoch, a.DivergesAt.Start, m.s)
		if to >= m.s {
			return fmt.Errorf("source says that epoch %d ends at %d, which does not diverge from lineage %v at %d",
				a.DivergesAt.SourceEpoch, a.DivergesAt.Start, m.chain, m.s)
		}
		if a.Another {
			to = m.shown(to)
		}
		m.s = to
		m.chain = m.chain.Cut(to)
		m.probe()
		return nil
	case (a.Another || a.OutOfRange && a.SourceStart <= m.s) && m.consent.AllowUnknown && m.back():
		m.probe()
		return nil
	case a.Another:
		return fmt.Errorf("what the source has below offset %d is not what was mirrored from it: the source was restored from a backup or created anew; nothing is dropped here", m.s)
	case a.OutOfRange && a.SourceStart > m.s && m.consent.AsItIs:
		// Not while it is paused. What is there is led as soon as a real member is in the ISR.
		if !m.equalAndVisible() {
			m.refuse(0, fmt.Sprintf("the source's log start %d passed the mirror at %d", a.SourceStart, m.s))
		}
		return nil
	case a.OutOfRange && a.SourceStart > m.s:
		m.do(Truncated{m.epoch, m.s, a.SourceStart, "the source's log start passed the mirror, which goes on there"})
		m.jumpedAt, m.s, m.jumpStart, m.chain = m.s, a.SourceStart, a.SourceStart, nil
	case a.OutOfRange:
		return fmt.Errorf("source has offsets %d to %d, the mirror is at %d: the source was restored from a backup or created anew; nothing is dropped here",
			a.SourceStart, a.SourceEnd, m.s)
	}
	m.lead(now)
	return nil
}

func (m *Machine) lead(now time.Time) {
	agreed, lost := m.s, m.refEnd-max(m.s, m.refStart)
	if m.jumpStart > 0 {
		// Followers start anew behind the hole: all that is here goes. What was agreed is
		// the point before the jump, for the high watermark does not move by it (R14).
		agreed, lost = m.jumpedAt, m.refEnd-m.refStart
	}
	if lost > 0 && m.unknown && !m.consent.AllowUnknown {
		m.refuse(lost, "their history is not on record")
		return
	}
	if lost > 0 && !m.consent.AllowLoss {
		m.refuse(lost, "records here are not at the source")
		return
	}
	m.hw = min(m.knownHW, agreed)
	theirs := m.foreign()
	m.tell(agreed, theirs.From)
	if theirs.From < theirs.To {
		m.do(theirs)
	}
	m.bufferStart, m.end, m.durable = m.s, m.s, m.s
	m.chain = m.chain.Cut(m.s)
	if m.jumpStart == 0 && len(m.chain) > 0 {
		// R8: [HW, S) is in no buffer and above what a real replica serves to consumers,
		// so it is read again: what the source still has of it and the lineage covers.
		m.bufferStart = min(m.s, max(m.hw, m.sourceStart, m.chain[0].Start))
		m.end, m.durable = m.bufferStart, m.bufferStart
	}
	// As Kafka's leader assigns its epoch the log end at once; the source epoch is filled
	// in by the first batch.
	m.phase = Leading
	for _, f := range m.followers {
		f.valid = false
		f.caughtUp, f.lastFetch, f.lastOffered = now, now, m.durable
	}
	m.started = now
	m.reading = false
	m.reread()
	m.do(Wake{})
	m.progress(now)
}

// tell announces what leaves the mirror: what is visible above the point that was agreed, but for what
// clients wrote from theirs on. What only a replica had that was given up nobody may know; the source
// may still have it.
func (m *Machine) tell(agreed, theirs int64) {
	visible, why := min(m.knownHW, theirs), "the source no longer has these records"
	if !m.shownHW {
		// Nobody has told what is visible: it may be all that the members had in common.
		visible = max(visible, min(m.clients.s, theirs))
	}
	if m.abandoned {
		visible, why = max(visible, min(m.gaveUp, theirs)), "the operator did not wait for the replica that had them; what the source still has is read again"
	}
	m.gaveUp = 0
	if agreed < visible || m.abandoned {
		m.do(Truncated{m.epoch, max(agreed, visible), agreed, why})
	}
}

func (m *Machine) refuse(records int64, why string) {
	m.phase = Refused
	if m.consent.AsItIs {
		// Not a start that lacks consent: the partition waits for resume or stop.
		records, why = 0, fmt.Sprintf("%s (%d records), and a paused partition is not truncated", why, records)
	}
	m.do(RefusedLoss{m.epoch, records, why})
}

// reread starts or stops reading as the rules allow: nothing is read while no real
// member is in the ISR (R15), after quiesce began, or after a failure.
func (m *Machine) reread() {
	// A hand-back still needs [HW, S): a live replica that has not got it may not be left out.
	// So does a pause: it shall not last while a member of the ISR lacks what is visible.
	may := m.phase == Leading && !m.failed && !m.barred && (!m.quiescing && !m.paused || m.end < m.s) && len(m.cfg.Virtual.Real(m.view.ISR)) > 0
	if may == m.reading {
		return
	}
	m.reading = may
	if !may {
		m.do(StopReading{m.epoch})
		return
	}
	m.readFrom = m.end
	m.do(StartReading{Epoch: m.epoch, Offset: m.end, LastFetchedEpoch: m.chain.SourceEpochBefore(m.end)})
}

// Ingest takes batches read from the source, in order, and returns for each the leader
// epoch to stamp it with, lineage.Undefined for one that must be left out since it lies
// below what is wanted. An error means that the source contradicts the lineage without
// having said so; the partition fails and nothing of the answer is used.
func (m *Machine) Ingest(now time.Time, epoch int32, batches []BatchInfo, sourceStart int64) ([]int32, error) {
	if epoch != m.epoch || m.phase != Leading || !m.reading {
		return nil, nil
	}
	m.sourceStart = max(m.sourceStart, sourceStart)
	stamps := make([]int32, len(batches))
	// Nothing is changed before all batches were looked at.
	chain, end, unsaved, seam := m.chain, m.end, m.unsaved, m.seam
	for i, b := range batches {
		if (m.quiescing || m.paused) && b.Last >= m.s {
			stamps[i] = lineage.Undefined
			if end < m.s {
				seam, end = end, m.s
			}
			continue
		}
		if b.Last < end {
			stamps[i] = lineage.Undefined
			continue
		}
		if b.Base < end && end != m.bufferStart && end != m.readFrom {
			return nil, fmt.Errorf("batch [%d, %d] overlaps what was read up to %d", b.Base, b.Last, end)
		}
		switch {
		case b.Base < m.s && b.Last < m.s:
			e, ok := chain.At(b.Base)
			if ok && b.SourceEpoch > e.SourceEpoch {
				// The source elected a leader and lost this between the probe and now.
				m.SourceDiverged(now, epoch)
				return nil, nil
			}
			if !ok || e.SourceEpoch != b.SourceEpoch {
				return nil, fmt.Errorf("batch [%d, %d] has source epoch %d, but the lineage says %v", b.Base, b.Last, b.SourceEpoch, chain)
			}
			stamps[i] = e.Epoch
		case b.Base < m.s && m.jumpStart == 0:
			if b.SourceEpoch > chain.SourceEpochBefore(m.s) {
				m.SourceDiverged(now, epoch)
				return nil, nil
			}
			return nil, fmt.Errorf("batch [%d, %d] lies across %d, where epoch %d begins", b.Base, b.Last, m.s, m.epoch)
		default:
			stamps[i] = m.epoch
			last, has := lastOf(chain)
			if !has || last.Epoch != m.epoch || last.SourceEpoch != b.SourceEpoch {
				if has && b.SourceEpoch < last.SourceEpoch {
					return nil, fmt.Errorf("batch [%d, %d] has source epoch %d after epoch %d", b.Base, b.Last, b.SourceEpoch, last.SourceEpoch)
				}
				// The first entry of an epoch begins at S, as Kafka's own cache would have
				// it; a later one where the first batch of the new source epoch does (R9).
				start := b.Base
				if !has || last.Epoch != m.epoch {
					start = m.s
				}
				chain = chain.Append(lineage.Entry{Epoch: m.epoch, SourceEpoch: b.SourceEpoch, Start: start})
				unsaved = append(slices.Clone(unsaved), end)
			}
		}
		end = b.Last + 1
	}
	m.chain, m.end, m.unsaved, m.seam = chain, end, unsaved, seam
	m.settleDurable()
	m.persist()
	m.progress(now)
	return stamps, nil
}

func lastOf(c lineage.Chain) (lineage.Entry, bool) {
	if len(c) == 0 {
		return lineage.Entry{}, false
	}
	return c[len(c)-1], true
}

// settleDurable moves durable up to the first batch whose lineage entry is not saved (R9).
func (m *Machine) settleDurable() {
	d := m.end
	if len(m.unsaved) > 0 {
		d = min(d, max(m.unsaved[0], m.durable))
	}
	if d > m.durable {
		m.durable = d
		m.do(Wake{})
	}
}

func (m *Machine) persist() {
	if len(m.unsaved) == 0 || m.persistBusy {
		return
	}
	m.persistBusy = true
	m.persistSeq++
	m.persistUpTo = m.unsaved[len(m.unsaved)-1]
	m.record = m.pruned().With(m.epoch, m.chain.Trim(m.logStart()))
	m.record.LastMirrorEpoch, m.record.LastMirrorOffset = lineage.Undefined, lineage.Undefined
	m.do(Persist{m.epoch, m.record, m.persistSeq})
}

// pruned drops the chains that no real replica's log can end with any more (R11).
func (m *Machine) pruned() lineage.Record {
	for _, id := range m.cfg.Virtual.Real(m.view.Replicas) {
		f := m.followers[id]
		if f == nil || !f.valid || f.end <= m.s {
			return m.record
		}
	}
	return m.record.Prune(m.epoch)
}

// Persisted takes the acknowledgement of the state topic. A failed write is retried by
// the driver under the same Seq; a write refused as stale means that a newer epoch leads,
// which the metadata log will show.
func (m *Machine) Persisted(now time.Time, epoch int32, seq int) {
	if epoch != m.epoch || m.phase != Leading || seq != m.persistSeq || !m.persistBusy {
		return
	}
	m.persistBusy = false
	for len(m.unsaved) > 0 && m.unsaved[0] <= m.persistUpTo {
		m.unsaved = m.unsaved[1:]
	}
	m.settleDurable()
	m.persist()
	m.progress(now)
}

// SourceDiverged takes a diverging answer met while leading. What was served cannot be
// taken back under this epoch (R13): leadership is given up and the next takeover finds
// the truncated point.
func (m *Machine) SourceDiverged(now time.Time, epoch int32) {
	m.resign(epoch, "the source's log diverges from what was mirrored")
	m.progress(now)
}

// SourceOutOfRange takes an answer that says that the source no longer has our position.
// A source whose log start passed it means a jump, by a new takeover (R14); anything else
// is an error and drops nothing.
func (m *Machine) SourceOutOfRange(now time.Time, epoch int32, sourceStart, sourceEnd int64) error {
	if epoch != m.epoch || m.phase != Leading {
		return nil
	}
	if sourceStart <= m.end {
		return fmt.Errorf("source has offsets %d to %d, the mirror is at %d: the source was restored from a backup or created anew; nothing is dropped here",
			sourceStart, sourceEnd, m.end)
	}
	m.resign(epoch, fmt.Sprintf("the source's log start %d passed the mirror at %d", sourceStart, m.end))
	m.progress(now)
	return nil
}

// Fail stops reading after an error at the source or in its data. Followers are served on.
func (m *Machine) Fail(now time.Time, epoch int32) {
	if epoch == m.epoch {
		m.failed = true
		m.reread()
		m.progress(now)
	}
}

// Retry reads on after Fail, or probes the source again.
func (m *Machine) Retry(now time.Time, epoch int32) {
	if epoch != m.epoch {
		return
	}
	m.failed = false
	if m.phase == Probing {
		m.probe()
	}
	m.reread()
	m.progress(now)
}

func (m *Machine) resign(epoch int32, reason string) {
	if epoch != m.epoch || m.phase == Off || m.phase == Resigned {
		return
	}
	m.do(StopReading{m.epoch})
	m.phase, m.reading = Resigned, false
	m.do(Resign{m.epoch, reason, reason == stoppedFetching})
}

// retake gives up leadership when every candidate has reported and none can reach S or
// the high watermark: a new takeover asks everybody (R16, C8). Once this epoch's lineage
// answers, only a log end that passed it is a report: what was heard before is older than
// the answers that may still cut or complete the log.
func (m *Machine) retake() {
	if len(m.cfg.Virtual.Real(m.view.ISR)) > 0 || m.pending != nil {
		return
	}
	cand := m.cfg.Virtual.Real(m.view.ELR)
	if len(cand) == 0 {
		cand = m.lastRealISR()
	}
	if len(cand) == 0 {
		cand = m.cfg.Virtual.Real(m.view.Replicas)
	}
	for _, id := range cand {
		if !m.reported(id) || m.view.Brokers[id].Fenced || m.phase == Leading && !m.followers[id].valid {
			return
		}
	}
	for id, f := range m.followers {
		if m.cfg.Virtual.Is(id) || !m.reported(id) || m.view.Brokers[id].Fenced {
			continue
		}
		// One that may still join.
		if m.phase == Leading && f.valid && f.end >= max(m.hw, m.s) ||
			m.phase != Leading && f.offset >= m.refShort && slices.Contains(m.ref, id) {
			return
		}
	}
	m.resign(m.epoch, "no replica that may hold the data has reached the high watermark")
}

// regain gives up leadership when every real member of the ISR ends below what was read:
// nobody can serve what lies between, and a new takeover begins where they are. With a
// compaction gap an entry of the lineage begins before the first record of its epoch, so that a
// log that was cut to that record no longer has the epoch, and is cut once more.
func (m *Machine) regain() {
	real := m.cfg.Virtual.Real(m.view.ISR)
	for _, id := range real {
		if f := m.followers[id]; f == nil || !f.valid || f.end >= m.bufferStart {
			return
		}
	}
	if len(real) > 0 && m.phase == Leading {
		m.resign(m.epoch, fmt.Sprintf("all that is in sync ends below %d, where reading began", m.bufferStart))
	}
}

// lastRealISR is what is left in the assignment of the last ISR with a real member.
func (m *Machine) lastRealISR() []int32 {
	var out []int32
	for _, id := range m.view.LastRealISR {
		if slices.Contains(m.view.Replicas, id) {
			out = append(out, id)
		}
	}
	return out
}

// advance moves the high watermark (R2).
func (m *Machine) advance() {
	if m.phase != Leading || len(m.view.ISR) < min(m.view.MinISR, len(m.view.Replicas)) {
		return
	}
	real := m.cfg.Virtual.Real(m.maximalISR())
	if len(m.cfg.Virtual.Real(m.view.ISR)) == 0 || len(real) == 0 {
		return
	}
	hw := m.LogEnd()
	for _, id := range real {
		f := m.followers[id]
		if f == nil || !f.valid {
			return
		}
		hw = min(hw, f.end)
	}
	if hw > m.hw {
		m.hw = hw
		m.do(Wake{})
	}
}

// maximalISR is the committed ISR and what a pending request would add to it. A pending
// shrink removes nothing before the metadata log shows it.
func (m *Machine) maximalISR() []int32 {
	isr := m.view.ISR
	if m.pending == nil {
		return isr
	}
	isr = slices.Clone(isr)
	for _, p := range m.pending.isr {
		if !slices.Contains(isr, p.ID) {
			isr = append(isr, p.ID)
		}
	}
	return isr
}

// Tick lets time pass: lagging followers leave the ISR.
func (m *Machine) Tick(now time.Time) {
	m.progress(now)
}

// maintainISR proposes one change of the ISR at a time (R3).
func (m *Machine) maintainISR(now time.Time) {
	waits := (m.phase == Probing || m.phase == Refused) && len(m.cfg.Virtual.Real(m.view.ISR)) == 0
	if m.phase == Off || m.phase == ReadingState || m.phase == Resigned || m.phase == Refused && !waits {
		return
	}
	if m.pending != nil || now.Before(m.alterAfter) {
		return
	}
	isr := slices.Clone(m.view.ISR)
	if !waits {
		isr = m.shrink(now, isr)
	}
	for _, id := range m.view.Replicas {
		if id != m.cfg.Self && !slices.Contains(isr, id) && !slices.Contains(m.view.ISR, id) && m.mayJoin(now, id) {
			isr = append(isr, id)
		}
	}
	if slices.Equal(isr, m.view.ISR) && !m.view.Recovering {
		return
	}
	members := make([]Member, len(isr))
	for i, id := range isr {
		members[i] = Member{id, -1}
		if id == m.cfg.Self {
			members[i].Epoch = m.view.Brokers[id].Epoch
		} else if f := m.followers[id]; f != nil && f.seen {
			members[i].Epoch = f.brokerEpoch
		}
	}
	m.pending = &pendingISR{isr: members, partitionEpoch: m.view.PartitionEpoch}
	m.do(AlterPartition{m.epoch, m.view.PartitionEpoch, members})
}

// shrink leaves out followers that have not been caught up for MaxLag. The last real
// member stays: without one the partition would wait for it all the same, and who has the
// data would be forgotten.
func (m *Machine) shrink(now time.Time, isr []int32) []int32 {
	out := isr[:0:0]
	for _, id := range isr {
		if id == m.cfg.Self {
			out = append(out, id)
			continue
		}
		last := m.started
		if f := m.followers[id]; f != nil && f.caughtUp.After(last) {
			last = f.caughtUp
		}
		if now.Sub(last) <= m.cfg.MaxLag {
			out = append(out, id)
		}
	}
	if len(m.cfg.Virtual.Real(out)) == 0 {
		if keep := m.lastReal(isr); keep >= 0 {
			out = append(out, keep)
		}
	}
	if len(out) == len(isr) {
		return isr
	}
	return out
}

// lastReal picks the real member to keep when all lag: the one with the longest log.
func (m *Machine) lastReal(isr []int32) int32 {
	best, end := int32(-1), int64(-1)
	for _, id := range m.cfg.Virtual.Real(isr) {
		o := int64(0)
		if f := m.followers[id]; f != nil && f.valid {
			o = f.end
		}
		if o > end {
			best, end = id, o
		}
	}
	return best
}

func (m *Machine) mayJoin(now time.Time, id int32) bool {
	b, ok := m.view.Brokers[id]
	f := m.followers[id]
	if !ok || f == nil || b.Fenced || b.ShuttingDown || f.brokerEpoch != b.Epoch || now.Sub(f.lastFetch) > m.cfg.MaxLag {
		return false
	}
	if m.phase != Leading {
		// R16: with no real member in the ISR, the members that S was computed from may, unless
		// they have lost what may be visible since (S says nothing of that: it may lie far below),
		// join before the source has answered, so that a stop finds a target.
		return (m.phase == Probing || m.phase == Refused) && len(m.cfg.Virtual.Real(m.view.ISR)) == 0 && slices.Contains(m.ref, id) && f.seen && f.offset >= m.refShort
	}
	if m.cfg.Virtual.Is(id) {
		return f.seen
	}
	return f.valid && f.end >= m.hw && f.end >= m.s
}

// alterBackoff keeps a refused AlterPartition from being sent at every Fetch; a stock
// leader waits about as long.
const alterBackoff = 500 * time.Millisecond

// Altered takes the controller's answer to the AlterPartition sent at partitionEpoch.
// ambiguous: the answer is not known (a timeout, a lost connection); the request may have
// been applied, so its members go on counting, and it is sent again.
func (m *Machine) Altered(now time.Time, epoch, partitionEpoch int32, code int16, ambiguous bool) {
	p := m.pending
	if epoch != m.epoch || p == nil || p.partitionEpoch != partitionEpoch {
		return
	}
	switch {
	case ambiguous || code == codeNotController || code == codeUnknownServerError || code == codeRequestTimedOut:
		p.uncertain = p.uncertain || code != codeNotController
		m.do(AlterPartition{m.epoch, p.partitionEpoch, p.isr})
		return
	case p.uncertain && (code == CodeFencedLeaderEpoch || code == codeStaleBrokerEpoch || code == CodeNotLeaderOrFollower):
		// Checked before the partition epoch: says nothing of an earlier sending that may
		// have been applied. Leadership is lost; until the metadata log shows it, the
		// members go on counting.
	case code == CodeNone || code == codeNewLeaderElected || code == codeInvalidUpdateVer:
		// Applied, or refused since something newer was (perhaps our own request, sent
		// twice): the metadata log will show it, and settles what counts until then.
		if m.view.PartitionEpoch > p.partitionEpoch {
			m.pending = nil
		}
	default:
		m.pending, m.alterAfter = nil, now.Add(alterBackoff)
		if code == codeIneligibleReplica {
			// The controller knows of a fence or a registration that we do not yet; do not
			// ask again before the follower has fetched again.
			for _, member := range p.isr {
				if f := m.followers[member.ID]; f != nil && !slices.Contains(m.view.ISR, member.ID) {
					f.seen, f.valid = false, false
				}
			}
		}
	}
	if m.phase == Leading {
		m.advance()
	}
}

// Quiesce ends reading for a hand-back. It is repeatable.
func (m *Machine) Quiesce(now time.Time) {
	if m.phase == Off || m.quiescing {
		return
	}
	m.quiescing, m.quiesceFrom = true, now
	for _, f := range m.followers {
		f.quiesced = false
	}
	m.reread()
	m.progress(now)
}

// sourceWait is how long a hand-back waits for the source to answer a takeover under way,
// which lets it be complete.
const sourceWait = 10 * time.Second

// quiesce reports once that the hand-back may begin (R17).
func (m *Machine) quiesce(now time.Time) {
	if !m.quiescing || m.quiesced {
		return
	}
	real := m.cfg.Virtual.Real(m.view.ISR)
	if len(real) == 0 {
		return
	}
	complete := m.phase == Leading
	var outside []int32
	for _, id := range m.cfg.Virtual.Real(m.view.Replicas) {
		if b, ok := m.view.Brokers[id]; ok && !b.Fenced && !slices.Contains(real, id) {
			outside = append(outside, id)
		}
	}
	switch m.phase {
	case Leading:
		if m.pending != nil || m.durable != m.end {
			return
		}
		if m.appendReset(now) {
			return
		}
		// The high watermark need not be there: with a virtual replica down |ISR| may be
		// below the minimum, and what counts is that every member has everything.
		for _, id := range real {
			if f := m.followers[id]; f == nil || !f.valid || !f.quiesced || f.end < m.LogEnd() {
				return
			}
		}
		// The removal deletes the log of a live replica that is left out, which may be the
		// last copy after the next power loss (C9c): wait for it to join.
		waited := m.cfg.StopWait > 0 && now.Sub(m.quiesceFrom) >= m.cfg.StopWait
		if len(outside) > 0 && (!waited || len(real) < m.cfg.StopMinISR) {
			return
		}
	case Probing, Refused:
		if m.phase == Probing && !m.failed && !m.barred && now.Sub(m.quiesceFrom) < sourceWait {
			return
		}
		// The source does not answer, or nothing may be truncated. The longest member
		// becomes the leader and nothing that any of them has is lost.
		for _, id := range real {
			if !m.reported(id) {
				return
			}
		}
	default: // the takeover will come to one of the phases above, or the leader changes
		return
	}
	m.quiesced = true
	order := slices.Clone(real)
	slices.SortStableFunc(order, func(a, b int32) int {
		return int(sign(m.lengthOf(b) - m.lengthOf(a)))
	})
	end, chain := m.LogEnd(), m.chain
	if !complete {
		end = m.lengthOf(order[0])
		if c, _, ok := m.record.ChainOf(lineage.Log{End: end, LastEpoch: m.followers[order[0]].lastEpoch}); ok {
			chain = c
		}
	}
	if local, has := chain.FirstLocal(); has {
		// A reset record, of this leader or of one before it, is not the source's.
		end = min(end, local)
	}
	m.do(Quiesced{
		Epoch: m.epoch, Complete: complete, Order: order, Outside: outside,
		LastSourceEpoch: chain.SourceEpochBefore(end), End: end,
	})
}

// EndWithReset makes the record that resets producer state the last of a stop.
func (m *Machine) EndWithReset() { m.withReset = true }

// appendReset appends the reset record once, behind everything that was read, and tells
// whether the hand-back has to wait for it. It is no record of the source, so in the lineage
// it has no source epoch, and the last mirror offset is below it.
func (m *Machine) appendReset(now time.Time) bool {
	if !m.withReset || m.resetAt >= 0 {
		return false
	}
	if m.end < m.s {
		// What is read again after a takeover comes first. A source that is gone must not
		// hold up the stop: then there is no such record.
		return m.reading && now.Sub(m.quiesceFrom) < sourceWait
	}
	m.resetAt = m.end
	m.chain = m.chain.Append(lineage.Entry{Epoch: m.epoch, SourceEpoch: lineage.NoSource, Start: m.end})
	m.unsaved = append(m.unsaved, m.end)
	m.do(AppendReset{m.epoch, m.end})
	m.end++
	m.persist()
	return true
}

func (m *Machine) lengthOf(id int32) int64 {
	f := m.followers[id]
	switch {
	case f == nil:
		return -1
	case f.valid:
		return f.end
	default:
		return f.offset
	}
}

func sign(n int64) int64 {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// Status returns a copy of where the machine stands.
func (m *Machine) Status() Status {
	return Status{
		Phase: m.phase, Epoch: m.epoch, HighWatermark: m.hw, End: m.end, Durable: m.durable, Start: m.s, BufferStart: m.bufferStart,
		Waiting: m.phase != Off && len(m.cfg.Virtual.Real(m.view.ISR)) == 0, Quiesced: m.quiesced, Reading: m.reading, Rested: m.rested,
	}
}

// Reference returns the real replicas from whose logs S was computed: with a real member in the ISR these
// are its real members, without one the one that goes for having all data.
func (m *Machine) Reference() []int32 { return slices.Clone(m.ref) }

// Chain returns the lineage in force now, for OffsetForLeaderEpoch and describe.
func (m *Machine) Chain() lineage.Chain { return slices.Clone(m.chain) }

// Followers returns the validated log ends, for describe and tests.
func (m *Machine) Followers() map[int32]int64 {
	out := maps.Collect(func(yield func(int32, int64) bool) {
		for id, f := range m.followers {
			if f.valid && !yield(id, f.end) {
				return
			}
		}
	})
	return out
}
