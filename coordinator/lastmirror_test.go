package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// TestLastMirrorOffsetOfAStaleView: the end that a leader reports with the lineage of a view
// that has not read yet what it persisted itself through another coordinator.
func TestLastMirrorOffsetOfAStaleView(t *testing.T) {
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 2}}
	known := rec(map[int32]lineage.Chain{3: chain(1), 4: chain(1, 4)})
	for name, stale := range map[string]lineage.Record{
		"an older chain": rec(map[int32]lineage.Chain{3: chain(1)}), "no chain": lineage.NewRecord(), "all of it": known,
	} {
		v := NewView()
		v.apply([]record{
			{kind: kindState, partition: key, value: PartitionState{State: Mirroring, LeaderEpoch: 4, StateEpoch: 6}},
			{kind: kindLineage, partition: key, value: known},
		}, nil)
		quiet := replica.Report{Kind: replica.Quiet, Detail: DetailQuiesced, LastMirrorEpoch: 7, LastMirrorOffset: 50}
		for _, w := range reportWrites(Mirroring, stale, Topic{Desired: Stopped}, key, 4, quiet) {
			out, err := check(v, w)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			v.apply(out, nil)
		}
		got, _ := v.Lineage(key.mirror, key.tp)
		if got.LastMirrorOffset != 50 || got.LastMirrorEpoch != 7 || len(got.Chains[4]) != 2 {
			t.Errorf("%s: on record is %+v", name, got)
		}
		if s, _ := v.State(key.mirror, key.tp); s.State != Stopping || s.Detail != DetailQuiesced {
			t.Errorf("%s: state is %+v", name, s)
		}
	}
}

// TestLastMirrorOffsetStays: what a stop has recorded is not lost to a replica that still
// persists a chain and knows nothing of the stop; a start forgets it.
func TestLastMirrorOffsetStays(t *testing.T) {
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 2}}
	for _, tc := range []struct {
		state State
		want  int64
	}{{Stopping, 9}, {Stopped, 9}, {LogTruncation, -1}, {Mirroring, -1}} {
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
