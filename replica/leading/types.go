package leading

import (
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// Kafka's error codes that a leader answers followers with.
const (
	CodeNone                int16 = 0
	CodeOffsetOutOfRange    int16 = 1
	CodeNotLeaderOrFollower int16 = 6
	CodeFencedLeaderEpoch   int16 = 74
	CodeUnknownLeaderEpoch  int16 = 75
)

// Kafka's error codes of AlterPartition that the machine tells apart.
const (
	codeIneligibleReplica  int16 = 107
	codeNewLeaderElected   int16 = 108
	codeInvalidUpdateVer   int16 = 95
	codeNotController      int16 = 41
	codeUnknownServerError int16 = -1
	codeRequestTimedOut    int16 = 7
	codeStaleBrokerEpoch   int16 = 77
)

// Phase is where a takeover stands.
type Phase int8

const (
	// Off: this broker does not lead the partition.
	Off Phase = iota
	// ReadingState: the state topic is being read to its end (R4).
	ReadingState
	// Collecting: waiting for a Fetch of every real member of the ISR (R4).
	Collecting
	// AskingHW: live real replicas are being asked for their high watermark (R6).
	AskingHW
	// Probing: the source is being asked at S (R7).
	Probing
	// Leading: followers are served.
	Leading
	// Resigned: leadership was given up; the metadata log has not shown it yet.
	Resigned
	// Refused: the takeover would drop records without consent. Nothing is truncated
	// or served; the coordinator hands the partition back.
	Refused
)

func (p Phase) String() string {
	return [...]string{"off", "reading-state", "collecting", "asking-hw", "probing", "leading", "resigned", "refused"}[p]
}

// Config is what does not change while a partition is led.
type Config struct {
	Self    int32
	Virtual ids.Virtual
	// MaxLag is replica.lag.time.max.ms: a follower that has not been caught up for
	// longer leaves the ISR.
	MaxLag time.Duration
	// StopWait is mirror.stop.replica.wait.ms: how long a hand-back waits for a live real
	// replica to join the ISR (R17). After it the hand-back goes on if at least StopMinISR
	// (the topic's configured min.insync.replicas) real members are there. 0 waits for as
	// long as it takes.
	StopWait   time.Duration
	StopMinISR int
}

// BrokerView is what the metadata log says of a broker.
type BrokerView struct {
	Epoch        int64
	Fenced       bool
	ShuttingDown bool
	// Excused: it need not fetch, for the log directory that holds the replica has failed, or
	// its replication is throttled.
	Excused bool
}

// View is what the metadata log says of the partition and of its replicas' brokers.
type View struct {
	Leader, LeaderEpoch, PartitionEpoch int32
	Replicas, ISR, ELR                  []int32
	// LastRealISR is nil when it is not known (R15).
	LastRealISR []int32
	Recovering  bool
	// MinISR is the topic's effective min.insync.replicas; the machine caps it by the
	// number of replicas as Kafka does.
	MinISR  int
	Brokers map[int32]BrokerView
}

// Consent says what the state allows at a takeover (R20, design.md §6).
type Consent struct {
	// Truncate: the state is LOG_TRUNCATION or MIRRORING. Without it nothing is ever
	// truncated, and the machine stays in Refused.
	Truncate bool
	// AllowLoss: records that are only here may go. True while MIRRORING (what a source
	// lost goes here too, announced) and for a start with AllowTruncate.
	AllowLoss bool
	// AllowUnknown: records whose history is on nobody's record may go. Only an operator
	// can say so, also while MIRRORING: what is not known to come from the source is not
	// known to be there.
	AllowUnknown bool
	// GiveUp: with no real member in the ISR, the operator does not wait for one that has all
	// data, but goes on with the best that is alive.
	GiveUp bool
	// Runs: the state is MIRRORING. What clients wrote since then, they wrote around the mirror; what
	// they wrote before it began, they had every right to.
	Runs bool
	// AsItIs: the state is PAUSED. The partition is led, but nothing may be truncated.
	AsItIs bool
}

// FetchRequest is one partition of a follower's Fetch.
type FetchRequest struct {
	Replica            int32
	BrokerEpoch        int64
	CurrentLeaderEpoch int32
	Offset             int64
	LastFetchedEpoch   int32 // lineage.Undefined if not sent
	LogStart           int64
}

// Serve says where the records of an answer come from.
type Serve int8

const (
	// ServeNothing: there is nothing to send now; the request may wait.
	ServeNothing Serve = iota
	// ServeBuffer: from the driver's buffer, up to Decision.End.
	ServeBuffer
	// ServeReplica: the offset lies below the buffer; from the real replica
	// Decision.From, or another one of Candidates, never from the source (design.md §4). Up to Decision.End; if it has
	// nothing there, PastGap says how to go on.
	ServeReplica
)

// Decision answers one partition of a follower's Fetch.
type Decision struct {
	Code          int16
	Diverging     bool
	DivergingTo   lineage.Entry // Epoch and Start (the end offset) of a DivergingEpoch
	Serve         Serve
	Offset, End   int64
	From          int32
	HighWatermark int64
	LogStart      int64
}

// BatchInfo is what the machine needs to know of a batch read from the source.
type BatchInfo struct {
	Base, Last  int64
	SourceEpoch int32
}

// Action is something the driver must do. Each is one of the types below.
type Action interface{ action() }

type (
	// ReadState asks for the partition's lineage, read behind a barrier that was
	// written after leadership was seen (R4). Answer: StateRead.
	ReadState struct{ Epoch int32 }
	// AskHighWatermarks asks each replica, by a consumer Fetch at the offset, for its
	// high watermark (R6), and those in Records for a record just below it (R5). Answer:
	// HighWatermarks, with those that answered.
	AskHighWatermarks struct {
		Epoch    int32
		Replicas map[int32]int64
		Records  []int32
		// Seq numbers the requests: a takeover that begins anew asks again under its epoch.
		Seq int
	}
	// ProbeSource asks the source leader by one Fetch at Offset (R7). Answer: Probed.
	ProbeSource struct {
		Epoch            int32
		Offset           int64
		LastFetchedEpoch int32
	}
	// StartReading begins to read the source; what was read before under this epoch
	// from Offset on is dropped. Answers: Ingest, SourceDiverged, SourceOutOfRange.
	StartReading struct {
		Epoch            int32
		Offset           int64
		LastFetchedEpoch int32
		Reset            bool // drop the buffer first
	}
	// StopReading ends reading; the buffer stays.
	StopReading struct{ Epoch int32 }
	// Persist writes the partition's lineage to the state topic, acks=all. Answer:
	// Persisted. A later Persist of the same epoch replaces an earlier one.
	Persist struct {
		Epoch  int32
		Record lineage.Record
		// Seq numbers the requests of an epoch.
		Seq int
	}
	// AlterPartition asks the controller to change the ISR (R3). Answer: Altered.
	AlterPartition struct {
		LeaderEpoch, PartitionEpoch int32
		ISR                         []Member
	}
	// Resign gives up leadership by WantFence, so that a new epoch begins (R13, R14).
	Resign struct {
		Epoch  int32
		Reason string
		// Silence: it is over a follower that has stopped fetching, see Silent.
		Silence bool
	}
	// Wake ends followers' long polls: there is data, or the high watermark moved.
	Wake struct{}
	// Drop frees the buffer: leadership is gone.
	Drop struct{}
	// Truncated announces that the mirror went back: records [To, From) left it.
	Truncated struct {
		Epoch    int32
		From, To int64
		Reason   string
	}
	// Foreign announces that records [From, To), which no virtual broker led, leave the mirror:
	// clients wrote them here, around it. The first Visible of them consumers may have read.
	Foreign struct {
		Epoch    int32
		From, To int64
		Visible  int64
	}
	// Ready says that the takeover is complete: no real member of the ISR holds anything
	// that the lineage does not have. From S on the mirror goes on.
	Ready struct {
		Epoch int32
		S, HW int64
	}
	// RefusedLoss says that a start would drop Records records that are only here.
	RefusedLoss struct {
		Epoch   int32
		Records int64
		Reason  string
	}
	// Rested says that a pause is complete: nothing is read, and every real member of the
	// ISR has all that was and knows that it is visible.
	Rested struct {
		Epoch int32
		End   int64
	}
	// Silent says that a broker that could fetch has stopped to, Times in a row as far as
	// this leader has met it. A Resign follows, unless it is Final: then that did not help,
	// and one follows late if at all.
	Silent struct {
		Epoch   int32
		Replica int32
		Times   int
		Final   bool
	}
	// Heard takes a Silent that was final back: the broker fetches again, or is dead.
	Heard struct{ Epoch, Replica int32 }
	// AppendReset puts a control record that resets producer state at Offset, stamped with
	// Epoch: the last batch of the mirror (contract.md §4). The driver puts it in its buffer.
	AppendReset struct {
		Epoch  int32
		Offset int64
	}
	// Quiesced says that reading has ended and every real member of the ISR has all of
	// it. Order is the hand-back's target, longest log first (R17).
	Quiesced struct {
		Epoch int32
		// Complete is false when the takeover was not finished (source unreachable):
		// nothing was truncated, the members may differ above the high watermark.
		Complete bool
		Order    []int32
		// Outside are the live real replicas that are not in Order. A removal deletes
		// their logs: when the takeover was not finished, a real broker must lead first
		// (fence the virtual ones) until they are in the ISR.
		Outside         []int32
		LastSourceEpoch int32
		End             int64
	}
)

// Member is a member of a proposed ISR and the broker epoch of its last Fetch (-1 for
// one that is a member already and has not fetched: the controller then skips the check).
type Member struct {
	ID    int32
	Epoch int64
}

func (ReadState) action()         {}
func (AskHighWatermarks) action() {}
func (ProbeSource) action()       {}
func (StartReading) action()      {}
func (StopReading) action()       {}
func (Persist) action()           {}
func (AlterPartition) action()    {}
func (Resign) action()            {}
func (Wake) action()              {}
func (Drop) action()              {}
func (Truncated) action()         {}
func (Foreign) action()           {}
func (Ready) action()             {}
func (RefusedLoss) action()       {}
func (Rested) action()            {}
func (AppendReset) action()       {}
func (Silent) action()            {}
func (Heard) action()             {}
func (Quiesced) action()          {}

// Status is a copy of what the machine knows, for describe and tests.
type Status struct {
	Phase         Phase
	Epoch         int32
	HighWatermark int64
	End           int64 // end of what was read from the source
	Durable       int64 // end of what may be served
	Start         int64 // S
	BufferStart   int64
	Waiting       bool // no real member in the ISR (R15)
	Quiesced      bool
	Reading       bool
	Rested        bool // a pause is complete
}
