package replica

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// BrokerConfig configures a virtual broker. Zero durations mean the defaults.
type BrokerConfig struct {
	// HomeID is the real broker beside this sidecar; Virtual makes the own id of it.
	HomeID  int32
	Virtual ids.Virtual
	// ClusterID is the cluster that is expected; empty takes any.
	ClusterID string
	// Endpoints are registered as they are: every listener name of the home broker
	// with its security protocol, at this sidecar's address. See EndpointsLike.
	Endpoints []metadata.Endpoint
	// Lag tells how long the image may have been behind the metadata log, as
	// metadata.Observer does.
	Lag func() time.Duration
	// Home asks the home broker for a sign of life; nil looks for none. See homeless.
	Home func(ctx context.Context) error

	// AllowUncordoned takes a cluster whose metadata.version knows no cordoned log
	// directories: what the controllers place may land on the virtual broker at any time.
	AllowUncordoned bool

	HeartbeatInterval time.Duration // default 500 ms
	// SessionTimeout is broker.session.timeout.ms of the controllers, after which they
	// fence a broker that is silent. Default 9 s, which is Kafka's.
	SessionTimeout time.Duration
	// HomeSession is broker.session.timeout.ms as the home broker has it, 0 if it is not told. Where it
	// is longer, the controllers have longer to notice that the home broker is dead, see homeless.go.
	HomeSession time.Duration
	// MaxLag is the lag of the metadata log from which on the broker has itself
	// fenced: behind the log it would hold up the controlled shutdown of real brokers,
	// and act on what is no longer so. Default 5 s.
	MaxLag time.Duration
	// MaxUncordoned bounds one un-cordon window, should its owner forget to end it.
	// Default 30 s.
	MaxUncordoned time.Duration
	// RejoinDelay is what is waited before the broker registers again after somebody has
	// unregistered it: a newer process of this id goes first. Default 1 s.
	RejoinDelay time.Duration
	// MaxMetadataVersion is the highest metadata.version to register for; 0 means what this
	// build has tables for.
	MaxMetadataVersion int16
}

func (c BrokerConfig) withDefaults() BrokerConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.HeartbeatInterval, 500*time.Millisecond)
	def(&c.SessionTimeout, 9*time.Second)
	def(&c.MaxLag, 5*time.Second)
	def(&c.MaxUncordoned, 30*time.Second)
	def(&c.RejoinDelay, time.Second)
	if c.MaxMetadataVersion == 0 {
		c.MaxMetadataVersion = metadatarecords.MaxMetadataVersion
	}
	return c
}

// EndpointsLike returns the listeners of the home broker, all at one address.
func EndpointsLike(home metadata.Broker, host string, port uint16) []metadata.Endpoint {
	out := slices.Clone(home.Endpoints)
	for i := range out {
		out[i].Host, out[i].Port = host, port
	}
	return out
}

// DirectoryID returns the id of the one log directory that the virtual broker id of a
// cluster has. It is the same in every process, because elections and assignments
// refer to it, and so it is derived instead of stored.
func DirectoryID(clusterID string, id int32) ids.UUID {
	for n := uint64(0); ; n++ {
		h := sha256.New()
		fmt.Fprintf(h, "mirror-sidecar log directory\x00%s\x00%d\x00%d", clusterID, id, n)
		u := ids.UUID(h.Sum(nil)[:16])
		// The first hundred ids have meanings of their own in Kafka, and tools take an
		// id with a leading dash for an option.
		reserved := binary.BigEndian.Uint64(u[:8]) == 0 && binary.BigEndian.Uint64(u[8:]) < 100
		if !reserved && !strings.HasPrefix(u.String(), "-") {
			return u
		}
	}
}

// Errors that Start wraps, and Failed delivers.
var (
	ErrClusterTooOld   = errors.New("the cluster's metadata.version is too old")
	ErrSidecarTooOld   = errors.New("the cluster's metadata.version is newer than this sidecar: upgrade the sidecar first")
	ErrWrongCluster    = errors.New("wrong cluster")
	ErrIDTaken         = errors.New("the virtual broker's id is taken")
	ErrUnregistered    = errors.New("the virtual broker's registration is gone")
	errBrokerEnded     = errors.New("the virtual broker has ended")
	errBrokerReused    = errors.New("a virtual broker is started once")
	errWindowUncertain = errors.New("un-cordon window ended before it was seen")
)

