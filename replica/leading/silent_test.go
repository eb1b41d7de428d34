package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// alone lets only the followers given fetch for a time, at the log's end, and the controller
// confirm what is asked for.
func (r *rig) alone(d time.Duration, end int64, fetching ...int32) {
	r.t.Helper()
	const step = time.Second
	for range d / step {
		for _, id := range fetching {
			last := rigEpoch
			if end == 80 {
				last = 4
			}
			r.fetch(id, end, last)
		}
		r.fetch(v2, 0, -1)
		r.pass(step)
		if a, ok := r.find(AlterPartition{}); ok && a.(AlterPartition).PartitionEpoch == r.view.PartitionEpoch && r.phaseIs(Leading) {
			r.metadata(isr(r.proposed()...))
		}
	}
}

func (r *rig) phaseIs(p Phase) bool { return r.m.Status().Phase == p }

// again is the next takeover of the same machine.
func (r *rig) again() {
	r.t.Helper()
	r.metadata(func(v *View) { v.Leader, v.LeaderEpoch = v2, v.LeaderEpoch+1 })
	r.metadata(func(v *View) { v.Leader, v.LeaderEpoch = v1, v.LeaderEpoch+1 })
	r.state(chains(map[int32]lineage.Chain{
		3: {{Epoch: 3, SourceEpoch: 0, Start: 0}},
		4: {{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}},
	}), consented)
}

// TestSilentFollower: a broker that lives and does not fetch gets a new leader epoch, once it
// has left the ISR.
func TestSilentFollower(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(r *rig)
		gone   bool // silent for a reason that a new epoch does not cure
	}{
		{"alive", func(*rig) {}, false},
		{"fenced", func(r *rig) { r.broker(3, func(b *BrokerView) { b.Fenced = true }) }, true},
		{"shutting down", func(r *rig) { r.broker(3, func(b *BrokerView) { b.ShuttingDown = true }) }, true},
		{"excused", func(r *rig) { r.broker(3, func(b *BrokerView) { b.Excused = true }) }, true},
		{"a stop is under way", func(r *rig) { r.m.Quiesce(r.now) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.follows(100)
			for id := int32(1); id <= 3; id++ {
				r.fetch(id, 100, rigEpoch)
			}
			tc.before(r)
			r.alone(maxLag-time.Second, 100, 1, 2)
			r.none(Silent{}, "not silent for long enough")
			r.alone(5*time.Second, 100, 1, 2)
			if tc.gone {
				r.none(Silent{}, "a new epoch would not help")
				return
			}
			if s := r.last(Silent{}).(Silent); s.Replica != 3 || s.Times != 1 || s.Final {
				t.Errorf("%+v", s)
			}
			if slices.Contains(r.view.ISR, 3) {
				t.Error("the next takeover has to wait for it")
			}
			r.phase(Resigned)
			r.last(Resign{})
		})
	}
}

// broker changes what the metadata log says of a broker.
func (r *rig) broker(id int32, f func(b *BrokerView)) {
	r.t.Helper()
	r.metadata(func(v *View) {
		b := v.Brokers[id]
		f(&b)
		v.Brokers[id] = b
	})
}

// TestSilentSinceAlive: a broker that was dead, or whose process is new, has time to come.
func TestSilentSinceAlive(t *testing.T) {
	for _, tc := range []struct {
		name string
		back func(b *BrokerView)
	}{
		{"unfenced", func(b *BrokerView) { b.Fenced = false }},
		{"registered anew", func(b *BrokerView) { b.Fenced = false; b.Epoch++ }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.follows(100)
			for id := int32(1); id <= 3; id++ {
				r.fetch(id, 100, rigEpoch)
			}
			r.broker(3, func(b *BrokerView) { b.Fenced = true })
			r.alone(3*maxLag, 100, 1, 2)
			r.broker(3, tc.back)
			r.alone(maxLag-time.Second, 100, 1, 2)
			r.none(Silent{}, "it has just come back")
			r.alone(3*time.Second, 100, 1, 2)
			r.last(Silent{})
		})
	}
}

