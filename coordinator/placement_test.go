package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func seatsIn(racks ...string) []seat {
	var out []seat
	for i, r := range racks {
		out = append(out, seat{id: 10001 + int32(i), rack: r, trust: steady})
	}
	return out
}

// longGone: whoever is not alive has not been for long.
func longGone(int32) time.Duration { return time.Hour }

func TestPlaceVirtual(t *testing.T) {
	l := func(ids ...int32) []int32 {
		for i := range ids {
			ids[i] += 10000
		}
		return ids
	}
	abc, aab := seatsIn("a", "b", "c"), seatsIn("a", "a", "b")
	without := func(seats []seat, ids ...int32) []seat {
		return slices.DeleteFunc(slices.Clone(seats), func(s seat) bool { return slices.Contains(ids, s.id-10000) })
	}
	trusted := func(seats []seat, id int32, tr trust) []seat {
		out := slices.Clone(seats)
		for i := range out {
			if out[i].id == id+10000 {
				out[i].trust = tr
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		seats []seat
		away  []int32
		parts []place
		n     int
		want  [][]int32
	}{
		"new": {seats: abc, parts: []place{{}, {}, {}}, n: 2, want: [][]int32{l(1, 2), l(3, 1), l(2, 3)}},
		"a follower is in another rack than the leader": {seats: aab, parts: []place{{}, {}, {}}, n: 2, want: [][]int32{l(1, 3), l(2, 3), l(3, 1)}},
		"one rack is better than one replica":           {seats: seatsIn("a", "a"), parts: []place{{}}, n: 2, want: [][]int32{l(1, 2)}},
		"racks that are not known are apart":            {seats: seatsIn("", "", ""), parts: []place{{}}, n: 2, want: [][]int32{l(1, 2)}},
		"one sidecar":                                   {seats: without(abc, 2, 3), parts: []place{{}}, n: 2, want: [][]int32{l(1)}},
		"as it is":                                      {seats: abc, parts: []place{{has: l(2, 1)}, {has: l(3, 2)}, {has: l(1, 3)}}, n: 2, want: [][]int32{l(2, 1), l(3, 2), l(1, 3)}},
		"a dead one is replaced":                        {seats: without(abc, 1), parts: []place{{has: l(1, 2)}}, n: 2, want: [][]int32{l(2, 3)}},
		"a dead follower is replaced":                   {seats: without(abc, 2), parts: []place{{has: l(1, 2)}}, n: 2, want: [][]int32{l(1, 3)}},
		"nobody replaces it":                            {seats: without(abc, 1, 3), parts: []place{{has: l(1, 2)}}, n: 2, want: [][]int32{l(1, 2)}},
		"gone for a moment":                             {seats: without(abc, 1), away: []int32{1}, parts: []place{{has: l(1, 2), patience: goneGrace}}, n: 2, want: [][]int32{l(1, 2)}},
		"not waited for when it matters":                {seats: without(abc, 1), away: []int32{1}, parts: []place{{has: l(1, 2)}}, n: 2, want: [][]int32{l(2, 3)}},
		"not waited for any longer":                     {seats: without(abc, 1), parts: []place{{has: l(1, 2), patience: goneGrace}}, n: 2, want: [][]int32{l(2, 3)}},
		"a real leader, and the first one is gone":      {seats: without(abc, 1, 3), parts: []place{{has: l(1, 2), real: true}}, n: 2, want: [][]int32{l(2)}},
		"a real leader, and the second one is gone":     {seats: without(abc, 1, 3), parts: []place{{has: l(2, 1), real: true}}, n: 2, want: [][]int32{l(2, 1)}},
		"a real leader, and all are gone":               {parts: []place{{has: l(2, 1), real: true}}, n: 2, want: [][]int32{l(2, 1)}},
		"all are gone":                                  {seats: nil, parts: []place{{has: l(1, 2)}}, n: 2, want: [][]int32{l(1, 2)}},
		"replaced in another rack":                      {seats: without(aab, 3), parts: []place{{has: l(1, 3)}}, n: 2, want: [][]int32{l(1, 2)}},
		"the other rack is back":                        {seats: aab, parts: []place{{has: l(1, 2), fixed: true}, {has: l(2, 1)}}, n: 2, want: [][]int32{l(1, 2), l(2, 3)}},
		"a second one has appeared":                     {seats: without(abc, 3), parts: []place{{has: l(1)}}, n: 2, want: [][]int32{l(1, 2)}},
		"fewer are wanted":                              {seats: abc, parts: []place{{has: l(3, 2)}}, n: 1, want: [][]int32{l(3)}},
		"a returned one leads again": {
			seats: abc, n: 2,
			parts: []place{{has: l(2, 3)}, {has: l(3, 2)}, {has: l(2, 3)}, {has: l(3, 2)}, {has: l(2, 3)}, {has: l(3, 2)}},
			want:  [][]int32{l(1, 2), l(1, 3), l(2, 1), l(3, 1), l(2, 3), l(3, 2)},
		},
		"but not before it is steady": {
			seats: trusted(abc, 1, fresh), n: 2,
			parts: []place{{has: l(2, 3)}, {has: l(3, 2)}, {has: l(2, 3)}}, want: [][]int32{l(2, 3), l(3, 2), l(2, 3)},
		},
		"what is fixed is not moved": {
			seats: abc, n: 2,
			parts: []place{{has: l(2, 3), fixed: true}, {has: l(2, 3), fixed: true}, {has: l(2, 3)}},
			want:  [][]int32{l(2, 3), l(2, 3), l(1, 2)},
		},
		"a shaky one takes nothing that another can take": {seats: trusted(abc, 1, shaky), parts: []place{{}, {has: l(2)}}, n: 2, want: [][]int32{l(3, 2), l(2, 3)}},
		"two change places before a third is added": {
			seats: seatsIn("a", "b", "c"), n: 2,
			parts: []place{{has: l(1, 2)}, {has: l(1, 3)}, {has: l(3, 2)}}, want: [][]int32{l(2, 1), l(1, 3), l(3, 2)},
		},
		"each topic is spread too": {
			seats: without(abc, 3), n: 1,
			parts: []place{{has: l(1)}, {tp: ids.TopicPartition{TopicID: ids.UUID{1}}}, {tp: ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 1}}},
			want:  [][]int32{l(1), l(2), l(1)},
		},
		"and its first leader is not the one before": {
			seats: without(abc, 3), n: 1,
			parts: []place{{has: l(2)}, {tp: ids.TopicPartition{TopicID: ids.UUID{1}}}, {tp: ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 1}}},
			want:  [][]int32{l(2), l(1), l(2)},
		},
		"other mirrors count among equals": {
			seats: []seat{{id: 10001, rack: "a", leads: 3, trust: steady}, {id: 10002, rack: "b", trust: steady}}, n: 1, parts: []place{{}}, want: [][]int32{l(2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := placeVirtual(c.seats, func(id int32) time.Duration {
				if slices.Contains(c.away, id-10000) {
					return time.Second
				}
				return time.Hour
			}, c.parts, c.n, 0)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// TestPlacement: whatever there is and was, each partition ends with as many virtual replicas
// as can be, apart from each other where that can be, with leaders and followers even; nothing
// moves that need not; and who looks again moves nothing.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]seat, rapid.IntRange(1, 6).Draw(t, "sidecars"))
		racks := rapid.IntRange(1, 4).Draw(t, "racks")
		for i := range all {
			all[i] = seat{id: 10001 + int32(i), rack: string(rune('a' + rapid.IntRange(0, racks-1).Draw(t, "rack"))), trust: steady}
		}
		seats := slices.DeleteFunc(slices.Clone(all), func(seat) bool { return rapid.IntRange(0, 4).Draw(t, "dead") == 0 })
		parts := make([]place, rapid.IntRange(1, 25).Draw(t, "partitions"))
		for i := range parts {
			ids := rapid.Permutation(all).Draw(t, "has")
			for _, s := range ids[:rapid.IntRange(0, min(2, len(ids))).Draw(t, "replicas")] {
				parts[i].has = append(parts[i].has, s.id)
			}
		}
		n := rapid.IntRange(1, 2).Draw(t, "wanted")
		start := rapid.IntRange(0, 9).Draw(t, "start")
		got := placeVirtual(seats, longGone, parts, n, start)

		b := &placing{seats: seats}
		leads, tails := map[int32]int{}, map[int32]int{}
		for _, s := range seats {
			leads[s.id], tails[s.id] = 0, 0
		}
		for i, list := range got {
			var live []int32
			for _, id := range list {
				if b.live(id) {
					live = append(live, id)
				}
			}
			if len(live) != min(n, len(seats)) || len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
				t.Fatalf("partition %d has %v of %v", i, list, seats)
			}
			if len(live) == n && len(list) != n {
				t.Fatalf("partition %d keeps a dead one without need: %v", i, list)
			}
			if len(live) == 2 && !b.apart(live[1], live[:1]) && slices.ContainsFunc(seats, func(s seat) bool { return b.apart(s.id, live[:1]) }) {
				t.Fatalf("partition %d has %v, in one rack: %v", i, list, seats)
			}
			for k, id := range live {
				if k == 0 {
					leads[id]++
				} else {
					tails[id]++
				}
			}
		}
		if len(seats) == 0 {
			return
		}
		counts := slices.Sorted(maps.Values(leads))
		if len(got) == len(parts) && counts[len(counts)-1]-counts[0] > 1 && !keepsDead(b, got) {
			t.Fatalf("leaders are not even: %v\n%v", leads, got)
		}
		distinct := map[string]bool{}
		for _, s := range seats {
			distinct[s.rack] = true
		}
		if tc := slices.Sorted(maps.Values(tails)); n == 2 && len(distinct) == len(seats) && len(seats) > 2 && tc[len(tc)-1]-tc[0] > 2 {
			t.Fatalf("followers are not even: %v\n%v", tails, got)
		}

		again := make([]place, len(parts))
		for i := range again {
			again[i].has = got[i]
		}
		if second := placeVirtual(seats, longGone, again, n, start); fmt.Sprint(second) != fmt.Sprint(got) {
			t.Fatalf("a second look moves on:\n%v\n%v", got, second)
		}
	})
}

func keepsDead(b *placing, lists [][]int32) bool {
	return slices.ContainsFunc(lists, func(l []int32) bool { return slices.ContainsFunc(l, func(id int32) bool { return !b.live(id) }) })
}

// TestPlacementMovesLittle: when one of several comes back, no more preferred leaders move
// than it is short of, and none between the others.
func TestPlacementMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "sidecars")
		seats := make([]seat, n)
		for i := range seats {
			seats[i] = seat{id: 10001 + int32(i), rack: string(rune('a' + i%3)), trust: steady}
		}
		parts := make([]place, rapid.IntRange(1, 40).Draw(t, "partitions"))
		start := rapid.IntRange(0, 9).Draw(t, "start")
		update := func(lists [][]int32) {
			for i := range parts {
				parts[i].has = lists[i]
			}
		}
		update(placeVirtual(seats, longGone, parts, 2, start))
		lost := rapid.IntRange(0, n-1).Draw(t, "lost")
		rest := slices.Delete(slices.Clone(seats), lost, lost+1)
		update(placeVirtual(rest, longGone, parts, 2, start))
		before := make([][]int32, len(parts))
		for i := range parts {
			before[i] = parts[i].has
		}
		after := placeVirtual(seats, longGone, parts, 2, start)
		moved := 0
		for i := range after {
			if after[i][0] != before[i][0] {
				moved++
				if after[i][0] != seats[lost].id && n > 2 {
					t.Fatalf("partition %d: %v became %v, %d is back", i, before[i], after[i], seats[lost].id)
				}
			}
		}
		if limit := (len(parts) + n - 1) / n; moved > limit {
			t.Fatalf("%d leaders moved, %d would do", moved, limit)
		}
	})
}

// TestPlacementOfTopics: what is placed anew is even over each topic as well as over all.
func TestPlacementOfTopics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seats := seatsIn([]string{"a", "b", "a", "c", "b"}[:rapid.IntRange(1, 5).Draw(t, "sidecars")]...)
		var parts []place
		for topic := range rapid.IntRange(1, 6).Draw(t, "topics") {
			for p := range rapid.IntRange(1, 9).Draw(t, "partitions") {
				parts = append(parts, place{tp: ids.TopicPartition{TopicID: ids.UUID{byte(topic)}, Partition: int32(p)}})
			}
		}
		lead := map[topicSeat]int{}
		for i, list := range placeVirtual(seats, longGone, parts, 2, rapid.IntRange(0, 4).Draw(t, "start")) {
			lead[topicSeat{parts[i].tp.TopicID, list[0]}]++
		}
		for i := range parts {
			for _, a := range seats {
				for _, b := range seats {
					if id := parts[i].tp.TopicID; lead[topicSeat{id, a.id}]-lead[topicSeat{id, b.id}] > 1 {
						t.Fatalf("topic %v is led unevenly: %v", id, lead)
					}
				}
			}
		}
	})
}
