package leading

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// restored is a takeover whose S is 80 under the chain 3/0@0 4/1@50.
func restored(t *testing.T, c Consent) *rig {
	t.Helper()
	r := newRig(t)
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{
		3: {{Epoch: 3, SourceEpoch: 0, Start: 0}},
		4: {{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}},
	}), c)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	r.marks(map[int32]int64{1: 80})
	r.phase(Probing)
	return r
}

// The source goes on under an epoch that was used before it was restored.
func TestR7AnotherLogUnderTheSameEpochs(t *testing.T) {
	r := restored(t, consented)
	if r.probed(ProbeAnswer{SourceEnd: 200, Another: true}) == nil {
		t.Error("another log is taken for the one that was mirrored")
	}
	r.phase(Probing)
	r.none(Truncated{}, "nobody has allowed it")
}

// The leader of an epoch loses nothing of it. What an unclean election loses, another epoch does.
func TestR7LostWithoutAnElection(t *testing.T) {
	lost := ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 60}, SourceEnd: 60, Another: true}
	r := restored(t, consented)
	if r.probed(lost) == nil {
		t.Error("records go that the mirror alone still has")
	}
	r.phase(Probing)
	r.none(Truncated{}, "nobody has allowed it")

	r = restored(t, Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
	if err := r.probed(lost); err != nil {
		t.Fatal(err)
	}
	if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 60 {
		t.Errorf("probes %+v", p)
	}
}

// With the operator's word the mirror goes back to where the source has what is here.
func TestR7WhatARestoredSourceLacksMayGo(t *testing.T) {
	word := Consent{Truncate: true, AllowLoss: true, AllowUnknown: true}
	for name, first := range map[string]ProbeAnswer{
		"another log under the same epoch": {SourceEnd: 200, Another: true},
		"it knows the epoch no more":       {OutOfRange: true, SourceEnd: 60},
		"it ends below":                    {OutOfRange: true, SourceEnd: 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := restored(t, word)
			if err := r.probed(first); err != nil {
				t.Fatal(err)
			}
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 50 || p.LastFetchedEpoch != 0 {
				t.Fatalf("probes %+v", p)
			}
			if err := r.probed(ProbeAnswer{SourceEnd: 60}); err != nil {
				t.Fatal(err)
			}
			r.phase(Leading)
			if a := r.last(Truncated{}).(Truncated); a.From != 80 || a.To != 50 {
				t.Errorf("announced %+v", a)
			}
		})
	}
	t.Run("nothing is the same", func(t *testing.T) {
		r := restored(t, word)
		for range 2 {
			if err := r.probed(ProbeAnswer{SourceEnd: 200, Another: true}); err != nil {
				t.Fatal(err)
			}
		}
		if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 0 {
			t.Fatalf("probes %+v", p)
		}
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		r.hw(0)
	})
	t.Run("what is not known to be there stays", func(t *testing.T) {
		r := restored(t, word)
		for range 2 {
			if err := r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: 0}); err != nil {
				t.Fatal(err)
			}
		}
		if r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: -1}) == nil {
			t.Error("a source without an answer is taken")
		}
	})
}

// The word may come after the takeover has found what needs it.
func TestConsentThatComesLater(t *testing.T) {
	r := restored(t, consented)
	if r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: 10}) == nil {
		t.Fatal("taken without consent")
	}
	r.forget()
	r.m.Consented(r.now)
	r.take()
	r.phase(ReadingState)
	r.last(ReadState{})

	r = newRig(t)
	r.leads(80)
	r.forget()
	r.m.Consented(r.now)
	r.take()
	r.phase(Leading)
	r.none(ReadState{}, "nothing was in the way")
}

