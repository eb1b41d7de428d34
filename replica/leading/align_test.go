package leading

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// failback leads behind a real leader of epoch 4 whose records a peer has mirrored up to
// 100, under its epochs 7 and 8; clients wrote on here. Members report these log ends.
func (r *rig) failback(c Consent, ends [3]int64) {
	r.t.Helper()
	link := lineage.Link{LastEpoch: 3, LastOffset: 100, History: lineage.Chain{{Epoch: 7, SourceEpoch: 2, Start: 0}, {Epoch: 8, SourceEpoch: 3, Start: 60}}}
	cache := lineage.Chain{{Epoch: 2, SourceEpoch: lineage.NoSource, Start: 0}, {Epoch: 3, SourceEpoch: lineage.NoSource, Start: 60}}
	r.metadata(nil)
	r.state(lineage.NewRecord().With(4, lineage.NewRecord().SeedLinked(cache, ends[0], link)), c)
	for i, end := range ends {
		r.fetch(int32(i+1), end, 3)
	}
	r.marks(map[int32]int64{1: min(ends[0], ends[1], ends[2])})
}

func TestFailbackAsksTheNewSourceUnderItsOwnEpoch(t *testing.T) {
	r := newRig(t)
	r.failback(Consent{Truncate: true}, [3]int64{100, 100, 100})
	if got := r.last(ProbeSource{}).(ProbeSource); got.Offset != 100 || got.LastFetchedEpoch != 8 {
		t.Fatalf("asked %+v, want 100 after epoch 8", got)
	}
	if err := r.probed(ProbeAnswer{SourceEnd: 130}); err != nil {
		t.Fatal(err)
	}
	// Nothing is read twice.
	if got := r.last(StartReading{}).(StartReading); got.Offset != 100 || got.LastFetchedEpoch != 8 {
		t.Errorf("reads %+v", got)
	}
	for id := int32(1); id <= 3; id++ {
		if d := r.fetch(id, 100, 3); d.Diverging || d.Code != CodeNone {
			t.Errorf("broker %d answered %+v", id, d)
		}
	}
	r.hw(100)
}

func TestFailbackCountsWhatWouldGo(t *testing.T) {
	r := newRig(t)
	r.failback(Consent{Truncate: true}, [3]int64{125, 125, 120})
	if err := r.probed(ProbeAnswer{SourceEnd: 130}); err != nil {
		t.Fatal(err)
	}
	r.phase(Refused)
	if got := r.last(RefusedLoss{}).(RefusedLoss); got.Records != 25 {
		t.Errorf("%+v, want 25 records", got)
	}
	r.none(Truncated{}, "it was refused")
	r.none(Ready{}, "it was refused")
}

func TestFailbackIsReadyWhenEveryMemberIsAtThePoint(t *testing.T) {
	r := newRig(t)
	r.failback(Consent{Truncate: true, AllowLoss: true, AllowUnknown: true}, [3]int64{125, 125, 120})
	if err := r.probed(ProbeAnswer{SourceEnd: 130}); err != nil {
		t.Fatal(err)
	}
	r.phase(Leading)
	r.none(Ready{}, "no member has truncated yet")
	for id, end := range map[int32]int64{1: 125, 2: 125, 3: 120} {
		if d := r.fetch(id, end, 3); !d.Diverging || d.DivergingTo.Epoch != 3 || d.DivergingTo.Start != 100 {
			t.Fatalf("broker %d answered %+v", id, d)
		}
	}
	r.none(Ready{}, "no member has come back yet")
	r.fetch(1, 100, 3)
	r.fetch(2, 100, 3)
	r.none(Ready{}, "one member still holds more")
	r.fetch(3, 100, 3)
	if got := r.last(Ready{}).(Ready); got.S != 100 {
		t.Errorf("%+v", got)
	}
	r.forget()
	r.fetch(3, 100, 3)
	r.none(Ready{}, "it was said once")
}

func TestReadyNeedsARealMember(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.forget()
	r.metadata(isr(v1, v2))
	r.none(Ready{}, "nobody holds anything")
	r.metadata(isr(v1, v2, 1))
	r.none(Ready{}, "the member was not checked")
	r.fetch(1, 80, 4)
	r.last(Ready{})
}

