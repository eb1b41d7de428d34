package batch_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// The tags are in every mirror's log: these values may never change.
func TestTagGolden(t *testing.T) {
	for id, want := range map[string]uint16{
		"":                       31915,
		"MkU3OEVBNTcwNTJENDM2Qk": 16046,
		"a":                      11030,
	} {
		if got := batch.Tag(id); got != want {
			t.Errorf("tag of %q is %d, want %d", id, got, want)
		}
	}
}

func TestMap(t *testing.T) {
	a, c := int64(batch.Tag("cluster-a")), int64(batch.Tag("cluster-c"))
	ab := batch.NewTagger("cluster-a", "cluster-b")
	for _, x := range []struct {
		name     string
		in, want int64
	}{
		{"none", -1, -1},
		{"first of the source", 0, a << 48},
		{"the source's", 4711, a<<48 | 4711},
		{"last of the source", 1<<48 - 1, a<<48 | (1<<48 - 1)},
		{"another cluster's, mirrored by the source", c<<48 | 12, c<<48 | 12},
		{"ours, coming home", int64(batch.Tag("cluster-b"))<<48 | 12, 12},
	} {
		if got := ab.Map(x.in); got != x.want {
			t.Errorf("%s: %d becomes %d, want %d", x.name, x.in, got, x.want)
		}
	}
	if got := (batch.Tagger{}).Map(7); got != 7 {
		t.Errorf("the zero Tagger changes 7 to %d", got)
	}
	if ab.Collides() || !batch.NewTagger("x", "x").Collides() || (batch.Tagger{}).Collides() {
		t.Error("Collides is wrong")
	}
}

func clusters(t *rapid.T, n int) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9_-]{22}`), n, n,
		func(s string) uint16 { return batch.Tag(s) }).Draw(t, "clusters")
}

func TestTaggingProperties(t *testing.T) {
	local := rapid.Int64Range(0, 1<<48-1)
	t.Run("a tag is 15 bits and not zero", rapid.MakeCheck(func(t *rapid.T) {
		if tag := batch.Tag(rapid.String().Draw(t, "id")); tag == 0 || tag > 1<<15-1 {
			t.Fatalf("tag %d", tag)
		}
	}))
	t.Run("coming home is the inverse", rapid.MakeCheck(func(t *rapid.T) {
		cs := clusters(t, rapid.IntRange(2, 5).Draw(t, "hops"))
		id := local.Draw(t, "id")
		got := id
		for i := range cs { // round the ring, back to the first
			got = batch.NewTagger(cs[i], cs[(i+1)%len(cs)]).Map(got)
			if home := i == len(cs)-1; batch.LocalRange(got) != home {
				t.Fatalf("after hop %d: id %d, local %v", i, got, batch.LocalRange(got))
			}
			if got < 0 {
				t.Fatalf("negative id %d", got)
			}
		}
		if got != id {
			t.Fatalf("%d came home as %d", id, got)
		}
	}))
	// What a source can hold: its own ids, and those of other clusters, tagged; never
	// its own tag, which becomes 0 on arrival.
	t.Run("injective in chains and fan-in", rapid.MakeCheck(func(t *rapid.T) {
		cs := clusters(t, 4)
		origin := rapid.IntRange(0, 3)
		at := func(o int, id int64) int64 { // as cluster cs[1] holds it
			if o != 1 {
				id = batch.NewTagger(cs[o], cs[1]).Map(id)
			}
			return id
		}
		o1, o2 := origin.Draw(t, "origin 1"), origin.Draw(t, "origin 2")
		id1, id2 := local.Draw(t, "id 1"), local.Draw(t, "id 2")
		m := batch.NewTagger(cs[1], cs[0])
		same := o1 == o2 && id1 == id2
		if got := m.Map(at(o1, id1)) == m.Map(at(o2, id2)); got != same {
			t.Fatalf("(%d,%d) and (%d,%d) meet: %v", o1, id1, o2, id2, got)
		}
		if got := m.Map(at(o1, id1)); batch.LocalRange(got) != (o1 == 0) {
			t.Fatalf("id %d of cluster %d in the local range: %v", got, o1, o1 != 0)
		}
	}))
}
