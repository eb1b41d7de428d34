package replica

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// resigner is a virtual broker that counts how often it gave up leadership.
type resigner struct{ times atomic.Int32 }

func (r *resigner) Epoch() int64 { return 10 }

func (r *resigner) GiveUpLeadership(context.Context) error {
	r.times.Add(1)
	return nil
}

// TestSilentFollowerIsLeftToPeople: what new epochs did not cure makes the partition FAILED with
// the broker's name, although it goes on, until that broker fetches again or people ask for a try.
func TestSilentFollowerIsLeftToPeople(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(r *laggardRig, epoch int32)
	}{
		{"it fetches again", func(r *laggardRig, epoch int32) {
			r.p.step(func(now time.Time) {
				r.p.machine.Fetch(now, leading.FetchRequest{Replica: 1, BrokerEpoch: 11, CurrentLeaderEpoch: epoch, LastFetchedEpoch: lineage.Undefined})
			})
			r.reported(Aligned)
			if st := r.m.Status(); st[0].ErrorMessage != "" {
				r.t.Errorf("described as %+v", st)
			}
		}},
		{"people ask for a try", func(r *laggardRig, _ int32) {
			before := r.m.broker.(*resigner).times.Load()
			r.wish(func(mt *MirrorTopic) { mt.Since++ })
			r.until("a new epoch is begun", func() bool { return r.m.broker.(*resigner).times.Load() == before+1 })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newLaggardRig(t)
			b := &resigner{}
			r.m.broker = b
			epoch := wishEpoch
			silent := func() {
				for range 32 {
					r.pass(time.Second)
					r.caughtUp(epoch)
				}
			}
			for n := int32(1); n < 3; n++ {
				silent()
				r.until("leadership is given up", func() bool { return b.times.Load() == n })
				epoch++
				r.takeover(epoch)
			}
			silent()
			if rep := r.reported(Failing); !strings.Contains(rep.Message, "broker 1 ") {
				t.Errorf("reported %+v", rep)
			}
			if st := r.m.Status(); len(st) != 1 || !strings.Contains(st[0].ErrorMessage, "broker 1 ") {
				t.Errorf("described as %+v", st)
			}
			r.reading()
			if n := b.times.Load(); n != 2 {
				t.Errorf("leadership was given up %d times", n)
			}
			tc.end(r, epoch)
		})
	}
}

// TestThrottledFollowerIsExcused: who is told to fetch seldom has not given up.
func TestThrottledFollowerIsExcused(t *testing.T) {
	for list, want := range map[string]bool{"": false, "*": true, "0:1": false, "0:2": true, "1:2": false, "1:2,0:2": true, "0:22": false} {
		r := newWishRig(t)
		r.m.broker = &resigner{}
		p := &metadata.Partition{Topic: "t", TopicID: r.tp.TopicID, Replicas: []int32{wishSelf, 1, 2}}
		r.m.image.Set([]*metadata.Partition{p}, []metadata.Broker{{ID: 1}, {ID: 2}}, map[string]map[string]string{
			"t": {"follower.replication.throttled.replicas": list},
		})
		if got := r.m.view(p).Brokers[2].Excused; got != want {
			t.Errorf("%q: excused %t", list, got)
		}
	}
}

// TestSilencesCountApart: what gave up leadership over silent followers makes no divergence wait,
// and each is bounded.
func TestSilencesCountApart(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		silences, divergences int
		want                  int32 // carried out at once
	}{
		{"both within bounds", maxMoves, maxResigns, maxMoves + maxResigns},
		{"too many silences", maxMoves + 1, 1, maxMoves + 1},
		{"too many divergences", 1, maxResigns + 1, 1 + maxResigns},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newWishRig(t)
			b := &resigner{}
			r.m.broker = b
			r.lead(wishEpoch)
			resign := func(times int, silence bool) {
				for range times {
					r.p.step(func(time.Time) {
						r.p.resignLocked(leading.Resign{Epoch: wishEpoch, Reason: "why", Silence: silence})
					})
				}
			}
			resign(tc.silences, true)
			resign(tc.divergences, false)
			r.until("leadership is given up", func() bool { return b.times.Load() >= tc.want })
			if tc.silences+tc.divergences > int(tc.want) {
				r.reported(Failing)
			}
			r.p.close()
			if n := b.times.Load(); n != tc.want {
				t.Errorf("leadership was given up %d times at once, want %d", n, tc.want)
			}
		})
	}
}

