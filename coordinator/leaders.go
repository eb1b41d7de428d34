package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// Leaders is the state as the leader of mirror partitions uses it: it translates what a
// replica.Manager reports into transitions of the state machine.
type Leaders struct{ c *Coordinator }

var _ replica.State = Leaders{}

// NewLeaders returns the state of c for this sidecar's replica.Manager.
func NewLeaders(c *Coordinator) Leaders { return Leaders{c} }

// MirrorTopic implements replica.State.
func (l Leaders) MirrorTopic(id ids.UUID) (replica.MirrorTopic, bool) {
	t, m, ok := l.c.MirrorTopic(id)
	if !ok {
		return replica.MirrorTopic{}, false
	}
	return replica.MirrorTopic{
		Mirror: m.Name, Topic: t.Name, SourceTopicID: t.SourceTopicID, SourceClusterID: m.SourceClusterID, Since: t.Since,
		Stopping: t.Desired == Stopped, Paused: t.Desired == Paused, Fault: t.Fault, AllowTruncate: t.AllowTruncate, PIDReset: m.Configs["mirror.stop.pid.reset"] == "true",
		MinISR: l.c.ownMinISR(t), RaiseRefused: t.RaiseRefused,
	}, true
}

// Foreign implements replica.State.
func (l Leaders) Foreign(tp ids.TopicPartition) bool {
	s := l.c.sweeper.Load()
	return s != nil && s.Foreign(tp)
}

// GivenUp implements replica.State.
func (l Leaders) GivenUp(tp ids.TopicPartition) int64 {
	t, ok := l.c.view.TopicByID(tp.TopicID)
	if !ok {
		return 0
	}
	return t.GiveUp[tp.Partition]
}

// Lineage implements replica.State.
func (l Leaders) Lineage(mirror string, tp ids.TopicPartition) lineage.Record {
	r, _ := l.c.view.Lineage(mirror, tp)
	return r
}

// ReadLineage implements replica.State. The first leader of a start records
// LOG_TRUNCATION by it: from there on logs may be truncated.
func (l Leaders) ReadLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32) (lineage.Record, leading.Consent, error) {
	if err := l.fence(ctx, mirror, tp, leaderEpoch); err != nil {
		return lineage.Record{}, leading.Consent{}, fencedOnly(err)
	}
	s, err := l.c.ReadState(ctx, mirror, tp)
	if err != nil {
		return lineage.Record{}, leading.Consent{}, err
	}
	r, _ := l.c.view.Lineage(mirror, tp)
	t, ok := l.c.view.TopicByID(tp.TopicID)
	if !ok || t.Mirror != mirror {
		return r, leading.Consent{}, fmt.Errorf("mirror %s, partition %s: the topic is not in the mirror any more", mirror, tp)
	}
	if t.Desired == Mirroring && (s.State == Pausing || s.State == Paused) {
		// Resumed: on record before anything is truncated for it.
		if err := l.report(ctx, mirror, tp, leaderEpoch, s, replica.Report{Kind: replica.Aligned}); err != nil {
			return r, leading.Consent{}, fencedOnly(err)
		}
		s.State = Mirroring
	}
	return r, consent(s, t, tp.Partition), nil
}

// fence records leaderEpoch: see fenceState.
func (l Leaders) fence(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32) error {
	for {
		s, err := l.c.ReadState(ctx, mirror, tp)
		if err != nil {
			return err
		}
		t, ok := l.c.view.TopicByID(tp.TopicID)
		if !ok || t.Mirror != mirror {
			return fmt.Errorf("mirror %s, partition %s: the topic is not in the mirror any more", mirror, tp)
		}
		next, needed := fenceState(s, t, leaderEpoch)
		if !needed {
			return nil
		}
		err = l.c.WriteState(ctx, mirror, tp, leaderEpoch, next)
		if !errors.Is(err, ErrFencedStateEpoch) {
			return err
		}
		// Somebody wrote in between: look again.
	}
}

