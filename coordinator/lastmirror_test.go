package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// TestLastMirrorOffsetStays: what a stop has recorded is not lost to a replica that still
// persists a chain and knows nothing of the stop; a start forgets it.
func TestLastMirrorOffsetStays(t *testing.T) {
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 2}}
	for _, tc := range []struct {
		state State
		want  int64
	}{{Stopping, 9}, {LogTruncation, -1}, {Mirroring, -1}} {
		v := NewView()
		v.apply([]record{
			{kind: kindState, partition: key, value: PartitionState{State: tc.state, LeaderEpoch: 4}},
			{kind: kindLineage, partition: key, value: lineage.Record{LastMirrorEpoch: 3, LastMirrorOffset: 9, Chains: map[int32]lineage.Chain{1: chain(1)}}},
		}, nil)
		late := rec(map[int32]lineage.Chain{4: chain(1, 4)})
		out, err := check(v, stateWrite{key: key, lineage: &late, leaderEpoch: 4})
		if err != nil || len(out) != 1 {
			t.Fatalf("%s: %v, %v", tc.state, out, err)
		}
		got, _ := out[0].value.(lineage.Record)
		if got.LastMirrorOffset != tc.want || len(got.Chains[4]) != 2 {
			t.Errorf("%s: %+v, want last mirror offset %d and the new chain", tc.state, got, tc.want)
		}
	}
}
