package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

// StateTopic is the topic that the records of this file are in.
const StateTopic = "__cluster_mirror_state"

// StateTransactions begins the transactional ids that StateTopic's partitions are written
// under; the partition's number ends them.
const StateTransactions = "mirror-state-"

// Key is the key of a record of the state topic. Keys are comparable.
type Key interface {
	// RecordType is the first int16 of the key.
	RecordType() int16
	// Encode renders the key without its type.
	Encode(version int16) ([]byte, error)
}

// Value is the value of a record of the state topic.
type Value interface {
	// RecordType is the type of the key that the value belongs to.
	RecordType() int16
	// MaxVersion is the version that is written.
	MaxVersion() int16
	// Encode renders the value without its version.
	Encode(version int16) ([]byte, error)
	// Decode reads the value from a message without its version.
	Decode(version int16, b []byte) error
}

// UnknownRecordError says that a record of the state topic was written by a newer build.
// A reader skips it, and counts it.
type UnknownRecordError struct {
	Type    int16
	Version int16 // of the value, -1 where the type is unknown
}

func (e *UnknownRecordError) Error() string {
	if e.Version < 0 {
		return fmt.Sprintf("state record of unknown type %d", e.Type)
	}
	return fmt.Sprintf("state record of type %d: value version %d is unknown", e.Type, e.Version)
}

// DecodeKey reads the key of a record of the state topic.
func DecodeKey(b []byte) (Key, error) {
	typ, body, err := prefix(b, "key")
	if err != nil {
		return nil, err
	}
	switch typ {
	case LastMirrorEpochsKey{}.RecordType():
		return decodeKey(body, (*LastMirrorEpochsKey).Decode)
	case PartitionStateKey{}.RecordType():
		// The KIP's example has a key of the mirror's name alone (contract.md §5).
		if endsWithName(body) {
			return decodeKey(body, (*SeedStateKey).Decode)
		}
		return decodeKey(body, (*PartitionStateKey).Decode)
	case MirrorKey{}.RecordType():
		return decodeKey(body, (*MirrorKey).Decode)
	case MirrorTopicKey{}.RecordType():
		return decodeKey(body, (*MirrorTopicKey).Decode)
	case LastRealISRKey{}.RecordType():
		return decodeKey(body, (*LastRealISRKey).Decode)
	case BarrierKey{}.RecordType():
		return decodeKey(body, (*BarrierKey).Decode)
	case OwnedKey{}.RecordType():
		return decodeKey(body, (*OwnedKey).Decode)
	}
	return nil, &UnknownRecordError{Type: typ, Version: -1}
}

func decodeKey[K Key](body []byte, decode func(*K, int16, []byte) error) (Key, error) {
	var k K
	if err := decode(&k, 0, body); err != nil {
		return nil, fmt.Errorf("state record: %w", err)
	}
	return k, nil
}

func endsWithName(body []byte) bool {
	r := wire.NewReader(body)
	_ = r.String(false)
	return r.Finish() == nil
}

// DecodeValue reads the value of the record under key. A null value, which deletes the
// key, is nil without an error.
func DecodeValue(key Key, b []byte) (Value, error) {
	if b == nil {
		return nil, nil
	}
	version, body, err := prefix(b, "value")
	if err != nil {
		return nil, err
	}
	var v Value
	known := int16(0)
	switch key.(type) {
	case LastMirrorEpochsKey:
		v = new(LastMirrorEpochsValue)
	case PartitionStateKey:
		v, known = new(PartitionStateValue), 1
	case SeedStateKey:
		v = new(SeedStateValue)
	case MirrorKey:
		v = new(MirrorValue)
	case MirrorTopicKey:
		v = new(MirrorTopicValue)
	case LastRealISRKey:
		v = new(LastRealISRValue)
	case OwnedKey:
		v = new(OwnedValue)
	}
	if v == nil || version != known {
		return nil, &UnknownRecordError{Type: key.RecordType(), Version: version}
	}
	if err := v.Decode(version, body); err != nil {
		return nil, fmt.Errorf("state record: %w", err)
	}
	return v, nil
}

// EncodeKey renders a key with its type.
func EncodeKey(k Key) ([]byte, error) {
	body, err := k.Encode(0)
	if err != nil {
		return nil, fmt.Errorf("state record: %w", err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(k.RecordType())), body...), nil
}

// EncodeValue renders a value with its version.
func EncodeValue(v Value) ([]byte, error) {
	body, err := v.Encode(v.MaxVersion())
	if err != nil {
		return nil, fmt.Errorf("state record: %w", err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(v.MaxVersion())), body...), nil
}

func prefix(b []byte, part string) (int16, []byte, error) {
	r := wire.NewReader(b)
	n := r.Int16()
	if err := r.Err(); err != nil {
		return 0, nil, fmt.Errorf("state record %s: %w", part, err)
	}
	return n, b[len(b)-r.Left():], nil
}
