package coordinator

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const virtual = ids.Virtual(10000)

func TestMayHandBack(t *testing.T) {
	p := func(leader int32, isr ...int32) *metadata.Partition {
		return &metadata.Partition{Replicas: []int32{10001, 10002, 1, 2, 3}, ISR: isr, Leader: leader, LeaderEpoch: 7}
	}
	quiesced := PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 7}
	for name, c := range map[string]struct {
		p      *metadata.Partition
		s      PartitionState
		dead   []int32
		waited bool
		minISR int
		want   []int32 // nil: must wait
		first  []int32 // a real broker has to lead first
		wait   string
	}{
		"quiesced, all in sync":                 {p: p(10001, 10001, 1, 2, 3), s: quiesced, want: []int32{1, 2, 3}},
		"still mirroring":                       {p: p(10001, 10001, 1, 2, 3), s: PartitionState{State: Mirroring, LeaderEpoch: 7}, wait: "10001"},
		"quiesced under an earlier epoch":       {p: p(10001, 10001, 1, 2, 3), s: PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 6}, wait: "10001"},
		"leader died after it quiesced":         {p: p(10002, 10002, 1, 2, 3), s: PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 6}, wait: "10002"},
		"R17 live laggard is waited for":        {p: p(10001, 10001, 1, 2), s: quiesced, wait: "broker 3 is alive"},
		"R17 dead one is left out":              {p: p(10001, 10001, 1, 2), s: quiesced, dead: []int32{3}, want: []int32{1, 2}},
		"R17 waited, enough in sync":            {p: p(10001, 10001, 1, 2), s: quiesced, waited: true, minISR: 2, want: []int32{1, 2}},
		"R17 waited, too few in sync":           {p: p(10001, 10001, 1), s: quiesced, waited: true, minISR: 2, first: []int32{1, 2, 3}, wait: "so that broker 2, 3 gets in sync"},
		"R17 waited, leader does not get there": {p: p(10001, 10001, 1, 2), s: PartitionState{State: Mirroring, LeaderEpoch: 7}, waited: true, minISR: 1, first: []int32{1, 2, 3}, wait: "broker 3"},
		"R17 waited, dead virtual leader":       {p: p(10001, 10001, 1, 2), s: PartitionState{State: Mirroring, LeaderEpoch: 7}, dead: []int32{10001}, waited: true, minISR: 1, first: []int32{1, 2, 3}, wait: "broker 3"},
		"source dead, live laggard":             {p: p(10001, 10001, 1, 2), s: PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: 7}, minISR: 2, first: []int32{1, 2, 3}, wait: "broker 3"},
		"source dead, dead one":                 {p: p(10001, 10001, 1, 2), s: PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: 7}, dead: []int32{3}, minISR: 2, want: []int32{1, 2}},
		"source dead, all but one dead":         {p: p(10001, 10001, 1), s: PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: 7}, dead: []int32{2, 3}, minISR: 2, want: []int32{1}},
		"all but one dead":                      {p: p(10001, 10001, 1), s: quiesced, dead: []int32{2, 3}, minISR: 2, want: []int32{1}},
		"R17 a real leader waits too":           {p: p(2, 1, 2), s: quiesced, minISR: 2, wait: "broker 3 is alive but not in sync"},
		"R17 a real leader, waited":             {p: p(2, 1, 2), s: quiesced, waited: true, minISR: 2, want: []int32{2, 1}},
		"R17 a real leader, too few":            {p: p(2, 2), s: quiesced, waited: true, minISR: 2, wait: "waiting for broker 1, 3"},
		"R18 a real leader, dead one":           {p: p(2, 1, 2), s: quiesced, dead: []int32{3}, minISR: 2, want: []int32{2, 1}},
		"R19 STOPPED, assigned, laggard":        {p: p(10001, 10001, 1, 2), s: PartitionState{State: Stopped, LeaderEpoch: 6}, first: []int32{1, 2, 3}, wait: "broker 3"},
		"R18 a real broker leads":               {p: p(2, 1, 2, 3), s: PartitionState{State: Mirroring, LeaderEpoch: 3}, want: []int32{2, 1, 3}},
		"R19 STOPPED and assigned again":        {p: p(10001, 10001, 1, 2, 3), s: PartitionState{State: Stopped, LeaderEpoch: 6}, want: []int32{1, 2, 3}},
		"source dead":                           {p: p(10001, 10001, 1, 2, 3), s: PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: 7}, want: []int32{1, 2, 3}},
		"no real member":                        {p: p(10001, 10001, 10002), s: quiesced, wait: "no real replica is in sync"},
		"dead virtual leader":                   {p: p(10001, 10001, 1, 2, 3), s: PartitionState{State: Mirroring}, dead: []int32{10001}, wait: "session ends"},
		"nobody leads":                          {p: p(-1, 1, 2, 3), s: quiesced, wait: "no replica leads"},
	} {
		t.Run(name, func(t *testing.T) {
			h := mayHandBack(virtual, c.p, c.s, func(b int32) bool { return !slices.Contains(c.dead, b) }, c.waited, c.minISR)
			want := c.want
			if c.first != nil {
				want = c.first
			}
			if h.ready != (c.want != nil) || h.realFirst != (c.first != nil) || !slices.Equal(h.target, want) || !strings.Contains(h.wait, c.wait) {
				t.Errorf("got %+v", h)
			}
		})
	}
}

