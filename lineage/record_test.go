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
			[]Log{{End: 80, LastEpoch: 2}, {End: 60, LastEpoch: 2}},
			60,
			Chain{{1, 0, 0}, {2, 0, 50}},
		},
		{
			"C4 not the minimum of the ends",
			map[int32]Chain{5: {{5, 0, 0}}, 6: {{5, 0, 0}, {6, 0, 120}}},
			[]Log{{End: 150, LastEpoch: 5}, {End: 130, LastEpoch: 6}},
			120,
			Chain{{5, 0, 0}},
		},
		{
			"C3 the chain of an epoch that was replaced is still there",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 0, 0}}, 3: {{1, 0, 0}}},
			[]Log{{End: 2, LastEpoch: 3}},
			2,
			Chain{{1, 0, 0}},
		},
		{
			"C3 logs under different chains",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 0, 0}}, 3: {{1, 0, 0}}},
			[]Log{{End: 2, LastEpoch: 3}, {End: 1, LastEpoch: 2}},
			0,
			nil,
		},
		{
			"C8e an empty leader epoch does not make a log newer",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{1, 0, 0}, {2, 0, 5}}, 3: {{1, 0, 0}}},
			[]Log{{End: 5, LastEpoch: 3}, {End: 9, LastEpoch: 2}},
			5,
			Chain{{1, 0, 0}},
		},
		{
			"R5 an unknown empty epoch is answered by the floor",
			map[int32]Chain{1: {{1, 0, 0}}, 4: {{1, 0, 0}, {4, 0, 50}}},
			[]Log{{End: 60, LastEpoch: 3}, {End: 80, LastEpoch: 4}},
			50,
			Chain{{1, 0, 0}},
		},
		{
			"C12 S never passes what no virtual broker led",
			map[int32]Chain{3: {{1, 0, 0}, {2, NoSource, 40}, {3, 0, 60}}},
			[]Log{{End: 80, LastEpoch: 3}},
			40,
			Chain{{1, 0, 0}},
		},
		{
			"R14 a log that began behind a hole and one that did not",
			map[int32]Chain{1: {{1, 0, 0}}, 2: {{2, 3, 200}}},
			[]Log{{End: 260, LastEpoch: 2}, {End: 100, LastEpoch: 1}},
			100,
			nil,
		},
		{
			"an empty log",
			map[int32]Chain{1: {{1, 0, 0}}},
			[]Log{{End: 0, LastEpoch: Undefined}, {End: 10, LastEpoch: 1}},
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
	if _, _, ok := NewRecord().Agree([]Log{{End: 10, LastEpoch: 3}}); ok {
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

// TestWritten: that clients have written behind a real leader is on record as long as its chain.
func TestWritten(t *testing.T) {
	c := Chain{{1, 0, 0}, {2, NoSource, 5}}
	plain := NewRecord().With(2, c)
	r := plain.WithWritten(2)
	if !r.Written[2] || plain.Written[2] || r.WithWritten(7).Written[7] {
		t.Errorf("WithWritten: %v, receiver %v", r.Written, plain.Written)
	}
	for name, got := range map[string]Record{
		"another chain": r.With(3, c), "its chain again": r.With(2, c), "merged": plain.Merge(r), "merged into": r.Merge(plain), "pruned below": r.Prune(2),
	} {
		if !got.Written[2] || len(got.Written) != 1 {
			t.Errorf("%s: %v", name, got.Written)
		}
	}
	if got := r.With(3, c).Prune(3); len(got.Written) > 0 {
		t.Errorf("pruned: %v", got.Written)
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

// A real leader that no sidecar followed leaves an epoch that is on nobody's record. Its log
// may be that of any earlier leader, not only of the last.
func TestChainOfALogUnderAnUnknownEpoch(t *testing.T) {
	fenced := Chain{{1, 0, 0}, {2, 1, 3}, {2, NoSource, 4}, {3, NoSource, 6}}
	took := Chain{{1, 0, 0}, {2, 1, 3}, {5, 2, 4}}
	both := map[int32]Chain{4: fenced, 5: took}
	for _, tt := range []struct {
		name    string
		chains  map[int32]Chain
		epoch   int32
		visible *Entry
		chain   Chain
		end     int64
	}{
		{"what both have in common", both, 6, nil, took[:2], 4},
		{"a record of the older one", both, 6, &Entry{Epoch: 2, Start: 5}, fenced, 7},
		{"a record of the newer one", both, 6, &Entry{Epoch: 5, Start: 5}, took, 7},
		{"a record that both have", both, 6, &Entry{Epoch: 2, Start: 3}, took[:2], 4},
		{"a record that nobody has", both, 6, &Entry{Epoch: 6, Start: 6}, took[:2], 4},
		{"known after all", both, 4, nil, fenced, 7},
		{"one chain", map[int32]Chain{5: took, 9: {{9, 3, 0}}}, 7, nil, took, 7},
		{"one chain is a part of the other", map[int32]Chain{4: took[:2], 5: took}, 6, nil, took[:2], 4},
		{"older than all, as the floor of the newest", map[int32]Chain{5: took}, 4, nil, took[:2], 4},
		{"older than all, and newer than its records", map[int32]Chain{5: took[:2]}, 4, nil, took[:2], 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, end, known := record(tt.chains).ChainOf(Log{End: 7, LastEpoch: tt.epoch, Visible: tt.visible})
			if !known || end != tt.end || !slices.Equal(c, tt.chain) {
				t.Errorf("got %v to %d, %v, want %v to %d", c, end, known, tt.chain, tt.end)
			}
		})
	}
	for _, tt := range []struct {
		chains map[int32]Chain
		log    Log
		want   bool
	}{
		{both, Log{End: 7, LastEpoch: 6}, true},
		{both, Log{End: 4, LastEpoch: 6}, false}, // both have all of it
		{both, Log{End: 7, LastEpoch: 6, Visible: &Entry{Epoch: 2, Start: 3}}, false},
		{both, Log{End: 7, LastEpoch: 5}, false},
		{both, Log{End: 7, LastEpoch: Undefined}, false},
		{map[int32]Chain{5: took}, Log{End: 7, LastEpoch: 6}, false},
		{map[int32]Chain{5: took}, Log{End: 7, LastEpoch: 4}, false},
	} {
		if got := record(tt.chains).Ambiguous(tt.log); got != tt.want {
			t.Errorf("%v under %v: ambiguous %v", tt.log, tt.chains, got)
		}
	}
}
