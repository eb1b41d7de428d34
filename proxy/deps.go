package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// View is what the proxy needs of the metadata log; *metadata.Image is one.
type View interface {
	Partition(tp ids.TopicPartition) *metadata.Partition
	Topic(name string) (ids.UUID, bool)
	TopicName(id ids.UUID) (string, bool)
	TopicPartitions(id ids.UUID) []*metadata.Partition
	AllPartitions() []*metadata.Partition
	Subscribe(fn func(metadata.Delta)) (cancel func())
}

var _ View = (*metadata.Image)(nil)

// Mirrors is what the proxy needs of the mirrors' recorded state.
type Mirrors interface {
	// MirrorOf names the mirror that a topic belongs, or belonged, to.
	MirrorOf(topic ids.UUID) (mirror string, ok bool)
	// Recorded tells whether anything is recorded of a topic; without it no partition of it is
	// ReadOnly.
	Recorded(topic ids.UUID) bool
	// ReadOnly tells whether a state other than STOPPED is recorded for a partition.
	ReadOnly(tp ids.TopicPartition) bool
	// Stray tells whether a partition that has virtual replicas is no mirror's, on its way to
	// real brokers; sure is false until that is certain.
	Stray(tp ids.TopicPartition) (stray, sure bool)
}

// Lineage answers consumers' OffsetForLeaderEpoch for mirror partitions.
type Lineage interface {
	// EndOffset returns the largest epoch up to the one asked for and its end offset,
	// as LeaderEpochFileCache.endOffsetFor does; -1, -1 if there is none. ready is
	// false while the lineage is not known.
	EndOffset(tp ids.TopicPartition, epoch int32) (found int32, end int64, ready bool)
}

// FetchReply is the answer to a follower's Fetch. It writes itself, so that record
// bytes go from the buffer they are kept in to the socket; Release says that they were
// written, or will not be.
type FetchReply interface {
	// AppendFrame returns the whole response frame, with its length.
	AppendFrame(correlationID int32, version int16) net.Buffers
	Release()
}

// Replica is the virtual broker as other brokers see it: it answers the requests of
// followers, and of transaction coordinators. Its contexts end with the connection.
type Replica interface {
	Fetch(ctx context.Context, req *kmsg.FetchRequest) (FetchReply, error)
	ListOffsets(ctx context.Context, req *kmsg.ListOffsetsRequest) (*kmsg.ListOffsetsResponse, error)
	OffsetForLeaderEpoch(ctx context.Context, req *kmsg.OffsetForLeaderEpochRequest) (*kmsg.OffsetForLeaderEpochResponse, error)
	WriteTxnMarkers(ctx context.Context, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error)
}

// MirrorHandler serves the mirror APIs (contract.md §1). The proxy does the headers;
// the bodies are the handler's. CallerOf(ctx) is the caller while Handle runs.
type MirrorHandler interface {
	// Keys lists the API keys that are served, all of version 0 only.
	Keys() []int16
	Handle(ctx context.Context, key, version int16, clientID string, body []byte) (response []byte, err error)
}

// MirrorCoordinators finds the broker beside the sidecar that coordinates a mirror, for
// FindCoordinator with key type 3. An error carries the code of the answer.
type MirrorCoordinators interface {
	FindCoordinator(key string) (home int32, err error)
}

// Brokers sends requests to a broker under the sidecar's own identity. It is used only
// for what the caller has been found entitled to.
type Brokers interface {
	Request(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error)
}

// Metrics counts what a proxy does. Its methods must not block.
type Metrics interface {
	Request(key, version int16, size int)
	Refused(key int16, r readonly.Refused)
}

// Deps are the parts a proxy works with. View, Mirrors and Leaders are needed; what
// is missing otherwise is answered as by a broker that does not know it yet.
type Deps struct {
	View    View
	Mirrors Mirrors
	// Leaders is shared by all proxies of a process.
	Leaders *Leaders
	// CaughtUp is closed once the metadata log has been read to its end. Until then it
	// is not known which topics are read only. nil: it has been.
	CaughtUp     <-chan struct{}
	Lineage      Lineage
	Replica      Replica
	Mirror       MirrorHandler
	Coordinators MirrorCoordinators
	Configs      MirrorConfigs
	Assignments  Assignments
	Placement    Placement
	// Fences are shared by all proxies of a process; nil: there are none.
	Fences  *Fences
	Brokers Brokers
	Metrics Metrics
	// Late stands for parts that come later; nil: all are there.
	Late *Late
	// Limits are shared by all proxies for clients; nil: those of a proxy of its own.
	Limits *Limits
	// Connections counts connections; the zero value counts nowhere.
	Connections ConnMetrics
	Log         *slog.Logger
}

