package metadatarecords

import (
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

// The levels of the feature metadata.version that the tables cover, those before 4.3 too.
// 4.3-IV0 is the first with cordoned log directories, 4.4-IV2 the last that Kafka 4.4
// finalizes.
const (
	MinMetadataVersion int16 = 30 // 4.3-IV0
	MaxMetadataVersion int16 = 33 // 4.4-IV2
	// MinUncordoned is the first level that a virtual broker can do with that cannot be
	// cordoned.
	MinUncordoned int16 = 22 // 4.0-IV0
)

// MetadataVersionFeature is the name of the feature whose levels those are.
const MetadataVersionFeature = "metadata.version"

// frameVersion is the version of the envelope around every record: varint frame version,
// varint record type, varint record version, message.
const frameVersion = 1

// Record is one of the generated record types, or Skipped.
type Record interface {
	// APIKey is the record's type.
	APIKey() int16
	// Decode reads the record from a message without its frame.
	Decode(version int16, b []byte) error
	// Encode renders the record without its frame.
	Encode(version int16) ([]byte, error)
}

// Skipped stands for a record of a type that nothing relies on.
type Skipped struct {
	Type    uint32
	Version uint32
}

// UnknownVersionError says that a record type that is relied on came in a version
// without a table, or that the frame did (Name "frame"). Whoever follows the log must
// stop acting on it: what the record says is not known.
type UnknownVersionError struct {
	Type       uint32
	Name       string
	Version    uint32
	MaxVersion int16
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("metadata log: %s version %d is newer than this build, which reads up to %d: upgrade the sidecar",
		e.Name, e.Version, e.MaxVersion)
}

// Decode reads one record's value. Exactly one of the three is set: a record, skipped,
// or an error, which is an *UnknownVersionError where a newer build would help.
func Decode(value []byte) (rec Record, skipped *Skipped, err error) {
	r := wire.NewReader(value)
	frame := r.Uvarint()
	if r.Err() == nil && frame != frameVersion {
		return nil, nil, &UnknownVersionError{Name: "frame", Version: frame, MaxVersion: frameVersion}
	}
	apiKey := r.Uvarint()
	version := r.Uvarint()
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("metadata log: read record frame: %w", err)
	}
	rec, name, maxVersion := newRecord(apiKey)
	if rec == nil {
		return nil, &Skipped{Type: apiKey, Version: version}, nil
	}
	if version > uint32(maxVersion) {
		return nil, nil, &UnknownVersionError{Type: apiKey, Name: name, Version: version, MaxVersion: maxVersion}
	}
	if err := rec.Decode(int16(version), value[len(value)-r.Left():]); err != nil {
		return nil, nil, fmt.Errorf("metadata log: %w", err)
	}
	return rec, nil, nil
}

// Encode renders a record with its frame, as a controller would write it.
func Encode(rec Record, version int16) ([]byte, error) {
	body, err := rec.Encode(version)
	if err != nil {
		return nil, fmt.Errorf("metadata log: %w", err)
	}
	w := wire.NewWriter(nil)
	w.Uvarint(frameVersion)
	w.Uvarint(uint32(rec.APIKey()))
	w.Uvarint(uint32(version))
	return append(w.Bytes(), body...), nil
}
