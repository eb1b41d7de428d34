package leading

import (
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// A log that ends with the epoch of a real leader that nobody followed, and that shows
// nothing since its high watermark is low: what another member of the ISR shows is in it too
// (R5). Without that, what is visible would be read again from the source.
func TestAnotherMemberTellsTheHistory(t *testing.T) {
	for _, c := range []struct {
		name    string
		records map[int32]lineage.Entry
		s       int64
	}{
		{"nobody shows anything", nil, 5},
		{"another member does", map[int32]lineage.Entry{2: {Epoch: 4, Start: 9}}, 10},
		{"the highest record counts", map[int32]lineage.Entry{2: {Epoch: 4, Start: 9}, 3: {Epoch: 2, Start: 4}}, 10},
		{"not one that lies above the log", map[int32]lineage.Entry{2: {Epoch: 4, Start: 12}}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(nil)
			r.state(chains(map[int32]lineage.Chain{
				3: {{Epoch: 2, SourceEpoch: 0, Start: 0}, {Epoch: 3, SourceEpoch: 0, Start: 5}},
				4: {{Epoch: 2, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 5}},
			}), consented)
			r.fetch(1, 10, 6)
			r.fetch(2, 20, 4)
			r.fetch(3, 20, 4)
			if a := r.last(AskHighWatermarks{}).(AskHighWatermarks); !slices.Equal(a.Records, []int32{1, 2, 3}) {
				t.Errorf("asked %v for records", a.Records)
			}
			r.m.HighWatermarks(r.now, rigEpoch, r.m.asks, map[int32]int64{1: 0, 2: 10, 3: 5}, c.records)
			r.take()
			if p := r.last(ProbeSource{}).(ProbeSource); p.Offset != c.s {
				t.Errorf("S is %d, want %d", p.Offset, c.s)
			}
		})
	}
}
