package leading

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

func TestReconsider(t *testing.T) {
	r := newRig(t)
	r.failback(Consent{Truncate: true}, [3]int64{125, 125, 120})
	if err := r.probed(ProbeAnswer{SourceEnd: 130}); err != nil {
		t.Fatal(err)
	}
	r.phase(Refused)
	r.forget()
	r.m.Reconsider(r.now)
	r.take()
	r.phase(ReadingState)
	if got := r.last(ReadState{}).(ReadState); got.Epoch != rigEpoch {
		t.Errorf("%+v", got)
	}
	// Whoever was heard before is asked again.
	r.state(lineage.NewRecord(), consented)
	r.phase(Collecting)
}

func TestReconsiderOnlyWhatWasRefused(t *testing.T) {
	r := newRig(t)
	r.leads(80)
	r.forget()
	r.m.Reconsider(r.now)
	r.take()
	r.phase(Leading)
	r.none(ReadState{}, "nothing was refused")
}

// TestHandBackIsNotReconsidered: what a hand-back was told of stays as it is (R17).
func TestHandBackIsNotReconsidered(t *testing.T) {
	r := newRig(t)
	r.failback(Consent{Truncate: true}, [3]int64{125, 125, 120})
	if err := r.probed(ProbeAnswer{SourceEnd: 130}); err != nil {
		t.Fatal(err)
	}
	r.m.Quiesce(r.now)
	r.take()
	r.last(Quiesced{})
	r.forget()
	r.m.Reconsider(r.now)
	r.take()
	r.phase(Refused)
	r.none(ReadState{}, "it is being handed back")
}

func TestStuck(t *testing.T) {
	r := newRig(t)
	r.collected([3]int64{100, 90, 80})
	r.metadata(isr(1, 2))
	if r.m.Stuck() {
		t.Error("stuck before it leads")
	}
	r = newRig(t)
	r.leads(70)
	r.metadata(isr(1, 2))
	if r.m.Stuck() {
		t.Error("what a member lacks is not to be read")
	}
	r.ingest(BatchInfo{50, 79, 1})
	if !r.m.Stuck() {
		t.Error("not stuck with two of five in sync")
	}
	r.metadata(isr(1, 2, 3))
	if r.m.Stuck() {
		t.Error("stuck with enough in sync")
	}
}

// TestAnswerOfATakeoverThatBeganAnew: what was asked before the operator's word says nothing of what is
// there after it.
func TestAnswerOfATakeoverThatBeganAnew(t *testing.T) {
	r := newRig(t)
	asking := func() AskHighWatermarks {
		t.Helper()
		r.state(oneChain(), consented)
		for id := int32(1); id <= 3; id++ {
			r.fetch(id, 80, 4)
		}
		r.phase(AskingHW)
		return r.last(AskHighWatermarks{}).(AskHighWatermarks)
	}
	r.metadata(nil)
	before := asking()
	r.m.Consented(r.now)
	r.take()
	after := asking()
	answered := func(a AskHighWatermarks, hw int64) {
		r.m.HighWatermarks(r.now, a.Epoch, a.Seq, map[int32]int64{1: hw}, nil)
		r.take()
	}
	answered(before, 10)
	r.phase(AskingHW)
	answered(after, 70)
	r.phase(Probing)
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		t.Fatal(err)
	}
	r.hw(70)
}
