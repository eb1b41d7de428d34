package leading

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

const (
	v1 = int32(10001) // the machine under test
	v2 = int32(10002)

	rigEpoch = int32(5)
	maxLag   = 30 * time.Second
)

// rig drives one Machine by hand.
type rig struct {
	t    *testing.T
	m    *Machine
	now  time.Time
	view View
	acts []Action
}

// newRig: V1 leads epoch 5 of [V1 V2 1 2 3], all in the ISR, min.insync.replicas 3.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Unix(1e9, 0)}
	r.m = New(Config{Self: v1, Virtual: ids.Virtual(10000), MaxLag: maxLag})
	all := []int32{v1, v2, 1, 2, 3}
	r.view = View{
		Leader: v1, LeaderEpoch: rigEpoch, PartitionEpoch: 7, Replicas: all, ISR: all, MinISR: 3,
		Brokers: map[int32]BrokerView{},
	}
	for _, id := range all {
		r.view.Brokers[id] = BrokerView{Epoch: int64(100 + id)}
	}
	return r
}

func (r *rig) take() []Action {
	out := r.m.Take()
	r.acts = append(r.acts, out...)
	return out
}

// metadata changes the view; the partition epoch moves as the controller's would.
func (r *rig) metadata(f func(v *View)) {
	r.t.Helper()
	brokers := map[int32]BrokerView{}
	for id, b := range r.view.Brokers {
		brokers[id] = b
	}
	r.view.Brokers = brokers
	r.view.PartitionEpoch++
	if f != nil {
		f(&r.view)
	}
	r.m.Metadata(r.now, r.view)
	r.take()
}

func isr(members ...int32) func(*View) { return func(v *View) { v.ISR = members } }

func (r *rig) fetch(id int32, offset int64, last int32) Decision {
	r.t.Helper()
	d := r.m.Fetch(r.now, r.request(id, offset, last))
	r.take()
	return d
}

func (r *rig) request(id int32, offset int64, last int32) FetchRequest {
	return FetchRequest{
		Replica: id, BrokerEpoch: r.view.Brokers[id].Epoch, CurrentLeaderEpoch: r.view.LeaderEpoch, Offset: offset, LastFetchedEpoch: last,
	}
}

func (r *rig) state(rec lineage.Record, c Consent) {
	r.m.StateRead(r.now, r.view.LeaderEpoch, rec, c)
	r.take()
}

func (r *rig) marks(known map[int32]int64) {
	r.m.HighWatermarks(r.now, r.view.LeaderEpoch, r.m.asks, known, nil)
	r.take()
}

func (r *rig) probed(a ProbeAnswer) error {
	err := r.m.Probed(r.now, r.view.LeaderEpoch, a)
	r.take()
	return err
}

func (r *rig) ingest(batches ...BatchInfo) []int32 {
	r.t.Helper()
	stamps, err := r.m.Ingest(r.now, r.view.LeaderEpoch, batches, 0)
	if err != nil {
		r.t.Fatalf("Ingest(%v): %v", batches, err)
	}
	r.take()
	return stamps
}

// persisted acknowledges the newest Persist.
func (r *rig) persisted() {
	r.t.Helper()
	p := r.last(Persist{}).(Persist)
	r.m.Persisted(r.now, p.Epoch, p.Seq)
	r.take()
}

func (r *rig) altered(code int16, ambiguous bool) {
	r.t.Helper()
	a := r.last(AlterPartition{}).(AlterPartition)
	r.m.Altered(r.now, a.LeaderEpoch, a.PartitionEpoch, code, ambiguous)
	r.take()
}

func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.m.Tick(r.now)
	r.take()
}

// last returns the newest action of the type of like, which must be there.
func (r *rig) last(like Action) Action {
	r.t.Helper()
	if a, ok := r.find(like); ok {
		return a
	}
	r.t.Fatalf("no %T among %v", like, r.acts)
	return nil
}

func (r *rig) find(like Action) (Action, bool) {
	for _, a := range slices.Backward(r.acts) {
		if sameType(a, like) {
			return a, true
		}
	}
	return nil, false
}

