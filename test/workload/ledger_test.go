package workload

import (
	"testing"

	"pgregory.net/rapid"
)

func spansOf(set map[int64]bool) spans {
	var s spans
	for n := range int64(64) {
		if set[n] {
			s.add(n, n+1)
		}
	}
	return s
}

func TestSpansAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (spans, map[int64]bool) {
			var s spans
			set := make(map[int64]bool)
			for range rapid.IntRange(0, 12).Draw(t, label) {
				from := rapid.Int64Range(0, 50).Draw(t, "from")
				to := from + rapid.Int64Range(0, 10).Draw(t, "length")
				s.add(from, to)
				for n := from; n < to; n++ {
					set[n] = true
				}
			}
			return s, set
		}
		check := func(what string, got spans, want map[int64]bool) {
			if g, w := got.String(), spansOf(want).String(); g != w {
				t.Fatalf("%s: %s, want %s", what, g, w)
			}
			for n := range int64(70) {
				if got.has(n) != want[n] {
					t.Fatalf("%s: has(%d) is %t", what, n, got.has(n))
				}
			}
			if got.count() != int64(len(want)) {
				t.Fatalf("%s: count %d, want %d", what, got.count(), len(want))
			}
		}
		a, setA := draw("a")
		b, setB := draw("b")
		check("add", a, setA)
		limit := rapid.Int64Range(0, 64).Draw(t, "limit")
		below, minus := make(map[int64]bool), make(map[int64]bool)
		for n := range setA {
			if n < limit {
				below[n] = true
			}
			if !setB[n] {
				minus[n] = true
			}
		}
		check("below", a.below(limit), below)
		check("minus", a.minus(b), minus)
	})
}
