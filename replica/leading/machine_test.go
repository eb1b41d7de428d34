package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// The tests are named by the rules of the safety rules; the patches in mutants/ remove a
// rule each, and a test here must notice.

func TestR1FetchesFromBeforeReadinessCountForSOnly(t *testing.T) {
	r := newRig(t)
	r.view.ISR = []int32{v1, v2, 1, 2}
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	r.fetch(3, 90, 4)
	r.fetch(1, 80, 4)
	r.fetch(2, 80, 4)
	r.marks(map[int32]int64{1: 10})
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	r.hw(10)
	if len(r.m.Followers()) != 0 {
		t.Errorf("log ends from before readiness count: %v", r.m.Followers())
	}
	if got := r.proposed(); got != nil {
		t.Errorf("ISR %v proposed on a log end that was not checked", got)
	}
}

func TestR1DivergingAndOutOfRangeLogEndsDoNotCount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		offset int64
		last   int32
	}{
		{"diverging", 90, 4},
		{"out of range", 500, 5},
		{"out of range without an epoch", 500, lineage.Undefined},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.leads(80)
			r.metadata(isr(v1, v2, 1, 2))
			r.fetch(1, 80, 4)
			r.fetch(2, 80, 4)
			r.fetch(3, 80, 4)
			r.altered(codeIneligibleReplica, false)
			r.forget()
			r.pass(time.Second)
			d := r.fetch(3, tt.offset, tt.last)
			if !d.Diverging && d.Code != CodeOffsetOutOfRange {
				t.Fatalf("answered %+v", d)
			}
			if _, counts := r.m.Followers()[3]; counts || r.proposed() != nil {
				t.Errorf("counts: %v, proposed %v", r.m.Followers(), r.proposed())
			}
		})
	}
}

func TestR2HighWatermarkIsTheLowestCheckedEndOfTheISR(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.hw(80)
	r.fetch(1, 100, 5)
	r.fetch(2, 90, 5)
	r.hw(80)
	r.fetch(3, 95, 5)
	r.hw(90)
	r.fetch(2, 100, 5)
	r.fetch(3, 100, 5)
	r.hw(100)
}

func TestR2GateOfMinInsyncReplicas(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.metadata(isr(v1, 1)) // two of three wanted
	r.fetch(1, 100, 5)
	r.hw(80)
	r.metadata(isr(v1, v2, 1))
	r.hw(100)
}

func TestR2MinInsyncReplicasIsCappedByTheReplicas(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 9
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.hw(100)
}

func TestR2NoRealMemberNoMove(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 1
	r.follows(100)
	r.metadata(func(v *View) { v.ISR, v.ELR = []int32{v1, v2}, []int32{1, 2, 3} })
	// Pending expansions make real members of the maximal ISR, not of the committed one.
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.pass(time.Second)
	r.hw(80)
}

func TestR2PendingExpansionsCount(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.metadata(isr(v1, v2, 1, 2))
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	r.ingest(BatchInfo{80, 99, 1})
	r.persisted()
	if !slices.Contains(r.proposed(), 3) {
		t.Fatalf("3 was not proposed: %v", r.proposed())
	}
	r.fetch(1, 100, 5)
	r.fetch(2, 100, 5)
	r.hw(80) // 3 may be in the ISR already
	r.altered(codeIneligibleReplica, false)
	r.hw(100)
}

func TestR2AShrinkCountsOnlyOnceTheMetadataLogShowsIt(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.pass(maxLag / 2)
	r.fetch(1, 100, 5)
	r.fetch(2, 100, 5)
	r.fetch(v2, 0, lineage.Undefined)
	r.pass(maxLag/2 + time.Second)
	r.fetch(1, 100, 5)
	if got := r.proposed(); !slices.Equal(got, []int32{v1, v2, 1, 2}) {
		t.Fatalf("proposed %v", got)
	}
	r.hw(80)
	r.altered(CodeNone, false)
	r.hw(80)
	r.metadata(isr(v1, v2, 1, 2))
	r.hw(100)
}

func TestR2NeverBack(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.hw(100)
	r.fetch(3, 90, 5)
	r.hw(100)
}

func TestR3Joining(t *testing.T) {
	for _, tt := range []struct {
		name  string
		view  func(*View)
		fetch func(r *rig)
		joins bool
	}{
		{"at the high watermark and the start of the epoch", nil, func(r *rig) { r.fetch(3, 80, 4) }, true},
		{"below the start of the epoch", nil, func(r *rig) { r.fetch(3, 79, 4) }, false},
		{"below the high watermark", nil, func(r *rig) {
			r.fetch(1, 100, 5)
			r.fetch(2, 100, 5)
			r.hw(100)
			r.fetch(3, 90, 5)
		}, false},
		{"fenced", func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103, Fenced: true} }, func(r *rig) { r.fetch(3, 80, 4) }, false},
		{"shutting down", func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103, ShuttingDown: true} }, func(r *rig) { r.fetch(3, 80, 4) }, false},
		{"with the epoch of an earlier process", nil, func(r *rig) {
			q := r.request(3, 80, 4)
			q.BrokerEpoch--
			if d := r.m.Fetch(r.now, q); d.Code != CodeUnknownLeaderEpoch {
				r.t.Errorf("answered %+v", d)
			}
			r.take()
		}, false},
		{"registered anew since", nil, func(r *rig) {
			r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 200, Fenced: true} })
			r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 200} })
		}, false},
		{"not a replica", func(v *View) { v.Replicas = []int32{v1, v2, 1, 2} }, func(r *rig) {
			if d := r.fetch(3, 80, 4); d.Code != CodeNotLeaderOrFollower {
				r.t.Errorf("answered %+v", d)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.leads(80)
			r.metadata(func(v *View) {
				v.ISR = []int32{v1, v2, 1, 2}
				if tt.view != nil {
					tt.view(v)
				}
			})
			r.fetch(1, 80, 4)
			r.fetch(2, 80, 4)
			r.ingest(BatchInfo{80, 99, 1})
			r.persisted()
			r.forget()
			tt.fetch(r)
			if got := slices.Contains(r.proposed(), 3); got != tt.joins {
				t.Errorf("proposed %v", r.proposed())
			}
		})
	}
}

