package replica

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// cacheAsk answers as LeaderEpochFileCache.endOffsetFor does for a cache and a log end.
func cacheAsk(cache []cached, logEnd int64) func(int32) (int32, int64, error) {
	return func(epoch int32) (int32, int64, error) {
		if epoch < 0 || len(cache) == 0 {
			return -1, -1, nil
		}
		if cache[len(cache)-1].epoch == epoch {
			return epoch, logEnd, nil
		}
		for i, k := range cache {
			if k.epoch > epoch {
				if i == 0 {
					return epoch, k.start, nil
				}
				return cache[i-1].epoch, k.start, nil
			}
		}
		return -1, -1, nil
	}
}

func TestWalkFindsTheCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "epochs")
		start := rapid.Int64Range(0, 5).Draw(t, "logStart")
		epoch, at := int32(-1), start
		var want []cached
		for range n {
			epoch += rapid.Int32Range(1, 4).Draw(t, "step")
			want = append(want, cached{epoch, at})
			at += rapid.Int64Range(1, 10).Draw(t, "records")
		}
		logEnd := at
		if rapid.Bool().Draw(t, "emptyLeaderEpoch") {
			// The leader was elected and has appended nothing.
			epoch += rapid.Int32Range(1, 3).Draw(t, "elected")
			want = append(want, cached{epoch, logEnd})
		}
		w := walk{
			leaderEpoch: epoch, logStart: start, first: &lineage.Entry{Epoch: want[0].epoch, Start: want[0].start},
			ask: cacheAsk(want, logEnd),
		}
		got, end, err := w.cache()
		if err != nil || end != logEnd {
			t.Fatalf("end %d, %v", end, err)
		}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}

func TestChainOfARealLeader(t *testing.T) {
	record := lineage.NewRecord().
		With(3, lineage.Chain{{Epoch: 3, SourceEpoch: 7, Start: 0}, {Epoch: 3, SourceEpoch: 9, Start: 40}})
	for name, c := range map[string]struct {
		cache   []cached
		logEnd  int64
		first   *lineage.Entry
		record  lineage.Record
		want    lineage.Chain
		start   int64
		behind  bool // clients have written
		leading int32
	}{
		"a mirror's log behind a leader that appended nothing": {
			cache: []cached{{3, 0}, {4, 100}}, logEnd: 100, first: &lineage.Entry{Epoch: 3, Start: 0}, record: record, leading: 4,
			want: lineage.Chain{
				{Epoch: 3, SourceEpoch: 7, Start: 0},
				{Epoch: 3, SourceEpoch: 9, Start: 40},
				{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 100}, // what clients write from now on
			}, start: 100,
		},
		"the first batch lies behind a gap": {
			cache: []cached{{3, 5}, {4, 100}}, logEnd: 100, first: &lineage.Entry{Epoch: 3, Start: 5}, record: record, leading: 4,
			want: lineage.Chain{
				{Epoch: 3, SourceEpoch: 7, Start: 0},
				{Epoch: 3, SourceEpoch: 9, Start: 40},
				{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 100}, // what clients write from now on
			}, start: 100,
		},
		"the gap, with nothing visible": {
			cache: []cached{{3, 5}, {4, 100}}, logEnd: 100, record: record, leading: 4,
			want: lineage.Chain{
				{Epoch: 3, SourceEpoch: 7, Start: 0},
				{Epoch: 3, SourceEpoch: 9, Start: 40},
				{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 100}, // what clients write from now on
			}, start: 100,
		},
		"epoch 1 behind a gap, with nothing visible": {
			cache: []cached{{1, 5}, {2, 100}}, logEnd: 100, leading: 2, start: 100,
			record: lineage.NewRecord().With(1, lineage.Chain{{Epoch: 1, SourceEpoch: 0, Start: 0}}),
			want:   lineage.Chain{{Epoch: 1, SourceEpoch: 0, Start: 0}, {Epoch: 2, SourceEpoch: lineage.NoSource, Start: 100}},
		},
		"foreign records of the leader": {
			cache: []cached{{3, 0}, {4, 100}}, logEnd: 110, first: &lineage.Entry{Epoch: 3, Start: 0}, record: record, leading: 4,
			want: lineage.Chain{
				{Epoch: 3, SourceEpoch: 7, Start: 0},
				{Epoch: 3, SourceEpoch: 9, Start: 40},
				{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 100},
			}, start: 100, behind: true,
		},
		"foreign records of the leader before, the leader appended nothing": {
			cache: []cached{{3, 0}, {4, 100}, {5, 110}}, logEnd: 110, first: &lineage.Entry{Epoch: 3, Start: 0}, record: record, leading: 5,
			want: lineage.Chain{
				{Epoch: 3, SourceEpoch: 7, Start: 0},
				{Epoch: 3, SourceEpoch: 9, Start: 40},
				{Epoch: 4, SourceEpoch: lineage.NoSource, Start: 100},
				{Epoch: 5, SourceEpoch: lineage.NoSource, Start: 110},
			}, start: 110, behind: true,
		},
		"never mirrored": {
			cache: []cached{{0, 0}}, logEnd: 10, first: &lineage.Entry{Epoch: 0, Start: 0}, record: lineage.NewRecord(), leading: 0,
			want: lineage.Chain{{Epoch: 0, SourceEpoch: lineage.NoSource, Start: 0}}, start: 0,
		},
		"empty": {
			cache: []cached{{0, 0}}, logEnd: 0, record: lineage.NewRecord(), leading: 0, start: 0,
			want: lineage.Chain{{Epoch: 0, SourceEpoch: lineage.NoSource, Start: 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := walk{leaderEpoch: c.leading, first: c.first, record: c.record, ask: cacheAsk(c.cache, c.logEnd)}
			got, start, behind, err := w.chain()
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want.String() || start != c.start {
				t.Fatalf("got %v from %d, want %v from %d", got, start, c.want, c.start)
			}
			if behind != c.behind {
				t.Errorf("R21 clients have written behind what was mirrored: %t", behind)
			}
		})
	}
}