func (r *rig) none(like Action, why string) {
	r.t.Helper()
	if a, ok := r.find(like); ok {
		r.t.Errorf("%s, but: %#v", why, a)
	}
}

func (r *rig) forget() { r.acts = nil }

func sameType(a, b Action) bool {
	switch a.(type) {
	case ReadState:
		_, ok := b.(ReadState)
		return ok
	case AskHighWatermarks:
		_, ok := b.(AskHighWatermarks)
		return ok
	case ProbeSource:
		_, ok := b.(ProbeSource)
		return ok
	case StartReading:
		_, ok := b.(StartReading)
		return ok
	case StopReading:
		_, ok := b.(StopReading)
		return ok
	case Persist:
		_, ok := b.(Persist)
		return ok
	case AlterPartition:
		_, ok := b.(AlterPartition)
		return ok
	case Resign:
		_, ok := b.(Resign)
		return ok
	case Truncated:
		_, ok := b.(Truncated)
		return ok
	case Foreign:
		_, ok := b.(Foreign)
		return ok
	case RefusedLoss:
		_, ok := b.(RefusedLoss)
		return ok
	case Quiesced:
		_, ok := b.(Quiesced)
		return ok
	case Ready:
		_, ok := b.(Ready)
		return ok
	case Rested:
		_, ok := b.(Rested)
		return ok
	case AppendReset:
		_, ok := b.(AppendReset)
		return ok
	case Drop:
		_, ok := b.(Drop)
		return ok
	case Silent:
		_, ok := b.(Silent)
		return ok
	case Heard:
		_, ok := b.(Heard)
		return ok
	}
	return false
}

func (r *rig) phase(want Phase) {
	r.t.Helper()
	if got := r.m.Status().Phase; got != want {
		r.t.Fatalf("phase %v, want %v", got, want)
	}
}

func (r *rig) hw(want int64) {
	r.t.Helper()
	if got := r.m.HighWatermark(); got != want {
		r.t.Errorf("high watermark %d, want %d", got, want)
	}
}

// proposed returns the members of the newest AlterPartition, nil if there was none.
func (r *rig) proposed() []int32 {
	a, ok := r.find(AlterPartition{})
	if !ok {
		return nil
	}
	var out []int32
	for _, m := range a.(AlterPartition).ISR {
		out = append(out, m.ID)
	}
	return out
}

var consented = Consent{Truncate: true, AllowLoss: true}

func chains(c map[int32]lineage.Chain) lineage.Record {
	rec := lineage.NewRecord()
	rec.Chains = c
	return rec
}

// collected goes on until S is known: the three real members report these log ends, of
// epoch 4 under the chain 3/0@0 4/1@50.
func (r *rig) collected(ends [3]int64) {
	r.t.Helper()
	r.metadata(nil)
	r.state(chains(map[int32]lineage.Chain{
		3: {{Epoch: 3, SourceEpoch: 0, Start: 0}},
		4: {{Epoch: 3, SourceEpoch: 0, Start: 0}, {Epoch: 4, SourceEpoch: 1, Start: 50}},
	}), consented)
	for i, end := range ends {
		r.fetch(int32(i+1), end, 4)
	}
	r.phase(AskingHW)
}

// leads: followers at 100, 90 and 80; S is 80, the high watermark known.
func (r *rig) leads(known int64) {
	r.t.Helper()
	r.collected([3]int64{100, 90, 80})
	r.marks(map[int32]int64{1: known})
	r.phase(Probing)
	if err := r.probed(ProbeAnswer{SourceEnd: 200}); err != nil {
		r.t.Fatal(err)
	}
	r.phase(Leading)
}

// follows lets all three real followers be at S, checked, so that the high watermark is
// there, and brings records up to end.
func (r *rig) follows(end int64) {
	r.t.Helper()
	r.leads(80)
	for id := int32(1); id <= 3; id++ {
		r.fetch(id, 80, 4)
	}
	r.ingest(BatchInfo{80, end - 1, 1})
	r.persisted()
}