func TestR3NoJoinBelowTheStartOfTheEpoch(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.leads(40)
	r.metadata(isr(v1, v2, 1, 2))
	r.fetch(3, 60, 4) // above the high watermark
	if got := r.proposed(); got != nil {
		t.Errorf("proposed %v", got)
	}
	r.fetch(3, 80, 4)
	if got := r.proposed(); !slices.Contains(got, 3) {
		t.Errorf("proposed %v", got)
	}
}

func TestR3EpochsOfAProposal(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.metadata(isr(v1, v2, 1, 2))
	r.fetch(3, 80, 4)
	a := r.last(AlterPartition{}).(AlterPartition)
	if a.PartitionEpoch != r.view.PartitionEpoch || a.LeaderEpoch != rigEpoch {
		t.Errorf("partition epoch %d, leader epoch %d; the metadata log says %d, %d", a.PartitionEpoch, a.LeaderEpoch, r.view.PartitionEpoch, rigEpoch)
	}
	if !slices.Contains(a.ISR, Member{3, 103}) || !slices.Contains(a.ISR, Member{v1, r.view.Brokers[v1].Epoch}) {
		t.Errorf("members %v", a.ISR)
	}
}

func TestR3AnswersOfTheController(t *testing.T) {
	expand := func(t *testing.T) *rig {
		r := newRig(t)
		r.leads(80)
		r.metadata(isr(v1, v2, 1, 2))
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.ingest(BatchInfo{80, 99, 1})
		r.persisted()
		r.fetch(1, 100, 5)
		r.fetch(2, 100, 5)
		return r
	}
	t.Run("applied: counts until the metadata log shows it", func(t *testing.T) {
		r := expand(t)
		r.altered(CodeNone, false)
		r.hw(80)
		r.metadata(isr(v1, v2, 1, 2, 3))
		r.hw(80)
	})
	for _, code := range []int16{codeInvalidUpdateVer, codeNewLeaderElected} {
		t.Run("refused as old: only the metadata log tells", func(t *testing.T) {
			r := expand(t)
			r.altered(code, false)
			r.hw(80)
			r.metadata(nil)
			r.hw(100)
		})
	}
	t.Run("ambiguous: asked again, counts on", func(t *testing.T) {
		r := expand(t)
		r.forget()
		r.m.Altered(r.now, rigEpoch, r.view.PartitionEpoch, 0, true)
		r.take()
		if r.proposed() == nil {
			t.Error("not asked again")
		}
		r.hw(80)
		r.pass(time.Second)
		r.hw(80)
		// This one's refusal says nothing of the first sending.
		r.altered(codeStaleBrokerEpoch, false)
		r.pass(time.Second)
		r.hw(80)
	})
	t.Run("timed out at the controller is ambiguous", func(t *testing.T) {
		r := expand(t)
		r.altered(codeRequestTimedOut, false)
		r.hw(80)
	})
	t.Run("ineligible: not asked again before it has fetched", func(t *testing.T) {
		r := expand(t)
		r.altered(codeIneligibleReplica, false)
		r.hw(100)
		r.forget()
		r.pass(time.Second)
		if r.proposed() != nil {
			t.Errorf("asked again: %v", r.proposed())
		}
		r.fetch(3, 100, 5)
		if r.proposed() == nil {
			t.Error("not asked again after a Fetch")
		}
	})
	t.Run("of another epoch is ignored", func(t *testing.T) {
		r := expand(t)
		r.m.Altered(r.now, rigEpoch-1, r.view.PartitionEpoch, codeIneligibleReplica, false)
		r.hw(80)
	})
}

func TestISRLagIsMeasuredByWhatWasOffered(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	r.fetch(v2, 0, lineage.Undefined)
	end := int64(100)
	// 1 and 2 keep up with what each Fetch offered while new data comes all the time; 3
	// never gets there.
	for range 12 {
		r.pass(maxLag / 8)
		r.ingest(BatchInfo{end, end + 9, 1})
		r.fetch(1, end, 5)
		r.fetch(2, end, 5)
		r.fetch(3, 85, 5)
		r.fetch(v2, 0, lineage.Undefined)
		end += 10
	}
	if got := r.proposed(); !slices.Equal(got, []int32{v1, v2, 1, 2}) {
		t.Errorf("proposed %v", got)
	}
}

func TestISRKeepsItsLastRealMember(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.fetch(2, 100, 5)
	r.pass(maxLag + time.Second)
	got := slices.Clone(r.proposed())
	slices.Sort(got)
	if !slices.Equal(got, []int32{2, v1}) {
		t.Errorf("proposed %v", got)
	}
}

func TestR4TakeoverReadsTheStateFirst(t *testing.T) {
	r := newRig(t)
	r.metadata(nil)
	r.phase(ReadingState)
	if got := r.last(ReadState{}).(ReadState); got.Epoch != rigEpoch {
		t.Errorf("%+v", got)
	}
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	r.phase(ReadingState)
	r.none(AskHighWatermarks{}, "the state was not read")
	// An answer that was asked for under an earlier epoch is not the state.
	r.m.StateRead(r.now, rigEpoch-1, lineage.NewRecord(), consented)
	r.phase(ReadingState)
}

func TestR4UnknownLeaderEpochUntilReady(t *testing.T) {
	r := newRig(t)
	check := func(where string) {
		t.Helper()
		if d := r.fetch(1, 80, 4); d.Code != CodeUnknownLeaderEpoch || d.HighWatermark != lineage.Undefined {
			t.Errorf("%s: answered %+v", where, d)
		}
		if _, _, ready := r.m.EndOffsetFor(4); ready {
			t.Errorf("%s: lineage answered", where)
		}
	}
	r.metadata(nil)
	check("reading the state")
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	check("collecting")
	r.fetch(2, 80, 4)
	r.fetch(3, 80, 4)
	check("asking for high watermarks")
	r.marks(nil)
	check("probing")
	if e, o, ready := r.m.ClientEndOffsetFor(4); !ready || e != 4 || o != 80 {
		t.Errorf("probing: a client is answered %d, %d, %t", e, o, ready)
	}
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	if d := r.fetch(1, 80, 4); d.Code != CodeNone {
		t.Errorf("ready: answered %+v", d)
	}
}

