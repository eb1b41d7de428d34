package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	wishSelf    = int32(10001)
	wishFollows = int32(1)
	wishEpoch   = int32(3)
)

// wishRig is one led partition without a network: a state, a source and a clock of the
// test's own.
type wishRig struct {
	t   *testing.T
	m   *Manager
	p   *partition
	tp  ids.TopicPartition
	src *wishSource

	mu      sync.Mutex // guards the following
	topic   MirrorTopic
	foreign bool // the topic is in no mirror
	gaveUp  int64
	consent leading.Consent
	reports []Report
	away    error // what Report answers
	lost    bool  // what was reported is not on record
	now     time.Time
}

func newWishRig(t *testing.T) *wishRig {
	t.Helper()
	r := &wishRig{
		t: t, tp: ids.TopicPartition{TopicID: ids.UUID{9}}, now: time.Unix(1e9, 0), src: &wishSource{},
		topic:   MirrorTopic{Mirror: "m", Topic: "t", SourceTopicID: ids.UUID{5}, SourceClusterID: "abc", Since: 1},
		consent: leading.Consent{Truncate: true, AllowLoss: true},
	}
	m, err := NewManager(ManagerConfig{
		ID: wishSelf, Virtual: 10000, RetryInitialBackoff: time.Second, RetryMaxBackoff: 4 * time.Second, RetryMaxAttempts: 4,
	}, metadata.NewImage(10000), nil, nil, r, r, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.now, m.spread = r.clock, func() float64 { return 0.5 }
	m.ctx, m.cancel = context.WithCancel(context.Background())
	r.m = m
	r.p = newPartition(m, r.tp, "t")
	m.partitions[r.tp] = r.p
	t.Cleanup(func() {
		r.p.close()
		m.cancel()
	})
	return r
}

func (r *wishRig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// pass lets time pass, and looks as the manager's tick does.
func (r *wishRig) pass(d time.Duration) {
	r.mu.Lock()
	r.now = r.now.Add(d)
	r.mu.Unlock()
	r.p.step(func(now time.Time) {
		r.p.machine.Tick(now)
		r.p.retryLocked(now)
		r.p.assertLocked(now)
	})
}

// wish changes what the state says of the topic.
func (r *wishRig) wish(f func(mt *MirrorTopic)) {
	r.mu.Lock()
	f(&r.topic)
	r.mu.Unlock()
	r.m.stateChanged()
}

// lead makes the partition one that is led, with one empty follower.
func (r *wishRig) lead(epoch int32) {
	r.t.Helper()
	r.become(epoch)
	r.until("the takeover", func() bool {
		r.follow(epoch)
		return r.phase() == leading.Leading
	})
	r.follow(epoch)
}

// become begins the takeover of lead.
func (r *wishRig) become(epoch int32) {
	v := leading.View{
		Leader: wishSelf, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishSelf, wishFollows}, MinISR: 1,
		// Fenced ones are not asked for their high watermark, which needs a network.
		Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: {Epoch: 11, Fenced: true}},
	}
	r.p.step(func(now time.Time) { r.p.machine.Metadata(now, v) })
}

// follow is a Fetch of the follower, and that it knows the answer.
func (r *wishRig) follow(epoch int32) {
	r.p.step(func(now time.Time) {
		d := r.p.machine.Fetch(now, leading.FetchRequest{Replica: wishFollows, BrokerEpoch: 11, CurrentLeaderEpoch: epoch, LastFetchedEpoch: lineage.Undefined})
		if d.Code == leading.CodeNone {
			r.p.machine.Told(wishFollows, d.HighWatermark)
		}
	})
}

func (r *wishRig) phase() leading.Phase {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.p.machine.Status().Phase
}

func (r *wishRig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("not in time: %s; reports %+v", what, r.reports)
		}
		time.Sleep(time.Millisecond)
	}
}

// reported waits for a report and forgets those before it.
func (r *wishRig) reported(kind ReportKind) Report {
	r.t.Helper()
	var out Report
	r.until("a report", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, rep := range r.reports {
			if rep.Kind == kind {
				out, r.reports = rep, r.reports[i+1:]
				return true
			}
		}
		return false
	})
	return out
}

func (r *wishRig) MirrorTopic(ids.UUID) (MirrorTopic, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topic, !r.foreign
}

func (r *wishRig) Lineage(string, ids.TopicPartition) lineage.Record { return lineage.NewRecord() }

func (r *wishRig) ReadLineage(context.Context, string, ids.TopicPartition, int32) (lineage.Record, leading.Consent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lineage.NewRecord(), r.consent, nil
}

func (r *wishRig) GivenUp(ids.TopicPartition) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaveUp
}

func (r *wishRig) Foreign(ids.TopicPartition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.foreign
}

