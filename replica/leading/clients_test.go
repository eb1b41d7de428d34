package leading

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// TestClientsAreNotRewound: a client's position is measured by what the replicas agree on, not by what
// a takeover that is not done, or never will be, would leave of it.
func TestClientsAreNotRewound(t *testing.T) {
	ask := func(t *testing.T, r *rig, p Phase, epoch int32, end int64, known bool) {
		t.Helper()
		r.phase(p)
		if !known {
			epoch, end = lineage.Undefined, lineage.Undefined
		}
		if e, o, ready := r.m.ClientEndOffsetFor(4); e != epoch || o != end || ready != known {
			t.Errorf("%v: answered %d, %d, %t; want %d, %d, %t", p, e, o, ready, epoch, end, known)
		}
	}
	takeover := func(t *testing.T, rec lineage.Record, c Consent) *rig {
		t.Helper()
		r := newRig(t)
		r.metadata(nil)
		r.state(rec, c)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.marks(map[int32]int64{1: 80})
		return r
	}
	t.Run("with an unknown history", func(t *testing.T) {
		r := takeover(t, lineage.NewRecord(), Consent{Truncate: true, AllowLoss: true})
		ask(t, r, Probing, 0, 0, false)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		ask(t, r, Refused, 0, 0, false)
	})
	t.Run("the source diverges", func(t *testing.T) {
		r := takeover(t, oneChain(), Consent{Truncate: true})
		if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 60}}); err != nil {
			t.Fatal(err)
		}
		ask(t, r, Probing, 4, 80, true)
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		ask(t, r, Refused, 4, 80, true)
	})
	t.Run("a restored source is gone back with", func(t *testing.T) {
		r := takeover(t, oneChain(), Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
		if err := r.probed(ProbeAnswer{OutOfRange: true, SourceEnd: 60}); err != nil {
			t.Fatal(err)
		}
		ask(t, r, Probing, 4, 80, true)
	})
	t.Run("the members are not heard", func(t *testing.T) {
		r := newRig(t)
		r.metadata(nil)
		r.state(oneChain(), Consent{})
		ask(t, r, Refused, 0, 0, false)
	})
	t.Run("a record would tell the history", func(t *testing.T) {
		r := alone(t)
		r.metadata(func(v *View) { v.Brokers[3] = BrokerView{Epoch: 103} })
		r.state(chains(map[int32]lineage.Chain{
			2: {{Epoch: 2, SourceEpoch: 0, Start: 0}},
			3: {{Epoch: 2, SourceEpoch: 0, Start: 0}, {Epoch: 3, SourceEpoch: 1, Start: 50}},
		}), Consent{})
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		ask(t, r, Refused, 0, 0, false)
	})
}
