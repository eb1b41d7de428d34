package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestSeatsSettle lets sidecars come and go at random, and looks every second as a reconciler
// does. Whatever happened: while somebody is alive each partition has one who is, but for a
// moment; when nothing happens any more it is even within the longest time that a flapping
// sidecar is waited for, and then nothing moves.
func TestSeatsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const partitions, n = 7, 2
		sidecars := rapid.IntRange(2, 4).Draw(t, "sidecars")
		racks := make([]string, sidecars)
		for i := range racks {
			racks[i] = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "rack")
		}
		var (
			now   = time.Unix(1000, 0)
			live  = make([]bool, sidecars)
			epoch = make([]int64, sidecars)
			seen  = map[int32]presence{}
			known = map[int32]bool{}
			parts = make([]place, partitions)
			moves int
		)
		for i := range live {
			live[i], epoch[i] = true, 1
		}
		look := func() {
			var seats []seat
			for i := range live {
				id := 10001 + int32(i)
				seen[id] = seen[id].see(now, known[id], metadata.Broker{Epoch: epoch[i], Fenced: !live[i]}, true)
				known[id] = true
				if live[i] {
					seats = append(seats, seat{id: id, rack: racks[i], trust: seen[id].trust(now)})
				}
			}
			for i := range parts {
				parts[i].patience = goneGrace
				parts[i].fixed = slices.ContainsFunc(parts[i].has, func(id int32) bool { return !live[id-10001] })
				if parts[i].real = !slices.ContainsFunc(parts[i].has, func(id int32) bool { return live[id-10001] }); parts[i].real {
					parts[i].patience = realGrace
				}
			}
			for i, list := range placeVirtual(seats, func(id int32) time.Duration { return seen[id].gone(now) }, parts, n, 0) {
				if fmt.Sprint(parts[i].has) != fmt.Sprint(list) {
					moves++
				}
				parts[i].has = list
				alive := slices.ContainsFunc(list, func(id int32) bool { return live[id-10001] })
				coming := slices.ContainsFunc(list, func(id int32) bool { return seen[id].gone(now) < realGrace })
				if !alive && !coming && len(seats) > 0 {
					t.Fatalf("partition %d has %v, and nobody of those is alive", i, list)
				}
			}
		}
		look()
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			for range rapid.IntRange(1, 20).Draw(t, "seconds") {
				now = now.Add(time.Second)
				look()
			}
			i := rapid.IntRange(0, sidecars-1).Draw(t, "who")
			if live[i] = !live[i]; live[i] {
				epoch[i]++
			}
		}
		moves = 0
		longest := moveAfter << flapDoublings
		for range int((longest + 10*time.Second) / time.Second) {
			now = now.Add(time.Second)
			look()
		}
		// Each partition has what it lacks, once, is moved for evenness, and follows in that.
		if moves > 4*partitions {
			t.Errorf("%d moves after all had ended", moves)
		}
		moves = 0
		for range int(flapWindow / (5 * time.Second)) {
			now = now.Add(5 * time.Second)
			look()
		}
		if moves > 0 {
			t.Errorf("%d moves although nothing happened for long", moves)
		}
		lead := map[int32]int{}
		for _, p := range parts {
			if len(p.has) > 0 {
				lead[p.has[0]]++
			}
		}
		if slices.ContainsFunc(parts, func(p place) bool { return slices.ContainsFunc(p.has, func(id int32) bool { return !live[id-10001] }) }) {
			return // too few are left: nothing is moved but what has to be
		}
		for i := range live {
			for j := range live {
				if live[i] && live[j] && lead[10001+int32(i)]-lead[10001+int32(j)] > 1 {
					t.Errorf("not even: %v", lead)
				}
			}
		}
	})
}