func TestR4WaitsForEveryRealMemberWithItsCurrentBrokerEpoch(t *testing.T) {
	r := newRig(t)
	r.metadata(nil)
	r.state(lineage.NewRecord(), consented)
	r.fetch(1, 0, lineage.Undefined)
	r.fetch(2, 0, lineage.Undefined)
	r.phase(Collecting)
	r.fetch(3, 0, lineage.Undefined)
	r.phase(AskingHW)

	r = newRig(t)
	r.metadata(nil)
	r.state(lineage.NewRecord(), consented)
	r.fetch(1, 0, lineage.Undefined)
	r.fetch(2, 0, lineage.Undefined)
	r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 300} })
	r.fetch(3, 0, lineage.Undefined)
	r.phase(Collecting)
	r.fetch(1, 0, lineage.Undefined)
	r.phase(AskingHW)

	// One that left the ISR is not waited for.
	r = newRig(t)
	r.metadata(nil)
	r.state(lineage.NewRecord(), consented)
	r.fetch(1, 0, lineage.Undefined)
	r.fetch(2, 0, lineage.Undefined)
	r.metadata(isr(v1, v2, 1, 2))
	r.phase(AskingHW)
}

func TestR4ANewEpochStartsAnew(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.forget()
	r.metadata(func(v *View) { v.LeaderEpoch = rigEpoch + 1 })
	r.phase(ReadingState)
	r.last(Drop{})
	if len(r.m.Followers()) != 0 {
		t.Error("log ends of the former epoch are kept")
	}
	r.metadata(func(v *View) { v.Leader = v2 })
	r.phase(Off)
	if d := r.fetch(1, 80, 4); d.Code != CodeNotLeaderOrFollower {
		t.Errorf("answered %+v", d)
	}
}

func TestR5SIsTheCommonPrefix(t *testing.T) {
	r := newRig(t)
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{
		3: {{Epoch: 3, SourceEpoch: 0, Start: 0}},
		4: {{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 120}},
	}), consented)
	r.fetch(1, 150, 3) // C4: [0,150)@3
	r.fetch(2, 130, 4) // [0,120)@3 [120,130)@4
	r.fetch(3, 130, 4)
	r.marks(nil)
	p := r.last(ProbeSource{}).(ProbeSource)
	if p.Offset != 120 || p.LastFetchedEpoch != 0 {
		t.Errorf("probes %+v, want 120 after source epoch 0", p)
	}
}

func TestR6HighWatermarkStartsAtWhatLiveReplicasKnow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known map[int32]int64
		want  int64
	}{
		{"the highest known", map[int32]int64{1: 40, 2: 60, 3: 0}, 60},
		{"at most S", map[int32]int64{1: 100}, 80},
		{"nobody answered", nil, 0},
		{"a virtual one's is no evidence", map[int32]int64{1: 30, v2: 70}, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.view.MinISR = 5
			r.collected([3]int64{100, 90, 80})
			if got := r.last(AskHighWatermarks{}).(AskHighWatermarks).Replicas; len(got) != 3 || got[1] != 100 {
				t.Errorf("asks %v", got)
			}
			r.marks(tt.known)
			if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
				t.Fatal(err)
			}
			r.hw(tt.want)
		})
	}
}

func TestR7TheSourceAnswersFirst(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: 40})
	r.phase(Probing)
	if p := r.last(ProbeSource{}).(ProbeSource); p != (ProbeSource{rigEpoch, 80, 1}) {
		t.Errorf("probes %+v", p)
	}
	// Unreachable: nothing is truncated, whatever comes.
	if d := r.fetch(1, 100, 4); d.Diverging || d.Code != CodeUnknownLeaderEpoch {
		t.Errorf("answered %+v", d)
	}
	r.none(Truncated{}, "the source has not answered")
	r.none(StartReading{}, "the source has not answered")
}

func TestR7ADivergenceIsWalkedDown(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: 70})
	// The source knows epoch 0 up to 55 only.
	if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 0, Start: 55}, SourceEnd: 60}); err != nil {
		t.Fatal(err)
	}
	r.phase(Probing)
	if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 50 || p.LastFetchedEpoch != 0 {
		t.Fatalf("probes %+v", p)
	}
	if err := r.probed(ProbeAnswer{SourceEnd: 60}); err != nil {
		t.Fatal(err)
	}
	if st := r.m.Status(); st.Start != 50 || st.HighWatermark != 50 {
		t.Errorf("S %d, high watermark %d", st.Start, st.HighWatermark)
	}
	if a := r.last(Truncated{}).(Truncated); a.From != 70 || a.To != 50 {
		t.Errorf("announced %+v", a)
	}
	// The follower's log is cut to S.
	if d := r.fetch(1, 100, 4); !d.Diverging || d.DivergingTo.Epoch != 3 || d.DivergingTo.Start != 50 {
		t.Errorf("answered %+v", d)
	}
}

func TestR7AContradictionIsAnError(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(nil)
	if r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 90}, SourceEnd: 95}) == nil {
		t.Error("a divergence above S is taken")
	}
	if r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: 10}) == nil {
		t.Error("a source that ends below S is taken")
	}
	r.phase(Probing)
	r.none(Truncated{}, "the source was restored")
}

func TestR8TheBufferStartsAtTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.leads(40)
	s := r.last(StartReading{}).(StartReading)
	if s.Offset != 40 || s.LastFetchedEpoch != 0 {
		t.Fatalf("reads %+v", s)
	}
	if st := r.m.Status(); st.BufferStart != 40 {
		t.Errorf("buffer starts at %d", st.BufferStart)
	}
	stamps := r.ingest(BatchInfo{40, 49, 0}, BatchInfo{50, 79, 1}, BatchInfo{80, 89, 1})
	if !slices.Equal(stamps, []int32{3, 4, 5}) {
		t.Errorf("stamped %v, want the chain's epochs below S and this one above", stamps)
	}
	if d := r.fetch(3, 50, 3); d.Serve != ServeBuffer {
		t.Errorf("answered %+v", d)
	}
}