// TestHandBackTarget: whatever the situation, a hand-back goes to real members of the ISR
// only, and to at least one; a live replica is left out only behind a leader that has had its time.
func TestHandBackTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []int32{10001, 10002, 1, 2, 3}
		subset := func(name string) []int32 {
			return slices.DeleteFunc(slices.Clone(all), func(int32) bool { return rapid.Bool().Draw(t, name) })
		}
		p := &metadata.Partition{Replicas: all, ISR: subset("isr"), Leader: rapid.SampledFrom(append(all, -1)).Draw(t, "leader"), LeaderEpoch: 7}
		s := PartitionState{
			State: rapid.SampledFrom(allStates()).Draw(t, "state"), LeaderEpoch: rapid.Int32Range(6, 7).Draw(t, "epoch"),
			Detail: rapid.SampledFrom([]string{"", DetailQuiesced, DetailSourceUnavailable}).Draw(t, "detail"),
		}
		alive := subset("alive")
		waited := rapid.Bool().Draw(t, "waited")
		h := mayHandBack(virtual, p, s, func(b int32) bool { return slices.Contains(alive, b) }, waited, rapid.IntRange(1, 3).Draw(t, "min"))
		if h.ready == (h.wait != "") {
			t.Fatalf("ready without a target or waiting without a reason: %+v", h)
		}
		for _, b := range h.target {
			if virtual.Is(b) || h.ready && !slices.Contains(p.ISR, b) || !slices.Contains(p.ISR, b) && !slices.Contains(alive, b) {
				t.Fatalf("target %v, ISR %v", h.target, p.ISR)
			}
		}
		for _, b := range virtual.Real(alive) {
			if len(h.target) > 0 && !waited && !slices.Contains(h.target, b) {
				t.Fatalf("target %v leaves out live broker %d", h.target, b)
			}
		}
		if h.ready && len(h.target) == 0 {
			t.Fatal("nobody left")
		}
	})
}

func ptr(s string) *string { return &s }

func TestLockAndRestore(t *testing.T) {
	copied := map[string]string{"max.message.bytes": "2000000", "retention.ms": "-1", "cleanup.policy": "compact"}
	own := map[string]string{"min.insync.replicas": "3", "unclean.leader.election.enable": "true", "retention.ms": "1000"}
	topic := Topic{Wanted: wantedConfigs(own, copied)}
	if n := configuredMinISR(topic, 1); n != 3 {
		t.Errorf("min.insync.replicas: %d", n)
	}
	synced := syncedConfigs(copied)
	if len(synced) != 2 || synced["retention.ms"] != "-1" || synced["cleanup.policy"] != "compact" {
		t.Errorf("synced %v", synced)
	}
	locked := lockConfigs(3, 2)
	if locked["min.insync.replicas"] != "5" || locked["max.message.bytes"] != "0" || locked["unclean.leader.election.enable"] != "false" || locked["remote.storage.enable"] != "false" {
		t.Errorf("lock %v", locked)
	}
	back := restoreConfigs(topic, locked)
	if *back["max.message.bytes"] != "2000000" || *back["min.insync.replicas"] != "3" || *back["unclean.leader.election.enable"] != "true" {
		t.Errorf("restored %v", back)
	}
	if v, ok := back["remote.storage.enable"]; !ok || v != nil {
		t.Error("a config that the topic did not have is removed again")
	}
	done := map[string]string{"max.message.bytes": "2000000", "min.insync.replicas": "3", "unclean.leader.election.enable": "true"}
	if again := restoreConfigs(topic, done); len(again) != 0 {
		t.Errorf("restoring twice changes nothing: %v", again)
	}
	if none := restoreConfigs(Topic{}, locked); len(none) != 0 {
		t.Errorf("a topic that was never locked is left alone: %v", none)
	}
}

