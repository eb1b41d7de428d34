package wire

import "fmt"

// UnknownVersionError says that a message is of a version this build has no layout for.
type UnknownVersionError struct {
	Message           string
	Version, Min, Max int16
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("%s: version %d is unknown, this build reads %d to %d", e.Message, e.Version, e.Min, e.Max)
}

// UnknownVersion returns an UnknownVersionError.
func UnknownVersion(message string, version, minVersion, maxVersion int16) error {
	return &UnknownVersionError{Message: message, Version: version, Min: minVersion, Max: maxVersion}
}
