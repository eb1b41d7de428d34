package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// TestNotReadBackIsGivenUp: what was committed and is not in the own view must not be checked
// against; who acts next reads it first.
func TestNotReadBackIsGivenUp(t *testing.T) {
	r := newRig(t)
	tp := ids.TopicPartition{TopicID: ids.UUID{7}}
	if err := r.act(t.Context(), "m", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	partition, _ := r.store.PartitionOf("m")
	cl := r.store.writers.get(partition)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	far := []*kgo.Record{{Topic: StateTopic, Partition: partition, Offset: 1 << 40}}
	if err := r.store.own(gone, partition, cl, far); !errors.Is(err, context.Canceled) {
		t.Fatalf("read back what is not there: %v", err)
	}
	if r.store.Holds(partition) {
		t.Fatal("the next write would be checked against a view that lacks this one")
	}
	// As a whole: whoever asked goes away while it is written.
	for i := range 50 {
		was := fmt.Sprint(i)
		var err error
		_ = r.act(t.Context(), "m", func() error {
			err = r.store.Put(gone, record{kind: kindState, partition: partitionKey{"m", tp}, value: PartitionState{State: Failed, ErrorMessage: was}})
			return nil
		})
		if err == nil {
			continue // the reader was faster
		}
		_ = r.act(t.Context(), "m", func() error {
			if s, _ := r.view.State("m", tp); s.ErrorMessage != was {
				t.Errorf("who acts next sees %q, written was %q", s.ErrorMessage, was)
			}
			return nil
		})
		return
	}
}

// TestEqualWritesShareTheirFate: what needs no write since another one of the same
// transaction says it, or is refused because of that, is not answered before that is written.
func TestEqualWritesShareTheirFate(t *testing.T) {
	r := newRig(t)
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{7}}}
	queued := func(epoch int32) *queuedWrite {
		return &queuedWrite{write: stateWrite{key: key, leaderEpoch: epoch, state: &PartitionState{State: LogTruncation, StateEpoch: -1}}}
	}
	all := func() []*queuedWrite { return []*queuedWrite{queued(5), queued(5), queued(4)} }
	partition, _ := r.store.PartitionOf("m")
	r.store.release(partition, nil)
	writes := all()
	r.writeAll(t.Context(), writes) // nobody's: it cannot be written
	for i, w := range writes {
		if !w.done || !errors.Is(w.err, ErrNotCoordinator) {
			t.Errorf("write %d: done %t, %v", i, w.done, w.err)
		}
	}
	writes = all()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.act(ctx, "m", func() error { r.writeAll(ctx, writes); return nil }); err != nil {
		t.Fatal(err)
	}
	if writes[0].err != nil || writes[1].err != nil || !errors.Is(writes[2].err, ErrFencedLeaderEpoch) {
		t.Errorf("%v, %v, %v", writes[0].err, writes[1].err, writes[2].err)
	}
}

// TestFaultSparesAStop: a fault that was found before a stop began is not written over it.
func TestFaultSparesAStop(t *testing.T) {
	key := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{7}}}
	seen := PartitionState{State: Mirroring, StateEpoch: 4, LeaderEpoch: 3}
	v := NewView()
	v.apply([]record{{kind: kindState, partition: key, value: PartitionState{State: Stopping, Detail: DetailQuiesced, StateEpoch: 6, LeaderEpoch: 3}}}, nil)
	next, ok := faultyState(seen, "gone")
	if !ok || next.State != Failed {
		t.Fatalf("%+v, %t", next, ok)
	}
	if _, err := check(v, stateWrite{key: key, leaderEpoch: 3, state: &next}); !errors.Is(err, ErrFencedStateEpoch) {
		t.Errorf("QUIESCED is overwritten: %v", err)
	}
	now, _ := v.State(key.mirror, key.tp)
	if next, ok = faultyState(now, "gone"); ok {
		t.Errorf("STOPPING becomes %+v", next)
	}
}

// TestRefusalsOfReading: only a newer leader ends a takeover for good.
func TestRefusalsOfReading(t *testing.T) {
	for _, c := range []struct {
		err           error
		read, written bool
	}{
		{err: fmt.Errorf("x: %w", ErrFencedLeaderEpoch), read: true, written: true},
		{err: fmt.Errorf("x: %w", ErrTransition), read: false, written: true},
		{err: fmt.Errorf("x: %w", ErrFencedStateEpoch)},
		{err: ErrNoCoordinator},
	} {
		if got := errors.Is(fencedOnly(c.err), replica.ErrFenced); got != c.read {
			t.Errorf("%v ends reading: %t", c.err, got)
		}
		if got := errors.Is(final(c.err), replica.ErrFenced); got != c.written {
			t.Errorf("%v ends writing: %t", c.err, got)
		}
	}
}

// TestRecorded: when a leader need not tell again how reading has ended.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		now  PartitionState
		kind replica.ReportKind
		want bool
	}{
		{PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 5}, replica.Quiet, true},
		{PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: 5}, replica.Quiet, true},
		{PartitionState{State: Stopped, LeaderEpoch: 5}, replica.Quiet, true},
		{PartitionState{State: Stopping, LeaderEpoch: 5}, replica.Quiet, false},
		{PartitionState{State: Stopping, Detail: DetailQuiesced, LeaderEpoch: 4}, replica.Quiet, false},
		{PartitionState{State: Failed, LeaderEpoch: 5}, replica.Quiet, false},
		{PartitionState{State: Mirroring, LeaderEpoch: 5}, replica.Quiet, false},
		{PartitionState{State: Stopping, LeaderEpoch: 6}, replica.Quiet, true}, // somebody else leads
		{PartitionState{State: Unknown, LeaderEpoch: -1}, replica.Quiet, false},
		{PartitionState{State: Paused, LeaderEpoch: 5}, replica.Rests, true},
		{PartitionState{State: Pausing, LeaderEpoch: 5}, replica.Rests, false},
		{PartitionState{State: Failed, LeaderEpoch: 5}, replica.Rests, false},
		{PartitionState{State: Failed, LeaderEpoch: 6}, replica.Rests, true},
	} {
		if got := recorded(c.now, 5, c.kind); got != c.want {
			t.Errorf("report %d in %+v: %t", c.kind, c.now, got)
		}
	}
}