func TestRememberedReplicas(t *testing.T) {
	parts := []*metadata.Partition{
		{Partition: 0, Replicas: []int32{10001, 1, 2, 3}},
		{Partition: 1, Replicas: []int32{10001, 1, 2, 3}},
	}
	known, changed := rememberReplicas(nil, virtual, parts, map[int32][]int32{0: {2, 1}, 1: {1, 2, 3}})
	if !changed || len(known) != 1 || !slices.Equal(known[0], []int32{1, 2, 3}) {
		t.Fatalf("%v %v", known, changed)
	}
	after := []*metadata.Partition{{Partition: 0, Replicas: []int32{2, 1}}, {Partition: 1, Replicas: []int32{1, 2, 3}}}
	topic := Topic{RealReplicas: known}
	missing := missingReplicas(topic, virtual, after, func(int32) bool { return true })
	if len(missing) != 1 || !slices.Equal(missing[0], []int32{2, 1, 3}) {
		t.Errorf("missing %v", missing)
	}
	if m := missingReplicas(topic, virtual, after, func(b int32) bool { return b != 3 }); len(m) != 0 {
		t.Errorf("a broker that is not registered any more: %v", m)
	}
	if _, again := rememberReplicas(known, virtual, after, map[int32][]int32{0: {2}}); again {
		t.Error("what is remembered is not overwritten by what is left")
	}
}

func TestLongestFirst(t *testing.T) {
	if got := longestFirst([]int32{1, 2, 3}, map[int32]int64{1: 5, 3: 9}); !slices.Equal(got, []int32{3, 1, 2}) {
		t.Errorf("got %v", got)
	}
}

// TestStaleWriter is R20: a writer of an earlier leader epoch, or one that has not read
// the state it changes, is refused and nothing is written.
func TestStaleWriter(t *testing.T) {
	v := NewView()
	k := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}}}
	v.apply([]record{{kind: kindState, partition: k, value: PartitionState{State: Mirroring, LeaderEpoch: 5, StateEpoch: 3}}}, nil)
	for name, c := range map[string]struct {
		w    stateWrite
		want error
	}{
		"old leader":             {stateWrite{key: k, leaderEpoch: 4, state: &PartitionState{State: Failed, StateEpoch: -1}}, ErrFencedLeaderEpoch},
		"old leader's lineage":   {stateWrite{key: k, leaderEpoch: 4, lineage: ptrTo(rec(nil))}, ErrFencedLeaderEpoch},
		"old state":              {stateWrite{key: k, leaderEpoch: 5, state: &PartitionState{State: Failed, StateEpoch: 2}}, ErrFencedStateEpoch},
		"no such step":           {stateWrite{key: k, leaderEpoch: 5, state: &PartitionState{State: Stopped, StateEpoch: 3}}, ErrTransition},
		"right":                  {stateWrite{key: k, leaderEpoch: 5, state: &PartitionState{State: Stopping, StateEpoch: 3}}, nil},
		"newer leader, no check": {stateWrite{key: k, leaderEpoch: 6, state: &PartitionState{State: Mirroring, StateEpoch: -1}}, nil},
	} {
		records, err := check(v, c.w)
		if codeOf(err) != codeOf(c.want) || c.want != nil && len(records) > 0 {
			t.Errorf("%s: %v, %v", name, records, err)
		}
		if c.want == nil {
			s, ok := records[0].value.(PartitionState)
			if !ok || s.StateEpoch != 4 || s.LeaderEpoch != c.w.leaderEpoch {
				t.Errorf("%s: %+v", name, records[0].value)
			}
		}
	}
	same := stateWrite{key: k, leaderEpoch: 5, state: &PartitionState{State: Mirroring, StateEpoch: -1}}
	if records, err := check(v, same); err != nil || len(records) != 0 {
		t.Errorf("the same again is not written: %v %v", records, err)
	}
}

func ptrTo[T any](v T) *T { return &v }

func TestErrorCodes(t *testing.T) {
	for _, err := range []error{ErrFencedLeaderEpoch, ErrFencedStateEpoch, ErrTransition, ErrNotCoordinator, ErrNoCoordinator} {
		if back := errorOf(codeOf(err), ptr("why")); codeOf(back) != codeOf(err) || !strings.Contains(back.Error(), "why") {
			t.Errorf("%v comes back as %v", err, back)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a-to-b", "A.b_9"} {
		if err := checkName(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a b", "a:b", "x.stopped", "x.paused", "x.removed", strings.Repeat("x", 250)} {
		if checkName(bad) == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}

// TestTowards: seen on 4.4: a replica that is being added and removed at once keeps the
// reassignment pending for ever.
func TestTowards(t *testing.T) {
	p := &metadata.Partition{Replicas: []int32{10001, 10002, 1, 2}, Adding: []int32{10001, 10002}}
	if got := towards(p, []int32{1, 2}); got != nil {
		t.Errorf("got %v, want a cancel", got)
	}
	if got := towards(p, []int32{10002, 10001, 1, 2}); len(got) != 4 {
		t.Errorf("got %v", got)
	}
	p.Adding = nil
	if got := towards(p, []int32{1, 2}); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}
