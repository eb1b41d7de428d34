package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// partition drives the leading machine of one partition: it carries out the machine's
// actions, keeps the bytes, and wakes followers' long polls.
//
// Lock order: mu is a leaf. Nothing that may block is called under it; what an action
// has to ask of others runs in its own goroutine, owned by wg and ended by ctx.
type partition struct {
	m     *Manager
	tp    ids.TopicPartition
	topic string
	log   *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu          sync.Mutex // guards the following
	closed      bool
	machine     *leading.Machine
	buf         buffer
	waiters     map[chan struct{}]struct{}
	mirror      MirrorTopic
	gaveUp      int64 // the State's GivenUp as the machine knows it
	gaveUpWaits bool  // the machine is to be told of it once it sees why
	// foreign: the partition is no mirror's. It is led as it is, with nothing to read, until
	// a real broker is in sync and it can be taken away.
	foreign bool
	// segment is the topic's segment.bytes: a follower refuses an answer larger than a
	// segment and then never fetches again (S5).
	segment int

	// The takeover under way: when it began, and its context, which ends when another epoch
	// begins.
	began       time.Time
	epochCtx    context.Context
	endEpoch    context.CancelFunc
	resigns     []time.Time // of late, over all epochs, but for those over silent followers
	silences    []time.Time // those
	failures    int         // in a row
	failMessage string      // why the partition is FAILED, "" if it is not
	failsOn     bool        // FAILED, and not tried again since: what fails meanwhile is the same try
	retryAt     time.Time   // when it is tried again; zero: not, or not by itself
	moved       *Report     // what the takeover truncated or passed over, to be told with its end

	waitTold string // what was logged last of a wait for real replicas, "" if it does not wait

	probes int // probes of the source that were begun: only the last one's answer counts

	reports // see report.go

	// Reader: what is wanted, and what the reader goroutine has made of it.
	want    *leading.StartReading
	wantGen int
	changed chan struct{} // cap 1: want changed
	current Source        // where it is being read, nil if nowhere
	last    *batch.Anchor // the last batch that was taken under this epoch
	paused  bool          // the buffer was full when the source was last asked
	// The read-ahead: what it has grown to, 0 at first, and whether reading was paused
	// since it last ran dry.
	ahead     int64
	wasPaused bool

	// From the source, for describe.
	sourceHW, sourceStart int64
	caughtUp              time.Time // when the mirror last had all that was visible at the source
}

func newPartition(m *Manager, tp ids.TopicPartition, topic string) *partition {
	p := &partition{
		m: m, tp: tp, topic: topic,
		log: m.log.With("topic", topic, "partition", tp.Partition),
		machine: leading.New(leading.Config{
			Self: m.cfg.ID, Virtual: m.cfg.Virtual, MaxLag: m.cfg.MaxLag,
			StopWait: m.cfg.StopReplicaWait, StopMinISR: m.ownMinISR(tp, topic),
		}),
		segment:  m.cfg.Segment,
		waiters:  map[chan struct{}]struct{}{},
		changed:  make(chan struct{}, 1),
		sourceHW: -1, sourceStart: -1,
	}
	p.ctx, p.cancel = context.WithCancel(m.ctx)
	p.epochCtx, p.endEpoch = context.WithCancel(p.ctx)
	p.wg.Add(1)
	go p.read()
	return p
}

// close ends the partition: it is no longer ours.
func (p *partition) close() {
	p.mu.Lock()
	p.closed = true
	p.endEpoch()
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf.reset()
}

