package lineage

import (
	"slices"
	"testing"
)

func record(chains map[int32]Chain) Record {
	r := NewRecord()
	r.Chains = chains
	return r
}

func TestAgree(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chains map[int32]Chain
		logs   []Log
		s      int64
		chain  Chain
	}{
		{
			"R5 the chain of the newest last record, cut at S",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{1, 0, 0}, {2, 0, 50}}},
			[]Log{{80, 2}, {60, 2}},
			60,
			Chain{{1, 0, 0}, {2, 0, 50}},
		},
		{
			"C4 not the minimum of the ends",
			map[int32]Chain{5: {{5, 0, 0}}, 6: {{5, 0, 0}, {6, 0, 120}}},
			[]Log{{150, 5}, {130, 6}},
			120,
			Chain{{5, 0, 0}},
		},
		{
			"C3 the chain of an epoch that was replaced is still there",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 0, 0}}, 3: {{1, 0, 0}}},
			[]Log{{2, 3}},
			2,
			Chain{{1, 0, 0}},
		},
		{
			"C3 logs under different chains",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 0, 0}}, 3: {{1, 0, 0}}},
			[]Log{{2, 3}, {1, 2}},
			0,
			nil,
		},
		{
			"C8e an empty leader epoch does not make a log newer",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{1, 0, 0}, {2, 0, 5}}, 3: {{1, 0, 0}}},
			[]Log{{5, 3}, {9, 2}},
			5,
			Chain{{1, 0, 0}},
		},
		{
			"R5 an unknown empty epoch is answered by the floor",
			map[int32]Chain{1: {{1, 0, 0}}, 4: {{1, 0, 0}, {4, 0, 50}}},
			[]Log{{60, 3}, {80, 4}},
			50,
			Chain{{1, 0, 0}},
		},
		{
			"C12 S never passes what no virtual broker led",
			map[int32]Chain{3: {{1, 0, 0}, {2, NoSource, 40}, {3, 0, 60}}},
			[]Log{{80, 3}},
			40,
			Chain{{1, 0, 0}},
		},
		{
			"R14 a log that began behind a hole and one that did not",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 3, 200}}},
			[]Log{{260, 2}, {100, 1}},
			100,
			nil,
		},
		{
			"an empty log",
			map[int32]Chain{1: {{1, 0, 0}}},
			[]Log{{0, Undefined}, {10, 1}},
			0,
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, chain, ok := record(tt.chains).Agree(tt.logs)
			if !ok || s != tt.s || !slices.Equal(chain, tt.chain) {
				t.Errorf("got %d, %v, %v, want %d, %v", s, chain, ok, tt.s, tt.chain)
			}
			slices.Reverse(tt.logs)
			if back, _, _ := record(tt.chains).Agree(tt.logs); back != s {
				t.Errorf("the order of the logs matters: %d, then %d", s, back)
			}
		})
	}
	if _, _, ok := NewRecord().Agree([]Log{{10, 3}}); ok {
		t.Error("a log of an epoch that nobody knows counts as known")
	}
}

func TestRecord(t *testing.T) {
	a := Chain{{1, 0, 0}}
	r := NewRecord().With(1, a).With(2, Chain{{1, 0, 0}, {2, 0, 5}})
	if e, c := r.Newest(); e != 2 || len(c) != 2 {
		t.Errorf("Newest = %d, %v", e, c)
	}
	p := r.Prune(2)
	if len(p.Chains) != 1 || len(r.Chains) != 2 {
		t.Errorf("Prune: %v, receiver %v", p.Chains, r.Chains)
	}
	for e := range int32(MaxChains + 5) {
		r = r.With(e, a)
	}
	if _, old := r.Chains[4]; old || len(r.Chains) != MaxChains {
		t.Errorf("%d chains, the oldest still there: %v", len(r.Chains), old)
	}
	// With takes a copy.
	a[0].Start = 99
	if r.Chains[MaxChains][0].Start != 0 {
		t.Error("With kept the caller's slice")
	}
}

func TestMergeKeepsTheLaterChain(t *testing.T) {
	first := Chain{{1, 0, 0}, {2, 0, 40}, {3, 0, 60}}
	grown := Chain{{1, 0, 0}, {2, 0, 40}, {3, 0, 60}, {3, 1, 70}}
	trimmed := Chain{{2, 0, 50}, {3, 0, 60}}
	both := Chain{{3, 0, 65}, {3, 1, 70}}
	for _, tt := range []struct {
		name        string
		older, late Chain
	}{
		{"grown", first, grown},
		{"trimmed", first, trimmed},
		{"shorter, for it was trimmed, but later", first, both},
		{"was empty", nil, first},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range []Record{
				record(map[int32]Chain{3: tt.older}).Merge(record(map[int32]Chain{3: tt.late})),
				record(map[int32]Chain{3: tt.late}).Merge(record(map[int32]Chain{3: tt.older})),
			} {
				if !slices.Equal(m.Chains[3], tt.late) {
					t.Errorf("got %v, want %v", m.Chains[3], tt.late)
				}
			}
		})
	}
}

func TestSeed(t *testing.T) {
	state := record(map[int32]Chain{
		4: {{1, 0, 0}, {1, 2, 10}, {4, 2, 30}},
		6: {{4, 2, 35}, {6, 3, 50}},
	})
	for _, tt := range []struct {
		name  string
		cache Chain
		end   int64
		want  Chain
	}{
		{
			"R11 several source epochs come back, the leader's own empty epoch is local",
			Chain{{1, -1, 0}, {4, -1, 30}, {7, -1, 40}},
			40,
			Chain{{1, 0, 0}, {1, 2, 10}, {4, 2, 30}, {7, NoSource, 40}},
		},
		{
			"a cache that begins behind a gap",
			Chain{{4, -1, 33}},
			40,
			Chain{{1, 0, 0}, {1, 2, 10}, {4, 2, 30}},
		},
		{
			"C11 an empty epoch before a gap is not local data",
			Chain{{1, -1, 0}, {3, -1, 30}, {4, -1, 33}, {7, -1, 40}},
			40,
			Chain{{1, 0, 0}, {1, 2, 10}, {4, 2, 30}, {7, NoSource, 40}},
		},
		{
			"a chain that is trimmed more than the log",
			Chain{{6, -1, 45}},
			60,
			Chain{{4, 2, 35}, {6, 3, 50}},
		},
		{
			"what clients wrote is local",
			Chain{{1, -1, 0}, {2, -1, 5}},
			9,
			Chain{{1, 0, 0}, {2, NoSource, 5}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := state.Seed(tt.cache, tt.end); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
