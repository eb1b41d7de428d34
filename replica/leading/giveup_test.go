package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// alone: nobody real is in the ISR, 3 was the last; only 1 and 2 are alive.
func alone(t *testing.T, elr ...int32) *rig {
	t.Helper()
	r := newRig(t)
	r.metadata(func(v *View) {
		v.ISR, v.ELR, v.LastRealISR = []int32{v1, v2}, elr, []int32{3}
		v.Brokers[3] = BrokerView{Epoch: 103, Fenced: true}
	})
	return r
}

func oneChain() lineage.Record {
	return chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}})
}

func TestGiveUpWhileCollecting(t *testing.T) {
	for _, tt := range []struct {
		name string
		elr  []int32
	}{{"without ELR", nil}, {"with one that is dead", []int32{3}}} {
		t.Run(tt.name, func(t *testing.T) {
			r := alone(t, tt.elr...)
			r.state(oneChain(), consented)
			r.fetch(1, 60, 4)
			r.fetch(2, 70, 4)
			r.pass(10 * time.Second)
			r.phase(Collecting)
			if got := r.m.Unheard(); len(tt.elr) == 0 && !slices.Equal(got, []int32{3}) || len(tt.elr) > 0 && got != nil {
				t.Errorf("not heard of: %v", got)
			}
			r.m.GiveUp(r.now)
			r.take()
			r.phase(AskingHW)
			r.marks(map[int32]int64{1: 50, 2: 65})
			// The longer of the two.
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 70 {
				t.Errorf("S = %d, want 70", p.Offset)
			}
			if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
				t.Fatal(err)
			}
			r.hw(65)
			r.fetch(2, 70, 4)
			if got := r.proposed(); !slices.Contains(got, 2) || slices.Contains(got, 1) {
				t.Errorf("proposed %v, want 2 and not 1", got)
			}
		})
	}
	t.Run("every live replica is heard of first", func(t *testing.T) {
		r := alone(t)
		r.state(oneChain(), Consent{Truncate: true, AllowLoss: true, AllowUnknown: true, GiveUp: true})
		r.fetch(1, 60, 4)
		r.phase(Collecting)
		r.fetch(2, 70, 4)
		r.phase(AskingHW)
	})
	t.Run("one that is eligible is enough", func(t *testing.T) {
		r := alone(t, 1)
		r.state(oneChain(), Consent{Truncate: true, AllowLoss: true, AllowUnknown: true, GiveUp: true})
		r.fetch(1, 60, 4)
		r.marks(map[int32]int64{1: 60})
		if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 60 {
			t.Errorf("S = %d, want 60", p.Offset)
		}
	})
	t.Run("nobody is alive", func(t *testing.T) {
		r := alone(t)
		r.metadata(func(v *View) {
			v.Brokers[1], v.Brokers[2] = BrokerView{Epoch: 101, Fenced: true}, BrokerView{Epoch: 102, Fenced: true}
		})
		r.state(oneChain(), Consent{Truncate: true, AllowLoss: true, AllowUnknown: true, GiveUp: true})
		r.phase(Collecting)
	})
}

// A leader that has answered followers does not go back under its own epoch.
func TestGiveUpWhileLeading(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 100, 5)
	}
	r.hw(100)
	r.metadata(func(v *View) {
		v.ISR, v.LastRealISR = []int32{v1, v2}, []int32{3}
		for id := int32(1); id <= 3; id++ {
			v.Brokers[id] = BrokerView{Epoch: 100 + int64(id), Fenced: true}
		}
	})
	if from, to := r.m.Missing(); from != to {
		t.Errorf("nobody is back, and [%d, %d) is missing", from, to)
	}
	r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 201} })
	r.fetch(1, 70, 4)
	if from, to := r.m.Missing(); from != 70 || to != 100 {
		t.Errorf("[%d, %d) is missing, want [70, 100)", from, to)
	}
	r.forget()
	r.m.GiveUp(r.now)
	r.take()
	r.phase(Resigned)
	r.last(Resign{})
	// The next epoch, if it is this leader's, tells what that took.
	r.metadata(func(v *View) { v.LeaderEpoch = rigEpoch + 2 })
	if r.m.gaveUp != 100 {
		t.Errorf("given up to %d", r.m.gaveUp)
	}

	// With a real member nothing is given up.
	r = newRig(t)
	r.follows(100)
	r.m.GiveUp(r.now)
	r.take()
	r.phase(Leading)
	if from, to := r.m.Missing(); from != to {
		t.Errorf("[%d, %d) is missing with real members", from, to)
	}
}

// A stop truncates nothing, but finds somebody to hand back to: the one that has all data gets
// in sync although the takeover is refused (R16).
func TestR16StopWhileWaiting(t *testing.T) {
	r := alone(t)
	r.state(oneChain(), Consent{})
	r.m.Quiesce(r.now)
	r.take()
	r.fetch(1, 60, 4)
	r.fetch(2, 70, 4)
	r.pass(10 * time.Second)
	if got := r.proposed(); got != nil {
		t.Fatalf("%v joins before 3 is heard of", got)
	}
	r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 203} })
	d := r.fetch(3, 80, 4)
	if d.Code != CodeUnknownLeaderEpoch {
		t.Errorf("answered %+v", d)
	}
	r.phase(Refused)
	if got := r.proposed(); !slices.Contains(got, 3) || slices.Contains(got, 1) || slices.Contains(got, 2) {
		t.Fatalf("proposed %v, want 3 and no other real one", got)
	}
	r.metadata(isr(v1, v2, 3))
	q := r.last(Quiesced{}).(Quiesced)
	if q.Complete || !slices.Equal(q.Order, []int32{3}) || !slices.Equal(q.Outside, []int32{1, 2}) || q.End != 80 {
		t.Errorf("%+v", q)
	}
	r.forget()
	r.fetch(1, 60, 4)
	r.pass(time.Second)
	if got := r.proposed(); got != nil {
		t.Errorf("proposed %v with a real member there", got)
	}
}

