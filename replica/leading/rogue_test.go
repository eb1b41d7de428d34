package leading

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// TestForeignRecordsAreTold: real brokers led while no sidecar was alive, and took what clients
// wrote. It goes, and how much that is is said (R5, C12).
func TestForeignRecordsAreTold(t *testing.T) {
	running := Consent{Truncate: true, AllowLoss: true, Runs: true}
	mirrored := lineage.Entry{Epoch: 4, SourceEpoch: 1, Start: 0}
	// 1 led epoch 5 and wrote from 100 on, then 2 epoch 6 from 103 on, then 3 epoch 7 and wrote
	// nothing. A sidecar has followed 2 and 3.
	several := chains(map[int32]lineage.Chain{
		4: {mirrored},
		6: {mirrored, {Epoch: 5, SourceEpoch: lineage.NoSource, Start: 100}, {Epoch: 6, SourceEpoch: lineage.NoSource, Start: 103}},
		7: {mirrored, {Epoch: 5, SourceEpoch: lineage.NoSource, Start: 100}, {Epoch: 6, SourceEpoch: lineage.NoSource, Start: 103}},
	})
	for _, tt := range []struct {
		name  string
		rec   lineage.Record
		end   int64
		last  int32
		known int64 // high watermark
		want  Foreign
	}{
		{"none", chains(map[int32]lineage.Chain{4: {mirrored}}), 100, 4, 100, Foreign{}},
		{"none by the last leader", several, 100, 4, 100, Foreign{}},
		{"of one leader", several, 103, 5, 100, Foreign{From: 100, To: 103}},
		{"of several", several, 110, 6, 100, Foreign{From: 100, To: 110}},
		{"of several, behind one that wrote nothing", several, 110, 7, 100, Foreign{From: 100, To: 110}},
		{"that consumers may have read", several, 110, 6, 104, Foreign{From: 100, To: 110, Visible: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.view.LeaderEpoch = 8
			r.view.ISR = []int32{v1, 1}
			r.metadata(nil)
			r.state(tt.rec, running)
			r.fetch(1, tt.end, tt.last)
			r.marks(map[int32]int64{1: tt.known})
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != 100 {
				t.Errorf("S = %d, want 100", p.Offset)
			}
			if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
				t.Fatal(err)
			}
			r.phase(Leading)
			if r.none(Truncated{}, "the source has all that was mirrored"); t.Failed() {
				return
			}
			a, told := r.find(Foreign{})
			if !told {
				a = Foreign{Epoch: 8}
			}
			if tt.want.Epoch = 8; a != tt.want {
				t.Errorf("%+v, want %+v", a, tt.want)
			}
			// Exactly they go.
			if d := r.fetch(1, tt.end, tt.last); tt.end > 100 && (!d.Diverging || d.DivergingTo != lineage.Entry{Epoch: 4, Start: 100}) {
				t.Errorf("answered %+v", d)
			}
			if d := r.fetch(1, 100, 4); d.Code != CodeNone || d.Diverging {
				t.Errorf("answered %+v", d)
			}
			r.hw(100)
		})
	}
	t.Run("and the source lost some too", func(t *testing.T) {
		r := newRig(t)
		r.view.LeaderEpoch, r.view.ISR = 8, []int32{v1, 1}
		r.metadata(nil)
		r.state(several, running)
		r.fetch(1, 110, 6)
		r.marks(map[int32]int64{1: 104})
		if err := r.probed(ProbeAnswer{Diverging: true, DivergesAt: lineage.Entry{SourceEpoch: 1, Start: 90}}); err != nil {
			t.Fatal(err)
		}
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		if a := r.last(Truncated{}).(Truncated); a.From != 100 || a.To != 90 {
			t.Errorf("%+v", a)
		}
		if a := r.last(Foreign{}).(Foreign); a.From != 100 || a.To != 110 || a.Visible != 4 {
			t.Errorf("%+v", a)
		}
	})
	// A failback, or a start over what is here: clients wrote while there was no mirror.
	t.Run("a start was allowed to drop them", func(t *testing.T) {
		r := newRig(t)
		r.view.LeaderEpoch, r.view.ISR = 8, []int32{v1, 1}
		r.metadata(nil)
		r.state(several, Consent{Truncate: true, AllowLoss: true, AllowUnknown: true})
		r.fetch(1, 110, 6)
		r.marks(map[int32]int64{1: 108})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		r.none(Foreign{}, "nobody wrote around a mirror")
		if a := r.last(Truncated{}).(Truncated); a.From != 108 || a.To != 100 {
			t.Errorf("%+v", a)
		}
	})
}