// TestTakeoverForgetsWhatWasTaken: what was read last may be what the takeover drops. Shown to
// the source again it would diverge for ever.
func TestTakeoverForgetsWhatWasTaken(t *testing.T) {
	r := newLaggardRig(t)
	r.reading()
	r.p.step(func(time.Time) { r.p.last = &batch.Anchor{Base: 90, Last: 99} })
	before := func() *batch.Anchor {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		return r.src.before
	}
	r.p.step(func(now time.Time) { r.p.failLocked(wishEpoch, errors.New("a source that is away")) })
	r.notReading()
	r.wish(func(mt *MirrorTopic) { mt.Since++ })
	r.reading()
	if before() == nil {
		t.Error("within an epoch the source is not shown what was read last")
	}
	_, adds := r.src.asked()
	r.takeover(wishEpoch + 1)
	r.until("reading of the next epoch", func() bool { _, now := r.src.asked(); return now > adds })
	if b := before(); b != nil {
		t.Errorf("shown %+v, of the former epoch", b)
	}
}

// TestHeardDuringATakeover: that a broker which people had to see to fetches again says nothing of
// the takeover. To be told that all is well is consent to what the next one drops (R20).
func TestHeardDuringATakeover(t *testing.T) {
	r := newWishRig(t)
	r.m.broker = &resigner{}
	r.consent = leading.Consent{Truncate: true} // a first start
	become := func(epoch int32, broker leading.BrokerView) {
		r.p.step(func(now time.Time) {
			r.p.machine.Metadata(now, leading.View{
				Leader: wishSelf, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishSelf, wishFollows}, MinISR: 1,
				Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: broker},
			})
		})
	}
	left := func() bool {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		return len(r.p.machine.LeftToPeople()) > 0
	}
	epoch := wishEpoch
	for ; !left(); epoch++ {
		if epoch == wishEpoch+20 {
			t.Fatal("nobody is asked to see to it")
		}
		become(epoch, leading.BrokerView{Epoch: 11})
		r.until("the state is read", func() bool { return r.phase() == leading.Collecting })
		for range 32 {
			r.pass(time.Second)
		}
	}
	epoch--
	r.reported(Failing)
	become(epoch, leading.BrokerView{Epoch: 12})
	r.until("all is told", func() bool {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		return !r.p.reporting
	})
	if left() {
		t.Fatal("its new process is held against it")
	}
	r.mu.Lock()
	for _, rep := range r.reports {
		if rep.Kind == Aligned {
			t.Error("reported that all is well before anybody has fetched")
		}
	}
	r.mu.Unlock()
	// The end of the takeover tells.
	become(epoch, leading.BrokerView{Epoch: 12, Fenced: true}) // not asked for anything by the network
	r.until("the takeover", func() bool {
		r.p.step(func(now time.Time) {
			r.p.machine.Fetch(now, leading.FetchRequest{Replica: wishFollows, BrokerEpoch: 12, CurrentLeaderEpoch: epoch, LastFetchedEpoch: lineage.Undefined})
		})
		return r.phase() == leading.Leading
	})
	r.p.step(func(now time.Time) {
		r.p.machine.Fetch(now, leading.FetchRequest{Replica: wishFollows, BrokerEpoch: 12, CurrentLeaderEpoch: epoch, LastFetchedEpoch: lineage.Undefined})
	})
	r.reported(Aligned)
}
