package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// A takeover without consent, as each is while a mirror topic is being stopped, truncates and
// serves nothing. With no real replica in the ISR it still lets in who has all that is
// visible, or the stop would never find somebody to hand back to.
func TestRefusedLetsTheLastRealReplicaIn(t *testing.T) {
	for _, c := range []struct {
		name    string
		view    func(v *View)
		fetches []int32
		in      int32 // 0: nobody
	}{
		{"one of the ELR", func(v *View) { v.ELR = []int32{2, 3} }, []int32{1, 2}, 2},
		{"not one outside of the ELR", func(v *View) { v.ELR = []int32{2, 3} }, []int32{1}, 0},
		{"the last in sync, when all were heard", func(v *View) { v.LastRealISR = []int32{3} }, []int32{1, 2, 3}, 3},
		{"not before", func(v *View) { v.LastRealISR = []int32{3} }, []int32{1, 3}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(func(v *View) { v.ISR = []int32{v1, v2}; c.view(v) })
			r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), Consent{})
			r.m.Quiesce(r.now)
			for _, id := range c.fetches {
				if d := r.fetch(id, int64(100+id), 4); d.Code != CodeUnknownLeaderEpoch {
					t.Errorf("%d is answered %+v", id, d)
				}
			}
			want := []int32(nil)
			if c.in > 0 {
				want = []int32{v1, v2, c.in}
			}
			if got := r.proposed(); !slices.Equal(got, want) {
				t.Fatalf("proposed %v, want %v", got, want)
			}
			if c.in == 0 {
				return
			}
			r.phase(Refused)
			r.altered(CodeNone, false)
			r.metadata(isr(v1, v2, c.in))
			if q := r.last(Quiesced{}).(Quiesced); q.Complete || !slices.Equal(q.Order, []int32{c.in}) {
				t.Errorf("%+v", q)
			}
			r.none(Truncated{}, "nothing may go")
			r.none(ProbeSource{}, "nothing is mirrored")
		})
	}
}

// The members that were there when a takeover was refused may all go later.
func TestRefusedLosesItsLastRealReplica(t *testing.T) {
	r := newRig(t)
	r.metadata(isr(v1, v2, 1))
	r.state(lineage.NewRecord(), Consent{})
	r.phase(Refused)
	r.metadata(func(v *View) { v.ISR, v.ELR = []int32{v1, v2}, []int32{1} })
	r.fetch(1, 70, lineage.Undefined)
	if got := r.proposed(); !slices.Equal(got, []int32{v1, v2, 1}) {
		t.Errorf("proposed %v", got)
	}
}

// Nobody who has reported can be let in: a new takeover asks everybody.
func TestRefusedRetakes(t *testing.T) {
	r := newRig(t)
	r.metadata(func(v *View) { v.ISR, v.ELR = []int32{v1, v2}, []int32{2, 3} })
	r.state(chains(map[int32]lineage.Chain{4: {{Epoch: 4, SourceEpoch: 1, Start: 0}}}), Consent{})
	r.fetch(2, 100, 4)
	r.phase(Refused)
	r.metadata(func(v *View) {
		v.ELR = []int32{3}
		b := v.Brokers[2]
		b.Fenced = true
		v.Brokers[2] = b
	})
	r.fetch(3, 90, 4)
	r.phase(Resigned)
}

// A member that S was computed from comes back without its tail. S may lie far below what is
// visible by then: the source has lost that, or the history is not on record. What is visible is
// not given up for it, and nobody is handed back to who lacks it.
func TestR16LostTailDoesNotJoin(t *testing.T) {
	for _, c := range []struct {
		name    string
		rec     lineage.Record
		consent Consent
		answer  *ProbeAnswer // nil: the source does not answer
		phase   Phase
	}{
		{
			"refused, the source has lost it", oneChain(),
			Consent{Truncate: true},
			&ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 500}}, Refused,
		},
		{"refused, with an unknown history", lineage.NewRecord(), Consent{Truncate: true}, nil, Refused},
		{"refused, behind what clients wrote", chains(map[int32]lineage.Chain{
			4: {{Epoch: 3, SourceEpoch: 1, Start: 0}, {Epoch: 4, SourceEpoch: lineage.NoSource, Start: 500}},
		}), Consent{Truncate: true}, nil, Refused},
		{
			"the source dies in between", oneChain(), consented,
			&ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 500}}, Probing,
		},
	} {
		lostTail := func(t *testing.T, end int64) {
			r := newRig(t)
			r.metadata(func(v *View) { v.Replicas, v.ISR = []int32{v1, v2, 1, 2}, []int32{v1, v2, 1, 2} })
			r.state(c.rec, c.consent)
			r.fetch(1, 1000, 4)
			r.fetch(2, 1000, 4)
			r.marks(map[int32]int64{1: 1000, 2: 1000})
			if c.answer != nil {
				if err := r.probed(*c.answer); err != nil {
					t.Fatal(err)
				}
			}
			if c.phase == Refused {
				if err := r.probed(ProbeAnswer{SourceEnd: 5000}); err != nil {
					t.Fatal(err)
				}
			}
			r.phase(c.phase)
			r.metadata(func(v *View) {
				v.ISR, v.ELR, v.LastRealISR = []int32{v1, v2}, []int32{1}, []int32{1}
				v.Brokers[1], v.Brokers[2] = BrokerView{Epoch: 101, Fenced: true}, BrokerView{Epoch: 202}
			})
			r.forget()
			r.fetch(2, 700, 4)
			if got := r.proposed(); got != nil {
				t.Fatalf("proposed %v: it lacks [700, 1000)", got)
			}
			r.m.Quiesce(r.now)
			r.pass(time.Minute)
			r.none(Quiesced{}, "nobody has all that is visible")
			r.metadata(func(v *View) { v.Brokers[1] = BrokerView{Epoch: 201} })
			r.fetch(1, end, 4)
			if end < 1000 {
				r.phase(Resigned) // everybody is asked again
				return
			}
			if got := r.proposed(); !slices.Equal(got, []int32{v1, v2, 1}) {
				t.Fatalf("proposed %v", got)
			}
		}
		t.Run(c.name, func(t *testing.T) { lostTail(t, 1000) })
		t.Run(c.name+", and the last in sync lost some too", func(t *testing.T) { lostTail(t, 800) })
	}
}