// Broker is the virtual broker: a registration at the controllers that heartbeats keep
// alive. It has no log and serves nothing itself.
//
// Every process registers with a fresh incarnation, having unregistered its own id, so
// that a former process, paused maybe, is fenced by the controllers. The log directory
// stays cordoned, which keeps the controllers from placing partitions here, but for
// the windows that Uncordon opens.
type Broker struct {
	cfg BrokerConfig
	img *metadata.Image
	ctl *controller.Client
	log *slog.Logger
	id  int32

	wake   chan struct{} // asks for a heartbeat now
	failed chan error
	done   chan struct{} // closed when the heartbeats' goroutine has ended
	// life ends with the heartbeats; its cause says why.
	life context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex // guards the following
	started bool
	running bool          // the goroutine was started
	changed chan struct{} // closed and replaced when something below or the image moved
	epoch   int64
	dir     ids.UUID

	away             bool        // somebody has unregistered it, and it is not back yet
	former           int64       // the epoch of before that
	sent             ids.UUID    // the incarnation of a registration of which is not known whether it was done
	losses           []time.Time // when that happened, the newest ones
	lost             int         // how often it did
	fresh            bool        // the registration has had no heartbeat yet
	seen             bool        // the own registration was applied to the image
	giveUps          int
	stopping, leave  bool
	windows          map[*window]struct{}
	lastGood         time.Time // when the last heartbeat that was answered well was sent
	answeredSince    time.Time // when the first of the present row of them was; zero after some time without
	unansweredSince  time.Time // when the first of the present row of those that failed was sent; zero without one
	ack              heartbeat // that heartbeat
	ackFenced        bool      // what it was answered
	ackShutdown      bool
	complained       string // the last trouble logged
	lastWant         heartbeat
	homeless         homeless
	unsubscribeImage func()
}

// heartbeat is what a heartbeat asks for.
type heartbeat struct {
	n                         uint64
	fence, shutdown, uncordon bool
}

// window is a time in which the log directory is not cordoned.
type window struct{ until time.Time }

// NewBroker returns a broker that is not registered yet. img must be followed by an
// observer before Start.
func NewBroker(cfg BrokerConfig, img *metadata.Image, ctl *controller.Client, log *slog.Logger) (*Broker, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("virtual broker without a listener")
	}
	if cfg.Virtual <= 0 || cfg.HomeID < 0 || cfg.Virtual.Is(cfg.HomeID) {
		return nil, fmt.Errorf("home broker id %d does not lie below mirror.virtual.broker.id.offset %d", cfg.HomeID, cfg.Virtual)
	}
	if cfg.Lag == nil {
		return nil, errors.New("virtual broker without a way to tell the metadata log's lag")
	}
	cfg = cfg.withDefaults()
	id := cfg.Virtual.Of(cfg.HomeID)
	life, end := context.WithCancelCause(context.Background())
	return &Broker{
		cfg:     cfg,
		img:     img,
		ctl:     ctl,
		log:     log.With("broker", id),
		id:      id,
		wake:    make(chan struct{}, 1),
		failed:  make(chan error, 1),
		done:    make(chan struct{}),
		life:    life,
		end:     end,
		changed: make(chan struct{}),
		windows: make(map[*window]struct{}),
		fresh:   true,
	}, nil
}

// ID returns the virtual broker's node id.
func (b *Broker) ID() int32 { return b.id }

// Epoch returns the broker epoch of the registration, -1 while there is none.
func (b *Broker) Epoch() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		return -1
	}
	return b.epoch
}

// Failed delivers the error, once, by which the registration was lost for good: another
// process registered the id, or the cluster takes this one no more. The broker has then
// ended; only a new one can register again. One that was merely unregistered comes back by
// itself, see Losses.
func (b *Broker) Failed() <-chan error { return b.failed }

// Live tells whether the controllers hold this broker for alive and unfenced, by its
// own clock and the last heartbeat that they answered. Safety does not rest on it (a
// process can be paused right after it looked), but a broker that is not live need not
// try anything.
func (b *Broker) Live() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running && !b.away && b.life.Err() == nil && !b.ackFenced && time.Since(b.lastGood) < b.cfg.SessionTimeout
}

