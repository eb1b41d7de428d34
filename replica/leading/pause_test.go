package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

var (
	// asPaused is what the state allows of a partition that is PAUSED.
	asPaused = Consent{AsItIs: true}
	// history is what newer leaders than 4 find on record.
	history = map[int32]lineage.Chain{4: {{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}}}
)

// takes begins a takeover of followers that end where ends says, under consent c, paused
// as soon as the state is read.
func (r *rig) takes(c Consent, ends [3]int64, hw int64) {
	r.t.Helper()
	r.metadata(nil)
	r.state(chains(history), c)
	r.m.Pause(r.now)
	r.take()
	for i, end := range ends {
		r.fetch(int32(i+1), end, 4)
	}
	if r.m.Status().Phase == AskingHW {
		r.marks(map[int32]int64{1: hw})
	}
}

func TestPauseEndsReadingAndRestsWhenAllIsThere(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.m.Pause(r.now)
	r.take()
	r.last(StopReading{})
	if stamps := r.ingest(BatchInfo{100, 109, 1}); stamps != nil {
		t.Errorf("read: %v", stamps)
	}
	r.fetch(1, 100, 5)
	r.fetch(2, 100, 5)
	if d := r.fetch(3, 80, 4); d.Serve != ServeBuffer || d.End != 100 {
		t.Errorf("what was read is served: %+v", d)
	}
	r.none(Rested{}, "3 has not got everything")
	r.fetch(3, 100, 5)
	r.hw(100)
	r.m.Told(1, 100)
	r.m.Told(2, 100)
	r.pass(time.Second)
	r.none(Rested{}, "3 does not know that all is visible")
	r.m.Told(3, 100)
	r.pass(time.Second)
	if a := r.last(Rested{}).(Rested); a.End != 100 || a.Epoch != rigEpoch {
		t.Errorf("%+v", a)
	}
	r.forget()
	r.m.Pause(r.now)
	for id := int32(1); id <= 3; id++ {
		if d := r.fetch(id, 100, 5); d.Code != CodeNone || d.Serve != ServeNothing || d.HighWatermark != 100 {
			t.Errorf("answered %+v", d)
		}
		if r.m.NewsFor(id, rigEpoch, 100) {
			t.Errorf("%d is not left waiting", id)
		}
	}
	r.pass(time.Second)
	r.none(Rested{}, "it is said once")
	r.none(StartReading{}, "it is paused")
	if r.proposed() != nil {
		t.Errorf("who waits leaves the ISR: %v", r.proposed())
	}

	r.m.Resume(r.now)
	r.take()
	if a := r.last(StartReading{}).(StartReading); a.Offset != 100 || a.LastFetchedEpoch != 1 || a.Reset {
		t.Errorf("resumed with %+v", a)
	}
	r.none(Truncated{}, "resume goes on")
	r.none(ReadState{}, "resume goes on")
	if stamps := r.ingest(BatchInfo{100, 109, 1}); !slices.Equal(stamps, []int32{rigEpoch}) {
		t.Errorf("stamped %v", stamps)
	}
}

func TestPauseRestsOnlyWhenEverythingIsVisible(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.follows(100)
	r.metadata(isr(v1, 1, 2, 3)) // V2 is lost: the high watermark does not move
	r.m.Pause(r.now)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
		r.m.Told(id, 80)
	}
	r.pass(time.Second)
	r.hw(80)
	r.none(Rested{}, "the high watermark is not there")
}

func TestPauseRestsOnlyWithARealMember(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
		r.m.Told(id, 100)
	}
	r.hw(100)
	r.metadata(func(v *View) {
		v.ISR = []int32{v1, v2}
		for id := int32(1); id <= 3; id++ {
			v.Brokers[id] = BrokerView{Epoch: int64(100 + id), Fenced: true}
		}
	})
	r.m.Pause(r.now)
	r.pass(time.Second)
	r.phase(Leading)
	r.none(Rested{}, "nobody is in sync")
}