func TestR8WhatTheSourceNoLongerHas(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: 40})
	if err := r.probed(ProbeAnswer{SourceStart: 60, SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	if s := r.last(StartReading{}).(StartReading); s.Offset != 60 {
		t.Fatalf("reads %+v", s)
	}
	// A follower in [HW, 60) would wait for ever for what nobody can give it.
	if d := r.fetch(3, 50, 3); d.Code != CodeOffsetOutOfRange || d.LogStart > 40 {
		t.Errorf("answered %+v", d)
	}
	if r.m.LogStart() != 60 {
		t.Errorf("EARLIEST is %d", r.m.LogStart())
	}
}

func TestR8TheSourceChangesAfterTheProbe(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.leads(40)
	r.forget()
	if stamps := r.ingest(BatchInfo{40, 49, 2}); stamps != nil {
		t.Errorf("stamped %v", stamps)
	}
	r.last(Resign{})
}

func TestR9NothingIsServedBeforeItsLineageIsPersisted(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.fetch(1, 80, 4)
	r.ingest(BatchInfo{85, 89, 1})
	if d := r.fetch(1, 80, 4); d.Serve != ServeNothing {
		t.Errorf("served before the first entry is persisted: %+v", d)
	}
	p := r.last(Persist{}).(Persist)
	if got := p.Record.Chains[rigEpoch]; !slices.Equal(got, lineage.Chain{{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}, {Epoch: 5, SourceEpoch: 1, Start: 80}}) {
		t.Errorf("persists %v", got)
	}
	r.persisted()
	if d := r.fetch(1, 80, 4); d.Serve != ServeBuffer || d.End != 90 {
		t.Errorf("after it: %+v", d)
	}
	// A new source epoch: a new entry, before its first batch.
	r.ingest(BatchInfo{90, 94, 1}, BatchInfo{97, 99, 3})
	if d := r.fetch(1, 90, 5); d.Serve != ServeBuffer || d.End != 95 {
		t.Errorf("before the second entry is persisted: %+v", d)
	}
	p = r.last(Persist{}).(Persist)
	if got := p.Record.Chains[rigEpoch]; got[len(got)-1] != (lineage.Entry{Epoch: 5, SourceEpoch: 3, Start: 97}) {
		t.Errorf("persists %v", got)
	}
	// An acknowledgement of an earlier write does not count.
	r.m.Persisted(r.now, rigEpoch, p.Seq-1)
	r.m.Persisted(r.now, rigEpoch-1, p.Seq)
	if d := r.fetch(1, 95, 5); d.Serve != ServeNothing {
		t.Errorf("after another write's acknowledgement: %+v", d)
	}
	r.persisted()
	if d := r.fetch(1, 95, 5); d.Serve != ServeBuffer || d.End != 100 {
		t.Errorf("after it: %+v", d)
	}
}

func TestR9ASecondEntryWhileTheFirstIsOnItsWay(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.ingest(BatchInfo{80, 89, 1})
	r.ingest(BatchInfo{90, 99, 2})
	r.persisted()
	if st := r.m.Status(); st.Durable != 90 || st.End != 100 {
		t.Errorf("durable %d of %d", st.Durable, st.End)
	}
	r.persisted()
	if st := r.m.Status(); st.Durable != 100 {
		t.Errorf("durable %d", st.Durable)
	}
}

func TestIngestRefusesWhatContradictsTheLineage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		batch BatchInfo
	}{
		{"an older source epoch", BatchInfo{90, 99, 0}},
		{"an overlap", BatchInfo{85, 99, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.leads(80)
			r.ingest(BatchInfo{80, 89, 1})
			if _, err := r.m.Ingest(r.now, rigEpoch, []BatchInfo{tt.batch}, 0); err == nil {
				t.Error("taken")
			}
			if st := r.m.Status(); st.End != 90 {
				t.Errorf("end %d", st.End)
			}
		})
	}
}

func TestR10EpochsOfAnAnswer(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.leads(20)
	r.ingest(BatchInfo{20, 49, 0}, BatchInfo{50, 79, 1})
	// Its last record has epoch 4, the batch at 30 has 3.
	if d := r.fetch(3, 30, 4); d.Serve == ServeBuffer {
		t.Errorf("epoch 3 given after epoch 4: %+v", d)
	}
	for current, want := range map[int32]int16{rigEpoch - 1: CodeFencedLeaderEpoch, rigEpoch + 1: CodeUnknownLeaderEpoch} {
		q := r.request(1, 80, 4)
		q.CurrentLeaderEpoch = current
		if d := r.m.Fetch(r.now, q); d.Code != want {
			t.Errorf("CurrentLeaderEpoch %d: %+v", current, d)
		}
	}
}

func TestR11OlderChainsAreKeptWhileALogMayEndWithThem(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.ingest(BatchInfo{80, 89, 1})
	p := r.last(Persist{}).(Persist)
	if len(p.Record.Chains) != 3 {
		t.Errorf("the first write keeps %v", p.Record.Chains)
	}
	r.persisted()
	r.fetch(1, 90, 5)
	r.fetch(2, 90, 5)
	r.ingest(BatchInfo{90, 99, 2})
	p = r.last(Persist{}).(Persist)
	if len(p.Record.Chains) != 3 {
		t.Errorf("3 may still end with epoch 4, but the write keeps %v", p.Record.Chains)
	}
	r.persisted()
	r.fetch(3, 90, 5)
	r.ingest(BatchInfo{100, 109, 3})
	p = r.last(Persist{}).(Persist)
	if len(p.Record.Chains) != 1 {
		t.Errorf("nobody ends with epoch 4, but the write keeps %v", p.Record.Chains)
	}
}

