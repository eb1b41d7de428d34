package placement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// racked makes live brokers 1, 2, … in these racks.
func racked(racks ...string) []Broker {
	var out []Broker
	for i, r := range racks {
		out = append(out, Broker{ID: int32(i + 1), Rack: r})
	}
	return out
}

func TestBrokers(t *testing.T) {
	a, b := ids.UUID{1}, ids.UUID{2}
	got := Brokers([]metadata.Broker{
		{ID: 1, Rack: "x", LogDirs: []ids.UUID{a, b}, CordonedDirs: []ids.UUID{b}},
		{ID: 2, LogDirs: []ids.UUID{a, b}, CordonedDirs: []ids.UUID{a, b}},
		{ID: 3, Fenced: true},
		{ID: 4, ShuttingDown: true},
		{ID: 10001},
	}, 10000)
	want := []Broker{{ID: 1, Rack: "x"}, {ID: 3, Down: true}, {ID: 4, Down: true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		brokers              []Broker
		partitions, replicas int
		want                 [][]int32
	}{
		"in turn":                        {racked("", "", ""), 4, 2, [][]int32{{1, 2}, {2, 3}, {3, 1}, {1, 3}}},
		"racks before neighbours":        {racked("a", "a", "b", "b"), 2, 2, [][]int32{{1, 3}, {3, 2}}},
		"all racks, then again":          {racked("a", "a", "b", "b"), 1, 3, [][]int32{{1, 3, 2}}},
		"a small rack is not forgotten":  {racked("a", "a", "a", "b"), 4, 2, [][]int32{{1, 4}, {4, 2}, {2, 4}, {3, 4}}},
		"as many as there are":           {racked("", ""), 1, 2, [][]int32{{1, 2}}},
		"more than there are":            {racked("", ""), 1, 3, nil},
		"one that is down, if need be":   {append(racked("a", "b"), Broker{ID: 3, Rack: "c", Down: true}), 1, 3, [][]int32{{1, 2, 3}}},
		"not one that is down otherwise": {append(racked("a", "a"), Broker{ID: 3, Rack: "c", Down: true}), 1, 2, [][]int32{{1, 2}}},
		"nobody is alive":                {[]Broker{{ID: 3, Down: true}}, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Spread(c.brokers, c.partitions, c.replicas, 0); !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestSpreadIsEven: leaders are dealt evenly; a partition has no broker twice, and no rack
// twice while another has none.
func TestSpreadIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "brokers")
		var brokers []Broker
		racks := map[string]bool{}
		for i := range n {
			b := Broker{ID: int32(i + 1), Rack: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "rack")}
			racks[b.Rack] = true
			brokers = append(brokers, b)
		}
		rf, parts := rapid.IntRange(1, n).Draw(t, "replicas"), rapid.IntRange(1, 30).Draw(t, "partitions")
		leads := map[int32]int{}
		for _, replicas := range Spread(brokers, parts, rf, rapid.IntRange(0, n-1).Draw(t, "start")) {
			seen, in := map[int32]bool{}, map[string]bool{}
			for _, b := range replicas {
				seen[b], in[brokers[b-1].Rack] = true, true
			}
			if len(replicas) != rf || len(seen) != rf || len(in) != min(rf, len(racks)) {
				t.Fatalf("replicas %v of %v", replicas, brokers)
			}
			leads[replicas[0]]++
		}
		for _, b := range brokers {
			if leads[b.ID] < parts/n || leads[b.ID] > parts/n+1 {
				t.Fatalf("leaders %v of %d partitions", leads, parts)
			}
		}
	})
}

func TestAdd(t *testing.T) {
	down := append(racked("a", "b"), Broker{ID: 3, Rack: "c", Down: true})
	for name, c := range map[string]struct {
		brokers         []Broker
		have, preferred []int32
		wanted          int
		want            []int32
	}{
		"another rack first":          {racked("a", "a", "b"), []int32{1}, nil, 2, []int32{1, 3}},
		"then a second in one":        {racked("a", "a", "b"), []int32{1}, nil, 3, []int32{1, 3, 2}},
		"where it was":                {racked("a", "a", "b"), []int32{1}, []int32{2}, 2, []int32{1, 2}},
		"where it was, and a further": {racked("a", "a", "b", "b"), []int32{1}, []int32{2}, 3, []int32{1, 2, 3}},
		"not one that is down":        {down, []int32{1}, []int32{3}, 3, []int32{1, 2}},
		"not one that is cordoned":    {racked("a", "b"), []int32{1}, []int32{7}, 2, []int32{1, 2}},
		"from nothing":                {racked("a", "a", "b"), nil, nil, 2, []int32{1, 3}},
		"no more than wanted":         {racked("a", "b"), []int32{1}, []int32{2}, 1, []int32{1}},
		"one that nobody knows":       {racked("a", "b"), []int32{9}, nil, 2, []int32{9, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Add(c.brokers, c.have, c.preferred, c.wanted, 0); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
