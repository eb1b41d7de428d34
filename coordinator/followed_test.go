package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Before a virtual broker is elected behind a real leader, that leader's history is on
// record under its present epoch. A reassignment moves the epoch on with the virtual broker
// in the ISR, which has followed the one before.
func TestFollowed(t *testing.T) {
	rec := lineage.NewRecord().With(3, lineage.Chain{{Epoch: 2, SourceEpoch: 0, Start: 0}})
	for _, c := range []struct {
		name   string
		leader int32
		epoch  int32
		want   bool
	}{
		{"a real leader that was followed", 1, 3, true},
		{"the same one, under an epoch that was not", 1, 4, false},
		{"a virtual leader", 10002, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &metadata.Partition{Leader: c.leader, LeaderEpoch: c.epoch, Replicas: []int32{10001, 10002, 1}}
			if got := followed(ids.Virtual(10000), p, rec); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