// One that would have joined comes back without its log: everybody is asked again.
func TestR16RetakeOfARefusedTakeover(t *testing.T) {
	r := alone(t)
	r.state(oneChain(), Consent{})
	r.fetch(1, 60, 4)
	r.fetch(2, 70, 4)
	r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 203} })
	r.fetch(3, 80, 4)
	r.phase(Refused)
	r.altered(codeIneligibleReplica, false)
	r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 303, Fenced: true} })
	r.pass(10 * time.Second)
	r.phase(Refused)
	r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 303} })
	r.fetch(3, 0, lineage.Undefined)
	r.phase(Resigned)
}

// Whoever has heard the operator may have seen more of the metadata log than this leader has.
func TestGiveUpIsToldAgain(t *testing.T) {
	r := alone(t)
	r.state(oneChain(), consented)
	r.metadata(func(v *View) { v.ISR = []int32{v1, v2, 3} })
	if r.m.GiveUp(r.now) {
		t.Error("taken although a real member is in the ISR")
	}
	r.take()
	r.metadata(func(v *View) { v.ISR = []int32{v1, v2} })
	r.fetch(1, 60, 4)
	r.fetch(2, 70, 4)
	r.phase(Collecting)
	if !r.m.GiveUp(r.now) {
		t.Error("not taken")
	}
	r.take()
	r.phase(AskingHW)
}

// TestGivingUpIsTold: what leaves the mirror is announced, with how much it is where that is known.
func TestGivingUpIsTold(t *testing.T) {
	goOn := func(t *testing.T, r *rig, record lineage.Record, c Consent) Truncated {
		t.Helper()
		r.state(record, c)
		r.fetch(1, 60, 4)
		r.fetch(2, 70, 4)
		r.marks(map[int32]int64{1: 50, 2: 65})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		return r.last(Truncated{}).(Truncated)
	}
	given := consented
	given.GiveUp = true
	t.Run("somebody else had led", func(t *testing.T) {
		if a := goOn(t, alone(t), oneChain(), given); a.From != 70 || a.To != 70 {
			t.Errorf("announced %+v", a)
		}
	})
	t.Run("this leader had", func(t *testing.T) {
		r := alone(t)
		r.m.gaveUp = 90 // see TestGiveUpWhileLeading
		if a := goOn(t, r, oneChain(), given); a.From != 90 || a.To != 70 {
			t.Errorf("announced %+v", a)
		}
		if r.m.gaveUp != 0 {
			t.Error("it would be told again")
		}
	})
	t.Run("nobody was given up", func(t *testing.T) {
		r := alone(t)
		r.m.gaveUp = 90
		r.state(oneChain(), consented)
		if r.m.gaveUp != 0 {
			t.Error("what was given up once is remembered for the next time")
		}
	})
	t.Run("everybody is back", func(t *testing.T) {
		r := alone(t)
		r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103} })
		r.state(oneChain(), given)
		r.fetch(1, 60, 4)
		r.fetch(2, 70, 4)
		r.fetch(3, 90, 4)
		r.marks(map[int32]int64{1: 50, 2: 65, 3: 90})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		r.none(Truncated{}, "nothing is lost")
	})
}

// TestGivingUpWhoHadNoMoreIsNotTold: a dead replica that was not in sync had nothing that those lack who
// were, and what was found before it came back says nothing.
func TestGivingUpWhoHadNoMoreIsNotTold(t *testing.T) {
	given := consented
	given.GiveUp = true
	for name, view := range map[string]func(v *View){
		"the last in sync lives":   func(v *View) { v.LastRealISR = []int32{2} },
		"one of the ELR lives":     func(v *View) { v.ELR = []int32{2} },
		"one is in sync meanwhile": func(v *View) { v.ISR = []int32{v1, v2, 2} },
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t)
			if name != "the last in sync lives" {
				r.state(oneChain(), given)
				r.fetch(1, 50, 4)
				r.pass(time.Second) // 3, who was in sync, is given up: 2 is waited for
				r.phase(Collecting)
			}
			r.metadata(view)
			if name == "the last in sync lives" {
				r.state(oneChain(), given)
				r.fetch(1, 60, 4)
			}
			r.fetch(2, 70, 4)
			r.marks(map[int32]int64{2: 65})
			if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
				t.Fatal(err)
			}
			r.phase(Leading)
			r.none(Truncated{}, "nobody had more")
		})
	}
	t.Run("one of the ELR does not", func(t *testing.T) {
		r := alone(t, 3)
		r.metadata(func(v *View) { v.LastRealISR = []int32{2} })
		r.state(oneChain(), given)
		r.fetch(1, 60, 4)
		r.fetch(2, 70, 4)
		r.marks(map[int32]int64{2: 65})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.last(Truncated{})
	})
}