// Start registers the broker and begins its heartbeats, which go on until Stop, Leave
// or failure: ctx bounds the start only. Before it changes anything it waits until the
// image has been read, and checks that this is the right cluster, that its
// metadata.version is one that this build can follow, and that the id is not somebody
// else's. It returns when the broker is registered, fenced and cordoned; it is
// unfenced as soon as its registration has come back through the metadata log.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	if b.started {
		b.mu.Unlock()
		return errBrokerReused
	}
	b.started = true
	b.mu.Unlock()
	if err := b.start(ctx); err != nil {
		b.end(err)
		return fmt.Errorf("start virtual broker %d: %w", b.id, err)
	}
	return nil
}

func (b *Broker) start(ctx context.Context) error {
	cluster, err := b.ctl.Describe(ctx)
	if err != nil {
		return err
	}
	if b.cfg.ClusterID != "" && cluster.ID != b.cfg.ClusterID {
		return fmt.Errorf("%w: the controllers belong to cluster %q, expected %q", ErrWrongCluster, cluster.ID, b.cfg.ClusterID)
	}
	features, err := b.features(cluster)
	if err != nil {
		return err
	}
	if err := b.img.Wait(ctx, func() bool { return b.img.Offset() >= 0 }); err != nil {
		return fmt.Errorf("the metadata log has not been read: %w", err)
	}
	b.dir = DirectoryID(cluster.ID, b.id)
	if other, ok := b.img.Broker(b.id); ok && !slices.Contains(other.LogDirs, b.dir) {
		return fmt.Errorf("%w: broker %d is registered with log directories %v, not with %s; choose another mirror.virtual.broker.id.offset",
			ErrIDTaken, b.id, other.LogDirs, b.dir)
	}
	if err := b.patiently(ctx, func() error { return b.Unregister(ctx) }); err != nil {
		return err
	}
	if err := b.patiently(ctx, func() error { return b.register(ctx, cluster, features, true) }); err != nil {
		return err
	}
	cancel := b.img.Subscribe(func(d metadata.Delta) {
		if slices.Contains(d.Brokers, b.id) {
			b.registrationMoved()
		}
	})
	b.mu.Lock()
	b.unsubscribeImage = cancel
	b.mu.Unlock()
	b.registrationMoved()

	// The registration has reset the cordon, so the first heartbeat is part of it.
	if err := b.patiently(ctx, func() error { return b.beat(ctx) }); err != nil {
		cancel()
		return fmt.Errorf("first heartbeat: %w", err)
	}
	b.mu.Lock()
	b.running = true
	b.mu.Unlock()
	go b.run() //nolint:contextcheck // it outlives Start
	return nil
}

// patiently does again what a controller answers with an error that passes, as one does that
// loses its office meanwhile. Each part of a start can be repeated, and to give up may end a
// relay that serves clients already. What cannot be sent at all is sent again by ctl.
func (b *Broker) patiently(ctx context.Context, do func() error) error {
	var before error
	for {
		err := do()
		switch {
		case err == nil:
			return nil
		case kerr.IsRetriable(err):
			before = err
		case before != nil && ctx.Err() != nil: // its end would not say why it took so long
			return fmt.Errorf("%w; before that: %w", err, before)
		default:
			return err
		}
		b.log.Warn("the controllers did not do what the start needs; it is tried again", "error", err)
		if !pauseFor(ctx, b.cfg.HeartbeatInterval) {
			return err
		}
	}
}

// features returns the ranges to register: of metadata.version what this build has
// tables for, so that an upgrade beyond is refused while this broker is there; of all
// else anything, as a virtual broker has no part in it.
func (b *Broker) features(cluster controller.Cluster) ([]kmsg.BrokerRegistrationRequestFeature, error) {
	const wide = 99
	lo, hi := lowest(b.cfg.AllowUncordoned), b.cfg.MaxMetadataVersion
	var out []kmsg.BrokerRegistrationRequestFeature
	found := false
	for _, f := range cluster.Features {
		r := kmsg.NewBrokerRegistrationRequestFeature()
		r.Name, r.MinSupportedVersion, r.MaxSupportedVersion = f.Name, min(0, f.Min), max(f.Max, wide)
		if f.Name == metadatarecords.MetadataVersionFeature {
			found = true
			switch {
			case f.Finalized < lo:
				return nil, fmt.Errorf("%w: it is finalized at level %d, and cordoned log directories need level %d (4.3-IV0); upgrade it with kafka-features.sh upgrade --release-version 4.3"+
					", or, from level %d (4.0-IV0) on, let the sidecars move off what lands on virtual brokers, with --allow-uncordoned",
					ErrClusterTooOld, f.Finalized, metadatarecords.MinMetadataVersion, metadatarecords.MinUncordoned)
			case f.Finalized > hi:
				return nil, fmt.Errorf("%w (it is finalized at level %d, this build reads levels %d to %d)", ErrSidecarTooOld, f.Finalized, lo, hi)
			}
			r.MinSupportedVersion, r.MaxSupportedVersion = lo, hi
		}
		out = append(out, r)
	}
	if !found {
		return nil, fmt.Errorf("%w: the controllers name no %s", ErrClusterTooOld, metadatarecords.MetadataVersionFeature)
	}
	return out, nil
}

