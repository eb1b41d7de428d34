package proxy

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// Parts are the parts of a sidecar that proxies for clients can do without for a while. None is
// nil.
type Parts struct {
	Mirrors      Mirrors
	Lineage      Lineage
	Mirror       MirrorHandler
	Coordinators MirrorCoordinators
	Configs      MirrorConfigs
	Assignments  Assignments
	Placement    Placement
	Brokers      Brokers
}

// Late stands for the parts in a proxy that begins before they are there and goes on after
// they have gone: ordinary topics need none of them. Meanwhile what needs one gets an error that clients
// retry, and View is dated.
type Late struct {
	// Restored says that View was saved by a former process: what it shows free of virtual
	// replicas is, for if it has become a mirror's since then, the brokers refuse writes. What it
	// does not show is not known yet.
	Restored bool
	// Held tells whether a topic that has no virtual replicas was read only all the same when
	// View was saved.
	Held func(topic ids.UUID) bool
	// NotYet answers a request for a mirror API with an error; keys lists those that there are.
	NotYet func(key, version int16, body []byte, err error) ([]byte, error)
	Keys   []int16

	parts atomic.Pointer[Parts]
	left  atomic.Pointer[func(topic ids.UUID) bool] // stands for Held after Unbind
	read  chan struct{}
	once  atomic.Bool
}

// NewLate returns a Late without the parts.
func NewLate(keys []int16, notYet func(key, version int16, body []byte, err error) ([]byte, error)) *Late {
	return &Late{Held: func(ids.UUID) bool { return false }, Keys: keys, NotYet: notYet, read: make(chan struct{})}
}

// Bind puts the parts in their places. View has been read to its end by then.
func (l *Late) Bind(p Parts) {
	l.parts.Store(&p)
	if l.once.CompareAndSwap(false, true) {
		close(l.read)
	}
}

// Unbind takes them away, for they end. held tells what is read only now, and stays so: what Held
// knew is as old as the process, and what a topic becomes from now on nobody here is told.
func (l *Late) Unbind(held func(topic ids.UUID) bool) {
	l.left.Store(&held) // before the parts go, so that nobody finds neither
	l.parts.Store(nil)
}

// held tells whether a topic was read only when last somebody knew.
func (l *Late) held(topic ids.UUID) bool {
	if left := l.left.Load(); left != nil {
		return (*left)(topic)
	}
	return l.Held(topic)
}

// Deps puts the parts' places into d.
func (l *Late) Deps(d Deps) Deps {
	d.Mirrors, d.Lineage, d.Mirror, d.Coordinators = lateMirrors{l}, lateLineage{l}, lateMirror{l}, lateCoordinators{l}
	d.Configs, d.Assignments, d.Placement, d.Brokers = lateConfigs{l}, lateAssignments{l}, latePlacement{l}, lateBrokers{l}
	d.CaughtUp, d.Late = l.read, l
	return d
}

// dated tells whether what the view shows may be out of date.
func (l *Late) dated() bool { return l != nil && l.parts.Load() == nil }

// remembers tells whether what the view shows has been so once.
func (l *Late) remembers() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.read:
		return true
	default:
		return l.Restored
	}
}

// unknown tells whether nothing is known of a topic that a request names, or that it was read
// only for a reason that the view does not show.
func (l *Late) unknown(v View, t readonly.Topic) bool {
	if !l.dated() {
		return false
	}
	id := t.ID
	var known bool
	if id.IsZero() {
		id, known = v.Topic(t.Name)
	} else {
		_, known = v.TopicName(id)
	}
	return !known || l.held(id)
}

// notThere is an error that clients retry whatever they asked for.
func notThere() error {
	return protocol.Errorf(errCoordinatorNotAvailable, "the sidecar is starting or ending; only what has nothing to do with mirrors is answered meanwhile; try again")
}

type lateMirrors struct{ *Late }

func (l lateMirrors) MirrorOf(topic ids.UUID) (string, bool) {
	if p := l.parts.Load(); p != nil {
		return p.Mirrors.MirrorOf(topic)
	}
	return "", false
}

func (l lateMirrors) Recorded(topic ids.UUID) bool {
	if p := l.parts.Load(); p != nil {
		return p.Mirrors.Recorded(topic)
	}
	return l.held(topic)
}