func TestR7APausedPartitionNeedsNoSource(t *testing.T) {
	t.Run("all logs equal and visible", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 80}, 80)
		r.phase(Leading)
		r.none(ProbeSource{}, "there is nothing to ask")
		r.none(StartReading{}, "it is paused")
		r.none(Truncated{}, "nothing goes")
		r.hw(80)
		for id := int32(1); id <= 3; id++ {
			if d := r.fetch(id, 80, 4); d.Code != CodeNone || d.Diverging || d.HighWatermark != 80 {
				t.Errorf("answered %+v", d)
			}
			r.m.Told(id, 80)
		}
		r.pass(time.Second)
		r.last(Rested{})
		// What happened at the source meanwhile is found by the first answer to reading.
		r.m.Resume(r.now)
		r.take()
		if a := r.last(StartReading{}).(StartReading); a.Offset != 80 || a.LastFetchedEpoch != 1 {
			t.Errorf("resumed with %+v", a)
		}
		r.m.SourceDiverged(r.now, rigEpoch)
		r.take()
		r.phase(Resigned)
	})
	t.Run("a hole is a new takeover", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 80}, 80)
		r.m.Resume(r.now)
		if err := r.m.SourceOutOfRange(r.now, rigEpoch, 150, 200); err != nil {
			t.Error(err)
		}
		r.take()
		r.phase(Resigned)
	})
	for name, tt := range map[string]struct {
		ends [3]int64
		hw   int64
	}{
		"a log is longer":          {[3]int64{80, 80, 90}, 80},
		"not all is known visible": {[3]int64{80, 80, 80}, 70},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.takes(asPaused, tt.ends, tt.hw)
			r.phase(Probing)
			r.last(ProbeSource{})
			for id := int32(1); id <= 3; id++ {
				if d := r.fetch(id, tt.ends[id-1], 4); d.Code != CodeUnknownLeaderEpoch {
					t.Errorf("answered %+v", d)
				}
			}
		})
	}
	t.Run("what is visible is read again, and nothing more", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 80}, 70)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		if a := r.last(StartReading{}).(StartReading); a.Offset != 70 {
			t.Errorf("%+v", a)
		}
		r.ingest(BatchInfo{70, 79, 1}, BatchInfo{80, 99, 1})
		if st := r.m.Status(); st.End != 80 || st.Reading {
			t.Errorf("%+v", st)
		}
	})
	t.Run("not while it shall be read", func(t *testing.T) {
		r := newRig(t)
		r.collected([3]int64{80, 80, 80})
		r.marks(map[int32]int64{1: 80})
		r.phase(Probing)
		r.last(ProbeSource{})
		// A pause in the middle of a takeover whose source does not answer.
		r.m.Pause(r.now)
		r.take()
		r.phase(Leading)
	})
	t.Run("not without a real member", func(t *testing.T) {
		r := newRig(t)
		r.view.ISR, r.view.ELR = []int32{v1, v2}, []int32{1}
		r.takes(asPaused, [3]int64{80, 80, 80}, 80)
		r.phase(Probing)
	})
	t.Run("not after an incomplete hand-back was reported", func(t *testing.T) {
		r := newRig(t)
		r.takes(consented, [3]int64{80, 80, 80}, 70)
		r.m.Quiesce(r.now)
		r.pass(sourceWait)
		r.last(Quiesced{})
		r.m.knownHW = 80
		r.pass(time.Second)
		r.phase(Probing)
	})
}

func TestR20APausedPartitionIsNotTruncated(t *testing.T) {
	refused := func(t *testing.T, r *rig) {
		t.Helper()
		r.phase(Refused)
		// Records in the report would mean that a start lacks consent: the partition would
		// be handed back.
		if a := r.last(RefusedLoss{}).(RefusedLoss); a.Records != 0 || a.Reason == "" {
			t.Errorf("%+v", a)
		}
		for id := int32(1); id <= 3; id++ {
			if d := r.fetch(id, 80, 4); d.Code != CodeUnknownLeaderEpoch {
				t.Errorf("answered %+v", d)
			}
		}
	}
	t.Run("a log is longer", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 90}, 80)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		refused(t, r)
	})
	t.Run("the source diverges, until it is resumed", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 80}, 70)
		if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 60}, SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		refused(t, r)
		r.forget()
		r.m.Resume(r.now)
		r.take()
		r.phase(ReadingState)
		r.last(ReadState{})
		r.state(chains(history), consented)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.marks(map[int32]int64{1: 70})
		if err := r.probed(ProbeAnswer{SourceEnd: 60}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
	})
	t.Run("the source has deleted what comes next", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 80}, 70)
		if err := r.probed(ProbeAnswer{OutOfRange: true, SourceStart: 100, SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.none(Truncated{}, "it is paused")
		refused(t, r)
	})
	t.Run("the source has deleted what comes next, and nobody is in sync", func(t *testing.T) {
		r := newRig(t)
		r.view.ISR, r.view.ELR = []int32{v1, v2}, []int32{1}
		r.takes(asPaused, [3]int64{80, 80, 80}, 80)
		if err := r.probed(ProbeAnswer{OutOfRange: true, SourceStart: 100, SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.none(Truncated{}, "it is paused")
		r.phase(Probing)
		r.metadata(isr(v1, v2, 1))
		r.phase(Leading)
	})
	t.Run("stop", func(t *testing.T) {
		r := newRig(t)
		r.takes(asPaused, [3]int64{80, 80, 90}, 80)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.m.Quiesce(r.now)
		r.take()
		if q := r.last(Quiesced{}).(Quiesced); q.Complete || !slices.Equal(q.Order, []int32{3, 1, 2}) {
			t.Errorf("%+v", q)
		}
	})
}

func TestStopOfAPausedPartition(t *testing.T) {
	r := newRig(t)
	r.takes(asPaused, [3]int64{80, 80, 80}, 80)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
		r.m.Told(id, 80)
	}
	r.pass(time.Second)
	r.last(Rested{})
	r.m.Quiesce(r.now)
	r.take()
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	if q := r.last(Quiesced{}).(Quiesced); !q.Complete || q.End != 80 || q.LastSourceEpoch != 1 {
		t.Errorf("%+v", q)
	}
}