// lowest is the level of metadata.version that is needed at least.
func lowest(uncordoned bool) int16 {
	if uncordoned {
		return metadatarecords.MinUncordoned
	}
	return metadatarecords.MinMetadataVersion
}

// cordons tells whether the controllers heed a cordon.
func (b *Broker) cordons() bool { return Cordons(b.img) }

// Cordons tells whether the controllers of a cluster keep partitions off cordoned log
// directories. Below that level they ignore the cordon without a word.
func Cordons(img *metadata.Image) bool {
	level, known := img.FeatureLevel(metadatarecords.MetadataVersionFeature)
	return !known || level >= metadatarecords.MinMetadataVersion
}

// Unregister removes the registration of this broker's id, whoever's it is; that there
// is none is no error. Start does it to end the session of a former process at once,
// and an uninstall does it last of all.
func (b *Broker) Unregister(ctx context.Context) error {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = b.id
	resp, err := b.ctl.Request(ctx, req)
	if err != nil {
		return err
	}
	r, ok := resp.(*kmsg.UnregisterBrokerResponse)
	if !ok {
		return fmt.Errorf("unregister broker %d was answered with %T", b.id, resp)
	}
	switch err := kerr.ErrorForCode(r.ErrorCode); {
	case err == nil || errors.Is(err, kerr.BrokerIDNotRegistered):
		return nil
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("unregister broker %d: %w: needs ALTER on the cluster", b.id, err)
	default:
		return fmt.Errorf("unregister broker %d: %w", b.id, err)
	}
}

// register registers a fresh incarnation, or once more the one of a registration whose answer was
// lost: the controllers may have it. While the id is taken it waits, if it may: the session of a
// former process ends.
func (b *Broker) register(ctx context.Context, cluster controller.Cluster, features []kmsg.BrokerRegistrationRequestFeature, wait bool) error {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID = b.id, cluster.ID
	b.mu.Lock()
	if b.sent == (ids.UUID{}) {
		_, _ = rand.Read(b.sent[:]) // never fails
	}
	req.IncarnationID = b.sent
	b.mu.Unlock()
	for _, e := range b.cfg.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	req.Features = features
	if home, ok := b.img.Broker(b.cfg.HomeID); ok && home.Rack != "" {
		req.Rack = &home.Rack
	}
	req.LogDirs = [][16]byte{b.dir}
	taken := false
	for {
		resp, err := b.ctl.Request(ctx, req)
		if taken && ctx.Err() != nil {
			return fmt.Errorf("%w: another process keeps broker %d alive", ErrIDTaken, b.id)
		}
		if err != nil {
			return err
		}
		r, ok := resp.(*kmsg.BrokerRegistrationResponse)
		if !ok {
			return fmt.Errorf("registration was answered with %T", resp)
		}
		switch err := kerr.ErrorForCode(r.ErrorCode); {
		case err == nil:
			b.mu.Lock()
			b.epoch, b.sent = r.BrokerEpoch, ids.UUID{}
			b.mu.Unlock()
			b.log.Info("registered", "epoch", r.BrokerEpoch, "directory", b.dir, "incarnation", ids.UUID(req.IncarnationID))
			return nil
		case errors.Is(err, kerr.DuplicateBrokerRegistration) && !wait:
			return fmt.Errorf("%w: another process has registered broker %d", ErrIDTaken, b.id)
		case errors.Is(err, kerr.DuplicateBrokerRegistration):
			// The session of a former process, which ends by itself if that is dead.
			taken = true
			t := time.NewTimer(b.cfg.HeartbeatInterval)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		case errors.Is(err, kerr.UnsupportedVersion):
			f, _ := cluster.Feature(metadatarecords.MetadataVersionFeature)
			return fmt.Errorf("registration: %w: the controllers refuse the ranges of features (metadata.version was finalized at level %d, this build reads levels %d to %d); if the cluster has been upgraded, upgrade the sidecar first",
				err, f.Finalized, lowest(b.cfg.AllowUncordoned), metadatarecords.MaxMetadataVersion)
		case errors.Is(err, kerr.ClusterAuthorizationFailed):
			return fmt.Errorf("registration: %w: needs CLUSTER_ACTION on the cluster", err)
		default:
			return fmt.Errorf("registration: %w", err)
		}
	}
}

