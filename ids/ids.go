package ids

import (
	"encoding/base64"
	"fmt"
)

// UUID is a Kafka topic, directory or incarnation id.
type UUID [16]byte

// String returns Kafka's own text form (org.apache.kafka.common.Uuid): URL-safe
// base64 without padding. Coordinator keys are hashed over this text.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero tells whether u is Kafka's ZERO_UUID, which means "no id".
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText writes what String returns.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (u *UUID) UnmarshalText(text []byte) error {
	parsed, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

// ParseUUID reads the text form that String writes.
func ParseUUID(s string) (UUID, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return UUID{}, fmt.Errorf("parse id %q: %w", s, err)
	}
	var u UUID
	if len(b) != len(u) {
		return UUID{}, fmt.Errorf("parse id %q: %d bytes, want %d", s, len(b), len(u))
	}
	copy(u[:], b)
	return u, nil
}

// TopicPartition names a partition by its topic's id. It is always the
// destination's topic id unless a name says "source": topic ids differ between
// stock clusters.
type TopicPartition struct {
	TopicID   UUID
	Partition int32
}

func (p TopicPartition) String() string { return fmt.Sprintf("%s-%d", p.TopicID, p.Partition) }

// Virtual relates real brokers to virtual ones. Its value is the configured
// mirror.virtual.broker.id.offset: a node id at or above it is a virtual broker's.
type Virtual int32

// Is tells whether id belongs to a virtual broker.
func (v Virtual) Is(id int32) bool { return id >= int32(v) }

// Of returns the id of the virtual broker beside the real broker home.
func (v Virtual) Of(home int32) int32 { return home + int32(v) }

// Home returns the id of the real broker beside the virtual broker id.
func (v Virtual) Home(id int32) int32 { return id - int32(v) }

// Real returns the members of ids that are real brokers, in their order.
func (v Virtual) Real(all []int32) []int32 { return v.pick(all, false) }

// Only returns the members of ids that are virtual brokers, in their order.
func (v Virtual) Only(all []int32) []int32 { return v.pick(all, true) }

func (v Virtual) pick(all []int32, virtual bool) []int32 {
	out := make([]int32, 0, len(all))
	for _, id := range all {
		if v.Is(id) == virtual {
			out = append(out, id)
		}
	}
	return out
}