func TestR12FollowersAreAnsweredFromTheLineage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		offset int64
		last   int32
		div    bool
		epoch  int32
		end    int64
	}{
		{"an old, out-of-sync log", 70, 3, true, 3, 50},
		{"longer than S", 100, 4, true, 4, 80},
		{"an epoch that is not known", 80, 2, false, 0, 0},
		{"shorter", 60, 4, false, 0, 0},
		{"an empty log", 0, lineage.Undefined, false, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.leads(80)
			d := r.fetch(3, tt.offset, tt.last)
			if tt.last == 2 { // below all known: ends where the first begins
				if !d.Diverging || d.DivergingTo.Start != 0 {
					t.Errorf("answered %+v", d)
				}
				return
			}
			if d.Diverging != tt.div || d.DivergingTo.Epoch != tt.epoch || d.DivergingTo.Start != tt.end {
				t.Errorf("answered %+v", d)
			}
		})
	}
	r := newRig(t)
	r.leads(80)
	// Its epoch begins at S before the first batch, as a stock leader's does.
	if e, o, ready := r.m.EndOffsetFor(4); !ready || e != 4 || o != 80 {
		t.Errorf("OffsetForLeaderEpoch(4) = %d, %d", e, o)
	}
	if e, o, _ := r.m.EndOffsetFor(5); e != 5 || o != 80 {
		t.Errorf("OffsetForLeaderEpoch(5) = %d, %d", e, o)
	}
}

func TestR13ADivergenceWhileLeadingGivesUpLeadership(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.forget()
	r.m.SourceDiverged(r.now, rigEpoch-1)
	r.take()
	r.none(Resign{}, "that was another epoch")
	r.m.SourceDiverged(r.now, rigEpoch)
	r.take()
	r.last(Resign{})
	r.last(StopReading{})
	r.phase(Resigned)
	if d := r.fetch(1, 80, 4); d.Code != CodeNotLeaderOrFollower {
		t.Errorf("answered on: %+v", d)
	}
	if stamps := r.ingest(BatchInfo{100, 109, 1}); stamps != nil {
		t.Errorf("read on: %v", stamps)
	}
	r.metadata(nil) // the metadata log has not shown it yet
	r.phase(Resigned)
}

func TestR14Jump(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: 70})
	if err := r.probed(ProbeAnswer{OutOfRange: true, SourceStart: 300, SourceEnd: 400}); err != nil {
		t.Fatal(err)
	}
	st := r.m.Status()
	if st.Start != 300 || st.HighWatermark != 70 || len(r.m.Chain()) != 0 {
		t.Errorf("S %d, high watermark %d, lineage %v", st.Start, st.HighWatermark, r.m.Chain())
	}
	if s := r.last(StartReading{}).(StartReading); s.Offset != 300 || s.LastFetchedEpoch != lineage.NoSource {
		t.Errorf("reads %+v", s)
	}
	d := r.fetch(1, 100, 4)
	if d.Code != CodeOffsetOutOfRange || d.LogStart > 70 {
		t.Errorf("a follower below the hole: %+v", d)
	}
	if r.m.LogStart() != 300 {
		t.Errorf("EARLIEST is %d", r.m.LogStart())
	}
	// They start anew behind it; the high watermark follows them as always.
	r.ingest(BatchInfo{295, 309, 4})
	r.persisted()
	for id := int32(1); id <= 3; id++ {
		r.hw(70)
		if d := r.fetch(id, 300, lineage.Undefined); d.Serve != ServeBuffer || d.LogStart > d.HighWatermark {
			t.Errorf("%d: %+v", id, d)
		}
	}
	r.hw(300)
}

func TestR14DivergenceAndHole(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: 80})
	if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 0, Start: 55}, SourceStart: 60, SourceEnd: 90}); err != nil {
		t.Fatal(err)
	}
	if err := r.probed(ProbeAnswer{OutOfRange: true, SourceStart: 60, SourceEnd: 90}); err != nil {
		t.Fatal(err)
	}
	if st := r.m.Status(); st.Start != 60 || st.HighWatermark != 50 {
		t.Errorf("S %d, high watermark %d; agreed was 50", st.Start, st.HighWatermark)
	}
}

func TestR14AHoleMetWhileLeading(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.forget()
	if r.m.SourceOutOfRange(r.now, rigEpoch, 0, 90) == nil {
		t.Error("a source that was restored is taken")
	}
	r.take()
	r.none(Resign{}, "nothing is dropped for a source that was restored")
	if err := r.m.SourceOutOfRange(r.now, rigEpoch, 150, 200); err != nil {
		t.Fatal(err)
	}
	r.take()
	r.last(Resign{})
}

func TestR14LogStartNeverAboveTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	if _, err := r.m.Ingest(r.now, rigEpoch, []BatchInfo{{100, 109, 1}}, 95); err != nil {
		t.Fatal(err)
	}
	r.take()
	if d := r.fetch(1, 80, 4); d.LogStart > d.HighWatermark {
		t.Errorf("answered %+v", d)
	}
}

func TestR15WaitingReadsNothing(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.forget()
	r.metadata(func(v *View) { v.ISR, v.ELR = []int32{v1, v2}, []int32{1, 2} })
	r.last(StopReading{})
	if st := r.m.Status(); !st.Waiting || st.Reading {
		t.Errorf("%+v", st)
	}
	if stamps := r.ingest(BatchInfo{100, 109, 1}); stamps != nil {
		t.Errorf("read: %v", stamps)
	}
	r.forget()
	r.metadata(isr(v1, v2, 1))
	if s := r.last(StartReading{}).(StartReading); s.Offset != 100 {
		t.Errorf("reads %+v", s)
	}
}