// registrationMoved looks at the own registration in the image.
func (b *Broker) registrationMoved() {
	reg, ok := b.img.Broker(b.id)
	b.mu.Lock()
	if b.away { // what the image shows is looked at before the next registration
		b.notifyLocked()
		b.mu.Unlock()
		return
	}
	seen := b.seen
	mine := ok && reg.Epoch == b.epoch
	b.seen = seen || mine
	gone := seen && !ok
	taken := seen && ok && !mine || ok && reg.Epoch > b.epoch
	b.notifyLocked()
	b.mu.Unlock()
	switch {
	case taken:
		b.fail(fmt.Errorf("%w: the metadata log shows broker %d registered by another process", ErrUnregistered, b.id))
	case gone:
		b.lose("the metadata log shows it unregistered")
	case mine && !seen:
		b.beatNow()
	}
}

func (b *Broker) notifyLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Broker) beatNow() {
	select {
	case b.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// fail ends the broker. Whatever it believes to be its own is not any more.
func (b *Broker) fail(err error) {
	b.mu.Lock()
	ended := b.life.Err() != nil
	b.end(err)
	b.notifyLocked()
	b.mu.Unlock()
	if !ended {
		b.log.Error("registration lost", "error", err)
		b.failed <- err
	}
}

// run sends heartbeats until the broker's life ends.
func (b *Broker) run() {
	defer close(b.done)
	defer func() {
		b.mu.Lock()
		cancel := b.unsubscribeImage
		b.mu.Unlock()
		cancel()
	}()
	if b.cfg.Home != nil {
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			b.watchHome()
		}()
		defer func() { <-watched }()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-b.wake:
		case <-timer.C:
		}
		if err := b.rejoin(b.life); err != nil {
			b.fail(err)
			return
		}
		// An answer that takes longer than a session comes too late to be of use.
		ctx, cancel := context.WithTimeout(b.life, b.cfg.SessionTimeout)
		err := b.beat(ctx)
		cancel()
		switch {
		case b.life.Err() != nil:
			return
		case errors.Is(err, kerr.StaleBrokerEpoch) || errors.Is(err, kerr.BrokerIDNotRegistered):
			b.lose("heartbeat: " + err.Error())
			timer.Reset(0)
			continue
		}
		b.complain(err)
		timer.Reset(b.cfg.HeartbeatInterval)
	}
}

// complain logs a trouble when it begins, changes and ends.
func (b *Broker) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	b.mu.Lock()
	was := b.complained
	b.complained = text
	b.mu.Unlock()
	switch {
	case text == was:
	case err == nil:
		b.log.Info("heartbeats are answered again")
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		b.log.Warn("heartbeat refused: needs CLUSTER_ACTION on the cluster", "error", err)
	default:
		b.log.Warn("heartbeat failed", "error", err)
	}
}

