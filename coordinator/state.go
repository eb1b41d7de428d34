package coordinator

import "fmt"

// State is the state of a mirror partition. Numbers are those on disk and on the wire.
type State int8

// The states of contract.md §4. 1 is reserved.
const (
	Unknown       State = -1
	LogTruncation State = 0
	Mirroring     State = 2
	Pausing       State = 3
	Paused        State = 4
	Stopping      State = 5
	Stopped       State = 6
	Failed        State = 7
)

func (s State) String() string {
	switch s {
	case Unknown:
		return "UNKNOWN"
	case LogTruncation:
		return "LOG_TRUNCATION"
	case Mirroring:
		return "MIRRORING"
	case Pausing:
		return "PAUSING"
	case Paused:
		return "PAUSED"
	case Stopping:
		return "STOPPING"
	case Stopped:
		return "STOPPED"
	case Failed:
		return "FAILED"
	}
	return fmt.Sprintf("STATE_%d", int8(s))
}

// Details of a state that other parts act on. All others are for people only.
const (
	// DetailQuiesced is written with STOPPING by the leading sidecar when it serves
	// nothing new and the high watermark has reached the log end.
	DetailQuiesced = "QUIESCED"
	// DetailSourceUnavailable is written by a leading sidecar that cannot take over since
	// the source does not answer: nothing was served under this leadership, so nothing
	// has to be waited for before it is taken away.
	DetailSourceUnavailable = "SOURCE_UNAVAILABLE"
	// DetailUnregistered says that somebody keeps unregistering the virtual broker that leads.
	DetailUnregistered = "VIRTUAL_BROKER_UNREGISTERED"
	// DetailWaitingForReplicas says that no real replica is in the ISR (R15).
	DetailWaitingForReplicas = "WAITING_FOR_REPLICAS"
	// DetailThrottled says that a quota of the source bounds the reading. It is never recorded.
	DetailThrottled = "THROTTLED"
)

// Transition tells whether a partition may go from one state to another. Staying is
// always allowed: after a leader change the new leader re-enters the state.
func Transition(from, to State) bool {
	if from == to {
		return true
	}
	switch to {
	case LogTruncation:
		return from == Unknown || from == Stopped || from == Failed
	case Mirroring:
		return from == LogTruncation || from == Paused || from == Failed
	case Pausing:
		return from == Mirroring
	case Paused:
		return from == Pausing
	case Stopping:
		// From Unknown too: a topic may be stopped before its first leader wrote a state.
		return from == Unknown || from == LogTruncation || from == Mirroring || from == Pausing || from == Paused || from == Failed
	case Stopped:
		return from == Stopping
	case Failed:
		return true
	}
	return false
}

// Event is something an operator asks for, or something that happened to a partition.
type Event int8

// Verbs come from the mirror APIs; the others from the leader of the partition.
const (
	VerbStart Event = iota
	VerbStop
	VerbPause
	VerbResume
	VerbRecover
	EventAligned // takeover is done, logs agree with the source
	EventPaused
	EventStopped
	EventFailed
)

func (e Event) String() string {
	switch e {
	case VerbStart:
		return "start"
	case VerbStop:
		return "stop"
	case VerbPause:
		return "pause"
	case VerbResume:
		return "resume"
	case VerbRecover:
		return "recover"
	case EventAligned:
		return "aligned"
	case EventPaused:
		return "paused"
	case EventStopped:
		return "stopped"
	case EventFailed:
		return "failed"
	}
	return fmt.Sprintf("event %d", int8(e))
}

// Refusal says why an event has no effect in a state.
type Refusal int8

// None means that the event takes effect; Done that it is already so.
const (
	None Refusal = iota
	Done
	NotInMirror   // 139
	AlreadyPaused // 140
	NotPaused     // 141
	BeingStopped  // 142
	InvalidState  // 145
	NotStopped    // 146
)

// Next is the state machine of a mirror partition: the state that follows, or why there
// is none. previous is the state before a failure; only EventAligned and VerbRecover look
// at it. It is a pure function of its arguments.
func Next(s, previous State, e Event) (State, Refusal) {
	switch e {
	case VerbStart:
		switch s {
		case Unknown, Stopped, Failed:
			return LogTruncation, None
		case LogTruncation, Mirroring:
			return s, Done
		case Pausing, Paused:
			return s, NotStopped
		case Stopping:
			return s, BeingStopped
		}
	case VerbStop:
		switch s {
		case Unknown:
			return s, NotInMirror
		case Stopping, Stopped:
			return s, Done
		default:
			return Stopping, None
		}
	case VerbPause:
		switch s {
		case Mirroring:
			return Pausing, None
		case Pausing, Paused:
			return s, AlreadyPaused
		case Stopping, Stopped:
			return s, BeingStopped
		default:
			return s, InvalidState
		}
	case VerbResume:
		switch s {
		case Paused:
			return Mirroring, None
		case Stopping, Stopped:
			return s, BeingStopped
		default:
			return s, NotPaused
		}
	case VerbRecover:
		if s != Failed {
			return s, InvalidState
		}
		switch previous {
		case Unknown, Stopped, Failed:
			return LogTruncation, None
		}
		return previous, None
	case EventAligned:
		switch s {
		case LogTruncation, Failed:
			return Mirroring, None
		case Mirroring:
			return s, Done
		}
	case EventPaused:
		switch s {
		case Pausing:
			return Paused, None
		case Paused:
			return s, Done
		}
	case EventStopped:
		switch s {
		case Stopping:
			return Stopped, None
		case Stopped:
			return s, Done
		}
	case EventFailed:
		return Failed, None
	}
	return s, InvalidState
}
