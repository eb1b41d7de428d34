package coordinator

import (
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// reportWrites returns what a leader's report writes, in order: after a crash in between,
// what was written stands by itself. rec is the lineage on record.
func reportWrites(now State, rec lineage.Record, t Topic, key partitionKey, leaderEpoch int32, r replica.Report) []stateWrite {
	steps := reportSteps(now, t, r.Kind)
	if len(steps) == 0 {
		return nil
	}
	var out []stateWrite
	enter := func(s PartitionState) {
		s.StateEpoch = -1
		out = append(out, stateWrite{key: key, leaderEpoch: leaderEpoch, state: &s})
	}
	for _, state := range steps[:len(steps)-1] {
		enter(PartitionState{State: state})
	}
	last := PartitionState{State: steps[len(steps)-1], Detail: r.Detail, ErrorMessage: r.Message, RetryAttempt: r.Retry}
	if r.Kind == replica.Quiet {
		// How far the mirror came is on record before the detail that lets anybody hand the
		// partition back, and after STOPPING, in which it is not forgotten any more.
		if now != Stopping {
			enter(PartitionState{State: Stopping})
		}
		rec.LastMirrorEpoch, rec.LastMirrorOffset = r.LastMirrorEpoch, r.LastMirrorOffset
		out = append(out, stateWrite{key: key, leaderEpoch: leaderEpoch, lineage: &rec})
	}
	enter(last)
	return out
}

// told tells whether a detail says for people what happened to the data of a partition.
func told(detail string) bool {
	switch detail {
	case replica.DetailTruncated, replica.DetailHole, replica.DetailForeign:
		return true
	}
	return false
}

// keepTold is a leader's report that all is well, with what an earlier one has told of the data and
// nobody may have seen yet: the next takeover is no reason to forget it. A pause is, or a stop.
func keepTold(now PartitionState, r replica.Report) replica.Report {
	if r.Kind == replica.Aligned && r.Detail == "" && now.State == Mirroring && told(now.Detail) {
		r.Detail, r.Message = now.Detail, now.ErrorMessage
	}
	return r
}

// fenceState is the state that a new leader records first: its epoch refuses what earlier
// ones still write. ok is false when nothing has to be recorded. Who takes over has not
// quiesced yet, so that detail of its predecessor goes.
func fenceState(s PartitionState, t Topic, leaderEpoch int32) (next PartitionState, ok bool) {
	none := s.State == Unknown || s.State == Stopped
	switch {
	case s.LeaderEpoch == leaderEpoch:
		return s, false
	case none && t.Desired == Stopped:
		return s, false // nothing is led, so nothing is written
	case none:
		s.State = LogTruncation
	}
	if s.State != Failed && !(s.State == Mirroring && told(s.Detail)) {
		s.Detail, s.ErrorMessage = "", ""
	}
	return s, true
}

// recorded tells whether a state says what the leader of an epoch reported by kind, or
// something that makes it of no interest.
func recorded(s PartitionState, leaderEpoch int32, kind replica.ReportKind) bool {
	if s.LeaderEpoch > leaderEpoch {
		return true
	}
	switch kind {
	case replica.Quiet:
		return s.State == Stopped || s.State == Stopping && s.Detail != "" && s.LeaderEpoch == leaderEpoch
	case replica.Rests:
		return s.State == Paused
	}
	return true
}

// reportSteps returns the states that a leader's report takes a partition through, one
// record each, so that every step is one of the state machine; none if the report changes
// nothing. It is a pure function of the recorded state, of what is wanted and of the report.
//
// What is wanted may have changed while the report was on its way: a report never does
// what is not wanted any more. A topic with a fault stays FAILED until that is cleared.
func reportSteps(now State, t Topic, kind replica.ReportKind) []State {
	stopping := t.Desired == Stopped || now == Stopping
	switch kind {
	case replica.Failing:
		if stopping {
			// A stop goes on whatever happens to the source.
			return nil
		}
		return []State{Failed}
	case replica.Note:
		switch {
		case stopping:
			return nil // its detail says whether it may be handed back
		case now == Unknown || now == Stopped:
			return []State{LogTruncation}
		}
		return []State{now}
	case replica.Quiet:
		if t.Desired != Stopped || now == Stopped {
			return nil
		}
		return []State{Stopping}
	case replica.Aligned, replica.Pauses, replica.Rests:
		if stopping || t.Fault != "" {
			return nil
		}
	default:
		return nil
	}
	if t.Desired == Paused {
		return towardsPause(now, kind)
	}
	if kind != replica.Aligned {
		return nil
	}
	switch now {
	case Unknown, Stopped:
		return []State{LogTruncation, Mirroring}
	case Pausing:
		return []State{Paused, Mirroring}
	}
	return []State{Mirroring}
}

// towardsPause is reportSteps for a topic that is to be paused: once aligned it is PAUSING,
// and once it rests PAUSED.
func towardsPause(now State, kind replica.ReportKind) []State {
	var out []State
	switch now {
	case Unknown, Stopped, LogTruncation, Failed:
		if kind == replica.Pauses {
			return nil // not before it is aligned
		}
		if now == Unknown || now == Stopped {
			out = append(out, LogTruncation)
		}
		out = append(out, Mirroring, Pausing)
	case Mirroring:
		out = append(out, Pausing)
	case Pausing:
		if kind != replica.Rests {
			return []State{Pausing}
		}
	case Paused:
		return []State{Paused}
	}
	if kind == replica.Rests {
		out = append(out, Paused)
	}
	return out
}
