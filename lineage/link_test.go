package lineage

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestInvert(t *testing.T) {
	for _, tt := range []struct {
		name string
		link Link
		want Chain
	}{
		{
			"two source epochs under one of its own, two of its own under one",
			Link{7, 90, Chain{{4, 5, 0}, {4, 6, 20}, {9, 6, 40}, {9, 7, 60}}},
			Chain{{5, 4, 0}, {6, 4, 20}, {6, 9, 40}, {7, 9, 60}},
		},
		{"what clients wrote there is not ours", Link{5, 50, Chain{{4, 5, 0}, {6, NoSource, 30}}}, Chain{{5, 4, 0}}},
		{"what lies above the last mirror offset", Link{5, 30, Chain{{4, 5, 0}, {6, 5, 30}}}, Chain{{5, 4, 0}}},
		{"what lies above the last mirror epoch", Link{5, 30, Chain{{4, 5, 0}, {4, 6, 20}}}, Chain{{5, 4, 0}}},
		{"epochs that go back are no history of ours", Link{5, 30, Chain{{4, 5, 0}, {6, 3, 20}}}, nil},
		{"no history", Link{5, 30, nil}, nil},
		{"nothing mirrored", Link{Undefined, 0, nil}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.link.Invert(); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSeedLinked(t *testing.T) {
	link := Link{3, 100, Chain{{5, 2, 0}, {5, 3, 60}, {8, 3, 80}}}
	for _, tt := range []struct {
		name  string
		state map[int32]Chain
		cache Chain
		end   int64
		link  Link
		want  Chain
	}{
		{
			"nothing was written here since",
			nil,
			Chain{{2, -1, 0}, {3, -1, 60}},
			100, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}},
		},
		{
			"the same epoch went on here",
			nil,
			Chain{{2, -1, 0}, {3, -1, 60}},
			130, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {3, NoSource, 100}},
		},
		{
			"it went on under a newer epoch",
			nil,
			Chain{{2, -1, 0}, {3, -1, 60}, {4, -1, 100}},
			130, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {4, NoSource, 100}},
		},
		{
			"here the last mirror epoch ends below the last mirror offset",
			nil,
			Chain{{2, -1, 0}, {3, -1, 60}, {4, -1, 90}},
			130, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {4, NoSource, 90}},
		},
		{
			"here the last mirror epoch was lost: the walk goes down",
			nil,
			Chain{{2, -1, 0}, {4, -1, 50}},
			130, link,
			Chain{{2, 5, 0}, {4, NoSource, 50}},
		},
		{
			"an empty leader epoch is no record",
			nil,
			Chain{{2, -1, 0}, {3, -1, 60}, {6, -1, 100}},
			100, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {6, NoSource, 100}},
		},
		{
			"epochs begin where our own log says",
			nil,
			Chain{{2, -1, 0}, {3, -1, 55}},
			100, link,
			Chain{{2, 5, 0}, {3, 5, 55}, {3, 8, 80}},
		},
		{
			"the peer has trimmed its history",
			nil,
			Chain{{1, -1, 0}, {2, -1, 10}, {3, -1, 60}},
			100,
			Link{3, 100, Chain{{5, 2, 40}, {8, 3, 60}}},
			Chain{{1, 5, 0}, {2, 5, 10}, {3, 8, 60}},
		},
		{
			"our log begins above the point",
			nil,
			Chain{{4, -1, 150}},
			200, link,
			Chain{{4, NoSource, 150}},
		},
		{
			"our log begins above the point, under the last mirror epoch",
			nil,
			Chain{{3, -1, 150}},
			200, link,
			Chain{{3, NoSource, 100}},
		},
		{
			"no epoch in common",
			nil,
			Chain{{7, -1, 0}},
			100, link,
			Chain{{7, NoSource, 0}},
		},
		{
			"no link",
			nil,
			Chain{{2, -1, 0}},
			100,
			Link{Undefined, Undefined, nil},
			Chain{{2, NoSource, 0}},
		},
		{
			"the own record reaches further",
			map[int32]Chain{6: {{2, 1, 0}, {6, 9, 80}}},
			Chain{{2, -1, 0}, {6, -1, 80}},
			120, link,
			Chain{{2, 1, 0}, {6, 9, 80}},
		},
		{
			"the peer's answer is newer than a record that reaches as far",
			map[int32]Chain{3: {{2, 1, 0}, {3, 1, 60}}},
			Chain{{2, -1, 0}, {3, -1, 60}},
			100, link,
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}},
		},
		{
			"what was seeded before comes back without the peer",
			map[int32]Chain{4: {{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {3, NoSource, 100}}},
			Chain{{2, -1, 0}, {3, -1, 60}, {7, -1, 100}},
			100,
			Link{Undefined, Undefined, nil},
			Chain{{2, 5, 0}, {3, 5, 60}, {3, 8, 80}, {7, NoSource, 100}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := record(tt.state).SeedLinked(tt.cache, tt.end, tt.link)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBound(t *testing.T) {
	c := Chain{{1, 0, 5}, {2, 0, 10}, {3, 0, 20}, {4, 0, 30}}
	if got, want := c.Bound(2), (Chain{{3, 0, 5}, {4, 0, 30}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := c.Bound(4); !slices.Equal(got, c) {
		t.Errorf("got %v, want %v", got, c)
	}
	var long Chain
	for i := range int32(MaxEntries + 7) {
		long = append(long, Entry{i, 0, int64(i)})
	}
	_, kept := NewRecord().With(9, long).Newest()
	if len(kept) != MaxEntries || kept[0].Start != 0 {
		t.Errorf("%d entries from %v on", len(kept), kept[0])
	}
	// Whoever ends under an epoch that is gone copies all of it again, and keeps nothing.
	if e, o := kept.EndOffsetFor(3, 1000); e != 3 || o != 0 {
		t.Errorf("epoch 3 ends at %d@%d", e, o)
	}
}

// TestSeedLinkedOfSimulatedLogs plays two clusters: the peer mirrors our log, under elections
// on both sides, stops, and both go on alone. What is then seeded here must be the longest
// part that both logs hold, with the epochs that each of them has there.
func TestSeedLinkedOfSimulatedLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ours, theirs log
		cache := cache{}
		epoch, theirEpoch := int32(0), int32(10)
		cache.assign(epoch, 0)
		var history Chain
		next, stopped := 0, false
		lme, lmo := int32(Undefined), int64(0)
		var theirEpochs []int32
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "op") {
			case 0, 1:
				next++
				ours.recs = append(ours.recs, rec{next, epoch})
			case 2: // clean or unclean
				if rapid.Bool().Draw(t, "unclean") {
					ours.recs = ours.recs[:rapid.IntRange(0, len(ours.recs)).Draw(t, "kept")]
					cache.truncateFromEnd(ours.end())
				}
				epoch += int32(rapid.IntRange(1, 2).Draw(t, "epochs"))
				cache.assign(epoch, ours.end())
			case 3: // an election there
				theirEpoch += int32(rapid.IntRange(1, 2).Draw(t, "their epochs"))
			case 4, 5:
				if stopped || agreed(ours, theirs, true) < theirs.end() {
					continue // the mirror sees that it diverges, and is not stopped there
				}
				n := min(ours.end(), theirs.end()+int64(rapid.IntRange(0, 5).Draw(t, "copied")))
				for _, r := range ours.recs[theirs.end():n] {
					history = history.Append(Entry{theirEpoch, r.epoch, theirs.end()})
					theirs.recs = append(theirs.recs, r)
					theirEpochs = append(theirEpochs, theirEpoch)
				}
			case 6:
				if !stopped {
					stopped, lme, lmo = true, history.SourceEpochBefore(theirs.end()), theirs.end()
					theirEpoch++
				}
				next++
				theirs.recs = append(theirs.recs, rec{next, -2})
				theirEpochs = append(theirEpochs, theirEpoch)
				history = history.Append(Entry{theirEpoch, NoSource, theirs.end() - 1})
			}
		}
		if !stopped {
			lme, lmo = history.SourceEpochBefore(theirs.end()), theirs.end()
		}
		var known Chain
		for _, e := range cache.epochs() {
			known = append(known, Entry{e, NoSource, cache[e]})
		}
		got := NewRecord().SeedLinked(known, ours.end(), Link{lme, lmo, history}).Cut(ours.end())
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		s := ours.end()
		if local, has := got.FirstLocal(); has {
			s = min(s, local)
		}
		if want := agreed(ours, theirs, true); s != want {
			t.Fatalf("ours %v, theirs %v: agree up to %d, seeded %v", ours, theirs, want, got)
		}
		for o, r := range ours.recs {
			e, ok := got.At(int64(o))
			if !ok || e.Epoch != r.epoch || int64(o) < s && e.SourceEpoch != theirEpochs[o] {
				t.Fatalf("offset %d: %v, ours %v, theirs %v under %v", o, e, ours, theirs, theirEpochs)
			}
		}
	})
}