func (d *Deps) defaults(cfg Config) error {
	if d.View == nil || d.Mirrors == nil || d.Leaders == nil {
		return errors.New("proxy: View, Mirrors and Leaders are needed")
	}
	if cfg.Virtual && d.Replica == nil {
		return errors.New("proxy: a virtual listener needs a Replica")
	}
	if d.CaughtUp == nil {
		c := make(chan struct{})
		close(c)
		d.CaughtUp = c
	}
	if d.Lineage == nil {
		d.Lineage = noLineage{}
	}
	if d.Fences == nil {
		d.Fences = NewFences(time.Now)
	}
	if d.Limits == nil {
		d.Limits = NewLimits(LimitsConfig{})
	}
	if d.Metrics == nil {
		d.Metrics = noMetrics{}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

type noLineage struct{}

func (noLineage) EndOffset(ids.TopicPartition, int32) (int32, int64, bool) { return -1, -1, false }

type noMetrics struct{}

func (noMetrics) Request(int16, int16, int)       {}
func (noMetrics) Refused(int16, readonly.Refused) {}

// stateTopic holds the mirrors' state.
const stateTopic = "__cluster_mirror_state"

// caughtUp tells whether the metadata log has been read to its end, and is followed.
func (p *Proxy) caughtUp() bool {
	select {
	case <-p.deps.CaughtUp:
		return !p.deps.Late.dated()
	default:
		return false
	}
}

// pending tells whether it is not known yet what is a mirror topic.
func (p *Proxy) pending() bool { return !p.caughtUp() && !p.deps.Late.remembers() }

// readRules are the rules as of now.
func (p *Proxy) readRules() readonly.Rules {
	r := p.rules
	r.Pending = p.pending()
	if !p.deps.Fences.none() {
		r.Fenced = p.deps.Fences.Left
	}
	return r
}

// mirrorOf is the readonly.Lookup: a partition is read only while a virtual replica is
// assigned to it, or a state other than STOPPED is recorded.
func (p *Proxy) mirrorOf(t readonly.Topic, partition int32) (string, bool) {
	if p.deps.Late.unknown(p.deps.View, t) {
		return "", true
	}
	id := t.ID
	if id.IsZero() {
		var ok bool
		if id, ok = p.deps.View.Topic(t.Name); !ok {
			return "", false
		}
	}
	if !p.readOnly(id, partition) {
		return "", false
	}
	mirror, _ := p.deps.Mirrors.MirrorOf(id)
	return mirror, true
}

func (p *Proxy) readOnly(id ids.UUID, partition int32) bool {
	if partition != readonly.AnyPartition {
		tp := ids.TopicPartition{TopicID: id, Partition: partition}
		if !p.deps.Leaders.assigned(tp) && !p.deps.Mirrors.ReadOnly(tp) {
			return false
		}
		// Clients of an ordinary topic wait until it is on real brokers, as they do for a leader.
		stray, sure := p.deps.Mirrors.Stray(tp)
		return !stray || !sure
	}
	for _, part := range p.deps.View.TopicPartitions(id) {
		if p.readOnly(id, part.Partition) {
			return true
		}
	}
	return false
}

// unsure tells whether a partition that has virtual replicas may be an ordinary topic's.
func (p *Proxy) unsure(t readonly.Topic, partition int32) bool {
	if p.deps.Late.dated() {
		return true
	}
	id := t.ID
	if id.IsZero() {
		id, _ = p.deps.View.Topic(t.Name)
	}
	for _, part := range p.deps.View.TopicPartitions(id) {
		if partition != readonly.AnyPartition && partition != part.Partition {
			continue
		}
		if stray, sure := p.deps.Mirrors.Stray(ids.TopicPartition{TopicID: id, Partition: part.Partition}); stray && !sure {
			return true
		}
	}
	return false
}

// mirrorLed returns the partition if a virtual broker leads it, as far as the metadata
// log has been read.
func (p *Proxy) mirrorLed(topic string, partition int32) (*metadata.Partition, bool) {
	id, ok := p.deps.View.Topic(topic)
	if !ok {
		return nil, false
	}
	return p.mirrorLedID(id, partition)
}

func (p *Proxy) mirrorLedID(id ids.UUID, partition int32) (*metadata.Partition, bool) {
	part := p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
	if part == nil || !p.cfg.IDs.Is(part.Leader) {
		return nil, false
	}
	return part, true
}

// shownLeader returns the real replica that clients are told leads a partition.
func (p *Proxy) shownLeader(part *metadata.Partition) (int32, bool) {
	tp := ids.TopicPartition{TopicID: part.TopicID, Partition: part.Partition}
	return p.deps.Leaders.Shown(tp, part.LeaderEpoch, part.Replicas, part.ISR)
}