func TestABarredSourceIsNotAsked(t *testing.T) {
	t.Run("while leading", func(t *testing.T) {
		r := newRig(t)
		r.follows(100)
		r.m.Bar(r.now)
		r.take()
		r.last(StopReading{})
		if stamps := r.ingest(BatchInfo{100, 109, 1}); stamps != nil {
			t.Errorf("read: %v", stamps)
		}
		if d := r.fetch(3, 80, 4); d.Serve != ServeBuffer {
			t.Errorf("followers are served on: %+v", d)
		}
		r.forget()
		r.m.Retry(r.now, rigEpoch)
		r.pass(time.Minute)
		r.none(StartReading{}, "the source is barred")
		r.m.Unbar(r.now)
		r.take()
		if a := r.last(StartReading{}).(StartReading); a.Offset != 100 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("at a takeover", func(t *testing.T) {
		r := newRig(t)
		r.collected([3]int64{100, 90, 80})
		r.m.Bar(r.now)
		r.marks(map[int32]int64{1: 80})
		r.phase(Probing)
		r.m.Retry(r.now, rigEpoch)
		r.take()
		r.none(ProbeSource{}, "the source is barred")
		r.m.Unbar(r.now)
		r.take()
		r.last(ProbeSource{})
	})
	t.Run("an answer on its way", func(t *testing.T) {
		r := newRig(t)
		r.collected([3]int64{100, 90, 80})
		r.marks(map[int32]int64{1: 80})
		r.last(ProbeSource{})
		r.m.Bar(r.now)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Error(err)
		}
		r.phase(Probing)
		r.none(Truncated{}, "it is another source's answer")
	})
	t.Run("nothing to ask", func(t *testing.T) {
		r := newRig(t)
		r.collected([3]int64{80, 80, 80})
		r.m.Bar(r.now)
		r.marks(map[int32]int64{1: 80})
		r.phase(Leading)
		r.none(StartReading{}, "the source is barred")
	})
	t.Run("a stop does not wait for it", func(t *testing.T) {
		r := newRig(t)
		r.collected([3]int64{90, 100, 80})
		r.m.Bar(r.now)
		r.marks(map[int32]int64{1: 80})
		r.m.Quiesce(r.now)
		r.take()
		if q := r.last(Quiesced{}).(Quiesced); q.Complete {
			t.Errorf("%+v", q)
		}
	})
}

// stopsWithReset: everybody has 100; the stop begins.
func (r *rig) stopsWithReset() {
	r.t.Helper()
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.m.EndWithReset()
	r.m.Quiesce(r.now)
	r.take()
}

func TestResetRecord(t *testing.T) {
	r := newRig(t)
	r.stopsWithReset()
	if a := r.last(AppendReset{}).(AppendReset); a.Offset != 100 || a.Epoch != rigEpoch {
		t.Errorf("%+v", a)
	}
	if d := r.fetch(1, 100, 5); d.Serve != ServeNothing {
		t.Errorf("served before its lineage is on record: %+v", d)
	}
	p := r.last(Persist{}).(Persist)
	_, c := p.Record.Newest()
	if last := c[len(c)-1]; last != (lineage.Entry{Epoch: rigEpoch, SourceEpoch: lineage.NoSource, Start: 100}) {
		t.Errorf("on record is %v", c)
	}
	r.persisted()
	if d := r.fetch(1, 100, 5); d.Serve != ServeBuffer || d.End != 101 {
		t.Errorf("not served: %+v", d)
	}
	r.fetch(1, 101, 5)
	r.fetch(2, 101, 5)
	r.none(Quiesced{}, "3 has not got it")
	r.fetch(3, 101, 5)
	r.hw(101)
	q := r.last(Quiesced{}).(Quiesced)
	if !q.Complete || q.End != 100 || q.LastSourceEpoch != 1 {
		t.Errorf("the record is not the source's: %+v", q)
	}
	r.forget()
	r.pass(time.Second)
	r.none(AppendReset{}, "there is one")

	// Who takes over in the middle of the stop finds it in the logs and counts as much.
	next := newRig(t)
	next.view.LeaderEpoch = 6
	next.metadata(nil)
	next.state(p.Record, Consent{})
	for id := int32(1); id <= 3; id++ {
		next.fetch(id, 101, 5)
	}
	next.m.EndWithReset()
	next.m.Quiesce(next.now)
	next.take()
	next.none(AppendReset{}, "nothing is served by who has not taken over")
	if q := next.last(Quiesced{}).(Quiesced); q.Complete || q.End != 100 || q.LastSourceEpoch != 1 {
		t.Errorf("%+v", q)
	}
}

func TestResetRecordOnlyWhereItIsWanted(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.m.Quiesce(r.now)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.last(Quiesced{})
	r.none(AppendReset{}, "it is off")
}

func TestResetRecordComesBehindWhatIsReadAgain(t *testing.T) {
	begin := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t)
		r.collected([3]int64{80, 80, 80})
		r.marks(map[int32]int64{1: 40})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.m.EndWithReset()
		r.m.Quiesce(r.now)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.none(AppendReset{}, "what is below comes first")
		r.none(Quiesced{}, "the record comes first")
		return r
	}
	t.Run("it is read", func(t *testing.T) {
		r := begin(t)
		r.ingest(BatchInfo{40, 49, 0}, BatchInfo{50, 79, 1})
		if a := r.last(AppendReset{}).(AppendReset); a.Offset != 80 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("the source is gone", func(t *testing.T) {
		r := begin(t)
		r.pass(sourceWait)
		r.last(Quiesced{})
		r.none(AppendReset{}, "it would leave a hole")
	})
	t.Run("it cannot be read", func(t *testing.T) {
		r := begin(t)
		r.m.Fail(r.now, rigEpoch)
		r.take()
		r.last(Quiesced{})
		r.none(AppendReset{}, "it would leave a hole")
	})
}

func TestReadingThatEndsAtACompactionGap(t *testing.T) {
	// [70, 80) is in the followers' logs, and compacted at the source.
	begin := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t)
		r.view.ISR = []int32{v1, v2, 1, 2}
		r.takes(consented, [3]int64{80, 80, 70}, 60)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.ingest(BatchInfo{60, 69, 1}, BatchInfo{80, 99, 1})
		if st := r.m.Status(); st.End != 80 || st.Reading {
			t.Fatalf("%+v", st)
		}
		if d := r.fetch(3, 60, 4); d.Serve != ServeBuffer {
			t.Errorf("answered %+v", d)
		}
		return r
	}
	t.Run("who is there has it", func(t *testing.T) {
		r := begin(t)
		r.m.Told(3, 60)
		if d := r.fetch(3, 70, 4); d.Serve != ServeNothing || r.m.NewsFor(3, rigEpoch, 70) {
			t.Errorf("nobody shows it yet: %+v", d)
		}
		r.fetch(1, 80, 4)
		r.fetch(2, 80, 4)
		r.hw(80)
		if !r.m.NewsFor(3, rigEpoch, 70) {
			t.Error("3 is left waiting")
		}
		if d := r.fetch(3, 70, 4); d.Serve != ServeReplica || d.End != 80 {
			t.Errorf("answered %+v", d)
		}
		if d := r.fetch(3, 60, 4); d.Serve != ServeBuffer {
			t.Errorf("answered %+v", d)
		}
	})
	t.Run("who is there does not show it", func(t *testing.T) {
		r := begin(t)
		r.metadata(func(v *View) { v.MinISR = 5 }) // the high watermark does not move
		r.fetch(1, 80, 4)
		r.fetch(2, 80, 4)
		r.m.Told(3, 60)
		if d := r.fetch(3, 70, 4); d.Serve != ServeNothing || r.m.NewsFor(3, rigEpoch, 70) {
			t.Errorf("answered %+v", d)
		}
	})
	t.Run("after resume too", func(t *testing.T) {
		r := begin(t)
		r.m.Resume(r.now)
		r.take()
		r.ingest(BatchInfo{80, 99, 1})
		r.persisted()
		r.fetch(1, 80, 4)
		r.fetch(2, 80, 4)
		if d := r.fetch(3, 70, 4); d.Serve != ServeReplica || d.End != 80 {
			t.Errorf("answered %+v", d)
		}
		if d := r.fetch(3, 80, 4); d.Serve != ServeBuffer || d.End != 100 {
			t.Errorf("answered %+v", d)
		}
	})
}