// A log of clients alone that begins above 0 is copied from the source's beginning; only
// what is there counts as lost.
func TestAStartOverAnUnknownLogBeginsAtZero(t *testing.T) {
	start := func(t *testing.T, c Consent) *rig {
		t.Helper()
		r := newRig(t)
		r.metadata(nil)
		r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 50}}}), c)
		for id := int32(1); id <= 3; id++ {
			q := r.request(id, 80, 4)
			q.LogStart = 50
			r.m.Fetch(r.now, q)
			r.take()
		}
		r.marks(map[int32]int64{1: 80})
		if got := r.last(ProbeSource{}).(ProbeSource); got.Offset != 0 || got.LastFetchedEpoch != lineage.NoSource {
			t.Errorf("asked %+v", got)
		}
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := start(t, Consent{Truncate: true})
	if got := r.last(RefusedLoss{}).(RefusedLoss); got.Records != 30 {
		t.Errorf("%+v, want 30 records", got)
	}
	r = start(t, Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
	if got := r.last(StartReading{}).(StartReading); got.Offset != 0 {
		t.Errorf("reads from %d", got.Offset)
	}
	if d := r.fetch(1, 80, 4); !d.Diverging || d.DivergingTo.Start != 0 {
		t.Errorf("answered %+v", d)
	}
}

// A real leader of epoch 4 came and went before any sidecar followed it. What its log is
// cannot be told from its epoch, and is asked for.
func TestR5ALogUnderAnUnknownEpochIsToldByARecord(t *testing.T) {
	for name, tt := range map[string]struct {
		record *lineage.Entry
		s      int64
	}{
		"it has the records that the last virtual leader replaced": {&lineage.Entry{Epoch: 1, Start: 69}, 50},
		"it is the log of the last virtual leader":                 {&lineage.Entry{Epoch: 3, Start: 69}, 80},
		"it shows nothing": {nil, 50},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(nil)
			r.state(chains(map[int32]lineage.Chain{
				2: {{Epoch: 1, SourceEpoch: 0, Start: 0}, {Epoch: 1, SourceEpoch: lineage.NoSource, Start: 50}},
				3: {{Epoch: 1, SourceEpoch: 0, Start: 0}, {Epoch: 3, SourceEpoch: 1, Start: 50}},
			}), consented)
			for id := int32(1); id <= 3; id++ {
				r.fetch(id, 80, 4)
			}
			if got := r.last(AskHighWatermarks{}).(AskHighWatermarks); !slices.Equal(got.Records, []int32{1, 2, 3}) {
				t.Fatalf("asks %+v", got)
			}
			records := map[int32]lineage.Entry{}
			for id := int32(1); tt.record != nil && id <= 3; id++ {
				records[id] = *tt.record
			}
			r.m.HighWatermarks(r.now, rigEpoch, r.m.asks, map[int32]int64{1: 70, 2: 70, 3: 70}, records)
			r.take()
			if got := r.last(ProbeSource{}).(ProbeSource); got.Offset != tt.s {
				t.Errorf("S is %d, want %d", got.Offset, tt.s)
			}
		})
	}
	r := newRig(t)
	r.collected([3]int64{80, 80, 80})
	if got := r.last(AskHighWatermarks{}).(AskHighWatermarks); len(got.Records) > 0 {
		t.Errorf("asks for what is on record: %+v", got)
	}
}

// A replica that knows a high watermark within a batch of the source, since its own log has
// others there, makes reading begin within it. What the buffer is said to begin with does
// not matter to that.
func TestReadingBeginsWithinABatch(t *testing.T) {
	r := newRig(t)
	r.leads(75)
	if got := r.last(StartReading{}).(StartReading); got.Offset != 75 {
		t.Fatalf("%+v", got)
	}
	r.m.Evicted(80)
	if got := r.ingest(BatchInfo{70, 79, 1}); len(got) != 1 || got[0] != 4 {
		t.Errorf("stamped %v", got)
	}
}

func TestR5AnAmbiguousLogIsAskedUntilItAnswers(t *testing.T) {
	start := func(t *testing.T, fenced bool) *rig {
		t.Helper()
		r := newRig(t)
		r.metadata(func(v *View) {
			v.ISR, v.ELR, v.LastRealISR = []int32{v1, v2}, nil, []int32{1}
			b := v.Brokers[1]
			b.Fenced = fenced
			v.Brokers[1] = b
		})
		r.state(chains(map[int32]lineage.Chain{
			2: {{Epoch: 1, SourceEpoch: 0, Start: 0}},
			3: {{Epoch: 1, SourceEpoch: 0, Start: 0}, {Epoch: 3, SourceEpoch: 1, Start: 50}},
		}), consented)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		return r
	}
	r := start(t, true)
	r.phase(Collecting) // who is fenced is not asked
	r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: v.Brokers[1].Epoch} })
	r.phase(AskingHW)

	r = start(t, false)
	r.marks(map[int32]int64{2: 80, 3: 80})
	r.phase(Collecting)
	r.none(ProbeSource{}, "what broker 1 holds is not known")
	r.fetch(2, 80, 4)
	r.phase(AskingHW)
	r.m.HighWatermarks(r.now, rigEpoch, r.m.asks, map[int32]int64{1: 80}, map[int32]lineage.Entry{1: {Epoch: 3, Start: 79}})
	r.take()
	if got := r.last(ProbeSource{}).(ProbeSource); got.Offset != 80 {
		t.Errorf("%+v", got)
	}
}