func (r *wishRig) Link(context.Context, string, ids.TopicPartition) (lineage.Link, bool, error) {
	return lineage.Link{}, false, nil
}

func (r *wishRig) WriteLineage(context.Context, string, ids.TopicPartition, int32, lineage.Record) error {
	return nil
}

func (r *wishRig) Report(_ context.Context, _ string, _ ids.TopicPartition, _ int32, rep Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away == nil {
		r.reports = append(r.reports, rep)
	}
	return r.away
}

func (r *wishRig) Recorded(string, ids.TopicPartition, int32, ReportKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost
}

func (r *wishRig) Subscribe(func()) (cancel func()) { return func() {} }

func (r *wishRig) Source(string) (Source, error) { return r.src, nil }

// wishSource answers as its fields say.
type wishSource struct {
	mu     sync.Mutex // guards the following
	answer fetcher.ProbeResult
	probes int
	adds   int
	before *batch.Anchor // of the last Add
	reads  fetcher.Sink  // nil while nothing is read
}

func (s *wishSource) BatchAt(context.Context, string, int32, int64) (batch.Batch, error) {
	return nil, nil
}

func (s *wishSource) Probe(context.Context, string, int32, int64, int32) (fetcher.ProbeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	return s.answer, nil
}

func (s *wishSource) Add(p fetcher.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds++
	s.before, s.reads = p.Before, p.Sink
}

func (s *wishSource) Remove(string, int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = nil
}

func (s *wishSource) Wake(string, int32) {}

func (s *wishSource) sink() fetcher.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *wishSource) asked() (probes, adds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes, s.adds
}

func (r *wishRig) reading() {
	r.t.Helper()
	r.until("reading", func() bool { return r.src.sink() != nil })
}

func (r *wishRig) notReading() {
	r.t.Helper()
	r.until("reading has ended", func() bool { return r.src.sink() == nil })
}

func TestFailedIsTriedAgain(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reported(Aligned)
	for i, seconds := range []int{1, 2, 4, 4} {
		r.reading()
		r.src.sink().Fetched(fetcher.Fetched{Err: errors.New("bad data")})
		if rep := r.reported(Failing); rep.Retry != int16(i+1) || rep.Message != "bad data" {
			t.Errorf("reported %+v", rep)
		}
		r.notReading()
		_, before := r.src.asked()
		wait := time.Duration(seconds) * time.Second
		r.pass(wait - time.Millisecond)
		if _, adds := r.src.asked(); adds != before {
			t.Fatalf("tried again before %v", wait)
		}
		r.pass(time.Millisecond)
	}
	// The last try fails too.
	r.reading()
	r.src.sink().Fetched(fetcher.Fetched{Err: errors.New("bad data")})
	if rep := r.reported(Failing); rep.Retry != 5 {
		t.Errorf("reported %+v", rep)
	}
	r.notReading()
	_, before := r.src.asked()
	r.pass(time.Hour)
	if _, adds := r.src.asked(); adds != before {
		t.Error("tried more often than mirror.failed.retry.max.attempts")
	}
	if st := r.m.Status(); len(st) != 1 || st[0].ErrorMessage != "bad data" {
		t.Errorf("described as %+v", st)
	}
	// Recover tries at once, and a good answer ends it, with records or without.
	r.wish(func(mt *MirrorTopic) { mt.Since++ })
	r.reading()
	r.src.sink().Fetched(fetcher.Fetched{HighWatermark: 0})
	r.reported(Aligned)
	if st := r.m.Status(); st[0].ErrorMessage != "" {
		t.Errorf("described as %+v", st)
	}
}

func TestRecoverOfWhatIsWellDoesNothing(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reading()
	_, before := r.src.asked()
	r.wish(func(mt *MirrorTopic) { mt.Since++ })
	r.pass(time.Second)
	if _, adds := r.src.asked(); adds != before {
		t.Error("reading began anew")
	}
}