// step runs f under the lock and carries out what the machine asks for.
func (p *partition) step(f func(now time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	f(p.m.now())
	p.actLocked()
}

func (p *partition) actLocked() {
	for _, a := range p.machine.Take() {
		switch a := a.(type) {
		case leading.Wake:
			p.wakeLocked()
		case leading.Drop:
			p.buf.reset()
			p.endEpoch()
			p.wakeLocked()
		case leading.ReadState:
			p.endEpoch()
			p.epochCtx, p.endEpoch = context.WithCancel(p.ctx)
			p.buf.reset()
			p.clearLocked()
			p.moved, p.foreign, p.ended = nil, false, nil
			p.last = nil // this takeover may cut it
			p.began = p.m.now()
			p.log.Info("took leadership", "epoch", a.Epoch)
			p.goLocked(func(ctx context.Context) { p.readState(ctx, a) })
		case leading.AskHighWatermarks:
			p.goLocked(func(ctx context.Context) { p.askHighWatermarks(ctx, a) })
		case leading.ProbeSource:
			p.probes++
			seq := p.probes
			p.goLocked(func(ctx context.Context) { p.probe(ctx, a, seq) })
		case leading.StartReading:
			p.setReaderLocked(&a)
		case leading.StopReading:
			p.setReaderLocked(nil)
		case leading.Persist:
			p.goLocked(func(ctx context.Context) { p.persist(ctx, a) })
		case leading.AlterPartition:
			p.goLocked(func(ctx context.Context) { p.alter(ctx, a) })
		case leading.Resign:
			p.resignLocked(a)
		case leading.Truncated:
			p.movedLocked(a)
		case leading.Foreign:
			p.foreignRecordsLocked(a)
		case leading.Ready:
			p.log.Info("leading", "epoch", a.Epoch, "start", a.S, "highWatermark", a.HW)
			p.readyLocked(a.Epoch)
			p.wakeLocked()
		case leading.Rested:
			p.log.Info("paused", "epoch", a.Epoch, "end", a.End)
			p.reportLocked(a.Epoch, Report{Kind: Rests})
		case leading.Silent:
			p.silenceLocked(a)
		case leading.Heard:
			p.heardLocked(a)
		case leading.AppendReset:
			p.buf.append(batch.PIDReset(a.Offset, a.Epoch, p.m.now().UnixMilli(), p.mirror.SourceClusterID))
		case leading.RefusedLoss:
			p.log.Warn("takeover refused", "epoch", a.Epoch, "records", a.Records, "reason", a.Reason)
			switch {
			case a.Records > 0:
				p.reportLocked(a.Epoch, Report{Kind: Failing, Detail: DetailConsentNeeded, Message: fmt.Sprintf(
					"%d records here are not at the source; start with --allow-truncate to drop them (%s)", a.Records, a.Reason)})
			case p.mirror.Paused:
				p.reportLocked(a.Epoch, Report{Kind: Note, Detail: DetailResumeNeeded, Message: a.Reason})
			}
		case leading.Quiesced:
			detail := DetailQuiesced
			if !a.Complete {
				detail = DetailSourceUnavailable
			}
			p.log.Info("quiesced", "epoch", a.Epoch, "complete", a.Complete, "end", a.End, "target", a.Order)
			p.reportLocked(a.Epoch, Report{
				Kind: Quiet, Detail: detail,
				LastMirrorEpoch: a.LastSourceEpoch, LastMirrorOffset: a.End,
			})
		}
	}
}

// Details that the coordinator acts on.
const (
	DetailQuiesced          = "QUIESCED"
	DetailSourceUnavailable = "SOURCE_UNAVAILABLE"
	DetailConsentNeeded     = "CONSENT_NEEDED"
	DetailWaiting           = "WAITING_FOR_REPLICAS" // no real replica is in the ISR (R15)
)

// Details that are for people.
const (
	DetailTruncated    = "TRUNCATED"       // records that the source lost left the mirror too
	DetailForeign      = "FOREIGN_RECORDS" // records that clients wrote around the mirror were removed
	DetailHole         = "RECORDS_LOST"    // the source deleted records before they were mirrored
	DetailResumeNeeded = "RESUME_NEEDED"   // a paused partition cannot be led without truncating
)

// goLocked runs f with the context of the epoch under way. mu is held.
func (p *partition) goLocked(f func(ctx context.Context)) {
	if p.closed {
		return
	}
	ctx := p.epochCtx
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		f(ctx)
	}()
}

