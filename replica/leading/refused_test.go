package leading

import (
	"slices"
	"testing"

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