// want decides what the next heartbeat asks for.
func (b *Broker) want() (heartbeat, *kmsg.BrokerHeartbeatRequest) {
	lag := b.cfg.Lag()
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.windows {
		if !now.Before(w.until) {
			delete(b.windows, w)
			b.log.Warn("un-cordon window was not closed in time, cordoning again", "limit", b.cfg.MaxUncordoned)
		}
	}
	// Without a controller there is no log to be behind. When it is back, the log is given as much
	// time: else a restart of the controllers would take the leadership from every virtual broker.
	lagging := lag > b.cfg.MaxLag && !b.answeredSince.IsZero() && now.Sub(b.answeredSince) > b.cfg.MaxLag
	h := heartbeat{
		n: b.lastWant.n + 1,
		// The first one only sets the cordon, which registering has lifted.
		fence:    b.fresh || !b.seen || lagging || b.giveUps > 0 || b.stopping || b.homeless.fenced,
		shutdown: b.leave,
		uncordon: len(b.windows) > 0,
	}
	if lagging && !b.lastWant.fence {
		b.log.Warn("behind the metadata log, asking to be fenced", "lag", lag)
	}
	b.lastWant = h
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = b.id, b.epoch
	req.CurrentMetadataOffset = b.img.Offset()
	req.WantFence, req.WantShutdown = h.fence, h.shutdown
	req.CordonedLogDirs = [][16]byte{} // null would leave it as it is
	if !h.uncordon {
		req.CordonedLogDirs = [][16]byte{b.dir}
	}
	return h, req
}

// beat sends one heartbeat and takes note of the answer.
func (b *Broker) beat(ctx context.Context) error {
	h, req := b.want()
	sent := time.Now()
	resp, err := b.ctl.Request(ctx, req)
	if err != nil {
		b.unanswered(sent)
		return err
	}
	r, ok := resp.(*kmsg.BrokerHeartbeatResponse)
	if !ok {
		return fmt.Errorf("heartbeat was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		b.unanswered(sent)
		return err
	}
	b.mu.Lock()
	b.unansweredSince = time.Time{}
	if b.answeredSince.IsZero() {
		b.answeredSince = time.Now()
	}
	if b.away || req.BrokerEpoch != b.epoch { // an answer to the registration of before
		b.mu.Unlock()
		return nil
	}
	first := b.fresh
	b.fresh = false
	wasFenced, wasOpen := b.ackFenced, b.ack.uncordon
	b.lastGood, b.ack = sent, h
	b.ackFenced, b.ackShutdown = r.IsFenced, r.ShouldShutdown
	b.notifyLocked()
	b.mu.Unlock()
	if first || wasFenced != r.IsFenced || wasOpen != h.uncordon {
		b.log.Info("heartbeat answered", "fenced", r.IsFenced, "caught up", r.IsCaughtUp, "cordoned", !h.uncordon, "offset", req.CurrentMetadataOffset)
	}
	return nil
}

// unanswered notes a heartbeat that failed. Only when that has lasted are the controllers away:
// one now and then would else keep a broker that is behind the log for ever from being fenced.
func (b *Broker) unanswered(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unansweredSince.IsZero() {
		b.unansweredSince = sent
	}
	if time.Since(b.unansweredSince) > b.cfg.MaxLag/2 {
		b.answeredSince = time.Time{}
	}
}

// await returns nil once cond holds; it is evaluated under the lock after each
// heartbeat's answer and each change of the own registration in the image.
func (b *Broker) await(ctx context.Context, cond func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := cond(), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-b.life.Done():
			return fmt.Errorf("%w: %w", errBrokerEnded, context.Cause(b.life)) //nolint:contextcheck // the cause of that life's end
		}
	}
}

// Uncordon opens a window in which partitions may be assigned to this broker, and
// returns when both the controllers and the image know. Windows may overlap; the
// directory is cordoned again when the last one has ended. release ends it and waits a
// moment for the image to show that; it may be called more than once. A window ends by
// itself after MaxUncordoned.
func (b *Broker) Uncordon(ctx context.Context) (release func(), err error) {
	if !b.cordons() {
		return func() {}, nil // it is always open
	}
	// The image may not show the cordon yet that it then has to show as lifted.
	err = b.await(ctx, func() bool {
		return b.ack.uncordon || b.shown(func(r metadata.Broker) bool { return len(r.CordonedDirs) > 0 })
	})
	if err != nil {
		return nil, fmt.Errorf("un-cordon virtual broker %d: %w", b.id, err)
	}
	w := &window{until: time.Now().Add(b.cfg.MaxUncordoned)}
	b.mu.Lock()
	b.windows[w] = struct{}{}
	after := b.lastWant.n
	b.mu.Unlock()
	b.beatNow()
	open := func() bool { _, ok := b.windows[w]; return ok }
	err = b.await(ctx, func() bool {
		return !open() || b.ack.uncordon && b.ack.n > after && b.shown(func(r metadata.Broker) bool { return len(r.CordonedDirs) == 0 })
	})
	if err == nil {
		b.mu.Lock()
		if !open() {
			err = errWindowUncertain
		}
		b.mu.Unlock()
	}
	if err != nil {
		b.closeWindow(w)
		return nil, fmt.Errorf("un-cordon virtual broker %d: %w", b.id, err)
	}
	return func() { //nolint:contextcheck // called long after, when ctx may have ended
		if !b.closeWindow(w) {
			return
		}
		wait, cancel := context.WithTimeout(b.life, b.cfg.SessionTimeout)
		defer cancel()
		err := b.await(wait, func() bool {
			return len(b.windows) > 0 || !b.ack.uncordon && b.shown(func(r metadata.Broker) bool { return len(r.CordonedDirs) > 0 })
		})
		if err != nil && b.life.Err() == nil {
			b.log.Warn("the metadata log does not show the cordon yet", "error", err)
		}
	}, nil
}