func (p *partition) wakeLocked() {
	for w := range p.waiters {
		select {
		case w <- struct{}{}:
		default: // it is awake already
		}
	}
}

// retry runs f until it succeeds, its error is final, or ctx ends; each failure is logged.
func (p *partition) retry(ctx context.Context, what string, f func(ctx context.Context) error) error {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 2*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f(ctx)
		if err != nil && (errors.Is(err, ErrFenced) || ctx.Err() != nil) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, d time.Duration) {
		p.log.Warn("failed, will try again", "while", what, "error", err, "in", d)
	}))
	return err
}

func (p *partition) readState(ctx context.Context, a leading.ReadState) {
	var mt MirrorTopic
	var rec lineage.Record
	var consent leading.Consent
	var foreign bool
	var gaveUp int64
	err := p.retry(ctx, "reading the partition's state", func(ctx context.Context) error {
		var ok bool
		if mt, ok = p.m.state.MirrorTopic(p.tp.TopicID); !ok {
			if foreign = p.m.state.Foreign(p.tp); foreign {
				return nil
			}
			return errors.New("the topic is in no mirror (yet)")
		}
		gaveUp = p.m.state.GivenUp(p.tp) // first: what is said meanwhile is rather told twice than missed
		var err error
		rec, consent, err = p.m.state.ReadLineage(ctx, mt.Mirror, p.tp, a.Epoch)
		return err
	})
	if err != nil {
		return
	}
	p.step(func(now time.Time) {
		if st := p.machine.Status(); st.Epoch != a.Epoch || st.Phase != leading.ReadingState {
			return // another takeover has begun
		}
		cur, ok := p.m.state.MirrorTopic(p.tp.TopicID)
		if foreign && !ok {
			p.foreignLocked(now, a.Epoch)
			return
		}
		if !ok || cur != mt {
			// What the state allows was read under another wish.
			p.goLocked(func(ctx context.Context) { p.readState(ctx, a) })
			return
		}
		p.mirror, p.gaveUp, p.gaveUpWaits = MirrorTopic{}, gaveUp, false
		p.machine.StateRead(now, a.Epoch, rec, consent)
		// Before the takeover goes on: whether the source is asked depends on it.
		p.topicLocked(now, mt)
	})
}

// foreignLocked leads a partition that is no mirror's: what real replicas hold is all there
// is and stays as it is, and one of those that may lead gets in sync (R15, R16). Nothing is
// read, and there is no history to keep.
func (p *partition) foreignLocked(now time.Time, epoch int32) {
	p.log.Warn("leading a partition that is in no mirror, until a real broker can", "epoch", epoch)
	p.foreign = true
	p.mirror = MirrorTopic{}
	p.machine.Bar(now)
	p.machine.StateRead(now, epoch, lineage.NewRecord(), leading.Consent{AsItIs: true})
}

// oursLocked begins anew with a foreign partition that a mirror has taken since.
func (p *partition) oursLocked(now time.Time) {
	v := p.m.image.Partition(p.tp)
	if v == nil {
		return
	}
	p.foreign = false
	p.machine.Metadata(now, leading.View{Leader: lineage.Undefined})
	p.machine.Metadata(now, p.m.view(v))
}

// askHighWatermarks asks by a consumer Fetch: a follower answers it since Kafka 2.4
// (KIP-392), and says its own high watermark.
func (p *partition) askHighWatermarks(ctx context.Context, a leading.AskHighWatermarks) {
	known, records := p.highWatermarks(ctx, a)
	p.step(func(now time.Time) { p.machine.HighWatermarks(now, a.Epoch, a.Seq, known, records) })
}