func TestR15Candidates(t *testing.T) {
	state := chains(map[int32]lineage.Chain{
		1: {{Epoch: 1, SourceEpoch: 0, Start: 0}},
		2: {{Epoch: 2, SourceEpoch: 1, Start: 0}},
		3: {{Epoch: 1, SourceEpoch: 0, Start: 0}}, // an empty epoch of a real leader
		4: {{Epoch: 1, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 0, Start: 60}},
	})
	type at struct {
		id   int32
		end  int64
		last int32
	}
	for _, tt := range []struct {
		name string
		elr  []int32
		last []int32
		logs []at
		s    int64 // -1: waits
	}{
		{"ELR: one member is enough", []int32{2}, nil, []at{{2, 70, 4}}, 70},
		{"ELR: nobody else counts", []int32{2}, []int32{1}, []at{{1, 90, 4}, {3, 90, 4}}, -1},
		{"last ISR: everybody must have reported", nil, []int32{2}, []at{{2, 70, 4}, {1, 70, 4}}, -1},
		{"last ISR: its member", nil, []int32{2}, []at{{1, 90, 2}, {2, 70, 4}, {3, 0, -1}}, 70},
		{"last ISR: a log that extends its member's", nil, []int32{2}, []at{{1, 90, 4}, {2, 70, 4}, {3, 0, -1}}, 90},
		{"last ISR: its member lost its tail", nil, []int32{2}, []at{{1, 90, 4}, {2, 0, -1}, {3, 0, -1}}, 90},
		{"last ISR: none of it is assigned any more", nil, []int32{9}, []at{{1, 90, 2}, {2, 70, 4}, {3, 0, -1}}, 70},
		{"unknown: the newest last record", nil, nil, []at{{1, 90, 1}, {2, 20, 2}, {3, 10, 1}}, 20},
		{"unknown: an empty leader epoch makes no log newer", nil, nil, []at{{1, 90, 3}, {2, 20, 2}, {3, 10, 1}}, 20},
		{"unknown: everybody must have reported", nil, nil, []at{{1, 90, 3}, {2, 20, 2}}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.view.ISR, r.view.ELR, r.view.LastRealISR = []int32{v1, v2}, tt.elr, tt.last
			r.metadata(nil)
			r.state(state, consented)
			for _, l := range tt.logs {
				r.fetch(l.id, l.end, l.last)
			}
			if tt.s < 0 {
				r.phase(Collecting)
				return
			}
			r.marks(nil)
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != tt.s {
				t.Errorf("S is %d, want %d", p.Offset, tt.s)
			}
		})
	}
}

// waiting: nobody is in the ISR, 1 is in the ELR, S came from it.
func waiting(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.view.ISR, r.view.ELR = []int32{v1, v2}, []int32{1, 2}
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	r.fetch(3, 90, 4)
	r.fetch(1, 80, 4)
	r.marks(map[int32]int64{1: 80})
	r.phase(Probing)
	return r
}

func TestR16MembersOfSJoinBeforeTheSourceAnswers(t *testing.T) {
	r := waiting(t)
	if got := r.proposed(); !slices.Contains(got, 1) {
		t.Errorf("1, whom S came from, is not proposed: %v", got)
	}
	if got := r.proposed(); slices.Contains(got, 3) {
		t.Errorf("3, whom S did not come from, is proposed: %v", got)
	}
	r.fetch(2, 85, 4)
	r.altered(codeInvalidUpdateVer, false)
	r.metadata(nil)
	if got := r.proposed(); slices.Contains(got, 2) || slices.Contains(got, 3) {
		t.Errorf("others join before the source has answered: %v", got)
	}
	// With a real member there nobody joins before that.
	r = newRig(t)
	r.view.ISR = []int32{v1, v2, 1}
	r.metadata(nil)
	r.state(lineage.NewRecord(), consented)
	r.fetch(2, 0, lineage.Undefined)
	r.fetch(1, 0, lineage.Undefined)
	r.marks(nil)
	r.phase(Probing)
	if got := r.proposed(); got != nil {
		t.Errorf("proposed %v", got)
	}
	// Not even one that S came from and that left since.
	r = newRig(t)
	r.collected([3]int64{80, 80, 80})
	r.marks(nil)
	r.metadata(isr(v1, v2, 1, 2))
	r.fetch(3, 80, 4)
	if got := r.proposed(); got != nil {
		t.Errorf("proposed %v", got)
	}
}

func TestR16Retake(t *testing.T) {
	lead := func(t *testing.T) *rig {
		t.Helper()
		r := waiting(t)
		// The only one that has S dies: its join is refused.
		r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 101, Fenced: true} })
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		return r
	}
	t.Run("not while a candidate is dead", func(t *testing.T) {
		r := lead(t)
		r.fetch(2, 70, 4)
		r.phase(Leading)
	})
	t.Run("when every candidate is below", func(t *testing.T) {
		r := lead(t)
		r.fetch(2, 70, 4)
		r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 301} })
		r.fetch(1, 60, 4)
		r.phase(Resigned)
		r.last(Resign{})
	})
	t.Run("not before their logs were checked", func(t *testing.T) {
		r := waiting(t)
		r.fetch(2, 80, 4)
		r.altered(codeIneligibleReplica, false) // 1 must fetch again
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.fetch(1, 90, 4) // diverges: it will come back, cut
		r.phase(Leading)
	})
	t.Run("not while one may still join", func(t *testing.T) {
		r := lead(t)
		r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 301}; v.ELR = []int32{1} })
		r.fetch(2, 80, 4)
		r.altered(codeInvalidUpdateVer, false)
		r.fetch(1, 60, 4)
		r.phase(Leading)
	})
	t.Run("not with a real member", func(t *testing.T) {
		r := lead(t)
		r.metadata(isr(v1, v2, 3))
		r.fetch(2, 70, 4)
		r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 301} })
		r.fetch(1, 60, 4)
		r.phase(Leading)
	})
	t.Run("before the source has answered", func(t *testing.T) {
		r := waiting(t)
		r.fetch(2, 70, 4)
		r.altered(codeIneligibleReplica, false)
		r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 301} })
		r.phase(Probing)
		r.fetch(1, 60, 4)
		r.phase(Resigned)
	})
}

func TestR17HandBack(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.m.Quiesce(r.now)
	r.take()
	r.last(StopReading{})
	r.fetch(1, 100, 5)
	r.fetch(2, 100, 5)
	r.fetch(3, 80, 4)
	r.none(Quiesced{}, "3 has not got everything")
	r.fetch(3, 100, 5)
	q := r.last(Quiesced{}).(Quiesced)
	if !q.Complete || q.End != 100 || q.LastSourceEpoch != 1 || !slices.Equal(q.Order, []int32{1, 2, 3}) || q.Outside != nil {
		t.Errorf("%+v", q)
	}
	r.forget()
	r.m.Quiesce(r.now)
	r.pass(time.Second)
	r.none(Quiesced{}, "it is reported once")
	// Nothing more is read.
	if stamps := r.ingest(BatchInfo{100, 109, 1}); stamps != nil {
		t.Errorf("read: %v", stamps)
	}
}