// consent is what a leader may do by the recorded state (R20): nothing is truncated but in
// LOG_TRUNCATION and MIRRORING, and a failed partition counts as what it was before. A
// pause that is not complete counts as MIRRORING, which it is on its way from; what is
// PAUSED is led as it is. A start drops nobody's records unasked; a mirror that runs
// follows its source. A replica with all data is given up by name only (R15).
func consent(s PartitionState, t Topic, partition int32) leading.Consent {
	_, giveUp := t.GiveUp[partition]
	state := s.State
	if state == Failed {
		state = s.Previous
	}
	switch {
	case t.Desired == Stopped || state == Stopping:
		return leading.Consent{GiveUp: giveUp}
	case t.Desired == Paused && state == Paused:
		return leading.Consent{AsItIs: true}
	}
	runs := state == Mirroring || state == Pausing
	return leading.Consent{Truncate: state != Paused, AllowLoss: runs || t.AllowTruncate, AllowUnknown: t.AllowTruncate, GiveUp: giveUp, Runs: runs}
}

// WriteLineage implements replica.State.
func (l Leaders) WriteLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, rec lineage.Record) error {
	return final(l.c.WriteLineage(ctx, mirror, tp, leaderEpoch, rec))
}

// Report implements replica.State.
func (l Leaders) Report(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, r replica.Report) error {
	now, _ := l.c.view.State(mirror, tp)
	err := l.report(ctx, mirror, tp, leaderEpoch, now, r)
	if errors.Is(err, ErrTransition) {
		// The view may lag behind what was written: look again, at what is.
		if now, err = l.c.ReadState(ctx, mirror, tp); err == nil {
			err = l.report(ctx, mirror, tp, leaderEpoch, now, r)
		}
	}
	return final(err)
}

func (l Leaders) report(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, now PartitionState, r replica.Report) error {
	t, ok := l.c.view.TopicByID(tp.TopicID)
	if !ok || t.Mirror != mirror {
		return nil // it is not in the mirror any more
	}
	rec, _ := l.c.view.Lineage(mirror, tp)
	for _, w := range reportWrites(now.State, rec, t, partitionKey{mirror, tp}, leaderEpoch, keepTold(now, r)) {
		if err := l.c.write(ctx, w); err != nil {
			return err
		}
		if w.lineage != nil {
			failpoint("stop.end-recorded")
		}
	}
	return nil
}

// final marks the refusals that no repetition cures.
func final(err error) error {
	if errors.Is(err, ErrFencedLeaderEpoch) || errors.Is(err, ErrTransition) {
		return fmt.Errorf("%w: %w", replica.ErrFenced, err)
	}
	return err
}

// fencedOnly is final for who reads the state to lead by it: what was written in between may
// refuse a step, and the next look finds another one.
func fencedOnly(err error) error {
	if errors.Is(err, ErrFencedLeaderEpoch) {
		return final(err)
	}
	return err
}

// Recorded implements replica.State.
func (l Leaders) Recorded(mirror string, tp ids.TopicPartition, leaderEpoch int32, kind replica.ReportKind) bool {
	s, _ := l.c.view.State(mirror, tp)
	return recorded(s, leaderEpoch, kind)
}

// Subscribe implements replica.State. Of what changes, states and lineages are what leaders
// write themselves: a burst of them is no news to anybody here.
func (l Leaders) Subscribe(fn func()) (cancel func()) {
	return l.c.view.Subscribe(func(c Change) {
		if c.Reset || len(c.Topics) > 0 || len(c.Mirrors) > 0 {
			fn()
		}
	})
}

// StatusOf turns what a replica.Manager knows into what describe shows. State and its
// detail come from the state topic; the manager's detail is newer where it has one.
func StatusOf(in []replica.PartitionStatus) []PartitionStatus {
	out := make([]PartitionStatus, len(in))
	for i, s := range in {
		out[i] = PartitionStatus{
			TopicPartition: s.TP, Topic: s.Topic, State: Unknown, Detail: s.Detail,
			SourceOffset: s.SourceOffset, DestinationOffset: s.DestinationOffset, SourceLogStart: s.SourceLogStart,
			LagMs: s.LagMs, LeaderEpoch: s.LeaderEpoch, ErrorMessage: s.ErrorMessage,
		}
	}
	return out
}