// TestSilentLastMember: the last real member stays in the ISR, and is cured there.
func TestSilentLastMember(t *testing.T) {
	r := newRig(t)
	r.follows(100)
	r.metadata(isr(v1, v2, 1))
	r.broker(2, func(b *BrokerView) { b.Fenced = true })
	r.broker(3, func(b *BrokerView) { b.Fenced = true })
	r.alone(maxLag+2*time.Second, 100)
	if s := r.last(Silent{}).(Silent); s.Replica != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSilentForEver: what two new epochs did not cure is left to people, who see it, and to
// whom it is told when it is over. The others are served on.
func TestSilentForEver(t *testing.T) {
	met := func(t *testing.T, r *rig, times int) {
		t.Helper()
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.marks(map[int32]int64{1: 80})
		if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
			t.Fatal(err)
		}
		r.phase(Leading)
		r.forget()
		r.alone(maxLag+5*time.Second, 80, 1, 2)
		if s := r.last(Silent{}).(Silent); s.Replica != 3 || s.Times != times || s.Final != (times == maxSilences) {
			t.Fatalf("time %d: %+v", times, s)
		}
	}
	forEver := func(t *testing.T) *rig {
		r := newRig(t)
		r.leads(80)
		r.again()
		for n := 1; n <= maxSilences; n++ {
			met(t, r, n)
			if n < maxSilences {
				r.phase(Resigned)
				r.again()
			}
		}
		r.phase(Leading)
		r.none(Resign{}, "it did not help")
		if got := r.m.LeftToPeople(); !slices.Equal(got, []int32{3}) {
			t.Fatalf("left to people: %v", got)
		}
		return r
	}
	t.Run("others are served", func(t *testing.T) {
		r := forEver(t)
		r.forget()
		r.alone((silenceMemory+1)*maxLag, 80, 1, 2)
		r.none(Silent{}, "told once")
		r.none(Resign{}, "left to people")
		r.ingest(BatchInfo{80, 99, 1})
		r.persisted()
		if d := r.fetch(1, 80, 4); d.Serve != ServeBuffer {
			t.Errorf("%+v", d)
		}
	})
	t.Run("it comes back", func(t *testing.T) {
		r := forEver(t)
		r.fetch(3, 80, 4)
		if h := r.last(Heard{}).(Heard); h.Replica != 3 || len(r.m.LeftToPeople()) > 0 {
			t.Errorf("%+v, left to people: %v", h, r.m.LeftToPeople())
		}
	})
	t.Run("it dies", func(t *testing.T) {
		r := forEver(t)
		r.broker(3, func(b *BrokerView) { b.Fenced = true })
		r.last(Heard{})
	})
	t.Run("a new process of it", func(t *testing.T) {
		r := forEver(t)
		r.broker(3, func(b *BrokerView) { b.Epoch++ })
		r.last(Heard{})
		r.alone(maxLag+2*time.Second, 80, 1, 2)
		if s := r.last(Silent{}).(Silent); s.Times != 1 {
			t.Errorf("the former process counts: %+v", s)
		}
	})
	t.Run("long ago", func(t *testing.T) {
		r := forEver(t)
		r.fetch(3, 80, 4)
		r.alone((silenceMemory+1)*maxLag, 80, 1, 2, 3)
		r.alone(maxLag+5*time.Second, 80, 1, 2)
		if s := r.last(Silent{}).(Silent); s.Times != 1 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("people try again", func(t *testing.T) {
		r := forEver(t)
		r.m.Forgive(r.now)
		r.take()
		if s := r.last(Silent{}).(Silent); s.Times != 1 || s.Final {
			t.Errorf("%+v", s)
		}
		r.phase(Resigned)
	})
}

// TestSilentDuringTakeover: the last real member in sync cannot reach this broker, without which
// there is no takeover. Who is not in sync is not waited for.
func TestSilentDuringTakeover(t *testing.T) {
	for _, tc := range []struct {
		name string
		isr  []int32
		want bool
	}{
		{"the last member", []int32{v1, v2, 3}, true},
		{"not a member", []int32{v1, v2, 1}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(isr(tc.isr...))
			r.state(chains(nil), consented)
			r.phase(Collecting)
			for _, id := range []int32{1, 2} {
				if !slices.Contains(tc.isr, id) {
					r.fetch(id, 0, lineage.Undefined)
				}
			}
			r.broker(1, func(b *BrokerView) { b.Excused = slices.Contains(tc.isr, 1) })
			for range (maxLag + 2*time.Second) / time.Second {
				r.fetch(2, 0, lineage.Undefined)
				r.pass(time.Second)
			}
			if _, met := r.find(Silent{}); met != tc.want {
				t.Errorf("silence was met: %t", met)
			}
		})
	}
}

// TestSilentTakeoverGoesOn: a takeover that waits for a follower serves nobody. While a peer could
// lead, which the follower may reach, it is left to people only for a time, longer each time.
func TestSilentTakeoverGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		peer func(v *View)
		want bool
	}{
		{"a peer in sync", func(*View) {}, true},
		{"no peer in sync", isr(v1, 3), false},
		{"a fenced peer", func(v *View) { v.Brokers[v2] = BrokerView{Fenced: true} }, false},
		{"a peer that shuts down", func(v *View) { v.Brokers[v2] = BrokerView{ShuttingDown: true} }, false},
		{"an unknown peer", func(v *View) { delete(v.Brokers, v2) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(isr(v1, v2, 3))
			r.metadata(tc.peer)
			moved := r.now
			moves := func(until time.Duration) {
				for r.phaseIs(Collecting) && r.now.Sub(moved) < until {
					r.alone(time.Second, 0)
				}
			}
			for n := 1; n < maxSilences; n++ {
				r.again()
				moves(2 * maxLag)
				r.phase(Resigned)
				moved = r.now
			}
			for _, factor := range []int{1, 2, 4, 8, 8} {
				wait := time.Duration(factor*silenceMemory) * maxLag
				r.again()
				r.forget()
				r.alone(maxLag+2*time.Second, 0)
				if s := r.last(Silent{}).(Silent); !s.Final || !slices.Equal(r.m.LeftToPeople(), []int32{3}) {
					t.Fatalf("%+v, left to people: %v", s, r.m.LeftToPeople())
				}
				moves(wait - time.Second)
				r.none(Resign{}, "too early")
				moves(wait + 2*time.Second)
				if !tc.want {
					r.phase(Collecting)
					return
				}
				r.phase(Resigned)
				if !r.last(Resign{}).(Resign).Silence {
					t.Error("it counts as a divergence does")
				}
				moved = r.now
			}
		})
	}
}

