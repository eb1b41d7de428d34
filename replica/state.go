package replica

import (
	"context"
	"errors"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
)

// ErrFenced is wrapped by a State's errors when a write was refused since a newer leader
// epoch is on record: whoever gets it has lost leadership and stops.
var ErrFenced = errors.New("a newer leader epoch is on record")

// MirrorTopic is what the state says of a topic of this cluster.
type MirrorTopic struct {
	Mirror          string
	Topic           string // its name at the source and here
	SourceTopicID   ids.UUID
	SourceClusterID string
	// Stopping: the operator asked for a stop. Partitions are quiesced and handed back.
	Stopping bool
	// Paused: the operator asked for a pause. Nothing is read; read only stays.
	Paused bool
	// Fault says why nothing may be read: the source is not the one that was mirrored.
	Fault string
	// PIDReset: a control record that resets producer state is the last batch of a stop.
	PIDReset bool
	// AllowTruncate: the operator allows a start to drop records that are only here.
	AllowTruncate bool
	// MinISR is the topic's own min.insync.replicas, without what the write lock adds for
	// virtual replicas; 0 if it is not known.
	MinISR int
	// RaiseRefused: a policy was asked to let min.insync.replicas be raised, and refuses it.
	RaiseRefused bool
	// Since is when the operator last asked for something, in milliseconds since 1970: a
	// failed partition then tries again at once.
	Since int64
}

// Report is what a leader says of its partition.
type Report struct {
	Kind    ReportKind
	Detail  string // for people, and DetailQuiesced and the like for the coordinator
	Message string // of a failure
	// LastMirrorEpoch and LastMirrorOffset, with Quiesced.
	LastMirrorEpoch  int32
	LastMirrorOffset int64
	// Retry counts attempts, with Failed.
	Retry int16
}

// ReportKind is one thing that happened to a led partition.
type ReportKind int8

const (
	// Aligned: the takeover is done, the logs agree with the source.
	Aligned ReportKind = iota
	// Failing: see Message. The partition stays read only.
	Failing
	// Note: only Detail changed.
	Note
	// Quiet: reading has ended and every in-sync replica has all of it, or the takeover
	// cannot be finished; the coordinator may hand the partition back.
	Quiet
	// Pauses: a pause is wanted, and nothing new is read.
	Pauses
	// Rests: reading was ended for a pause and every in-sync replica has all of it.
	Rests
)

// State is the mirror state, as a leader needs it. Implemented by the coordinator.
type State interface {
	// MirrorTopic returns the mirror topic with this id, false if none of ours has it.
	MirrorTopic(topicID ids.UUID) (MirrorTopic, bool)
	// Foreign tells whether a partition is certainly in no mirror: it landed on a virtual broker
	// by mistake and is to go to real ones.
	Foreign(tp ids.TopicPartition) bool
	// GivenUp returns when the operator said that this partition does not wait any longer for a
	// replica with all data, in milliseconds since 1970; 0 if that does not stand (R15).
	GivenUp(tp ids.TopicPartition) int64
	// Lineage returns what is known without asking anybody.
	Lineage(mirror string, tp ids.TopicPartition) lineage.Record
	// ReadLineage fences the writes of leaders below leaderEpoch, reads the state to its
	// end and returns the lineage and what the state allows a leader to do (R4, R20).
	// Without the fence an older leader's late write could still be answered, and be
	// lost by the next write of the reader, who never saw it.
	ReadLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32) (lineage.Record, leading.Consent, error)
	// Link returns what the cluster at the other end says of the partition when it is started:
	// it may have mirrored it from here before (see lineage.Link). false if it has not, or if
	// the partition is mirrored already. It does not wait: while the other end is being asked
	// it is an error.
	Link(ctx context.Context, mirror string, tp ids.TopicPartition) (lineage.Link, bool, error)
	// WriteLineage persists, acks=all. An error that wraps ErrFenced is final.
	WriteLineage(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, rec lineage.Record) error
	// Report tells the coordinator of a partition's progress.
	Report(ctx context.Context, mirror string, tp ids.TopicPartition, leaderEpoch int32, r Report) error
	// Recorded tells, without asking anybody, whether what a Quiet or Rests report of this
	// leader epoch says is on record, or is of no interest any more.
	Recorded(mirror string, tp ids.TopicPartition, leaderEpoch int32, kind ReportKind) bool
	// Subscribe calls fn, which must not block, after the state changed.
	Subscribe(fn func()) (cancel func())
}

// Source is the source side of one mirror.
type Source interface {
	Probe(ctx context.Context, topic string, partition int32, offset int64, lastFetchedEpoch int32) (fetcher.ProbeResult, error)
	// BatchAt returns the source's batch that covers an offset, as it would be handed over; nil if
	// none does.
	BatchAt(ctx context.Context, topic string, partition int32, offset int64) (batch.Batch, error)
	Add(p fetcher.Partition)
	Remove(topic string, partition int32)
	Wake(topic string, partition int32)
}

// Sources finds the source side of a mirror.
type Sources interface {
	Source(mirror string) (Source, error)
}