// highWatermarks returns the answers. Of whom only the half is known, nothing is: without the
// record its log may be cut below what is visible.
func (p *partition) highWatermarks(ctx context.Context, a leading.AskHighWatermarks) (known map[int32]int64, records map[int32]lineage.Entry) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var mu sync.Mutex
	known, records = map[int32]int64{}, map[int32]lineage.Entry{}
	var wg sync.WaitGroup
	for id, offset := range a.Replicas {
		wg.Go(func() {
			hw, err := p.m.highWatermark(ctx, id, p.tp, p.topic, offset)
			if err != nil {
				p.log.Warn("asking a replica for its high watermark", "broker", id, "error", err)
				return
			}
			var below *lineage.Entry
			if slices.Contains(a.Records, id) {
				if below, err = p.m.recordAt(ctx, id, p.tp, p.topic, hw-1); err != nil {
					p.log.Warn("asking a replica for its last visible record", "broker", id, "error", err)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			known[id] = hw
			if below != nil {
				records[id] = *below
			}
		})
	}
	wg.Wait()
	return known, records
}

func (p *partition) probe(ctx context.Context, a leading.ProbeSource, seq int) {
	p.mu.Lock()
	mt, of := p.mirror, p.machine.Reference()
	p.mu.Unlock()
	var res fetcher.ProbeResult
	var told, another bool
	err := p.retry(ctx, "asking the source at "+fmt.Sprint(a.Offset), func(ctx context.Context) error {
		src, err := p.m.sources.Source(mt.Mirror)
		if err == nil {
			res, err = src.Probe(ctx, p.topic, p.tp.Partition, a.Offset, a.LastFetchedEpoch)
		}
		if err == nil && a.LastFetchedEpoch >= 0 && res.ErrorCode == 0 && res.Diverging == nil {
			another, err = p.another(ctx, src, of, a.Offset, res.LogStart)
		}
		if err != nil && !told && ctx.Err() == nil {
			told = true
			p.report(a.Epoch, Report{Kind: Note, Detail: DetailSourceUnavailable, Message: err.Error()})
		}
		return err
	})
	if err != nil {
		return
	}
	p.step(func(now time.Time) {
		if seq != p.probes {
			return // the machine asks at another offset by now
		}
		if err := notOurs(p.topic, p.tp.Partition, mt.SourceTopicID, res); err != nil {
			p.failLocked(a.Epoch, err)
			return
		}
		p.sourceHW, p.sourceStart = res.HighWatermark, res.LogStart
		ans := leading.ProbeAnswer{SourceStart: res.LogStart, SourceEnd: res.LogEnd, OutOfRange: res.ErrorCode == leading.CodeOffsetOutOfRange, Another: another}
		if d := res.Diverging; d != nil {
			// A leader loses nothing that was visible in its own epoch: that takes another election.
			ans.Diverging, ans.Another = true, res.LeaderEpoch >= 0 && res.LeaderEpoch <= a.LastFetchedEpoch
			ans.DivergesAt = lineage.Entry{SourceEpoch: d.Epoch, Start: d.EndOffset}
		}
		if err := p.machine.Probed(now, a.Epoch, ans); err != nil {
			p.failLocked(a.Epoch, err)
		}
	})
}

// notOurs returns why an answer of the source says nothing about what was mirrored: no
// answer but one about the very topic may truncate anything.
func notOurs(topic string, partition int32, want ids.UUID, res fetcher.ProbeResult) error {
	serr := &fetcher.SourceError{Topic: topic, Partition: partition, Code: res.ErrorCode, LogStart: -1, LogEnd: -1}
	switch {
	case res.ErrorCode != 0 && res.ErrorCode != leading.CodeOffsetOutOfRange:
		return serr
	case !want.IsZero() && !res.TopicID.IsZero() && res.TopicID != want:
		serr.Code = codeInconsistentTopicID
		return serr
	}
	return nil
}

func (p *partition) persist(ctx context.Context, a leading.Persist) {
	p.mu.Lock()
	mirror, foreign := p.mirror.Mirror, p.foreign
	p.mu.Unlock()
	if foreign {
		return
	}
	err := p.retry(ctx, "persisting the lineage", func(ctx context.Context) error {
		return p.m.state.WriteLineage(ctx, mirror, p.tp, a.Epoch, a.Record)
	})
	if err != nil {
		if ctx.Err() == nil {
			p.log.Warn("lineage refused, somebody newer leads", "epoch", a.Epoch, "error", err)
		}
		return
	}
	p.step(func(now time.Time) { p.machine.Persisted(now, a.Epoch, a.Seq) })
}

func (p *partition) alter(ctx context.Context, a leading.AlterPartition) {
	code, err := p.m.alterPartition(ctx, p.tp, a)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("changing the ISR failed", "epoch", a.LeaderEpoch, "partitionEpoch", a.PartitionEpoch, "error", err)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	} else {
		p.log.Info("changed the ISR", "epoch", a.LeaderEpoch, "partitionEpoch", a.PartitionEpoch, "isr", a.ISR, "code", code)
	}
	p.step(func(now time.Time) {
		p.machine.Altered(now, a.LeaderEpoch, a.PartitionEpoch, code, err != nil)
	})
}