// TestSilentIsWhoDoesNotFetch: a follower whose Fetches are answered with an error is there; a new
// epoch would answer the same.
func TestSilentIsWhoDoesNotFetch(t *testing.T) {
	for _, tc := range []struct {
		name      string
		offset    int64
		lastEpoch int32
		want      func(d Decision) bool
	}{
		{"diverging", 100, 4, func(d Decision) bool { return d.Diverging }},
		{"out of range", 500, lineage.Undefined, func(d Decision) bool { return d.Code == CodeOffsetOutOfRange }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.follows(100)
			for range 2 * maxLag / time.Second {
				if d := r.fetch(3, tc.offset, tc.lastEpoch); !tc.want(d) {
					t.Fatalf("%+v", d)
				}
				r.alone(time.Second, 100, 1, 2)
			}
			r.none(Silent{}, "it fetches")
			r.alone(maxLag+2*time.Second, 100, 1, 2)
			r.last(Silent{})
		})
	}
}

// TestSilentAmongAll: without a real member in the ISR a takeover waits for those that are eligible, or
// for all. One that lives and does not fetch would hold it up for ever.
func TestSilentAmongAll(t *testing.T) {
	giveUp := consented
	giveUp.GiveUp = true
	for _, tc := range []struct {
		name    string
		elr     []int32
		consent Consent
		want    bool
	}{
		{"nobody is eligible", nil, consented, true},
		{"it is eligible", []int32{3}, consented, true},
		{"another one is, and dead", []int32{1}, consented, false},
		{"that one was given up", []int32{1}, giveUp, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.metadata(func(v *View) {
				v.ISR, v.ELR, v.LastRealISR = []int32{v1, v2}, tc.elr, []int32{1}
				v.Brokers[1] = BrokerView{Epoch: 101, Fenced: true}
			})
			r.state(chains(nil), tc.consent)
			for range (maxLag + 2*time.Second) / time.Second {
				r.fetch(2, 0, lineage.Undefined)
				r.pass(time.Second)
			}
			if s, met := r.find(Silent{}); met != tc.want || met && s.(Silent).Replica != 3 {
				t.Errorf("met: %t, %+v", met, s)
			}
		})
	}
}
