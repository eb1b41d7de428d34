package evict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// readTimeout bounds finding the cluster and reading its metadata and the mirrors' state.
	readTimeout = 60 * time.Second
	// look is the time between two looks at what is left.
	look = 250 * time.Millisecond
	// dialTimeout bounds the question whether a sidecar runs.
	dialTimeout = 2 * time.Second
	// self stands for this process where sidecars name themselves by their virtual brokers.
	self int32 = -1
)

// Config says what to evict, from where.
type Config struct {
	Virtual ids.Virtual
	// Broker is the only one to evict, as its own or its home broker's id; nil means all.
	Broker *int32
	DryRun bool
	// Wait bounds how long is waited for what is under way.
	Wait time.Duration
	// StopReplicaWait is mirror.stop.replica.wait.ms.
	StopReplicaWait time.Duration
	// Opts are the client options towards brokers, without addresses.
	Opts []kgo.Opt
	// Progress, if any, is told what is waited for when that changes.
	Progress func(what string)
}

// eviction is one under way.
type eviction struct {
	cfg    Config
	ctl    *controller.Client
	log    *slog.Logger
	img    *metadata.Image
	report *Report
	told   string
}

// Run evicts. The error is that it could not begin, or go on; what merely is not done yet is in
// the report.
func Run(ctx context.Context, cfg Config, ctl *controller.Client, log *slog.Logger) (*Report, error) {
	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	desc, err := ctl.Describe(readCtx)
	if err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	e := &eviction{
		cfg: cfg, ctl: ctl, log: log, img: metadata.NewImage(cfg.Virtual),
		report: &Report{Cluster: desc.ID, DryRun: cfg.DryRun, Topics: []Topic{}, Partitions: []Partition{}, Brokers: []Broker{}, Left: []string{}},
	}
	observer := metadata.NewObserver(metadata.ObserverConfig{ClusterID: desc.ID, ReplicaID: -1}, e.img, ctl, log)
	run, stop := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := observer.Run(run); err != nil && run.Err() == nil {
			stop(fmt.Errorf("the metadata log cannot be followed: %w", err))
		}
	}()
	defer func() { stop(nil); <-done }()
	select {
	case <-observer.CaughtUp():
	case <-run.Done():
		return nil, context.Cause(run)
	case <-readCtx.Done():
		return nil, fmt.Errorf("the metadata log was not read to its end within %v", readTimeout)
	}
	if err := e.checkIDs(desc.ID); err != nil {
		return nil, err
	}
	if cfg.Broker != nil {
		err = e.one(run)
	} else {
		err = e.all(run, desc.ID, observer.CaughtUp())
	}
	return e.report, err
}

// checkIDs refuses to work on a cluster that has real brokers among the ids that it would take
// for virtual ones.
func (e *eviction) checkIDs(cluster string) error {
	for _, b := range e.img.Brokers() {
		if e.cfg.Virtual.Is(b.ID) && !slices.Contains(b.LogDirs, replica.DirectoryID(cluster, b.ID)) {
			return fmt.Errorf("broker %d is registered with log directories %v and so is not a virtual broker: mirror.virtual.broker.id.offset, now %d, must be what the sidecars have; nothing was changed", b.ID, b.LogDirs, e.cfg.Virtual)
		}
	}
	return nil
}