// What no replica shows nobody has compared with a restored source, so with the operator's word it
// goes too, and is read again.
func TestR7WhatNobodyShowsOfARestoredSourceGoes(t *testing.T) {
	for name, first := range map[string]ProbeAnswer{
		"it ends below":                    {Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 70}, SourceEnd: 70, Another: true},
		"another log under the same epoch": {SourceEnd: 200, Another: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(nil)
			r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}}}),
				Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
			for id := int32(1); id <= 3; id++ {
				r.fetch(id, 80, 4)
			}
			r.marks(map[int32]int64{1: 40, 2: 30})
			if err := r.probed(first); err != nil {
				t.Fatal(err)
			}
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 40 {
				t.Errorf("probes %+v, want what is shown, 40", p)
			}
		})
	}
	// An election at the source tells by its epochs what is there.
	r := restored(t, Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
	r.m.knownHW = 40
	if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 70}, SourceEnd: 70}); err != nil {
		t.Fatal(err)
	}
	if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 70 {
		t.Errorf("probes %+v, want 70", p)
	}
}

// The word is heard whenever it comes before anybody was answered.
func TestConsentWhileFollowersAreWaitedFor(t *testing.T) {
	r := newRig(t)
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	again := func(phase Phase) {
		t.Helper()
		r.phase(phase)
		r.forget()
		r.m.Consented(r.now)
		r.take()
		r.phase(ReadingState)
		r.last(ReadState{})
		r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), consented)
	}
	again(Collecting)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	again(AskingHW)
}

// Also without a real member in the ISR the source is compared with the log that counts.
func TestR7ReferenceIsCompared(t *testing.T) {
	r := restored(t, consented)
	if got := r.m.Reference(); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("members: %v", got)
	}
	r = alone(t)
	r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103} })
	r.state(oneChain(), consented)
	r.fetch(1, 60, 4)
	r.fetch(2, 70, 4)
	r.fetch(3, 80, 4)
	if got := r.m.Reference(); !slices.Equal(got, []int32{3}) {
		t.Errorf("without a member: %v", got)
	}
}

// What replicas show bounds what goes: while none of those that count has told, nothing goes, and they
// are asked again.
func TestR7NobodyTellsWhatIsShown(t *testing.T) {
	word := Consent{Truncate: true, AllowLoss: true, AllowUnknown: true}
	for name, first := range map[string]ProbeAnswer{
		"it ends below":                    {OutOfRange: true, SourceEnd: 10},
		"it lost without an election":      {Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 60}, SourceEnd: 60, Another: true},
		"another log under the same epoch": {SourceEnd: 200, Another: true},
	} {
		for who, known := range map[string]map[int32]int64{"nobody": nil, "one out of sync": {3: 10}} {
			t.Run(name+", "+who, func(t *testing.T) {
				r := newRig(t)
				r.metadata(isr(v1, v2, 1, 2))
				r.state(oneChain(), word)
				r.fetch(3, 80, 4)
				r.fetch(1, 80, 4)
				r.fetch(2, 80, 4)
				r.marks(known)
				r.phase(Probing)
				r.forget()
				if err := r.probed(first); err != nil {
					t.Fatal(err)
				}
				r.none(ProbeSource{}, "it is not known what is shown")
				r.phase(Collecting)
				r.fetch(1, 80, 4)
				r.phase(AskingHW)
				r.last(AskHighWatermarks{})
				r.marks(map[int32]int64{2: 80})
				if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 80 {
					t.Errorf("probes %+v, want what the members agree on, 80", p)
				}
				if err := r.probed(first); err != nil {
					t.Fatal(err)
				}
				r.phase(Probing)
			})
		}
	}
	t.Run("nothing is left to go", func(t *testing.T) {
		r := newRig(t)
		r.metadata(nil)
		r.state(lineage.NewRecord(), word)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 0, lineage.Undefined)
		}
		r.marks(nil)
		if r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: -1}) == nil {
			t.Error("asked for ever")
		}
	})
}

// What leaves the mirror is announced also where no replica has told what was visible of it.
func TestR7LossIsToldWithoutHighWatermark(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.marks(nil)
	if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 60}}); err != nil {
		t.Fatal(err)
	}
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	r.phase(Leading)
	if a := r.last(Truncated{}).(Truncated); a.From != 80 || a.To != 60 {
		t.Errorf("announced %+v", a)
	}
	r.hw(0)
}
