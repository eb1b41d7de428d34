package offsets

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func orders(p int32) Partition { return Partition{"orders", p} }

func TestPlanGroup(t *testing.T) {
	at := func(n int64) map[Partition]Position {
		return map[Partition]Position{orders(0): {At: n, Metadata: "by hand"}}
	}
	group := func(typ Type, state string, p map[Partition]Position) Group {
		return Group{Name: "g", Type: typ, State: state, Positions: p}
	}
	wrote := func(n int64) func(Partition) (int64, bool) {
		return func(Partition) (int64, bool) { return n, true }
	}
	for _, c := range []struct {
		name string
		f    Facts
		want string
	}{
		{"nothing is here", Facts{Source: group(Classic, "Stable", at(7))}, "-1>7"},
		{"ahead of what is mirrored", Facts{Source: group(Classic, "Stable", at(70))}, "-1>20"},
		{"before the start of the log", Facts{Source: group(Classic, "Empty", at(1))}, "-1>5"},
		{"it is here", Facts{Source: group(Classic, "Empty", at(7)), Here: group(Classic, "Empty", at(7))}, "=7"},
		{"an older one is here", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Dead", at(7))}, "7>9"},
		{"somebody read on here", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Empty", at(12))}, "kept: 12 is committed here"},
		{"somebody read on here after the mirror", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Empty", at(12)), Wrote: wrote(9)}, "kept: 12 is committed here"},
		{"from before the topic was mirrored", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Empty", at(12)), Fresh: func(Partition) bool { return true }}, "12>9"},
		{"beyond the end of the log", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Empty", at(21))}, "21>9"},
		{"it was reset at the source", Facts{Source: group(Classic, "Empty", at(9)), Here: group(Classic, "Empty", at(12)), Wrote: wrote(12)}, "12>9"},
		{"active here", Facts{Source: group(Consumer, "Stable", at(9)), Here: group(Consumer, "Reconciling", at(7))}, "skipped: active here: Reconciling"},
		{"an old broker's group", Facts{Source: group(Classic, "", at(9)), Here: group(Consumer, "Empty", nil)}, "-1>9"},
		{"a share group", Facts{Source: group(Share, "Stable", at(9))}, "-1>9"},
		{"a share group is something else here", Facts{Source: group(Share, "Stable", at(9)), Here: group(Classic, "Empty", nil)}, "skipped: it is a classic group here, and a share group at the source"},
		{"streams here", Facts{Source: group(Classic, "Stable", at(9)), Here: group(Streams, "Empty", nil)}, "skipped: it is a streams group here"},
		{"deleted here", Facts{Source: group(Classic, "Stable", at(9)), Removed: func(topic string) bool { return topic == "orders" }}, "kept: its offsets were deleted here"},
		{"a partition that is not mirrored", Facts{Source: group(Classic, "", map[Partition]Position{orders(1): {At: 3}})}, "outside"},
		{"no offset", Facts{Source: group(Classic, "", map[Partition]Position{orders(0): {At: -1}})}, "outside"},
		{"at the beginning of an empty partition", Facts{Source: group(Classic, "", map[Partition]Position{orders(2): {At: 0}})}, "outside"},
		{"in a partition of which nothing is mirrored yet", Facts{Source: group(Classic, "", map[Partition]Position{orders(2): {At: 50}})}, "-1>0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.Ranges = map[Partition]Range{orders(0): {5, 20}, orders(2): {0, 0}}
			if got := planText(PlanGroup(c.f)); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	plan := PlanGroup(Facts{Source: group(Classic, "", at(9)), Ranges: map[Partition]Range{orders(0): {0, 20}}})
	if m := plan.Moves[0]; m.Metadata != "by hand" || m.LeaderEpoch != -1 {
		t.Errorf("got %+v", m)
	}
}

func planText(p Plan) string {
	switch {
	case p.Skipped != "":
		return "skipped: " + p.Skipped
	case p.Outside():
		return "outside"
	case len(p.Kept) > 0:
		return "kept: " + p.Kept[0].Reason
	case len(p.Same) > 0:
		return fmt.Sprintf("=%d", p.Same[0].To)
	}
	return fmt.Sprintf("%d>%d", p.Moves[0].From, p.Moves[0].To)
}

// Whatever happens at both ends, no group stands where nothing is, and none is moved back behind
// what was read here.
func TestPlanGroupKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Int64Range(-1, 30)
		start := rapid.Int64Range(0, 10).Draw(t, "start")
		r := Range{start, start + rapid.Int64Range(0, 10).Draw(t, "length")}
		last, readHere := small.Draw(t, "wrote"), small.Draw(t, "here")
		f := Facts{
			Source: Group{Name: "g", Positions: map[Partition]Position{orders(0): {At: small.Draw(t, "source")}}},
			Here:   Group{Name: "g", State: rapid.SampledFrom([]string{"", "Empty", "Dead", "Stable", "PreparingRebalance"}).Draw(t, "state")},
			Ranges: map[Partition]Range{orders(0): r},
			Wrote:  func(Partition) (int64, bool) { return last, last >= 0 },
		}
		if readHere >= 0 {
			f.Here.Positions = map[Partition]Position{orders(0): {At: readHere}}
		}
		plan := PlanGroup(f)
		if plan.Skipped != "" && !f.Here.Active() {
			t.Fatalf("skipped: %s", plan.Skipped)
		}
		for _, m := range plan.Moves {
			if m.To < r.Start || m.To > r.End {
				t.Fatalf("%d is not in %+v", m.To, r)
			}
			if m.To < readHere && readHere != last && readHere <= r.End {
				t.Fatalf("moved back from %d to %d, written was %d", readHere, m.To, last)
			}
			if m.To == readHere {
				t.Fatal("moved to where it is")
			}
		}
	})
}

func TestWalk(t *testing.T) {
	// A log of epochs 2 from 10, 5 from 40 and 6 from 100 that ends at 150, whose leader has epoch 7.
	log := []stretch{{2, 10}, {5, 40}, {6, 100}, {7, 150}}
	answer := func(asked int32) (int32, int64) {
		if asked < log[0].epoch {
			return asked, log[0].start
		}
		for i, s := range slices.Backward(log) {
			if s.epoch <= asked {
				if i == len(log)-1 {
					return s.epoch, 150
				}
				return s.epoch, log[i+1].start
			}
		}
		panic("unreachable")
	}
	for _, c := range []struct {
		offset int64
		epoch  int32
	}{{150, 6}, {101, 6}, {100, 5}, {41, 5}, {40, 2}, {11, 2}, {10, -1}, {3, -1}} {
		w := &walk{lowest: c.offset, asked: 7}
		steps := 0
		for ; !w.done; steps++ {
			if steps > 10 {
				t.Fatalf("offset %d: no end: %+v", c.offset, w)
			}
			w.answer(answer(w.asked))
		}
		if got := w.at(c.offset); got != c.epoch {
			t.Errorf("offset %d: epoch %d, want %d (%+v)", c.offset, got, c.epoch, w.found)
		}
	}
	w := &walk{lowest: 5, asked: 3}
	w.answer(-1, -1)
	if !w.done || w.at(5) != -1 {
		t.Errorf("a log without epochs: %+v", w)
	}
}