// maxResigns bounds how often one partition may make the whole virtual broker give up its
// leaderships within resignWindow: a partition that cannot be cured by a new epoch must
// not disturb the others for ever.
const (
	maxResigns   = 3
	resignWindow = 5 * time.Minute
	// maxMoves is the same for silent followers: as often as the machine tries to cure three of
	// them. They count apart, or a divergence behind them would be waited with.
	maxMoves = 6
)

func (p *partition) resignLocked(a leading.Resign) {
	now := p.m.now()
	times, most := &p.resigns, maxResigns
	if a.Silence {
		times, most = &p.silences, maxMoves
	}
	recent := (*times)[:0]
	for _, t := range *times {
		if now.Sub(t) < resignWindow {
			recent = append(recent, t)
		}
	}
	*times = append(recent, now)
	p.log.Warn("giving up leadership", "epoch", a.Epoch, "reason", a.Reason, "lately", len(*times))
	wait := time.Duration(0)
	if len(*times) > most {
		wait = resignWindow / time.Duration(most)
		p.reportLocked(a.Epoch, Report{Kind: Failing, Message: fmt.Sprintf("leadership was given up %d times within %v: %s", len(*times), resignWindow, a.Reason)})
	}
	p.goLocked(func(ctx context.Context) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if err := p.m.broker.GiveUpLeadership(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("giving up leadership", "error", err)
		}
	})
}

// setReaderLocked says what is to be read; the reader goroutine makes it so.
func (p *partition) setReaderLocked(want *leading.StartReading) {
	if want == nil && p.want == nil {
		return
	}
	p.want = want
	p.wantGen++
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// read adds and removes the partition at the source. It alone calls Add and Remove, so
// they come in order; Remove waits for a sink call under way, which takes mu.
func (p *partition) read() {
	defer p.wg.Done()
	set := func(src Source) (before Source) {
		p.mu.Lock()
		defer p.mu.Unlock()
		before, p.current, p.paused = p.current, src, false
		return before
	}
	stop := func() {
		if src := set(nil); src != nil {
			src.Remove(p.topic, p.tp.Partition)
		}
	}
	defer stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.changed:
		}
		stop()
		p.mu.Lock()
		want, gen, mirror, sourceID, last := p.want, p.wantGen, p.mirror.Mirror, p.mirror.SourceTopicID, p.last
		p.mu.Unlock()
		if want == nil {
			continue
		}
		var before *batch.Anchor
		if last != nil && last.Last == want.Offset-1 {
			before = last
		}
		src, err := p.m.sources.Source(mirror)
		if err != nil {
			p.step(func(time.Time) { p.failLocked(want.Epoch, fmt.Errorf("connecting to the source: %w", err)) })
			continue
		}
		set(src)
		src.Add(fetcher.Partition{
			Topic: p.topic, Partition: p.tp.Partition, TopicID: sourceID, Offset: want.Offset,
			LastFetchedEpoch: want.LastFetchedEpoch, Before: before, Sink: &sink{p: p, gen: gen, epoch: want.Epoch},
		})
	}
}