func TestOnlyTheMirroredTopicMayAnswer(t *testing.T) {
	for name, answer := range map[string]fetcher.ProbeResult{
		"another topic":             {TopicID: ids.UUID{6}, LogEnd: 3},
		"another topic, below":      {TopicID: ids.UUID{6}, ErrorCode: leading.CodeOffsetOutOfRange},
		"no topic":                  {ErrorCode: codeUnknownTopicOrPartition},
		"not authorized":            {ErrorCode: 29},
		"another topic that forked": {TopicID: ids.UUID{6}, Diverging: &fetcher.Diverging{Epoch: 0, EndOffset: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWishRig(t)
			r.src.answer = answer
			v := func() {
				r.p.step(func(now time.Time) {
					r.p.machine.Metadata(now, leading.View{
						Leader: wishSelf, LeaderEpoch: wishEpoch, PartitionEpoch: 1, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishSelf, wishFollows}, MinISR: 1,
						Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: {Epoch: 11, Fenced: true}},
					})
				})
			}
			v()
			r.until("FAILED", func() bool {
				r.follow(wishEpoch)
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.reports) > 0
			})
			r.reported(Failing)
			if got := r.phase(); got != leading.Probing {
				t.Errorf("phase %v", got)
			}
			// The right one lets it go on.
			r.src.mu.Lock()
			r.src.answer = fetcher.ProbeResult{TopicID: ids.UUID{5}}
			r.src.mu.Unlock()
			r.pass(time.Second)
			r.until("Aligned", func() bool {
				r.follow(wishEpoch) // by which the follower shows where it is
				leads := r.phase() == leading.Leading
				r.mu.Lock()
				defer r.mu.Unlock()
				return leads && slices.ContainsFunc(r.reports, func(rep Report) bool { return rep.Kind == Aligned })
			})
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reported(Aligned)
	r.reading()
	r.wish(func(mt *MirrorTopic) { mt.Paused = true })
	r.notReading()
	r.follow(wishEpoch)
	r.pass(time.Second)
	r.reported(Rests)
	r.wish(func(mt *MirrorTopic) { mt.Paused = false })
	r.reported(Aligned)
	r.reading()
}

func TestPausedTakeover(t *testing.T) {
	r := newWishRig(t)
	r.topic.Paused, r.consent = true, leading.Consent{AsItIs: true}
	r.lead(wishEpoch)
	r.pass(time.Second)
	r.reported(Rests)
	if probes, adds := r.src.asked(); probes+adds != 0 {
		t.Errorf("the source was asked %d times and read %d times", probes, adds)
	}
}

func TestFault(t *testing.T) {
	const fault = "the source is another cluster"
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reading()
	r.wish(func(mt *MirrorTopic) { mt.Fault = fault })
	if rep := r.reported(Failing); rep.Message != fault || rep.Retry != 0 {
		t.Errorf("reported %+v", rep)
	}
	r.notReading()
	r.pass(time.Hour)
	// Who takes over meanwhile asks nothing either.
	probes, adds := r.src.asked()
	r.lead(wishEpoch + 1)
	if rep := r.reported(Failing); rep.Message != fault {
		t.Errorf("reported %+v", rep)
	}
	r.wish(func(mt *MirrorTopic) { mt.Since++ })
	if p, a := r.src.asked(); p != probes || a != adds {
		t.Error("the source was asked in spite of a fault")
	}
	if st := r.m.Status(); st[0].ErrorMessage != fault {
		t.Errorf("described as %+v", st)
	}
	r.wish(func(mt *MirrorTopic) { mt.Fault = ""; mt.Since++ })
	r.reading()
	r.src.sink().Fetched(fetcher.Fetched{})
	r.reported(Aligned)
}

func TestFaultOfAPausedTopic(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.wish(func(mt *MirrorTopic) { mt.Paused = true })
	r.follow(wishEpoch)
	r.pass(time.Second)
	r.reported(Rests)
	r.wish(func(mt *MirrorTopic) { mt.Fault = "gone" })
	r.reported(Failing)
	r.wish(func(mt *MirrorTopic) { mt.Fault = "" })
	r.reported(Rests) // nothing else would end FAILED
}

func TestResetRecordIsTheLastOfAStop(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.wish(func(mt *MirrorTopic) { mt.Stopping, mt.PIDReset = true, true })
	r.until("the record is served", func() bool {
		var d leading.Decision
		r.p.step(func(now time.Time) {
			d = r.p.machine.Fetch(now, leading.FetchRequest{Replica: wishFollows, BrokerEpoch: 11, CurrentLeaderEpoch: wishEpoch, LastFetchedEpoch: lineage.Undefined})
		})
		return d.Serve == leading.ServeBuffer
	})
	r.p.mu.Lock()
	got, _, _ := r.p.buf.read(0, 1, 1<<20)
	r.p.mu.Unlock()
	if len(got) != 1 || !batch.Batch(got[0]).IsControl() || batch.Batch(got[0]).LeaderEpoch() != wishEpoch {
		t.Errorf("in the buffer is %x", got)
	}
	r.p.step(func(now time.Time) {
		r.p.machine.Fetch(now, leading.FetchRequest{Replica: wishFollows, BrokerEpoch: 11, CurrentLeaderEpoch: wishEpoch, Offset: 1, LastFetchedEpoch: wishEpoch})
	})
	if rep := r.reported(Quiet); rep.Detail != DetailQuiesced || rep.LastMirrorOffset != 0 {
		t.Errorf("reported %+v", rep)
	}
}

