package coordinator

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// Error is an answer that a caller can act on: a code for programs, a sentence for
// people.
type Error = protocol.Error

func refuse(code int16, format string, args ...any) *Error {
	return protocol.Errorf(code, format, args...)
}

// asError turns any error into an answer; one without a code gets the given code.
func asError(err error, code int16) *Error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if c := fenceCode(err); c != 0 {
		return &Error{Code: c, Message: err.Error()}
	}
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return &Error{Code: kafka.Code, Message: err.Error()}
	}
	return &Error{Code: code, Message: err.Error()}
}

// What a writer of state is told; test with errors.Is.
var (
	// ErrFencedLeaderEpoch: a later leader of the partition has written (R20).
	ErrFencedLeaderEpoch = errors.New("fenced: a later leader of the partition has written its state")
	// ErrFencedStateEpoch: the state is not the one that the writer read.
	ErrFencedStateEpoch = errors.New("fenced: the state has changed since it was read")
	// ErrTransition: the state machine has no such step.
	ErrTransition = errors.New("no such transition")
	// ErrNotCoordinator: another sidecar coordinates the key.
	ErrNotCoordinator = errors.New("another sidecar coordinates the key")
	// ErrNoCoordinator: no sidecar does at present.
	ErrNoCoordinator = errors.New("no live sidecar coordinates the key")
)

// fencedStateEpoch is Kafka's FENCED_STATE_EPOCH.
const fencedStateEpoch int16 = 124

func fenceCode(err error) int16 {
	switch {
	case errors.Is(err, ErrFencedLeaderEpoch):
		return kerr.FencedLeaderEpoch.Code
	case errors.Is(err, ErrFencedStateEpoch):
		return fencedStateEpoch
	case errors.Is(err, ErrTransition):
		return protocol.InvalidClusterMirrorStates
	case errors.Is(err, ErrNotCoordinator):
		return kerr.NotCoordinator.Code
	case errors.Is(err, ErrNoCoordinator):
		return kerr.CoordinatorNotAvailable.Code
	}
	return 0
}

// codeOf is the code of an error on the wire, and errorOf the way back.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	return asError(err, kerr.UnknownServerError.Code).Code
}

func errorOf(code int16, message *string) error {
	var base error
	switch code {
	case 0:
		return nil
	case kerr.FencedLeaderEpoch.Code:
		base = ErrFencedLeaderEpoch
	case fencedStateEpoch:
		base = ErrFencedStateEpoch
	case protocol.InvalidClusterMirrorStates:
		base = ErrTransition
	case kerr.NotCoordinator.Code:
		base = ErrNotCoordinator
	case kerr.CoordinatorNotAvailable.Code:
		base = ErrNoCoordinator
	default:
		return protocol.ErrorForCode(code, message)
	}
	if message == nil || *message == "" {
		return base
	}
	return fmt.Errorf("%w: %s", base, *message)
}

func itoa(n int32) string { return strconv.FormatInt(int64(n), 10) }
