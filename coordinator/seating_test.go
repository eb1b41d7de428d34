package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestMayChangeMinISR(t *testing.T) {
	p := func(isr []int32, elr ...int32) *metadata.Partition {
		return &metadata.Partition{Replicas: []int32{10001, 10002, 1, 2, 3}, ISR: isr, ELR: elr}
	}
	for name, c := range map[string]struct {
		parts      []*metadata.Partition
		have, want string
		may        bool
	}{
		"nothing changes":             {parts: []*metadata.Partition{p([]int32{10001})}, have: "4", want: "4", may: true},
		"not set yet":                 {parts: []*metadata.Partition{p([]int32{10001})}, have: "", want: "4", may: true},
		"lower, all in sync":          {parts: []*metadata.Partition{p([]int32{10002, 1, 2, 3})}, have: "4", want: "3", may: true},
		"lower, it moves then":        {parts: []*metadata.Partition{p([]int32{10002, 2, 3}, 1)}, have: "4", want: "3", may: true},
		"lower, it would not move":    {parts: []*metadata.Partition{p([]int32{10002, 1, 2, 3}), p([]int32{10002, 3}, 1, 2)}, have: "4", want: "3"},
		"lower, no real one in sync":  {parts: []*metadata.Partition{p([]int32{10002}, 1, 2)}, have: "4", want: "3"},
		"higher, few in sync":         {parts: []*metadata.Partition{p([]int32{10002, 3}, 1)}, have: "3", want: "4", may: true},
		"higher, no real one in sync": {parts: []*metadata.Partition{p([]int32{10002})}, have: "3", want: "4"},
		"not ours":                    {parts: []*metadata.Partition{{Replicas: []int32{1, 2}}}, have: "3", want: "4", may: true},
	} {
		if got := mayChangeMinISR(virtual, c.parts, 2, c.have, c.want); got != c.may {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMayElect(t *testing.T) {
	for name, c := range map[string]struct {
		p       metadata.Partition
		dead    []int32
		settled bool
		want    bool
	}{
		"it leads":                        {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10001, 10002, 1}, Leader: 10001}, settled: true},
		"another virtual one leads":       {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10001, 10002, 1}, Leader: 10002}, settled: true, want: true},
		"it is back for a moment":         {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10001, 10002, 1}, Leader: 10002}},
		"a real one leads, at once":       {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10001, 1}, Leader: 1}, want: true},
		"it is not in sync, so not ready": {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10002, 1}, Leader: 10002}, settled: true},
		"it is dead":                      {p: metadata.Partition{Replicas: []int32{10001, 10002, 1}, ISR: []int32{10001, 10002, 1}, Leader: 10002}, dead: []int32{10001}, settled: true},
		"nobody leads":                    {p: metadata.Partition{Replicas: []int32{10001, 1}, ISR: []int32{10001}, Leader: -1}, settled: true},
		"handed back":                     {p: metadata.Partition{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 2}, settled: true},
	} {
		live := func(id int32) bool { return !slices.Contains(c.dead, id) }
		if got := mayElect(virtual, &c.p, live, func(int32) bool { return c.settled }); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	all := []int32{10001, 10002, 1, 2}
	for name, c := range map[string]struct {
		p           metadata.Partition
		patience    time.Duration
		real, fixed bool
	}{
		"well":                        {p: metadata.Partition{Replicas: all, ISR: all, Leader: 10001}, patience: goneGrace},
		"one away, enough in sync":    {p: metadata.Partition{Replicas: all, ISR: []int32{10002, 1, 2}, Leader: 10002}, fixed: true, patience: goneGrace},
		"too few in sync":             {p: metadata.Partition{Replicas: all, ISR: []int32{10002, 1}, Leader: 10002}, fixed: true},
		"a real broker leads":         {p: metadata.Partition{Replicas: all, ISR: all, Leader: 1}, patience: realGrace, real: true},
		"nobody leads":                {p: metadata.Partition{Replicas: all, ISR: all, Leader: -1}, fixed: true, patience: goneGrace},
		"on its way":                  {p: metadata.Partition{Replicas: all, ISR: all, Leader: 10001, Removing: []int32{2}}, fixed: true, patience: goneGrace},
		"fewer replicas than the min": {p: metadata.Partition{Replicas: []int32{10001, 1}, ISR: []int32{10001, 1}, Leader: 10001}, patience: goneGrace},
	} {
		got := placeOf(virtual, &c.p, virtual.Only(c.p.Replicas), 3)
		if got.patience != c.patience || got.real != c.real || got.fixed != c.fixed {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSeatingOfMirror drives a mirror topic through a sidecar that goes, stays away and comes
// back.
func TestSeatingOfMirror(t *testing.T) {
	r := newRig(t)
	r.brokers = append(r.brokers, metadata.Broker{ID: 3}, metadata.Broker{ID: 10003, Rack: "c"})
	// The source is not asked and no default is: both are on record.
	top := r.mirrorTopic("s", Mirroring, Mirroring, Mirroring, Mirroring)
	one := "1"
	top.Wanted = map[string]*string{configMinISR: &one}
	r.put(record{kind: kindTopic, topic: topicKey{"m", "s"}, value: top})
	step := func() time.Duration {
		t.Helper()
		r.caughtUp()
		m, _ := r.view.Mirror("m")
		again, err := r.rec.mirrorTopic(t.Context(), m, r.topicT("s"))
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	lists := func() (out [][]int32) {
		for _, p := range r.img.TopicPartitions(top.TopicID) {
			out = append(out, virtual.Only(p.Replicas))
		}
		return out
	}
	age := func(d time.Duration) { // what was seen was seen that much earlier
		r.rec.mu.Lock()
		defer r.rec.mu.Unlock()
		for id, p := range r.rec.seen {
			p.since = p.since.Add(-d)
			for i := range p.returns {
				p.returns[i] = p.returns[i].Add(-d)
			}
			r.rec.seen[id] = p
		}
		clear(r.rec.seatings)
	}
	minISR := func() string { return r.img.TopicConfig("s")[configMinISR] }
	reassigned := func() int { return r.asked(kmsg.NewPtrAlterPartitionAssignmentsRequest().Key()) }

	if again := step(); again <= 0 || reassigned() != 0 || minISR() != "3" {
		t.Fatalf("at first nothing moves: %v, %v, min.insync.replicas %s", again, lists(), minISR())
	}
	age(time.Minute)
	step()
	lead := map[int32]int{}
	for _, l := range lists() {
		lead[l[0]]++
	}
	if len(lead) != 3 || reassigned() != 1 {
		t.Fatalf("with all of them steady it is even: %v", lists())
	}
	even := lists()

	r.alive(10001, false)
	if again := step(); again <= 0 || again > goneGrace || reassigned() != 1 {
		t.Fatalf("one that has just gone is waited for: %v, %v", again, lists())
	}
	age(goneGrace)
	step()
	for _, l := range lists() {
		if slices.Contains(l, 10001) || len(l) != 2 {
			t.Fatalf("one that stays away is replaced: %v", lists())
		}
	}
	r.alive(10003, false)
	step()
	if minISR() != "3" {
		t.Errorf("min.insync.replicas is %s a moment after a sidecar has gone", minISR())
	}
	age(goneGrace)
	step()
	if minISR() != "2" {
		t.Errorf("min.insync.replicas is %s with one sidecar left", minISR())
	}
	before := reassigned()
	if step(); reassigned() != before {
		t.Errorf("nobody is left to replace it, and yet: %v", lists())
	}
	r.registers(10003)
	step()
	if minISR() != "3" {
		t.Errorf("min.insync.replicas is %s with a sidecar that is about to be in sync", minISR())
	}
	r.alive(10003, true)
	r.alive(10001, true)
	step()
	if minISR() != "3" {
		t.Errorf("min.insync.replicas is %s with all of them back", minISR())
	}
	moved := reassigned()
	if step(); reassigned() != moved {
		t.Errorf("nothing moves to one that has just come back: %v", lists())
	}
	age(time.Minute)
	step()
	lead = map[int32]int{}
	for _, l := range lists() {
		lead[l[0]]++
	}
	if len(lead) != 3 {
		t.Errorf("it is even again: %v, was %v", lists(), even)
	}
	step() // those that are in sync by now are elected
	for _, p := range r.img.TopicPartitions(top.TopicID) {
		if p.Leader != p.Replicas[0] {
			t.Errorf("partition %d of %v is led by %d", p.Partition, p.Replicas, p.Leader)
		}
	}
}

// alive has a broker fenced or unfenced.
func (r *rig) alive(id int32, live bool) {
	r.mu.Lock()
	for i := range r.brokers {
		if r.brokers[i].ID == id {
			r.brokers[i].Fenced = !live
		}
	}
	r.mu.Unlock()
	r.caughtUp()
}

// registers has a new process register a dead broker; it is still fenced.
func (r *rig) registers(id int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.brokers {
		if r.brokers[i].ID == id {
			r.brokers[i].Epoch++
		}
	}
	r.showLocked()
}

// caughtUp lets every live replica get in sync, as the leaders do.
func (r *rig) caughtUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.parts {
		n := *p
		n.ISR = slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool {
			return slices.ContainsFunc(r.brokers, func(b metadata.Broker) bool { return b.ID == id && b.Fenced })
		})
		if !slices.Contains(n.ISR, n.Leader) {
			n.Leader, n.LeaderEpoch = n.ISR[0], n.LeaderEpoch+1
		}
		r.parts[i] = &n
	}
	r.showLocked()
}
