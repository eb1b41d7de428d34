package syncs

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

func TestCompare(t *testing.T) {
	set := func(items ...string) map[string]bool {
		out := map[string]bool{}
		for _, i := range items {
			out[i] = true
		}
		return out
	}
	mine := func(items ...string) map[string]int64 {
		out := map[string]int64{}
		for _, i := range items {
			out[i] = 1
		}
		return out
	}
	for name, c := range map[string]struct {
		facts diffFacts
		want  diff
	}{
		"nothing": {},
		"new":     {diffFacts{wanted: set("a", "b"), here: set("b")}, diff{create: []string{"a"}}},
		"as it should be": {
			diffFacts{wanted: set("a"), here: set("a", "x"), owned: mine("a")}, diff{},
		},
		"written down and not created": {
			diffFacts{wanted: set("a"), owned: mine("a", "b")}, diff{create: []string{"a"}, disown: []string{"b"}},
		},
		"deleted and not forgotten": {
			diffFacts{here: set(), owned: mine("a")}, diff{disown: []string{"a"}},
		},
		"gone at the source": {
			diffFacts{here: set("a", "b"), owned: mine("a")}, diff{gone: []string{"a"}},
		},
		"refused": {
			diffFacts{here: set("a"), owned: mine("a"), settled: set("a")}, diff{remove: []string{"a"}},
		},
		"refused by who cannot be asked": {
			diffFacts{here: set("a"), owned: mine("a"), stale: set("a")}, diff{},
		},
		"nobody knows": {
			diffFacts{here: set("a", "b", "c"), owned: mine("a", "b"), settled: set("b"), undecided: true}, diff{remove: []string{"b"}},
		},
		"another mirror's": {
			diffFacts{wanted: set("a"), here: set("a"), elsewhere: map[string]string{"a": "o"}}, diff{adopt: []string{"a"}},
		},
		"another mirror's as well": {
			diffFacts{mirror: "m", here: set("a"), owned: mine("a"), elsewhere: map[string]string{"a": "o"}}, diff{disown: []string{"a"}},
		},
		"an earlier mirror's as well": {
			diffFacts{mirror: "m", here: set("a", "b"), owned: mine("a", "b"), settled: set("b"), elsewhere: map[string]string{"a": "k", "b": "k"}}, diff{},
		},
	} {
		if got := compare(c.facts); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := compare(c.facts); got.empty() != reflect.DeepEqual(c.want, diff{}) {
			t.Errorf("%s: empty %v", name, got.empty())
		}
	}
}

// TestSharedByTwoMirrors has two mirrors give up what both have created, in every order and at the
// same time: somebody deletes it in the end, and not before both have given it up.
func TestSharedByTwoMirrors(t *testing.T) {
	for _, order := range []string{"a", "b", "ab", "ba"} {
		owns := map[string]bool{"a": true, "b": true}
		here := true
		round := func(mirror string, elsewhere bool, wanted bool) {
			f := diffFacts{mirror: mirror, here: map[string]bool{"x": here}, owned: map[string]int64{}, elsewhere: map[string]string{}}
			if owns[mirror] {
				f.owned["x"] = 1
			}
			if elsewhere {
				f.elsewhere["x"] = map[string]string{"a": "b", "b": "a"}[mirror]
			}
			if wanted {
				f.wanted = map[string]bool{"x": true}
			}
			d := compare(f)
			if len(d.gone) > 0 {
				here = false
			}
			if len(d.gone)+len(d.disown) > 0 {
				owns[mirror] = false
			}
		}
		want := map[string]bool{"a": true, "b": true}
		if len(order) == 1 { // one gives it up, the other one later
			want[order] = false
			for range 3 {
				for _, m := range []string{"a", "b"} {
					round(m, owns[map[string]string{"a": "b", "b": "a"}[m]], want[m])
				}
			}
			if !here {
				t.Errorf("%s gave it up, and it is gone although the other one wants it", order)
			}
		}
		for range 4 {
			a, b := owns["b"], owns["a"] // both look, and then both act
			for _, m := range order {
				round(string(m), map[string]bool{"a": a, "b": b}[string(m)], false)
			}
			for _, m := range []string{"a", "b"} {
				round(m, owns[map[string]string{"a": "b", "b": "a"}[m]], false)
			}
		}
		if here || owns["a"] || owns["b"] {
			t.Errorf("%s: both gave it up, and it is here: %v, owned by %v", order, here, owns)
		}
	}
}

func TestMassive(t *testing.T) {
	for _, c := range []struct {
		gone, owned, source int
		want                bool
	}{
		{1, 1, 0, true}, {1, 1, 1, false}, {10, 10, 5, false}, {11, 21, 5, true}, {11, 22, 5, false}, {40, 50, 1000, true},
	} {
		if got := massive(c.gone, c.owned, c.source); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	d := newDoubts(policy.ACLs, slog.New(slog.DiscardHandler))
	d.look = time.Millisecond
	gone := []string{"a", "b"}
	believes := func(mirror string, gone []string, same bool) bool {
		t.Helper()
		sure, warning, err := d.believe(t.Context(), mirror, gone, 2, 0, func(context.Context) (bool, error) { return same, nil })
		if err != nil || len(sure) > 0 && warning != "" || len(sure) == 0 && (warning == "") == same {
			t.Errorf("%v, %q, %v", sure, warning, err)
		}
		return len(sure) > 0
	}
	d.patience = 0
	if believes("m", gone, true) {
		t.Error("at once")
	}
	d.patience = time.Hour
	if believes("m", gone, true) {
		t.Error("too soon")
	}
	d.patience = 0
	if believes("m", gone, false) {
		t.Error("it says something else when it is asked again")
	}
	if believes("m", gone, true) {
		t.Error("it has contradicted itself: only what two rounds find, one after the other, counts")
	}
	if !believes("m", slices.Clone(gone), true) {
		t.Error("not in another round")
	}
	if believes("m", gone[:1], true) || believes("other", gone, true) {
		t.Error("something else is gone")
	}
	d.forget("m")
	if believes("m", gone[:1], true) {
		t.Error("not forgotten")
	}
}
