package readonly

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// ErrorCode is an error of the Kafka protocol.
type ErrorCode int16

// The errors that refused requests get.
const (
	// PolicyViolation is known to every client and retried by none.
	PolicyViolation ErrorCode = 44
	// ReadOnlyTopic is KIP-1279's own error, moved by +12700 with the others.
	ReadOnlyTopic ErrorCode = 12834

	unknownTopicOrPartition  ErrorCode = 3
	topicAuthorizationFailed ErrorCode = 29
	invalidRequest           ErrorCode = 42
	operationNotAttempted    ErrorCode = 55

	// Retriable ones, while it is not known yet what is a mirror topic.
	notLeaderOrFollower    ErrorCode = 6
	notController          ErrorCode = 41
	concurrentTransactions ErrorCode = 51

	// notEnoughReplicas is what a fenced topic answers. A fence lasts for seconds and ends in
	// one of two ways: the topic goes on elsewhere, or here. Producers retry this error, so
	// that what they have is neither lost nor given back when it goes on here; it says that
	// the batch was not written, which idempotent producers need to know, and, unlike
	// NOT_LEADER_OR_FOLLOWER, it does not send them for metadata each time.
	notEnoughReplicas ErrorCode = 19
)

// ParseErrorCode reads the value of --read-only-error.
func ParseErrorCode(s string) (ErrorCode, error) {
	switch s {
	case "", "policy-violation":
		return PolicyViolation, nil
	case "read-only-topic":
		return ReadOnlyTopic, nil
	}
	return 0, fmt.Errorf("read-only-error %q: want policy-violation or read-only-topic", s)
}

// Topic names a topic as a request does: by name or, in newer versions, by id.
type Topic struct {
	Name string
	ID   ids.UUID
}

// AnyPartition asks a Lookup for a whole topic.
const AnyPartition int32 = -1

// Lookup tells whether a partition is read only, and by which mirror. The mirror's name may
// be empty if it is not known. With AnyPartition the question is whether any partition
// of the topic is.
type Lookup func(t Topic, partition int32) (mirror string, ok bool)

// Rules refuse what would change a mirror topic.
type Rules struct {
	Lookup Lookup
	// TopicName names a topic by its id, for messages and for StateTopic.
	TopicName func(id ids.UUID) (string, bool)
	// Code is what writers to a mirror topic get; zero is PolicyViolation.
	Code ErrorCode
	// StateTopic is the topic of the sidecars' own state: clients may not change it.
	StateTopic string
	// Pending says that it is not known yet what is a mirror topic: everything is
	// refused, with an error that clients retry.
	Pending bool
	// Unsure tells whether what Lookup finds may be an ordinary topic's, which is refused with
	// an error that clients retry; nil: never.
	Unsure func(t Topic, partition int32) bool
	// Hidden tells of a mirror topic that the caller may not see, so that he is not told that there is
	// one; nil: he sees all.
	Hidden func(topic string) bool
	// Fenced tells for how long writes to a topic are held back; nil: none are.
	Fenced func(topic string) (left time.Duration, ok bool)
}

// refusal is why something is refused.
type refusal struct {
	kind   refusalKind
	topic  string
	mirror string
	left   time.Duration // of a fence
}

type refusalKind uint8

const (
	byMirror refusalKind = iota + 1
	byState
	byPending
	byFence
	byHidden
)

// check returns the refusal of a change of a partition, or of a whole topic.
func (r *Rules) check(t Topic, partition int32) (refusal, bool) {
	if r.Pending {
		return refusal{kind: byPending, topic: r.name(t)}, true
	}
	if r.StateTopic != "" && r.name(t) == r.StateTopic {
		return refusal{kind: byState, topic: r.StateTopic}, true
	}
	mirror, ok := r.Lookup(t, partition)
	if !ok {
		return refusal{}, false
	}
	if mirror == "" && r.Unsure != nil && r.Unsure(t, partition) {
		return refusal{kind: byPending, topic: r.name(t)}, true
	}
	f := refusal{kind: byMirror, topic: r.name(t), mirror: mirror}
	if r.Hidden != nil && r.Hidden(f.topic) {
		f.kind = byHidden
	}
	return f, true
}