func TestR17AFetchAfterQuiesceOfEach(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.hw(100)
	r.m.Quiesce(r.now)
	r.take()
	r.none(Quiesced{}, "nobody has fetched since")
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.last(Quiesced{})
}

func TestR17OnlyMembersOfTheISRAndNoLiveReplicaLeftOut(t *testing.T) {
	quiet := func(t *testing.T, cfg func(*Config)) *rig {
		t.Helper()
		r := newRig(t)
		if cfg != nil {
			cfg(&r.m.cfg)
		}
		r.follows(100)
		r.metadata(isr(v1, v2, 1, 2))
		r.altered(codeIneligibleReplica, false) // 3 may not join yet
		r.m.Quiesce(r.now)
		r.take()
		r.fetch(1, 100, 5)
		r.fetch(2, 100, 5)
		return r
	}
	t.Run("a live one is waited for", func(t *testing.T) {
		r := quiet(t, nil)
		r.none(Quiesced{}, "3 is alive and not in the ISR")
		r.pass(maxLag / 2)
		r.fetch(1, 100, 5)
		r.fetch(2, 100, 5)
		r.fetch(v2, 0, lineage.Undefined)
		r.none(Quiesced{}, "3 is alive and not in the ISR")
		r.fetch(3, 100, 5)
		r.altered(CodeNone, false)
		r.metadata(isr(v1, v2, 1, 2, 3))
		if q := r.last(Quiesced{}).(Quiesced); len(q.Order) != 3 {
			t.Errorf("%+v", q)
		}
	})
	t.Run("a dead one is left out", func(t *testing.T) {
		r := quiet(t, nil)
		r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103, Fenced: true} })
		if q := r.last(Quiesced{}).(Quiesced); !slices.Equal(q.Order, []int32{1, 2}) || q.Outside != nil {
			t.Errorf("%+v", q)
		}
	})
	wait := maxLag / 2
	t.Run("after the wait with enough members", func(t *testing.T) {
		r := quiet(t, func(c *Config) { c.StopWait, c.StopMinISR = wait, 2 })
		r.pass(wait - time.Second)
		r.none(Quiesced{}, "the wait is not over")
		r.pass(2 * time.Second)
		if q := r.last(Quiesced{}).(Quiesced); !slices.Equal(q.Order, []int32{1, 2}) || !slices.Equal(q.Outside, []int32{3}) {
			t.Errorf("%+v", q)
		}
	})
	t.Run("after the wait with too few", func(t *testing.T) {
		r := quiet(t, func(c *Config) { c.StopWait, c.StopMinISR = wait, 3 })
		r.pass(wait + time.Second)
		r.none(Quiesced{}, "two members are too few")
	})
	t.Run("the gate may be shut", func(t *testing.T) {
		r := newRig(t)
		r.view.MinISR = 5
		r.follows(100)
		r.metadata(isr(v1, 1, 2, 3)) // V2 is lost
		r.m.Quiesce(r.now)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 100, 5)
		}
		r.hw(80)
		r.last(Quiesced{})
	})
}

func TestR17AStopStillFillsTheGapUpToS(t *testing.T) {
	r := newRig(t)
	r.view.MinISR = 5
	r.collected([3]int64{80, 80, 80})
	r.marks(map[int32]int64{1: 40})
	r.metadata(isr(v1, 1, 2))
	r.m.Quiesce(r.now)
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	r.last(StartReading{})
	// 3 lost its tail and is at 60: above the high watermark, in no real replica's reach.
	stamps := r.ingest(BatchInfo{40, 49, 0}, BatchInfo{50, 79, 1}, BatchInfo{80, 99, 1})
	if !slices.Equal(stamps, []int32{3, 4, lineage.Undefined}) {
		t.Errorf("stamped %v", stamps)
	}
	if st := r.m.Status(); st.End != 80 || st.Reading {
		t.Errorf("%+v", st)
	}
	if d := r.fetch(3, 60, 4); d.Serve != ServeBuffer {
		t.Errorf("answered %+v", d)
	}
}

func TestR17SourceDead(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{90, 100, 80})
	r.marks(nil)
	r.m.Quiesce(r.now)
	r.take()
	r.none(Quiesced{}, "the source may answer yet")
	r.pass(sourceWait)
	q := r.last(Quiesced{}).(Quiesced)
	if q.Complete || !slices.Equal(q.Order, []int32{2, 1, 3}) || q.End != 100 || q.LastSourceEpoch != 1 {
		t.Errorf("%+v", q)
	}
	// From here on nothing is truncated, though the source answers.
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	r.phase(Probing)
	r.none(Truncated{}, "it was handed back")
	if d := r.fetch(2, 100, 4); d.Diverging {
		t.Errorf("answered %+v", d)
	}
}

func TestR17SourceDeadAndALiveReplicaOutside(t *testing.T) {
	r := newRig(t)
	r.view.ISR = []int32{v1, v2, 1}
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	r.fetch(1, 80, 4)
	r.marks(nil)
	r.m.Quiesce(r.now)
	r.pass(sourceWait)
	if q := r.last(Quiesced{}).(Quiesced); !slices.Equal(q.Outside, []int32{2, 3}) {
		t.Errorf("%+v", q)
	}
}