// TestOneTryIsOneFailure is contract.md §6's backoff: the fetcher asks a source that
// refuses each second, which must not count as tries nor make the next one come sooner.
func TestOneTryIsOneFailure(t *testing.T) {
	r := newWishRig(t)
	r.lead(wishEpoch)
	r.reported(Aligned)
	refused := &fetcher.SourceError{Code: 29}
	fail := func(err error) (failures int, at time.Time) {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		r.p.sourceErrorLocked(r.p.m.now(), wishEpoch, err)
		return r.p.failures, r.p.retryAt
	}
	n, at := fail(refused)
	if n != 1 || at.IsZero() {
		t.Fatalf("%d failures, tried again %v", n, at)
	}
	for _, err := range []error{refused, refused, errors.New("unreachable meanwhile")} {
		if again, when := fail(err); again != 1 || !when.Equal(at) {
			t.Errorf("%v: %d failures, tried again %v instead of %v", err, again, when, at)
		}
	}
	r.p.step(func(time.Time) { r.p.retryLocked(at) })
	if n, next := fail(refused); n != 2 || !next.After(at) {
		t.Errorf("after another try %d failures, tried again %v", n, next)
	}
}

// TestR15GivenUpByName: a replica is given up when the operator says so of this very partition,
// not when he lets records be dropped or a failed partition of the topic be tried again. What was
// said before the takeover is no news.
func TestR15GivenUpByName(t *testing.T) {
	r := newWishRig(t)
	b := &resigner{}
	r.m.broker = b
	r.gaveUp = 4
	r.lead(wishEpoch)
	r.p.step(func(now time.Time) {
		r.p.machine.Metadata(now, leading.View{
			Leader: wishSelf, LeaderEpoch: wishEpoch, PartitionEpoch: wishEpoch + 1, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishSelf}, MinISR: 1,
			LastRealISR: []int32{wishFollows}, Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: {Epoch: 11, Fenced: true}},
		})
	})
	given := func(at int64) {
		r.mu.Lock()
		r.gaveUp = at
		r.mu.Unlock()
		r.m.stateChanged()
	}
	r.wish(func(mt *MirrorTopic) { mt.AllowTruncate, mt.Since = true, mt.Since+1 })
	given(0)
	r.wish(func(mt *MirrorTopic) { mt.Since++ })
	if now := r.phase(); now != leading.Leading {
		t.Fatalf("in phase %v: what the partition waits for was given up unasked", now)
	}
	given(5)
	r.until("a new epoch is begun", func() bool { return b.times.Load() == 1 })
	if now := r.phase(); now != leading.Resigned {
		t.Errorf("in phase %v", now)
	}
}

// TestR15GivenUpBeforeItIsSeen: the operator may have seen more of the metadata log than this leader
// has. What he said is heard once the leader sees it too.
func TestR15GivenUpBeforeItIsSeen(t *testing.T) {
	r := newWishRig(t)
	b := &resigner{}
	r.m.broker = b
	r.lead(wishEpoch)
	r.mu.Lock()
	r.gaveUp = 5
	r.mu.Unlock()
	r.m.stateChanged()
	if now := r.phase(); now != leading.Leading {
		t.Fatalf("in phase %v with a real replica in sync", now)
	}
	r.p.step(func(now time.Time) {
		r.p.machine.Metadata(now, leading.View{
			Leader: wishSelf, LeaderEpoch: wishEpoch, PartitionEpoch: wishEpoch + 1, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishSelf}, MinISR: 1,
			LastRealISR: []int32{wishFollows}, Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: {Epoch: 11, Fenced: true}},
		})
	})
	r.p.step(r.p.giveUpAgainLocked)
	r.until("a new epoch is begun", func() bool { return b.times.Load() == 1 })
	// Once is enough.
	r.p.step(r.p.giveUpAgainLocked)
	if b.times.Load() != 1 {
		t.Error("told twice")
	}
}

// TestMovedInWords: what left the mirror is said with how much it was, where that is known.
func TestMovedInWords(t *testing.T) {
	for _, c := range []struct {
		a      leading.Truncated
		detail string
		says   string
	}{
		{leading.Truncated{From: 50, To: 35, Reason: "why"}, DetailTruncated, "up to 15 records (offsets 35 to 49) left the mirror: why"},
		{leading.Truncated{From: 35, To: 35, Reason: "why"}, DetailTruncated, "records from offset 35 on may have left the mirror, how many is not known: why"},
		{leading.Truncated{From: 35, To: 50}, DetailHole, "up to 15 records (offsets 35 to 49) were deleted at the source before they were mirrored; the mirror goes on at 50"},
	} {
		if r := moved(c.a); r.Detail != c.detail || r.Message != c.says {
			t.Errorf("%+v: %+v", c.a, r)
		}
	}
}
