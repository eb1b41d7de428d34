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
		Stopping: t.Desired == Stopped, Paused: t.Desired == Paused, Fault: t.Fault, PIDReset: m.Configs["mirror.stop.pid.reset"] == "true",
	}, true
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
		return lineage.Record{}, leading.Consent{}, final(err)
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
	return r, consent(s, t), nil
}

// fence records leaderEpoch, so that the coordinator refuses whatever an earlier leader
// still writes. Who takes over has not quiesced yet, so that detail of its predecessor goes.
func (l Leaders) fence(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32) error {
	for {
		s, err := l.c.ReadState(ctx, mirror, tp)
		if err != nil || s.LeaderEpoch == leaderEpoch {
			return err
		}
		t, ok := l.c.view.TopicByID(tp.TopicID)
		switch {
		case !ok || t.Mirror != mirror:
			return fmt.Errorf("mirror %s, partition %s: the topic is not in the mirror any more", mirror, tp)
		case t.Desired != Mirroring && (s.State == Unknown || s.State == Stopped):
			return nil // nothing is led, so nothing is written
		case s.State == Unknown || s.State == Stopped:
			s.State = LogTruncation
		}
		if s.State != Failed {
			s.Detail, s.ErrorMessage = "", ""
		}
		err = l.c.WriteState(ctx, mirror, tp, leaderEpoch, s)
		if !errors.Is(err, ErrFencedStateEpoch) {
			return err
		}
		// Somebody wrote in between: look again.
	}
}

// consent is what a leader may do by the recorded state (R20): nothing is truncated but in
// LOG_TRUNCATION and MIRRORING, and a failed partition counts as what it was before. A
// start drops nobody's records unasked; a mirror that runs follows its source.
func consent(s PartitionState, t Topic) leading.Consent {
	if t.Desired != Mirroring {
		return leading.Consent{}
	}
	state := s.State
	if state == Failed {
		state = s.Previous
	}
	return leading.Consent{
		Truncate:  state == Unknown || state == Stopped || state == LogTruncation || state == Mirroring,
		AllowLoss: state == Mirroring || t.AllowTruncate, AllowUnknown: t.AllowTruncate,
	}
}

// WriteLineage implements replica.State.
func (l Leaders) WriteLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, rec lineage.Record) error {
	return final(l.c.WriteLineage(ctx, mirror, tp, leaderEpoch, rec))
}

// Report implements replica.State.
func (l Leaders) Report(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, r replica.Report) error {
	now, _ := l.c.view.State(mirror, tp)
	next := PartitionState{State: now.State, StateEpoch: -1, Detail: r.Detail, ErrorMessage: r.Message, RetryAttempt: r.Retry}
	switch r.Kind {
	case replica.Aligned:
		switch now.State {
		case Unknown, Stopped:
			// Recorded step by step, as the state machine has it.
			first := next
			first.State = LogTruncation
			if err := l.c.WriteState(ctx, mirror, tp, leaderEpoch, first); err != nil {
				return final(err)
			}
		case Stopping:
			return nil // a stop came in between; it goes on
		}
		next.State = Mirroring
	case replica.Failing:
		next.State = Failed
	case replica.Note:
		if now.State == Unknown || now.State == Stopped {
			next.State = LogTruncation
		}
	case replica.Quiet:
		rec, _ := l.c.view.Lineage(mirror, tp)
		rec.LastMirrorEpoch, rec.LastMirrorOffset = r.LastMirrorEpoch, r.LastMirrorOffset
		if err := l.c.WriteLineage(ctx, mirror, tp, leaderEpoch, rec); err != nil {
			return final(err)
		}
		failpoint("stop.end-recorded")
		next.State = Stopping
	}
	return final(l.c.WriteState(ctx, mirror, tp, leaderEpoch, next))
}

// final marks the refusals that no repetition cures.
func final(err error) error {
	if errors.Is(err, ErrFencedLeaderEpoch) || errors.Is(err, ErrTransition) {
		return fmt.Errorf("%w: %w", replica.ErrFenced, err)
	}
	return err
}

// Subscribe implements replica.State.
func (l Leaders) Subscribe(fn func()) (cancel func()) {
	return l.c.view.Subscribe(func(Change) { fn() })
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