func TestR20NothingIsTruncatedWithoutConsent(t *testing.T) {
	t.Run("the state forbids it", func(t *testing.T) {
		r := newRig(t)
		r.metadata(nil)
		r.state(lineage.NewRecord(), Consent{AllowLoss: true})
		r.phase(Refused)
		for id := int32(1); id <= 3; id++ {
			if d := r.fetch(id, 80, 4); d.Code != CodeUnknownLeaderEpoch {
				t.Errorf("answered %+v", d)
			}
		}
		r.none(ProbeSource{}, "the state forbids it")
		r.m.Quiesce(r.now)
		r.take()
		if q := r.last(Quiesced{}).(Quiesced); q.Complete || len(q.Order) != 3 {
			t.Errorf("%+v", q)
		}
	})
	strict := func(t *testing.T, ends [3]int64) *rig {
		t.Helper()
		r := newRig(t)
		r.metadata(nil)
		r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), Consent{Truncate: true})
		for i, end := range ends {
			r.fetch(int32(i+1), end, 4)
		}
		r.marks(map[int32]int64{1: 80})
		return r
	}
	t.Run("records would go", func(t *testing.T) {
		r := strict(t, [3]int64{100, 80, 80})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Refused)
		if got := r.last(RefusedLoss{}).(RefusedLoss); got.Records != 20 {
			t.Errorf("%+v", got)
		}
		r.none(Truncated{}, "it was refused")
	})
	t.Run("none would go", func(t *testing.T) {
		r := strict(t, [3]int64{80, 80, 80})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
	})
	t.Run("a jump drops all that is here", func(t *testing.T) {
		r := strict(t, [3]int64{80, 80, 80})
		if err := r.probed(ProbeAnswer{OutOfRange: true, SourceStart: 300, SourceEnd: 400}); err != nil {
			t.Fatal(err)
		}
		r.phase(Refused)
		if got := r.last(RefusedLoss{}).(RefusedLoss); got.Records != 80 {
			t.Errorf("%+v", got)
		}
	})
}

func TestRecordsOfUnknownHistoryNeedTheOperatorsWord(t *testing.T) {
	for name, c := range map[string]struct {
		consent Consent
		want    Phase
	}{
		"while mirroring":    {Consent{Truncate: true, AllowLoss: true}, Refused},
		"with AllowTruncate": {Consent{Truncate: true, AllowLoss: true, AllowUnknown: true}, Leading},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(nil)
			r.state(lineage.NewRecord(), c.consent)
			for id := int32(1); id <= 3; id++ {
				r.fetch(id, 80, 4)
			}
			r.marks(map[int32]int64{1: 80})
			if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
				t.Fatal(err)
			}
			r.phase(c.want)
		})
	}
}

func TestAVirtualFollowerIsInTheISROnlyAfterItsFetch(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.metadata(isr(v1, 1, 2, 3))
	r.pass(time.Second)
	if got := r.proposed(); got != nil {
		t.Fatalf("proposed %v before V2 was heard", got)
	}
	if d := r.fetch(v2, 0, lineage.Undefined); d.Code != CodeNone || d.Serve != ServeNothing {
		t.Errorf("answered %+v", d)
	}
	if got := r.proposed(); !slices.Contains(got, v2) {
		t.Errorf("proposed %v", got)
	}
	r.hw(80)
	if r.m.NewsFor(v2, rigEpoch, 0) {
		t.Error("a virtual follower is told news")
	}
}

func TestLaggardsAreServedFromARealReplicaNeverFromTheSource(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	for id := int32(1); id <= 3; id++ {
		r.m.Told(id, 100)
	}
	if got := r.m.EvictBelow(); got != 100 {
		t.Fatalf("EvictBelow = %d", got)
	}
	r.m.Evicted(100)
	r.metadata(isr(v1, v2, 1, 2))
	d := r.fetch(3, 30, 3)
	if d.Serve != ServeReplica || d.End != 100 || d.From != 1 && d.From != 2 {
		t.Errorf("answered %+v", d)
	}
	if !r.m.NewsFor(3, rigEpoch, 30) {
		t.Error("no news for a laggard that can be served")
	}
	// A gap up to the buffer: it goes on there, once the replica shows that far.
	r.ingest(BatchInfo{102, 109, 1})
	if p := r.m.PastGap(r.request(3, 30, 3), d, 99); p.Serve != ServeNothing {
		t.Errorf("the replica does not show up to 100, but: %+v", p)
	}
	if p := r.m.PastGap(r.request(3, 30, 3), d, 100); p.Serve != ServeBuffer || p.Offset != 100 || p.End != 110 {
		t.Errorf("past the gap: %+v", p)
	}
	r.metadata(func(v *View) {
		v.Brokers[1] = BrokerView{Epoch: 101, Fenced: true}
		v.Brokers[2] = BrokerView{Epoch: 102, Fenced: true}
	})
	if d := r.fetch(3, 30, 3); d.Serve != ServeNothing {
		t.Errorf("answered %+v", d)
	}
	r.m.Told(3, 100)
	if r.m.NewsFor(3, rigEpoch, 30) {
		t.Error("news for a laggard that nobody can serve: it would ask without end")
	}
}

func TestNothingAboveTheHighWatermarkIsEvicted(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.fetch(1, 100, 5)
	r.fetch(2, 100, 5)
	for id := int32(1); id <= 3; id++ {
		r.m.Told(id, 100)
	}
	if got := r.m.EvictBelow(); got > 80 {
		t.Errorf("EvictBelow = %d, the high watermark is 80", got)
	}
	r.metadata(isr(v1, v2))
	if got := r.m.EvictBelow(); got > 80 {
		t.Errorf("EvictBelow = %d without a real member, the high watermark is 80", got)
	}
}

func TestEvictionWaitsUntilMembersKnowTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.m.Told(1, 100)
	r.m.Told(2, 100)
	r.m.Told(3, 80)
	if got := r.m.EvictBelow(); got != 80 {
		t.Errorf("EvictBelow = %d; 3 shows others only what is below 80", got)
	}
}

func TestFailAndRetry(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.forget()
	r.m.Fail(r.now, rigEpoch)
	r.take()
	r.last(StopReading{})
	if d := r.fetch(1, 80, 4); d.Serve != ServeBuffer {
		t.Errorf("followers are not served on: %+v", d)
	}
	r.m.Retry(r.now, rigEpoch)
	r.take()
	if s := r.last(StartReading{}).(StartReading); s.Offset != 100 || s.LastFetchedEpoch != 1 {
		t.Errorf("reads %+v", s)
	}
}

func TestAgainLearnsNothing(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	q := r.request(1, 100, 5)
	if d := r.m.Again(q); d.Code != CodeNone || d.Serve != ServeNothing {
		t.Errorf("answered %+v", d)
	}
	if r.m.Followers()[1] != 80 {
		t.Error("a waiting Fetch counted twice")
	}
}