// all evicts every virtual broker.
func (e *eviction) all(ctx context.Context, cluster string, caughtUp <-chan struct{}) error {
	p, err := e.parts(ctx, cluster, caughtUp)
	if err != nil {
		return err
	}
	defer p.stop()
	// What it says may be a mirror, and its topics would pass for nobody's.
	if err := p.co.Understood(); err != nil {
		return fmt.Errorf("%w; evict with the sidecars' own version; nothing was changed", err)
	}
	unstopped, orphans := p.co.Unstopped(nil), p.co.Orphans()
	for _, u := range unstopped {
		e.report.Topics = append(e.report.Topics, Topic{Mirror: u.Mirror, Topic: u.Topic, State: ToStop, Waits: u.Waits})
	}
	for _, o := range orphans {
		e.report.Partitions = append(e.report.Partitions, Partition{Topic: o.Topic, Partition: o.Partition, Replicas: o.Replicas, Locked: o.Locked, State: ToRemove})
	}
	for _, id := range e.registered() {
		e.report.Brokers = append(e.report.Brokers, Broker{ID: id, Home: e.cfg.Virtual.Home(id), State: ToUnregister})
	}
	if e.cfg.DryRun {
		return nil
	}
	if err := e.awaitFenced(ctx); err != nil {
		return err
	}
	if err := p.co.StopAll(ctx); err != nil {
		e.report.leave("%v", err)
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	began, unlockErr := time.Now(), error(nil)
	err = e.await(ctx, func() string {
		topics, orphans := p.co.Unstopped(p.rec), p.co.Orphans()
		unlockErr = e.unlock(ctx, p.co, orphans, time.Since(began) >= e.cfg.StopReplicaWait)
		what := ""
		for _, u := range topics {
			what = fmt.Sprintf("mirror %s, topic %s: %s", u.Mirror, u.Topic, cmp.Or(u.Waits, "being handed back"))
		}
		for _, o := range orphans {
			what = fmt.Sprintf("partition %s-%d: virtual replicas are being removed", o.Topic, o.Partition)
		}
		if unlockErr != nil {
			what = unlockErr.Error()
		}
		return what
	})
	if err != nil {
		return err
	}
	e.reportTopics(p.co.Unstopped(p.rec), p.co.Orphans())
	if unlockErr != nil {
		e.report.leave("%v", unlockErr)
	}
	return e.unregisterAll(ctx)
}

// unlock takes the write lock off topics that no mirror knows of. Where sidecars run it is theirs
// to say that a topic is no mirror's. waited tells whether live replicas that lag were waited for.
func (e *eviction) unlock(ctx context.Context, co *coordinator.Coordinator, orphans []coordinator.Orphan, waited bool) error {
	if len(e.live()) > 0 {
		return nil
	}
	done := map[string]bool{}
	var errs []error
	for _, o := range orphans {
		if o.Locked && !done[o.Topic] {
			done[o.Topic] = true
			errs = append(errs, co.Unlock(ctx, o.Topic, waited))
		}
	}
	return errors.Join(errs...)
}

func (e *eviction) reportTopics(unstopped []coordinator.Unstopped, orphans []coordinator.Orphan) {
	for i := range e.report.Topics {
		t := &e.report.Topics[i]
		t.State, t.Waits = Stopped, ""
		for _, u := range unstopped {
			if u.Mirror == t.Mirror && u.Topic == t.Topic {
				t.State, t.Waits = Stopping, cmp.Or(u.Waits, "it is not handed back yet")
				e.report.leave("mirror %s, topic %s: %s", t.Mirror, t.Topic, t.Waits)
			}
		}
	}
	for i := range e.report.Partitions {
		p := &e.report.Partitions[i]
		p.State = Removed
		for _, o := range orphans {
			if o.Topic == p.Topic && o.Partition == p.Partition {
				p.State = Assigned
				e.report.leave("partition %s-%d still has the replicas %v", o.Topic, o.Partition, o.Replicas)
			}
		}
	}
}

// unregisterAll takes the registrations away of all virtual brokers that nothing is assigned to
// and that do not live.
func (e *eviction) unregisterAll(ctx context.Context) error {
	for i := range e.report.Brokers {
		if err := e.unregister(ctx, &e.report.Brokers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *eviction) unregister(ctx context.Context, b *Broker) error {
	b.State = Registered
	if n := e.assigned(b.ID); n > 0 && e.cfg.Broker == nil {
		b.Waits = fmt.Sprintf("%d partitions are still assigned to it", n)
		e.report.leave("virtual broker %d: %s", b.ID, b.Waits)
		return nil
	}
	if dead, err := e.awaitDeath(ctx, b.ID); err != nil || !dead {
		b.Waits = fmt.Sprintf("its sidecar, beside broker %d, runs; end it, then run this again", b.Home)
		e.report.leave("virtual broker %d: %s", b.ID, b.Waits)
		return err
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = b.ID
	resp, err := e.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("unregister virtual broker %d: %w", b.ID, err)
	}
	r, ok := resp.(*kmsg.UnregisterBrokerResponse)
	if !ok {
		return fmt.Errorf("unregister virtual broker %d: unexpected answer", b.ID)
	}
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil && !errors.Is(err, kerr.BrokerIDNotRegistered) {
		b.Waits = err.Error()
		e.report.leave("virtual broker %d is not unregistered: %v", b.ID, err)
		return nil
	}
	b.State = Unregistered
	return nil
}

// awaitDeath tells whether a virtual broker is dead. One that was killed a moment ago is alive to
// the controllers until its session ends; if nobody listens at its address it is dead all the
// same. One that they hold for dead is not while somebody listens there.
func (e *eviction) awaitDeath(ctx context.Context, id int32) (bool, error) {
	dead := func() bool {
		b, ok := e.img.Broker(id)
		return !ok || b.Fenced
	}
	// First: a sidecar that runs may be fenced for a moment, and would register again.
	if b, ok := e.img.Broker(id); ok && e.listens(ctx, b) {
		return false, nil
	}
	err := e.await(ctx, func() string {
		if dead() {
			return ""
		}
		return fmt.Sprintf("virtual broker %d does not answer; its session ends soon", id)
	})
	return dead(), err
}

// awaitFenced returns when nobody is mistaken for dead: with no virtual broker alive this process
// coordinates, and must not beside sidecars that run and are merely fenced for a moment.
func (e *eviction) awaitFenced(ctx context.Context) error {
	running := func() (int32, bool) {
		if len(e.live()) > 0 {
			return 0, false // theirs
		}
		for _, id := range e.registered() {
			if b, ok := e.img.Broker(id); ok && e.listens(ctx, b) {
				return id, true
			}
		}
		return 0, false
	}
	err := e.await(ctx, func() string {
		if id, some := running(); some {
			return fmt.Sprintf("virtual broker %d is fenced, and its sidecar runs", id)
		}
		return ""
	})
	if err != nil {
		return err
	}
	if id, some := running(); some {
		return fmt.Errorf("the controllers hold every virtual broker for dead, yet the sidecar of %d, beside broker %d, runs; end it, or let it reach the controllers, then run this again; nothing was changed", id, e.cfg.Virtual.Home(id))
	}
	return nil
}

// listens tells whether anybody takes connections at a broker's address.
func (e *eviction) listens(ctx context.Context, b metadata.Broker) bool {
	for _, ep := range b.Endpoints {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", ep.Addr())
		if err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// one evicts a single virtual broker while others go on: they replace it.
func (e *eviction) one(ctx context.Context) error {
	id := *e.cfg.Broker
	if !e.cfg.Virtual.Is(id) {
		id = e.cfg.Virtual.Of(id)
	}
	e.report.One = &id
	_, known := e.img.Broker(id)
	assigned := e.assigned(id)
	if !known && assigned == 0 {
		if _, home := e.img.Broker(e.cfg.Virtual.Home(id)); !home {
			return fmt.Errorf("there is neither a virtual broker %d nor a broker %d; nothing was changed", id, e.cfg.Virtual.Home(id))
		}
		return nil
	}
	b := Broker{ID: id, Home: e.cfg.Virtual.Home(id), State: ToUnregister}
	if !known {
		b.State = Unregistered
	}
	others := slices.DeleteFunc(e.live(), func(o int32) bool { return o == id })
	e.report.Brokers = append(e.report.Brokers, b)
	into := &e.report.Brokers[0]
	if assigned > 0 && len(others) == 0 {
		return fmt.Errorf("%d partitions are assigned to virtual broker %d, and no other sidecar runs that could take them; evict all, without --broker, or start a sidecar", assigned, id)
	}
	if e.cfg.DryRun {
		return nil
	}
	if known {
		if err := e.unregister(ctx, into); err != nil || into.State != Unregistered {
			return err
		}
	}
	err := e.await(ctx, func() string {
		if n := e.assigned(id); n > 0 {
			return fmt.Sprintf("%d partitions are still assigned to virtual broker %d; the sidecars of %v are taking them", n, id, others)
		}
		return ""
	})
	if n := e.assigned(id); n > 0 && err == nil {
		e.report.leave("%d partitions are still assigned to virtual broker %d", n, id)
	}
	return err
}

// await looks until nothing is left or the time is up, which is no error.
func (e *eviction) await(ctx context.Context, left func() string) error {
	end := time.Now().Add(e.cfg.Wait)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		what := left()
		if what == "" || time.Now().After(end) {
			return nil
		}
		if e.cfg.Progress != nil && what != e.told {
			e.told = what
			e.cfg.Progress(what)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// registered lists the virtual brokers that the controllers know.
func (e *eviction) registered() []int32 {
	var out []int32
	for _, b := range e.img.Brokers() {
		if e.cfg.Virtual.Is(b.ID) {
			out = append(out, b.ID)
		}
	}
	return out
}

// live lists those that the controllers hold for alive.
func (e *eviction) live() []int32 {
	return slices.DeleteFunc(e.registered(), func(id int32) bool {
		b, ok := e.img.Broker(id)
		return !ok || b.Fenced || b.ShuttingDown
	})
}

// assigned counts the partitions that have a replica on a broker.
func (e *eviction) assigned(id int32) int {
	n := 0
	for _, p := range e.img.AllPartitions() {
		if slices.Contains(p.Replicas, id) {
			n++
		}
	}
	return n
}
