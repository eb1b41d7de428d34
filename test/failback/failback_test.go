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
	sides := startSides(t, 2, 1)
	a, b := sides[0], sides[1]
	const there, back = "a-to-b", "home-again"
	b.create(t, there, a)
	t.Run("divergent tails on both sides", func(t *testing.T) { testDiverged(t, a, b, there, back) })
	t.Run("nothing is copied twice", func(t *testing.T) { testClean(t, a, b, there, "clean-back") })
	t.Run("the link is not known", func(t *testing.T) { testUnknown(t, a, b, back) })
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

	b.users.ProduceSync(t.Context()) // nothing: b is quiet from here on
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
	if err := b.tryStart(t, there, topic, false); err != nil {
		t.Fatal(err)
	}
	b.waitState(t, there, mirroring, topic)
	waitEqual(t, topic, a, b)
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