func (l lateMirrors) ReadOnly(tp ids.TopicPartition) bool {
	if p := l.parts.Load(); p != nil {
		return p.Mirrors.ReadOnly(tp)
	}
	return l.held(tp.TopicID)
}

// Stray says of everything that has virtual replicas, or had them, that it may be an ordinary
// topic's by now: clients try again.
func (l lateMirrors) Stray(tp ids.TopicPartition) (stray, sure bool) {
	if p := l.parts.Load(); p != nil {
		return p.Mirrors.Stray(tp)
	}
	return true, false
}

type lateLineage struct{ *Late }

func (l lateLineage) EndOffset(tp ids.TopicPartition, epoch int32) (found int32, end int64, ready bool) {
	if p := l.parts.Load(); p != nil {
		return p.Lineage.EndOffset(tp, epoch)
	}
	return -1, -1, false
}

type lateMirror struct{ *Late }

func (l lateMirror) Keys() []int16 { return l.Late.Keys }

func (l lateMirror) Handle(ctx context.Context, key, version int16, clientID string, body []byte) ([]byte, error) {
	if p := l.parts.Load(); p != nil {
		return p.Mirror.Handle(ctx, key, version, clientID, body)
	}
	return l.NotYet(key, version, body, notThere())
}

type lateCoordinators struct{ *Late }

func (l lateCoordinators) FindCoordinator(key string) (int32, error) {
	if p := l.parts.Load(); p != nil {
		return p.Coordinators.FindCoordinator(key)
	}
	return -1, notThere()
}

type lateConfigs struct{ *Late }

func (l lateConfigs) Authorize(ctx context.Context, who Caller, alter bool) (string, error) {
	if p := l.parts.Load(); p != nil {
		return p.Configs.Authorize(ctx, who, alter)
	}
	return "", notThere()
}

func (l lateConfigs) Describe(ctx context.Context, mirror string, keys []string) ([]ConfigEntry, error) {
	if p := l.parts.Load(); p != nil {
		return p.Configs.Describe(ctx, mirror, keys)
	}
	return nil, notThere()
}

func (l lateConfigs) Alter(ctx context.Context, clientID, mirror string, ops []ConfigOp, validateOnly bool) error {
	if p := l.parts.Load(); p != nil {
		return p.Configs.Alter(ctx, clientID, mirror, ops, validateOnly)
	}
	return notThere()
}

func (l lateConfigs) TopicMirror(topic string) (string, bool) {
	if p := l.parts.Load(); p != nil {
		return p.Configs.TopicMirror(topic)
	}
	return "", false
}

func (l lateConfigs) Wanted(topic string) (map[string]*string, bool) {
	if p := l.parts.Load(); p != nil {
		return p.Configs.Wanted(topic)
	}
	return nil, false
}

type lateAssignments struct{ *Late }

func (l lateAssignments) Kept(tp ids.TopicPartition) ([]int32, bool, error) {
	if p := l.parts.Load(); p != nil {
		return p.Assignments.Kept(tp)
	}
	return nil, true, notThere()
}

func (l lateAssignments) Open(ctx context.Context, virtual []int32) (func(), error) {
	if p := l.parts.Load(); p != nil {
		return p.Assignments.Open(ctx, virtual)
	}
	return nil, notThere()
}

type latePlacement struct{ *Late }

// Needed is false without the parts: what lands on virtual brokers then is moved off them.
func (l latePlacement) Needed() bool {
	p := l.parts.Load()
	return p != nil && p.Placement.Needed()
}

func (l latePlacement) Place(topic string, from, partitions, replicas int) ([][]int32, error) {
	if p := l.parts.Load(); p != nil {
		return p.Placement.Place(topic, from, partitions, replicas)
	}
	return nil, notThere()
}

func (l latePlacement) Defaults(ctx context.Context) (partitions, replicas int, err error) {
	if p := l.parts.Load(); p != nil {
		return p.Placement.Defaults(ctx)
	}
	return 0, 0, notThere()
}

type lateBrokers struct{ *Late }

func (l lateBrokers) Request(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	if p := l.parts.Load(); p != nil {
		return p.Brokers.Request(ctx, broker, req)
	}
	return nil, notThere()
}
