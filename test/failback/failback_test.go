package failback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// TestFailback: b mirrors from a, takes over, and a comes back.
func TestFailback(t *testing.T) {
	sides := startSides(t, 3, 1)
	a, b := sides[0], sides[1]
	const there, back = "a-to-b", "home-again"
	b.create(t, there, a)
	t.Run("divergent tails on both sides", func(t *testing.T) { testDiverged(t, a, b, there, back) })
	t.Run("nothing is copied twice", func(t *testing.T) { testClean(t, a, b, there, "clean-back") })
	t.Run("the link is not known", func(t *testing.T) { testUnknown(t, a, b, back) })
	t.Run("many epochs on both sides", func(t *testing.T) { testEpochs(t, a, b, there, "epochs-back") })
	t.Run("one of two partitions", func(t *testing.T) { testMixed(t, a, b, there, back) })
	t.Run("a dead replica comes back", func(t *testing.T) { testDeadReplica(t, a, b, there, back) })
	t.Run("two ways", func(t *testing.T) { testTwoWays(t, a, b, there, back) })
	t.Run("a circle of two", func(t *testing.T) { testCircle(t, a, b, there, back) })
}

func testDiverged(t *testing.T, a, b *side, there, back string) {
	const topic = "diverged"
	a.topic(t, 2, topic)
	for p := range int32(2) {
		a.write(t, topic, p, 200, "first")
	}
	// A transaction of a's is open when b stops: b ends it with an ABORT marker, which has to
	// come home as one of a's own producer.
	tx := client(t, a.Proxies(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("open-at-failover"))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 0, Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
	point := map[int32]int64{}
	parts, err := b.describe(t.Context(), there, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		point[p.PartitionIndex] = p.LastMirrorOffset
	}
	if want := a.endsT(t, topic); point[0] != want[0] || point[1] != want[1] {
		t.Fatalf("last mirror offsets %v, the source ended at %v", point, want)
	}

	// Both go on alone.
	if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	tails := map[int32]int{0: 15, 1: 7}
	for p, n := range tails {
		a.write(t, topic, p, n, "left-behind")
		b.write(t, topic, p, 30+n, "carried-on")
	}

	a.create(t, back, b)
	before := a.bytesOf(t, topic)
	if held := a.holds(t, topic, "left-behind-6"); len(held) != 2*a.brokers {
		t.Fatalf("what was left behind is on %v", held)
	}
	lost := a.endsT(t, topic)
	for p := range lost {
		lost[p] -= point[p]
	}
	if lost[0] != 16 || lost[1] != 7 { // one marker
		t.Fatalf("%v records to lose", lost)
	}
	refusedWith(t, a, back, topic, lost)
	a.untouched(t, topic, before)
	// It is nobody's mirror topic now.
	a.write(t, topic, 1, 2, "left-behind-too")
	lost[1] += 2
	refusedWith(t, a, back, topic, lost)
	a.replicasAgree(t, topic)

	a.start(t, back, topic, true)
	// All members of the ISR had cut their tails before it was MIRRORING.
	for _, tail := range []string{"left-behind-0", "left-behind-6", "left-behind-too-1"} {
		if still := a.holds(t, topic, tail); len(still) > 0 {
			t.Errorf("%q is MIRRORING and still holds %s: %v", topic, tail, still)
		}
	}
	waitEqual(t, topic, b, a)
	b.write(t, topic, 0, 20, "goes-on")
	waitEqual(t, topic, b, a)

	// And back again: a leads once more, b follows, as before the failover.
	a.stopMirror(t, back, topic)
	a.write(t, topic, 0, 10, "a-again")
	fetched := b.fetchedBytes(t, there)
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	if n := b.fetchedBytes(t, there) - fetched; n > 2000 {
		t.Errorf("%.0f bytes were fetched for 10 records", n)
	}
	b.stopMirror(t, there, topic)
}

// refusedWith starts a topic without consent and waits until it is refused with the number
// of records, and handed back.
func refusedWith(t *testing.T, s *side, mirror, topic string, records map[int32]int64) {
	t.Helper()
	if err := s.tryStart(t, mirror, topic, false); err != nil {
		t.Fatalf("start %s: %v; the link is known, so it is looked at once it is fenced", topic, err)
	}
	var parts []protocol.DescribedPartition
	eventually(t, "the start is refused", func(ctx context.Context) (err error) {
		if parts, err = s.describe(ctx, mirror, topic); err != nil {
			return err
		}
		for _, p := range parts {
			if p.State != failed || text(p.Detail) != "CONSENT_NEEDED" {
				return fmt.Errorf("partition %d is in state %d (%s %s)", p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
		return nil
	})
	for _, p := range parts {
		if said := text(p.ErrorMessage); !slices.Contains(strings.Fields(said), fmt.Sprint(records[p.PartitionIndex])) {
			t.Errorf("partition %d is refused with %q, want %d records", p.PartitionIndex, said, records[p.PartitionIndex])
		}
	}
	s.waitOrdinary(t, topic)
}

// testClean is a planned switchover and back: only what is new is copied.
func testClean(t *testing.T, a, b *side, there, back string) {
	const topic = "clean"
	a.topic(t, 2, topic)
	for p := range int32(2) {
		a.write(t, topic, p, 500, strings.Repeat("much-", 100))
	}
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
	a.create(t, back, b) // a mirror of its own, so that its bytes are counted apart
	a.start(t, back, topic, false)
	waitEqual(t, topic, b, a)
	if n := a.fetchedBytes(t, back); n != 0 {
		t.Errorf("%.0f bytes were fetched although nothing is new", n)
	}
	b.write(t, topic, 0, 10, "new")
	waitEqual(t, topic, b, a)
	n := a.fetchedBytes(t, back)
	if n == 0 || n > 2000 {
		t.Errorf("%.0f bytes were fetched for 10 records", n)
	}
	t.Logf("fetched %.0f bytes for 10 new records behind 1000 old ones", n)
	a.stopMirror(t, back, topic)
}

// testEpochs: leaders change at both ends while b mirrors, and at a after that. The way
// home is found through all of their epochs.
func testEpochs(t *testing.T, a, b *side, there, back string) {
	const topic = "epochs"
	a.topic(t, 1, topic)
	a.write(t, topic, 0, 100, "first")
	a.moveLeader(t, topic)
	a.write(t, topic, 0, 100, "second")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	a.moveLeader(t, topic)
	a.write(t, topic, 0, 100, "third")
	waitEqual(t, topic, a, b)
	for round := range 2 {
		b.restartSidecars(t)
		a.write(t, topic, 0, 50, fmt.Sprintf("round %d", round))
		a.moveLeader(t, topic)
		a.write(t, topic, 0, 50, fmt.Sprintf("round %d and again", round))
		waitEqual(t, topic, a, b)
	}
	b.stopMirror(t, there, topic)
	a.moveLeader(t, topic) // an epoch without a record
	a.create(t, back, b)
	a.start(t, back, topic, false)
	waitEqual(t, topic, b, a)
	if n := a.fetchedBytes(t, back); n != 0 {
		t.Errorf("%.0f bytes were fetched although nothing is new", n)
	}
	b.write(t, topic, 0, 30, "b leads")
	a.restartSidecars(t)
	b.write(t, topic, 0, 30, "b leads on")
	waitEqual(t, topic, b, a)
	a.stopMirror(t, back, topic)
	a.write(t, topic, 0, 5, "a again")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
}

// testMixed: only one of two partitions holds what would have to go. The other one mirrors,
// the topic is read only, and the operator's word lets the rest follow.
func testMixed(t *testing.T, a, b *side, there, back string) {
	const topic = "half"
	a.topic(t, 2, topic)
	a.write(t, topic, 0, 40, "first")
	a.write(t, topic, 1, 40, "first")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
	a.write(t, topic, 0, 9, "left-behind")
	b.write(t, topic, 0, 20, "carried-on")
	b.write(t, topic, 1, 20, "carried-on")
	if err := a.tryStart(t, back, topic, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one partition is refused, the other mirrors", func(ctx context.Context) error {
		parts, err := a.describe(ctx, back, topic)
		if err != nil {
			return err
		}
		for i, want := range []int8{failed, mirroring} {
			if p := parts[i]; p.State != want {
				return fmt.Errorf("partition %d is in state %d (%s %s)", i, p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
		if said := text(parts[0].ErrorMessage); !slices.Contains(strings.Fields(said), "9") {
			return fmt.Errorf("refused with %q", said)
		}
		return nil
	})
	if held := a.holds(t, topic, "left-behind-8"); len(held) != a.brokers {
		t.Errorf("what was refused is on %v", held)
	}
	if err := a.tryWrite(t, topic, 1, 1, "no"); err == nil {
		t.Error("a topic that is half a mirror topic took a write")
	}
	req := protocol.NewRecoverMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = back, []string{topic}, true
	resp, err := a.ask(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.RecoverMirrorTopicsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil || len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("recover: %v %+v", err, r.Topics)
	}
	a.waitState(t, back, mirroring, topic)
	waitEqual(t, topic, b, a)
	a.stopMirror(t, back, topic)
}

// testDeadReplica: a broker of a is dead during all of it. What it holds too much must go
// when it comes back.
func testDeadReplica(t *testing.T, a, b *side, there, back string) {
	const topic = "one-dead"
	a.topic(t, 1, topic)
	a.write(t, topic, 0, 60, "first")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
	a.write(t, topic, 0, 12, "left-behind")
	b.write(t, topic, 0, 25, "carried-on")
	brokers := a.Cluster.Brokers()
	dead := brokers[len(brokers)-1]
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	alone := func(ctx context.Context) error {
		d, err := a.details(ctx, topic)
		if err != nil {
			return err
		}
		if p := d.Partitions[0]; len(p.ISR) != a.brokers-1 || p.Leader == dead.ID() || len(p.Replicas) != a.brokers {
			return fmt.Errorf("leader %d, replicas %v, in sync %v", p.Leader, p.Replicas, p.ISR)
		}
		return nil
	}
	eventually(t, "the broker is seen to be dead", alone)
	if err := a.tryStart(t, back, topic, false); err != nil {
		t.Fatal(err)
	}
	a.waitState(t, back, failed, topic)
	eventually(t, "handed back to who lives, and the dead replica is not forgotten", alone)
	a.write(t, topic, 0, 1, "left-behind-alone")

	a.start(t, back, topic, true)
	b.write(t, topic, 0, 5, "goes-on")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := dead.Start(ctx); err != nil {
		t.Fatal(err)
	}
	waitEqual(t, topic, b, a)
	if still := a.holds(t, topic, "left-behind"); len(still) > 0 {
		t.Errorf("still there: %v", still)
	}
	a.stopMirror(t, back, topic)
}

// testUnknown fails back after the mirror was deleted, and what it knew with it.
func testUnknown(t *testing.T, a, b *side, back string) {
	const topic, there = "forgotten", "for-now"
	b.create(t, there, a)
	a.topic(t, 1, topic)
	a.write(t, topic, 0, 120, "first")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
	b.delete(t, there)
	b.write(t, topic, 0, 5, "carried-on")
	before := a.bytesOf(t, topic)
	err := a.tryStart(t, back, topic, false)
	if err == nil || !slices.Contains(strings.Fields(err.Error()), "120") {
		t.Fatalf("started with %v, want a refusal that names 120 records", err)
	}
	a.untouched(t, topic, before)
	a.write(t, topic, 0, 1, "still-writable")
	a.start(t, back, topic, true)
	waitEqual(t, topic, b, a)
	a.stopMirror(t, back, topic)
}

// testTwoWays mirrors one topic each way at the same time.
func testTwoWays(t *testing.T, a, b *side, there, back string) {
	const east, west = "eastward", "westward"
	a.topic(t, 1, east)
	b.topic(t, 1, west)
	a.write(t, east, 0, 50, "e")
	b.write(t, west, 0, 50, "w")
	b.start(t, there, east, false)
	a.start(t, back, west, false)
	a.write(t, east, 0, 50, "e2")
	b.write(t, west, 0, 50, "w2")
	waitEqual(t, east, a, b)
	waitEqual(t, west, b, a)
	if err := a.tryWrite(t, west, 0, 1, "no"); err == nil {
		t.Errorf("a mirror topic took a write")
	}
	b.stopMirror(t, there, east)
	a.stopMirror(t, back, west)
}

// testCircle wants one topic both ways.
func testCircle(t *testing.T, a, b *side, there, back string) {
	const topic = "circle"
	a.topic(t, 1, topic)
	a.write(t, topic, 0, 30, "round")
	b.start(t, there, topic, false)
	waitEqual(t, topic, a, b)
	before := a.bytesOf(t, topic)
	for _, allow := range []bool{false, true} {
		err := a.tryStart(t, back, topic, allow)
		if err == nil || !strings.Contains(err.Error(), "mirror loop") {
			t.Fatalf("started with %v, want a refusal of the loop", err)
		}
		t.Log(err)
	}
	a.untouched(t, topic, before)
	a.write(t, topic, 0, 5, "a leads as before")
	waitEqual(t, topic, a, b)
	b.stopMirror(t, there, topic)
}

// TestChain: c mirrors from b what b mirrors from a.
func TestChain(t *testing.T) {
	sides := startSides(t, 1, 1, 1)
	a, b, c := sides[0], sides[1], sides[2]
	const topic = "handed-on"
	b.create(t, "from-a", a)
	c.create(t, "from-b", b)
	a.create(t, "from-c", c)
	a.topic(t, 1, topic)
	a.write(t, topic, 0, 100, "first")
	b.start(t, "from-a", topic, false)
	c.start(t, "from-b", topic, false)
	a.write(t, topic, 0, 100, "second")
	waitEqual(t, topic, a, b, c)

	err := a.tryStart(t, "from-c", topic, true)
	if err == nil || !strings.Contains(err.Error(), "mirror loop") {
		t.Fatalf("started with %v, want a refusal of the loop through %s and %s", err, c.Cluster.ID(), b.Cluster.ID())
	}
	t.Log(err)
	a.write(t, topic, 0, 10, "third")
	waitEqual(t, topic, a, b, c)

	// The middle takes over; the end of the chain goes on with it, and then on its own.
	b.stopMirror(t, "from-a", topic)
	b.write(t, topic, 0, 10, "the middle leads")
	waitEqual(t, topic, b, c)
	c.stopMirror(t, "from-b", topic)
	c.write(t, topic, 0, 10, "the end leads")
}