// sink takes what the fetcher reads for one StartReading.
type sink struct {
	p     *partition
	gen   int
	epoch int32
	infos []leading.BatchInfo
}

// Room implements fetcher.Sink.
func (s *sink) Room() int {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wantGen != s.gen {
		return 0
	}
	return p.roomLocked()
}

// readAhead is what a partition's buffer may hold at first of what followers have not taken,
// and as much again of what they have. More would not be faster, only colder: what was read
// a while ago has left the processor's caches.
const readAhead = 4 << 20

// aheadLocked is the read-ahead of now, within the partition's share of the buffer.
func (p *partition) aheadLocked() int64 {
	return min(max(p.ahead, readAhead), p.m.share()/2)
}

// roomLocked says how much may be asked of the source. Reading pauses at the read-ahead and
// goes on when half of it was taken.
func (p *partition) roomLocked() int {
	if p.paused = p.stuckLocked(); p.paused {
		return 0
	}
	ahead := p.aheadLocked()
	if p.buf.bytes > ahead {
		p.evictLocked(ahead)
	}
	room := 2*ahead - p.buf.bytes
	// The last part is left: many small requests would fill it.
	p.paused = p.buf.bytes > 0 && room < ahead/4
	if p.paused {
		return 0
	}
	return int(room) // at least one batch is read, whatever its size
}

// stuckLocked: what would be read now could not go before more replicas are in sync, and
// others have a use for the memory.
func (p *partition) stuckLocked() bool { return p.m.cfg.Buffers.Pressed() && p.machine.Stuck() }

// resumeLocked reads on once followers have taken enough.
func (p *partition) resumeLocked() {
	if !p.paused || p.current == nil || p.stuckLocked() {
		return
	}
	ahead := p.aheadLocked()
	p.evictLocked(ahead)
	if p.buf.bytes <= ahead*3/2 {
		p.paused, p.wasPaused = false, true
		p.current.Wake(p.topic, p.tp.Partition)
	}
}

// ranDryLocked notes that a follower found nothing although the source has more. If
// reading was paused before, the pause was too long for the way to the source: the
// read-ahead doubles.
func (p *partition) ranDryLocked() {
	if p.wasPaused && p.machine.Status().End < p.sourceHW {
		p.ahead = min(2*max(p.ahead, readAhead), p.m.share()/2)
		p.wasPaused = false
	}
}

// relieveLocked lets go of all that is not needed when memory is scarce.
func (p *partition) relieveLocked() {
	if p.m.cfg.Buffers.Pressed() {
		p.evictLocked(0)
	}
}

// evictLocked drops what no in-sync follower needs, keeping up to keep bytes for those
// that lag a little.
func (p *partition) evictLocked(keep int64) {
	if start, ok := p.buf.evict(p.machine.EvictBelow(), keep); ok {
		p.machine.Evicted(start)
	}
}

// Fetched implements fetcher.Sink.
func (s *sink) Fetched(f fetcher.Fetched) {
	s.p.step(func(now time.Time) {
		if s.p.wantGen == s.gen {
			s.p.ingestLocked(now, s, f)
		}
	})
}

