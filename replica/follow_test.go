package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestR21Shows: joining a real leader makes visible what only it has if the ISR is just one short
// of min.insync.replicas.
func TestR21Shows(t *testing.T) {
	const self = 10001
	replicas := []int32{10001, 10002, 1, 2, 3}
	for _, c := range []struct {
		name   string
		isr    []int32
		minISR int
		want   bool
	}{
		{"one short", []int32{1, 2}, 3, true},
		{"raised", []int32{1, 2}, 5, false},
		{"enough without it", []int32{1, 2, 3}, 3, false},
		{"more would be needed", []int32{1}, 3, false},
		{"in sync already", []int32{1, self}, 3, false},
		{"capped by the number of replicas", []int32{1, 2, 3, 10002}, 9, true},
	} {
		if got := leading.Shows(c.isr, replicas, self, c.minISR, ids.Virtual(10000).Is); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestR21ShowsTogether: of the virtual replicas that come at once as many join as make nothing
// visible together.
func TestR21ShowsTogether(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas []int32
		isr      []int32
		dead     int32
		minISR   int
		join     []int32
	}{
		{"two, all replicas are needed", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2, 3}, 0, 5, []int32{10001}},
		{"in the list's order", []int32{1, 10002, 2, 10001, 3}, []int32{1, 2, 3}, 0, 5, []int32{10002}},
		{"the first is dead", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2, 3}, 10001, 5, []int32{10002}},
		{"the first has joined", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2, 3, 10001}, 0, 5, nil},
		{"three, two short", []int32{10001, 10002, 10003, 1, 2, 3}, []int32{1, 2, 3}, 0, 6, []int32{10001, 10002}},
		{"not raised, a real one is missing", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2}, 0, 4, []int32{10001}},
		{"not raised", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2, 3}, 0, 4, nil},
		{"visible as it is", []int32{10001, 10002, 1, 2, 3}, []int32{1, 2, 3}, 0, 3, []int32{10001, 10002}},
	} {
		live := func(id int32) bool { return ids.Virtual(10000).Is(id) && id != c.dead }
		var join []int32
		for _, id := range c.replicas {
			if live(id) && !slices.Contains(c.isr, id) && !leading.Shows(c.isr, c.replicas, id, c.minISR, live) {
				join = append(join, id)
			}
		}
		if !slices.Equal(join, c.join) {
			t.Errorf("%s: %v join, want %v", c.name, join, c.join)
		}
	}
}

// TestR21Inevitable: where no min.insync.replicas hides what a join shows, waiting for one holds a
// failback up for nothing.
func TestR21Inevitable(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas []int32
		isr      []int32
		dead     int32
		want     bool
	}{
		{"one real, one virtual", []int32{10001, 1}, []int32{1}, 0, true},
		{"the other virtual one leads first", []int32{10001, 10002, 1}, []int32{1, 10002}, 0, false},
		{"the other virtual one is dead", []int32{10001, 10002, 1}, []int32{1, 10002}, 10002, true},
		{"a higher minimum hides it", []int32{10001, 10002, 1}, []int32{1}, 10002, false},
		{"a real one is missing", []int32{10001, 1, 2}, []int32{1}, 0, false},
	} {
		live := func(id int32) bool { return ids.Virtual(10000).Is(id) && id != c.dead }
		if got := leading.Inevitable(c.isr, c.replicas, 10001, live); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestR21WaitsForTheRaise: how long a virtual replica stays away from what it would make visible.
func TestR21WaitsForTheRaise(t *testing.T) {
	type look struct {
		after                   time.Duration
		shows, refused, blocked bool
		waits, says             bool
	}
	for name, looks := range map[string][]look{
		"it is raised":    {{0, true, false, false, true, true}, {50 * time.Second, true, false, false, true, true}, {51 * time.Second, false, false, false, false, false}},
		"nobody says no":  {{0, true, false, false, true, true}, {59 * time.Second, true, false, false, true, true}, {61 * time.Second, true, false, false, false, true}},
		"a policy does":   {{0, true, true, false, true, true}, {9 * time.Second, true, true, false, true, true}, {10 * time.Second, true, true, false, false, true}},
		"it does later":   {{0, true, false, false, true, true}, {20 * time.Second, true, true, false, false, true}},
		"it cannot be":    {{0, true, false, true, true, true}, {time.Hour, true, false, true, true, true}, {time.Hour + 59*time.Second, true, false, false, true, true}, {time.Hour + time.Minute, true, false, false, false, true}},
		"nothing to show": {{0, false, false, true, false, false}},
		// The leader loses a follower long after it was joined first.
		"one short again": {{0, true, false, false, true, true}, {5 * time.Second, false, false, false, false, false}, {time.Hour, true, false, false, true, true}},
	} {
		f, began := &follower{}, time.Unix(1e9, 0)
		for _, l := range looks {
			if waits, why := f.raise(began.Add(l.after), l.shows, l.refused, l.blocked); waits != l.waits || (why != "") != l.says {
				t.Errorf("%s, after %v: %t, %q", name, l.after, waits, why)
			}
		}
	}
}

// TestR21BlockedRaise: a partition without a real member in its ISR keeps the topic's minimum.
func TestR21BlockedRaise(t *testing.T) {
	well := &metadata.Partition{Replicas: []int32{10001, 1, 2}, ISR: []int32{1, 2}}
	alone := &metadata.Partition{Replicas: []int32{10001, 1, 2}, ISR: []int32{10001}}
	real := &metadata.Partition{Replicas: []int32{1, 2}}
	if v := ids.Virtual(10000); raiseBlocked(v, []*metadata.Partition{well, real}) || !raiseBlocked(v, []*metadata.Partition{well, alone}) {
		t.Error("a raise is blocked by what waits for a real replica, and by nothing else")
	}
}
