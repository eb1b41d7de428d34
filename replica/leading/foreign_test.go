package leading

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// TestForeignPartitionLetsARealReplicaIn: a partition that is in no mirror is led without a
// source or a history until a real broker is in sync. What that one has, stays.
func TestForeignPartitionLetsARealReplicaIn(t *testing.T) {
	for name, end := range map[string]int64{"new": 0, "with records": 50} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			last := int32(lineage.Undefined)
			if end > 0 {
				last = 3
			}
			r.metadata(func(v *View) { v.Replicas, v.ISR, v.MinISR = []int32{v1, 1}, []int32{v1}, 1 })
			r.m.Bar(r.now)
			r.state(lineage.NewRecord(), Consent{AsItIs: true})
			r.fetch(1, end, last)
			r.marks(map[int32]int64{1: 0})
			r.fetch(1, end, last)
			if got := r.proposed(); !slices.Equal(got, []int32{v1, 1}) {
				t.Fatalf("proposed %v", got)
			}
			r.altered(CodeNone, false)
			r.metadata(isr(v1, 1))
			if d := r.fetch(1, end, last); d.Diverging || d.Serve != ServeNothing {
				t.Errorf("answered %+v", d)
			}
			r.none(ProbeSource{}, "there is no source")
			r.none(StartReading{}, "there is no source")
			r.none(Persist{}, "there is no history")
			r.none(Truncated{}, "nothing goes")
			if end > 0 {
				r.phase(Probing) // what a real broker has is only its own to lead
			}
		})
	}
}
