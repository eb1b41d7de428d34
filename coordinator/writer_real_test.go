package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestStaleWriterOnBrokers: whoever was the coordinator of a state partition, and was paused while
// another one took over, is refused by the brokers, in the middle of a write as well.
func TestStaleWriterOnBrokers(t *testing.T) {
	harness.SkipShort(t)
	dst := harness.StartT(t, harness.Config{Name: "destination", Brokers: 2})
	w := &cable{sides: map[int32]*side{}}
	sides := []*side{startSide(t, dst, 1, w), startSide(t, dst, 2, w)}
	a, b := sides[0].store, sides[1].store
	ctx := t.Context()
	if err := a.Create(ctx); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, b.img, "both see the state topic", func() bool { return b.Partitions() > 0 })
	// Of no mirror that there is, so nobody else has a reason to write there.
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}}}
	partition, _ := a.PartitionOf(key.text())
	written := func(text string) record {
		return record{kind: kindState, partition: key, value: PartitionState{State: Failed, ErrorMessage: text}}
	}
	is := func(s *Store, text string) bool {
		st, ok := s.View().State(key.mirror, key.tp)
		return ok && st.ErrorMessage == text
	}

	if err := a.Put(ctx, written("nobody")); !errors.Is(err, ErrNotCoordinator) {
		t.Errorf("written by nobody: %v", err)
	}
	if err := a.Acquire(ctx, partition); err != nil {
		t.Fatal(err)
	}
	if err := a.Put(ctx, written("first")); err != nil {
		t.Fatal(err)
	}

	// a stands still in the middle of a write.
	paused := a.writers.get(partition)
	if err := paused.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	k, v, err := encodeRecord(written("stale"))
	if err != nil {
		t.Fatal(err)
	}
	if err := paused.ProduceSync(ctx, &kgo.Record{Topic: StateTopic, Partition: partition, Key: k, Value: v}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := b.Acquire(ctx, partition); err != nil {
		t.Fatal(err)
	}
	t.Logf("taken over from a writer with an open transaction in %v", time.Since(began).Round(time.Millisecond))
	if !is(b, "first") {
		t.Error("who took over does not know what was committed")
	}
	if err := b.Put(ctx, written("second")); err != nil {
		t.Fatal(err)
	}
	if err := paused.EndTransaction(ctx, kgo.TryCommit); !fenced(err) {
		t.Errorf("the stale commit: %v", err)
	}
	if err := a.Put(ctx, written("stale too")); err == nil {
		t.Error("the stale writer's next write is taken")
	}
	if a.Holds(partition) {
		t.Error("the stale writer has not noticed")
	}

	// a stands still between two writes.
	if err := a.Acquire(ctx, partition); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, written("stale three")); !errors.Is(err, ErrNotCoordinator) {
		t.Errorf("a stale write without anything open: %v", err)
	}
	if err := a.Put(ctx, written("third")); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, b.img, "both know the last write", func() bool { return is(a, "third") && is(b, "third") })

	reader := dst.ClientT(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{StateTopic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var seen []string
	for !slices.Contains(seen, "third") {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if rec, err := decodeRecord(r.Key, r.Value, 0); err == nil && rec.kind == kindState {
				seen = append(seen, rec.value.(PartitionState).ErrorMessage)
			}
		})
	}
	if !slices.Equal(seen, []string{"first", "second", "third"}) {
		t.Errorf("committed: %v", seen)
	}

	// A writer that is dead, and nobody writes: who reads has it taken over.
	dead := a.writers.get(partition)
	if err := dead.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := dead.ProduceSync(ctx, &kgo.Record{Topic: StateTopic, Partition: partition, Key: k, Value: v}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	a.release(partition, dead)
	began = time.Now()
	if s, err := sides[1].ReadState(ctx, key.mirror, key.tp); err != nil || s.ErrorMessage != "third" {
		t.Errorf("read behind a dead writer: %+v, %v", s, err)
	}
	took := time.Since(began)
	t.Logf("read behind a dead writer after %v", took.Round(time.Millisecond))
	if took > transactionTimeout {
		t.Error("the transaction has timed out")
	}
	if err := a.Acquire(ctx, partition); err != nil {
		t.Fatal(err)
	}
	latencies(t, a, partition, written)
}

// latencies says what a transaction costs; it judges nothing.
func latencies(t *testing.T, s *Store, partition int32, written func(string) record) {
	const rounds = 100
	measure := func(what string, pause time.Duration, f func(i int) error) {
		var took []time.Duration
		for i := range rounds {
			time.Sleep(pause) // the brokers end a transaction a moment after they have said so
			began := time.Now()
			if err := f(i); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%s: median %v, 99th percentile %v", what, took[rounds/2].Round(10*time.Microsecond), took[rounds*99/100].Round(10*time.Microsecond))
	}
	measure("written and read back without a transaction", 0, func(int) error { return s.Barrier(t.Context(), partition) })
	measure("written and read back in a transaction", 0, func(i int) error { return s.Put(t.Context(), written(fmt.Sprint(i))) })
	measure("the same, 30 ms after the last one", 30*time.Millisecond, func(i int) error { return s.Put(t.Context(), written(fmt.Sprint(i))) })
	measure("taken over", 0, func(int) error { return s.Acquire(t.Context(), partition) })
}

// TestWritesOfManyLeaders: writes that wait for each other go in few transactions, each
// checked against those before it.
func TestWritesOfManyLeaders(t *testing.T) {
	harness.SkipShort(t)
	dst := harness.StartT(t, harness.Config{Name: "destination", Brokers: 1})
	s := startSide(t, dst, 1, &cable{sides: map[int32]*side{}})
	if err := s.store.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	const leaders, rounds = 50, 4
	began := time.Now()
	var wg sync.WaitGroup
	for i := range leaders {
		tp := ids.TopicPartition{TopicID: ids.UUID{1}, Partition: int32(i)}
		wg.Go(func() {
			for epoch := range int32(rounds) {
				state := PartitionState{State: []State{LogTruncation, Mirroring, Stopping, Stopped}[epoch], StateEpoch: -1}
				if err := s.WriteState(t.Context(), "m", tp, epoch, state); err != nil {
					t.Error(err)
				}
				if err := s.WriteState(t.Context(), "m", tp, epoch-1, state); !errors.Is(err, ErrFencedLeaderEpoch) {
					t.Errorf("an old leader's write: %v", err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d leaders wrote %d times each in %v", leaders, rounds, time.Since(began).Round(time.Millisecond))
	for i := range leaders {
		st, _ := s.View().State("m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: int32(i)})
		if st.State != Stopped || st.LeaderEpoch != rounds-1 || st.StateEpoch != rounds {
			t.Errorf("partition %d: %+v", i, st)
		}
	}
}
