package offsets

import (
	"fmt"
)

// DeletedHere begins the reason for which what was deleted here is kept so.
const DeletedHere = "its offsets were deleted here"

// Facts is what Plan decides on.
type Facts struct {
	Source Group
	// Here is the group of that name in the cluster to commit to; its zero value if there is none.
	Here Group
	// Ranges are those of the partitions that are mirrored; others are left alone.
	Ranges map[Partition]Range
	// Wrote tells what was committed here last by whoever asks. Everything else that is here was
	// committed by somebody who reads here. Nil if nothing is remembered.
	Wrote func(Partition) (at int64, ok bool)
	// Fresh tells that the group was not looked at since a partition is mirrored: what is committed
	// here is of the log that the source's takes the place of. Nil if nothing is.
	Fresh func(Partition) bool
	// Removed tells that what was committed here for a topic has been deleted since, on purpose.
	// Nil if that is not known.
	Removed func(topic string) bool
}

// Move is an offset to commit.
type Move struct {
	Partition
	// From is what is committed here, -1 if nothing is.
	From     int64
	To       int64
	Metadata string
	// LeaderEpoch is that of the batch before To in the log here, -1 while it is not known.
	LeaderEpoch int32
}

// Kept is an offset that is not committed although the source has another one.
type Kept struct {
	Partition
	// Here is what is committed here, -1 if nothing is.
	Here   int64
	Reason string
}

// Plan is what is to be done for a group.
type Plan struct {
	Group Group // of the source
	Moves []Move
	// Same are offsets that are here as they have to be.
	Same []Move
	// Kept are partitions that are left alone.
	Kept []Kept
	// Skipped says why nothing is done for the group as a whole, empty otherwise.
	Skipped string
}

// Outside tells that the group has committed nothing for what is mirrored.
func (p Plan) Outside() bool { return len(p.Moves)+len(p.Same)+len(p.Kept) == 0 }

// PlanGroup decides what to commit for one group. It is a pure function.
//
// No group moves past what is mirrored, nor before where the log begins. What somebody has
// committed who reads here is only ever moved forward, so nobody reads twice what was read here;
// what was copied from the source follows the source both ways, for an operator may reset a group
// there; and what is left from before a topic was mirrored gives way to the source's.
func PlanGroup(f Facts) Plan {
	plan := Plan{Group: f.Source, Skipped: unfit(f.Source, f.Here)}
	for _, p := range Sorted(f.Source.Positions) {
		r, mirrored := f.Ranges[p]
		at := f.Source.Positions[p]
		if !mirrored || at.At < 0 {
			continue
		}
		// A group that stands at the beginning of a partition without records has read nothing:
		// where it begins is for its own auto.offset.reset to say.
		if at.At == 0 && r.End == 0 {
			continue
		}
		m := Move{Partition: p, From: -1, To: max(r.Start, min(at.At, r.End)), Metadata: at.Metadata, LeaderEpoch: -1}
		here, ok := f.Here.Positions[p]
		if ok && here.At >= 0 {
			m.From = here.At
		}
		switch why := keep(f, m); {
		case m.From == m.To:
			plan.Same = append(plan.Same, m)
		case why != "":
			plan.Kept = append(plan.Kept, Kept{p, m.From, why})
		default:
			plan.Moves = append(plan.Moves, m)
		}
	}
	return plan
}

// keep says why a move must not be made, "" if nothing speaks against it.
func keep(f Facts, m Move) string {
	if m.From < 0 {
		if f.Removed != nil && f.Removed(m.Topic) {
			return DeletedHere + ", and stay so until the group is gone at the source, is refused by a policy for once, or the topic is stopped"
		}
		return ""
	}
	// Nobody has read here what is not here: the log was another one, or has lost its end.
	if m.To > m.From || m.From > f.Ranges[m.Partition].End {
		return ""
	}
	if f.Fresh != nil && f.Fresh(m.Partition) {
		return ""
	}
	if f.Wrote != nil {
		if last, ok := f.Wrote(m.Partition); ok && last == m.From {
			return ""
		}
	}
	return fmt.Sprintf("%d is committed here by another than the mirror, which moves it only forward; the source has %d", m.From, m.To)
}

// unfit says why nothing may be committed for a group as it is here.
func unfit(source, here Group) string {
	switch {
	case here.Name == "":
		return ""
	case (source.Type == Share) != (here.Type == Share) || here.Type == Streams:
		return fmt.Sprintf("it is a %s group here, and a %s group at the source", here.Type, source.Type)
	case here.Active():
		return "active here: " + here.State
	}
	return ""
}