func (p *partition) ingestLocked(now time.Time, s *sink, f fetcher.Fetched) {
	if f.Err != nil {
		p.sourceErrorLocked(now, s.epoch, f.Err)
		return
	}
	p.sourceHW, p.sourceStart = f.HighWatermark, f.LogStart
	batches, large := p.fittingLocked(f.Batches)
	s.infos = s.infos[:0]
	for _, b := range batches {
		s.infos = append(s.infos, leading.BatchInfo{Base: b.BaseOffset(), Last: b.LastOffset(), SourceEpoch: b.LeaderEpoch()})
	}
	stamps, err := p.machine.Ingest(now, s.epoch, s.infos, f.LogStart)
	if err != nil {
		p.failLocked(s.epoch, err)
		return
	}
	taken := -1
	for i, stamp := range stamps {
		if stamp == lineage.Undefined {
			continue
		}
		taken = i
		b := batches[i]
		b.SetLeaderEpoch(stamp)
		p.buf.appendFrom(b, f.Buffer)
	}
	if taken >= 0 {
		last := batches[taken].Anchor()
		p.last = &last
	}
	if large != nil {
		p.failLocked(s.epoch, large)
		return
	}
	p.wellLocked(s.epoch)
	if p.machine.Status().End >= p.sourceHW {
		p.caughtUp = now
	}
}

// fittingLocked returns the batches up to one that no segment here can hold: the followers
// would give the partition up over it (S5).
func (p *partition) fittingLocked(batches []batch.Batch) ([]batch.Batch, error) {
	for i, b := range batches {
		if len(b) > p.segment {
			return batches[:i], fmt.Errorf("the batch at offset %d has %d bytes, more than the %d of segment.bytes here: raise it for the topic", b.BaseOffset(), len(b), p.segment)
		}
	}
	return batches, nil
}

func (p *partition) sourceErrorLocked(now time.Time, epoch int32, err error) {
	var diverging *fetcher.DivergingError
	var source *fetcher.SourceError
	switch {
	case errors.As(err, &diverging):
		p.machine.SourceDiverged(now, epoch)
	case errors.As(err, &source) && source.Code == leading.CodeOffsetOutOfRange:
		err := p.machine.SourceOutOfRange(now, epoch, source.LogStart, source.LogEnd)
		switch {
		case err == nil:
		case p.mirror.AllowTruncate:
			// What the source lost may go: a takeover finds out how much it is.
			p.machine.SourceDiverged(now, epoch)
		default:
			p.failLocked(epoch, err)
		}
	default:
		p.failLocked(epoch, err)
	}
}

// highWatermark asks one real replica by a consumer Fetch at offset, or at its log start
// for -1.
func (m *Manager) highWatermark(ctx context.Context, id int32, tp ids.TopicPartition, topic string, offset int64) (int64, error) {
	if offset < 0 {
		o, err := m.listOffset(ctx, id, tp, topic, -2)
		if err != nil {
			return 0, err
		}
		offset = o
	}
	p, err := m.fetchOne(ctx, m.calls, id, tp, topic, fetchArgs{replica: -1, epoch: -1, leaderEpoch: -1, offset: offset, lastEpoch: -1, maxBytes: 1})
	if err != nil {
		return 0, err
	}
	return p.HighWatermark, nil
}

// alterPartition sends one AlterPartition (v3, KIP-903) to the active controller.
func (m *Manager) alterPartition(ctx context.Context, tp ids.TopicPartition, a leading.AlterPartition) (int16, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = m.cfg.ID, m.broker.Epoch()
	t := kmsg.NewAlterPartitionRequestTopic()
	t.TopicID = tp.TopicID
	q := kmsg.NewAlterPartitionRequestTopicPartition()
	q.Partition, q.LeaderEpoch, q.PartitionEpoch = tp.Partition, a.LeaderEpoch, a.PartitionEpoch
	// RECOVERED: after an unclean election the leader must say so (KIP-704).
	q.LeaderRecoveryState = 0
	for _, member := range a.ISR {
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID, e.BrokerEpoch = member.ID, member.Epoch
		q.NewEpochISR = append(q.NewEpochISR, e)
		q.NewISR = append(q.NewISR, member.ID)
	}
	t.Partitions = append(t.Partitions, q)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kresp, err := m.controller.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.AlterPartitionResponse)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode, nil
	}
	for _, t := range resp.Topics {
		for _, q := range t.Partitions {
			return q.ErrorCode, nil
		}
	}
	return 0, errors.New("the controller's answer has no partition")
}
