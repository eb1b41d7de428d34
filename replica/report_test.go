package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// TestEndIsNotReplaced: while the coordinator is away, a failure of the source that comes
// later does not keep the end of reading from it.
func TestEndIsNotReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		wish func(mt *MirrorTopic)
		kind ReportKind
	}{
		"stop":  {func(mt *MirrorTopic) { mt.Stopping = true }, Quiet},
		"pause": {func(mt *MirrorTopic) { mt.Paused = true }, Rests},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWishRig(t)
			r.lead(wishEpoch)
			r.reported(Aligned)
			r.mu.Lock()
			r.away = errors.New("the coordinator is away")
			r.mu.Unlock()
			r.wish(tc.wish)
			r.until("the end", func() bool {
				r.follow(wishEpoch)
				r.p.mu.Lock()
				defer r.p.mu.Unlock()
				return r.p.ended != nil && r.p.ended.report.Kind == tc.kind
			})
			for range 3 { // what is queued, and what is on its way
				r.p.report(wishEpoch, Report{Kind: Failing, Message: "the source is away"})
				r.p.report(wishEpoch, Report{Kind: Note, Detail: DetailSourceUnavailable})
				r.until("an attempt", func() bool {
					r.p.mu.Lock()
					defer r.p.mu.Unlock()
					return r.p.nextReport == nil
				})
			}
			r.mu.Lock()
			r.away = nil
			r.mu.Unlock()
			r.reported(tc.kind)
		})
	}
}

// TestEndIsToldAgain: what somebody has overwritten is told again, but only then.
func TestEndIsToldAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		wish func(mt *MirrorTopic)
		kind ReportKind
	}{
		"stop":  {func(mt *MirrorTopic) { mt.Stopping = true }, Quiet},
		"pause": {func(mt *MirrorTopic) { mt.Paused = true }, Rests},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWishRig(t)
			r.lead(wishEpoch)
			r.wish(tc.wish)
			r.follow(wishEpoch)
			r.pass(time.Millisecond)
			first := r.reported(tc.kind)
			told := func() {
				r.until("it was told", func() bool {
					r.p.mu.Lock()
					defer r.p.mu.Unlock()
					return !r.p.reporting
				})
			}
			told()
			r.pass(2 * assertAfter)
			r.mu.Lock()
			if len(r.reports) > 0 {
				t.Errorf("told again though it is on record: %+v", r.reports)
			}
			r.lost = true
			r.mu.Unlock()
			told()
			r.pass(2 * assertAfter)
			if again := r.reported(tc.kind); again != first {
				t.Errorf("told %+v, then %+v", first, again)
			}
			told()
			r.pass(assertAfter / 2)
			told()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.reports) > 0 {
				t.Errorf("told again too soon: %+v", r.reports)
			}
		})
	}
}

// TestConsentIsReadAgain: a refused takeover is tried again when its operator allows more.
func TestConsentIsReadAgain(t *testing.T) {
	for name, wish := range map[string]func(mt *MirrorTopic){
		"allowed": func(mt *MirrorTopic) { mt.AllowTruncate = true }, "started again": func(mt *MirrorTopic) { mt.Since++ },
	} {
		t.Run(name, func(t *testing.T) {
			r := newWishRig(t)
			r.consent = leading.Consent{}
			r.become(wishEpoch)
			r.until("it is refused", func() bool { return r.phase() == leading.Refused })
			r.mu.Lock()
			r.consent = leading.Consent{Truncate: true, AllowLoss: true}
			r.mu.Unlock()
			r.wish(wish)
			r.until("leading", func() bool {
				r.follow(wishEpoch)
				return r.phase() == leading.Leading
			})
			r.reported(Aligned)
		})
	}
}

// TestStuckReadsNothingUnderPressure: what cannot become visible leaves the memory to others.
func TestStuckReadsNothingUnderPressure(t *testing.T) {
	r := newWishRig(t)
	r.m.cfg.Buffers = pool.New(8 << 20)
	r.lead(wishEpoch)
	r.reading()
	room := func(what string, want bool) {
		t.Helper()
		if got := r.src.sink().Room(); got > 0 != want {
			t.Errorf("%s: room for %d bytes", what, got)
		}
	}
	shows := func(minISR int) {
		r.p.step(func(now time.Time) {
			r.p.machine.Metadata(now, leading.View{
				Leader: wishSelf, LeaderEpoch: wishEpoch, PartitionEpoch: wishEpoch + 1, Replicas: []int32{wishSelf, wishFollows}, ISR: []int32{wishFollows}, MinISR: minISR,
				Brokers: map[int32]leading.BrokerView{wishSelf: {Epoch: 10}, wishFollows: {Epoch: 11, Fenced: true}},
			})
		})
	}
	shows(2)
	room("stuck, with memory for all", true)
	held, err := r.m.cfg.Buffers.Reserve(t.Context(), 6<<20)
	if err != nil {
		t.Fatal(err)
	}
	room("stuck, and memory is scarce", false)
	shows(1)
	room("not stuck", true)
	shows(2)
	room("stuck again", false)
	held.Done()
	r.p.step(func(time.Time) { r.p.resumeLocked() })
	r.p.mu.Lock()
	if r.p.paused {
		t.Error("nothing wakes the reader when there is memory")
	}
	r.p.mu.Unlock()
	room("in the end", true)
}