// checkWrite returns the refusal of a write to a partition.
func (r *Rules) checkWrite(t Topic, partition int32) (refusal, bool) {
	if f, no := r.check(t, partition); no || r.Fenced == nil {
		return f, no
	}
	name := r.name(t)
	if left, ok := r.Fenced(name); ok {
		return refusal{kind: byFence, topic: name, left: left}, true
	}
	return refusal{}, false
}

func (r *Rules) name(t Topic) string {
	if t.Name != "" || t.ID.IsZero() || r.TopicName == nil {
		return t.Name
	}
	if name, ok := r.TopicName(t.ID); ok {
		return name
	}
	return ""
}

// code returns the error of a refusal; retry is the one to use while pending.
func (r *Rules) code(f refusal, retry ErrorCode) int16 {
	switch {
	case f.kind == byPending:
		return int16(retry)
	case f.kind == byFence:
		return int16(notEnoughReplicas)
	case f.kind == byHidden:
		return int16(topicAuthorizationFailed)
	case f.kind == byMirror && r.Code != 0:
		return int16(r.Code)
	}
	return int16(PolicyViolation)
}

// message tells a person what is the matter and the way out of it; nothing to whom it is none of his
// business.
func (f refusal) message() *string {
	if f.kind == byHidden {
		return nil
	}
	topic := f.topic
	if topic == "" {
		topic = "the topic"
	} else {
		topic = fmt.Sprintf("topic %q", topic)
	}
	var s string
	switch f.kind {
	case byPending:
		s = fmt.Sprintf("it is not known yet whether %s is a mirror topic: the proxy is still reading the cluster's metadata; try again", topic)
	case byFence:
		s = fmt.Sprintf("writes to %s are fenced while its clients are switched over to another cluster; the fence ends in %v unless it is prolonged", topic, f.left.Round(time.Second))
	case byState:
		s = fmt.Sprintf("%s holds the state of the cluster mirrors and is changed by the mirror sidecars only", topic)
	default:
		if f.mirror == "" {
			s = fmt.Sprintf("%s is a mirror topic and read only until it is stopped: kafka-cluster-mirrors --list names the mirrors", topic)
			break
		}
		s = fmt.Sprintf("%s is a mirror topic of mirror %q and read only; to make it writable, stop it: kafka-cluster-mirrors --stop --mirror %s --topics %s",
			topic, f.mirror, f.mirror, f.topicArg())
	}
	return &s
}

func (f refusal) topicArg() string {
	if f.topic == "" {
		return "T"
	}
	return f.topic
}

// lockedConfigs are the topic configs that keep writers out of a mirror topic even
// where no sidecar stands in between (design.md §7).
var lockedConfigs = map[string]bool{
	"max.message.bytes":              true,
	"min.insync.replicas":            true,
	"unclean.leader.election.enable": true,
	"remote.storage.enable":          true,
}

// nameConfig shows which mirror a topic belongs to. It is not a config of Kafka's: the
// mirror APIs change what it shows.
const nameConfig = "mirror.name"

// MirrorResource is the type of a mirror as a config resource (contract.md §1).
const MirrorResource kmsg.ConfigResourceType = 64

// Refused is one refusal, for logs and metrics.
type Refused struct {
	Topic     string
	Partition int32 // AnyPartition for a whole topic
	Mirror    string
}

// queues holds values by key in the order they were put in: a request may name a
// partition more than once, and so may its response.
type queues[K comparable, V any] map[K][]V

func (q queues[K, V]) put(k K, v V) { q[k] = append(q[k], v) }

func (q queues[K, V]) get(k K) (V, bool) {
	s := q[k]
	if len(s) == 0 {
		var zero V
		return zero, false
	}
	q[k] = s[1:]
	return s[0], true
}

// part identifies a partition within one request, which names all its topics in the
// same way.
type part struct {
	topic     Topic
	partition int32
}
