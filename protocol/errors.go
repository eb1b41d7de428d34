package protocol

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The error codes of KIP-1279 as they are on the wire: the prototype's numbers, which
// collide with Kafka's own, plus 12700 (contract.md §3).
const (
	ReadOnlyTopic                    int16 = 12834
	InvalidClusterMirrorName         int16 = 12835
	ClusterMirrorAlreadyExists       int16 = 12836
	UnknownClusterMirror             int16 = 12837
	TopicAlreadyInClusterMirror      int16 = 12838
	TopicNotInClusterMirror          int16 = 12839
	MirrorTopicAlreadyPaused         int16 = 12840
	MirrorTopicNotPaused             int16 = 12841
	MirrorTopicBeingStopped          int16 = 12842
	ClusterMirrorNotEmpty            int16 = 12843
	ClusterMirrorAuthorizationFailed int16 = 12844
	InvalidClusterMirrorStates       int16 = 12845
	MirrorTopicNotStopped            int16 = 12846
)

// Error is an error that goes to a client: a code, ours or Kafka's, and a message that a
// person can act on.
type Error struct {
	Code    int16
	Message string
}

// Errorf returns an Error with a formatted message.
func Errorf(code int16, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return CodeName(e.Code)
	}
	return CodeName(e.Code) + ": " + e.Message
}

// Is makes errors.Is(err, &Error{Code: c}) compare the codes alone, and lets Kafka's own
// errors match those of kerr.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code
	}
	if t, ok := target.(*kerr.Error); ok {
		return t.Code == e.Code
	}
	return false
}

// ComesUp tells whether an error says that a coordinator is not ready yet, or is another one by now: it is
// worth another try. With the first question for any group Kafka creates __consumer_offsets.
func ComesUp(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
}

// ErrorForCode returns nil for code 0, and otherwise an *Error. The message may be nil, as
// it may be in a response.
func ErrorForCode(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &Error{Code: code}
	if message != nil {
		e.Message = *message
	}
	return e
}

// CodeOf returns the code and message that tell a client of err: 0 for nil, those of the
// Error or Kafka error in its chain, and UNKNOWN_SERVER_ERROR (-1) for any other. The
// message is the whole of err, since what wraps the error names the mirror and topic.
func CodeOf(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	msg := err.Error()
	var own *Error
	if errors.As(err, &own) {
		if msg == own.Error() { // not wrapped: the code is a field of its own
			msg = own.Message
		}
		return own.Code, &msg
	}
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Code, &msg
	}
	return kerr.UnknownServerError.Code, &msg
}

// CodeName names any code, ours or Kafka's.
func CodeName(code int16) string {
	if name := ownCodeName(code); name != "" {
		return name
	}
	if code == 0 {
		return "NONE"
	}
	if e := kerr.TypedErrorForCode(code); e != nil && (e.Code == code) {
		return e.Message
	}
	return fmt.Sprintf("ERROR_%d", code)
}

func ownCodeName(code int16) string {
	switch code {
	case ReadOnlyTopic:
		return "READ_ONLY_TOPIC"
	case InvalidClusterMirrorName:
		return "INVALID_CLUSTER_MIRROR_NAME"
	case ClusterMirrorAlreadyExists:
		return "CLUSTER_MIRROR_ALREADY_EXISTS"
	case UnknownClusterMirror:
		return "UNKNOWN_CLUSTER_MIRROR"
	case TopicAlreadyInClusterMirror:
		return "TOPIC_ALREADY_IN_CLUSTER_MIRROR"
	case TopicNotInClusterMirror:
		return "TOPIC_NOT_IN_CLUSTER_MIRROR"
	case MirrorTopicAlreadyPaused:
		return "MIRROR_TOPIC_ALREADY_PAUSED"
	case MirrorTopicNotPaused:
		return "MIRROR_TOPIC_NOT_PAUSED"
	case MirrorTopicBeingStopped:
		return "MIRROR_TOPIC_BEING_STOPPED"
	case ClusterMirrorNotEmpty:
		return "CLUSTER_MIRROR_NOT_EMPTY"
	case ClusterMirrorAuthorizationFailed:
		return "CLUSTER_MIRROR_AUTHORIZATION_FAILED"
	case InvalidClusterMirrorStates:
		return "INVALID_CLUSTER_MIRROR_STATES"
	case MirrorTopicNotStopped:
		return "MIRROR_TOPIC_NOT_STOPPED"
	}
	return ""
}
