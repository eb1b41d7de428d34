package fetcher

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// SourceError is an answer of the source that trying again does not cure. For
// OFFSET_OUT_OF_RANGE, LogStart and LogEnd say what the source has; they are -1
// otherwise. UNKNOWN_TOPIC_OR_PARTITION means that the topic was deleted,
// INCONSISTENT_TOPIC_ID that it was deleted and created anew.
type SourceError struct {
	Topic            string
	Partition        int32
	Code             int16
	LogStart, LogEnd int64
}

func (e *SourceError) Error() string {
	switch e.Code {
	case kerr.OffsetOutOfRange.Code:
		return fmt.Sprintf("source topic %s partition %d: OFFSET_OUT_OF_RANGE: the source has offsets %d to %d", e.Topic, e.Partition, e.LogStart, e.LogEnd)
	case kerr.UnknownTopicOrPartition.Code:
		return fmt.Sprintf("source topic %s partition %d: the source has no such topic or partition", e.Topic, e.Partition)
	case kerr.InconsistentTopicID.Code:
		return fmt.Sprintf("source topic %s partition %d: the source's topic was deleted and created anew", e.Topic, e.Partition)
	case kerr.TopicAuthorizationFailed.Code:
		err := fmt.Errorf("source topic %s partition %d: %w", e.Topic, e.Partition, kerr.TopicAuthorizationFailed)
		return rights.Lacking(err, rights.MirrorUser, rights.OfTopic(rights.Read, e.Topic, "")).Error() // which includes DESCRIBE
	}
	return fmt.Sprintf("source topic %s partition %d: %s", e.Topic, e.Partition, codeName(e.Code))
}

// DivergingError says that the source's log is not the one that was fetched before: of
// LastFetchedEpoch or the epoch before it, the source has data up to EndOffset only.
type DivergingError struct {
	Topic     string
	Partition int32
	// Anew: the epochs agree, but what the source has at EndOffset is not what was fetched from it
	// before. It was restored from a backup, say, and written anew under the same epochs.
	Anew bool
	Diverging
}

func (e *DivergingError) Error() string {
	if e.Anew {
		return fmt.Sprintf("source topic %s partition %d: what the source has at offset %d is not what was mirrored from it", e.Topic, e.Partition, e.EndOffset)
	}
	return fmt.Sprintf("source topic %s partition %d: the source's log diverged: its epoch %d ends at offset %d", e.Topic, e.Partition, e.Epoch, e.EndOffset)
}

// Diverging is the source's answer to a LastFetchedEpoch that its log does not have at
// that offset: an epoch at or below it, and where that epoch ends there.
type Diverging struct {
	Epoch     int32 // the source's leader epoch
	EndOffset int64
}

// CorruptError says that the source twice sent something at Offset that is not a whole,
// intact batch that follows the one before. Err is one of batch's error types or an
// *OrderError; a *batch.MagicError means a record format that cannot be mirrored.
type CorruptError struct {
	Topic     string
	Partition int32
	Offset    int64 // where the fetch stands
	Err       error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("source topic %s partition %d at offset %d: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// OrderError says that a batch does not lie behind the one before it.
type OrderError struct {
	Base, Last int64 // of the batch
	Next       int64 // the first offset it may cover
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("record batch of offsets %d to %d came where offset %d was due", e.Base, e.Last, e.Next)
}

// errNoLeader, errAbsent and errStale are reasons to wait that no error code stands for.
var (
	errNoLeader = errors.New("the partition has no leader")
	errAbsent   = errors.New("the answer left the partition out")
	errStale    = errors.New("the source's metadata is older than what is known")
)

func codeName(code int16) string {
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err.Message
	}
	return "no error"
}

// transient tells whether waiting, or asking another broker, can cure an error code.
func transient(code int16) bool {
	switch code {
	case kerr.UnknownServerError.Code,
		kerr.UnknownTopicOrPartition.Code, // the resolver decides whether it is gone
		kerr.LeaderNotAvailable.Code,
		kerr.NotLeaderForPartition.Code,
		kerr.RequestTimedOut.Code,
		kerr.BrokerNotAvailable.Code,
		kerr.ReplicaNotAvailable.Code,
		kerr.NetworkException.Code,
		kerr.KafkaStorageError.Code,
		kerr.FencedLeaderEpoch.Code,
		kerr.UnknownLeaderEpoch.Code,
		kerr.OffsetNotAvailable.Code,
		kerr.ThrottlingQuotaExceeded.Code,
		kerr.UnknownTopicID.Code,
		kerr.InconsistentTopicID.Code,
		kerr.FetchSessionIDNotFound.Code,
		kerr.InvalidFetchSessionEpoch.Code,
		kerr.FetchSessionTopicIDError.Code:
		return true
	}
	return false
}