// closeWindow ends a window, and tells whether it was open.
func (b *Broker) closeWindow(w *window) bool {
	b.mu.Lock()
	_, open := b.windows[w]
	delete(b.windows, w)
	b.mu.Unlock()
	if open {
		b.beatNow()
	}
	return open
}

// shown tells whether the image shows this very registration, and as is wants it.
func (b *Broker) shown(is func(metadata.Broker) bool) bool {
	r, ok := b.img.Broker(b.id)
	return ok && r.Epoch == b.epoch && is(r)
}

// GiveUpLeadership has the broker fenced, by which the controllers elect others for
// all that it leads, and unfenced again. It returns when the image has shown the one
// and the controllers have confirmed the other, unless the broker has to stay fenced
// for another reason.
func (b *Broker) GiveUpLeadership(ctx context.Context) error {
	// The image may still show the fence of before the last unfencing.
	err := b.await(ctx, func() bool {
		return b.ackFenced || b.giveUps > 0 || b.shown(func(r metadata.Broker) bool { return !r.Fenced })
	})
	if err != nil {
		return fmt.Errorf("give up leadership of virtual broker %d: %w", b.id, err)
	}
	b.mu.Lock()
	b.giveUps++
	after := b.lastWant.n
	b.mu.Unlock()
	b.beatNow()
	err = b.await(ctx, func() bool {
		return b.ack.fence && b.ack.n > after && b.shown(func(r metadata.Broker) bool { return r.Fenced })
	})
	b.mu.Lock()
	b.giveUps--
	after = b.lastWant.n
	b.mu.Unlock()
	b.beatNow()
	if err != nil {
		return fmt.Errorf("give up leadership of virtual broker %d: %w", b.id, err)
	}
	err = b.await(ctx, func() bool { return b.ack.n > after && (b.ack.fence || !b.ackFenced) })
	if err != nil {
		return fmt.Errorf("virtual broker %d gave up leadership but is still fenced: %w", b.id, err)
	}
	return nil
}

// Stop has the broker fenced, so that others take over at once, and ends it: the way
// to restart. If ctx ends first, the heartbeats end all the same, and the controllers
// fence the broker when its session times out.
func (b *Broker) Stop(ctx context.Context) error {
	return b.finish(ctx, "fenced", func() { b.stopping = true }, func() bool { return b.ack.fence && b.ackFenced })
}

// Leave shuts the broker down for good: the controllers move what it leads, and it
// ends when they allow it. Like Stop it ends the heartbeats whatever happens. The
// registration stays, fenced, until Unregister.
func (b *Broker) Leave(ctx context.Context) error {
	return b.finish(ctx, "allowed to shut down", func() { b.leave = true }, func() bool { return b.ackShutdown })
}

func (b *Broker) finish(ctx context.Context, what string, ask func(), reached func() bool) error {
	b.mu.Lock()
	running := b.running
	ask()
	after := b.lastWant.n
	b.mu.Unlock()
	if !running {
		b.end(errBrokerEnded)
		return nil
	}
	b.beatNow()
	// Who is not registered need not be fenced.
	err := b.await(ctx, func() bool { return b.away || b.ack.n > after && reached() })
	ended := b.life.Err() != nil
	b.end(errBrokerEnded)
	<-b.done
	if err == nil || ended { // ended: by failure, or by another Stop
		return nil //nolint:nilerr // there is nothing left to be fenced
	}
	return fmt.Errorf("virtual broker %d ended before it was %s: %w", b.id, what, err)
}
