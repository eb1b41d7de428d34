package evict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// parts are a sidecar's coordinator without the sidecar: it reads and writes the mirrors' state,
// and hands back what no sidecar does.
type parts struct {
	co    *coordinator.Coordinator
	rec   *coordinator.Reconciler
	sweep *coordinator.Sweeper

	undo []func()
}

// noBroker is the virtual broker that this process does not have.
type noBroker struct{}

func (noBroker) Uncordon(context.Context) (func(), error) {
	return nil, errors.New("this process has no virtual broker")
}

// parts reads the mirrors' state to its end.
func (e *eviction) parts(ctx context.Context, cluster string, caughtUp <-chan struct{}) (_ *parts, err error) {
	home, err := e.findBroker(ctx)
	if err != nil {
		return nil, err
	}
	p := &parts{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	opts := append(slices.Clone(e.cfg.Opts), kgo.SeedBrokers(e.addresses(home.Listener)...))
	store, err := coordinator.NewStore(coordinator.StoreConfig{Partitions: 1, ReplicationFactor: 1, Virtual: e.cfg.Virtual, Self: self, Opts: opts, Listener: home.Listener}, e.img, e.ctl, e.log)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, e.ending("the state topic", store.Stop))
	if err := store.Start(ctx, caughtUp); err != nil {
		return nil, err
	}
	dest, err := coordinator.NewDestination(home.ID, e.cfg.Virtual, e.img, e.ctl, opts, e.log)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, dest.Close)
	peers := coordinator.NewKafkaPeers(self, e.img, home.Listener, e.cfg.Opts)
	p.undo = append(p.undo, peers.Close)
	p.co, err = coordinator.New(coordinator.Config{
		Self: self, Virtual: e.cfg.Virtual, StopReplicaWait: e.cfg.StopReplicaWait, RefreshInterval: time.Second, ClusterID: cluster, Alone: true,
	}, coordinator.Deps{
		Image: e.img, Store: store, Destination: dest, Source: coordinator.KafkaSource(config.Providers{}, home.ID), Peers: peers, Broker: noBroker{},
	}, e.log)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, e.ending("the coordinator", p.co.Stop))
	if err := p.co.Start(ctx); err != nil {
		return nil, err
	}
	p.rec, p.sweep = coordinator.NewReconciler(p.co, e.log), coordinator.NewSweeper(p.co, e.log)
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case <-store.Ready():
	case <-read.Done():
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("topic %s was not read to its end within %v: %s", coordinator.StateTopic, readTimeout, e.leaderless())
	}
	return p, nil
}

// begin starts to hand back what no sidecar does.
func (p *parts) begin(ctx context.Context) error {
	if err := p.rec.Start(ctx); err != nil {
		return err
	}
	return p.sweep.Start(ctx)
}

// endTimeout bounds the end of each part.
const endTimeout = 5 * time.Second

func (e *eviction) ending(what string, stop func(context.Context) error) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		if err := stop(ctx); err != nil {
			e.log.Warn("part did not end in order", "part", what, "err", err)
		}
	}
}

func (p *parts) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if p.rec != nil {
		_ = errors.Join(p.rec.Stop(ctx), p.sweep.Stop(ctx)) // what is under way is given up
	}
	for _, f := range slices.Backward(p.undo) {
		f()
	}
}

// findBroker finds a real broker that answers at the listener that brokers use among themselves,
// around every proxy.
func (e *eviction) findBroker(ctx context.Context) (replica.Home, error) {
	var errs []error
	for _, b := range e.img.Brokers() {
		if e.cfg.Virtual.Is(b.ID) || b.Fenced {
			continue
		}
		for _, ep := range b.Endpoints {
			home, err := e.ask(ctx, ep)
			if err == nil {
				return home, nil
			}
			errs = append(errs, fmt.Errorf("broker %d at %s: %w", b.ID, ep.Addr(), err))
		}
	}
	if len(errs) == 0 {
		return replica.Home{}, errors.New("no real broker is alive")
	}
	return replica.Home{}, fmt.Errorf("no broker answers: %w", errors.Join(errs...))
}

func (e *eviction) ask(ctx context.Context, ep metadata.Endpoint) (replica.Home, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(append(slices.Clone(e.cfg.Opts),
		kgo.SeedBrokers(ep.Addr()), kgo.RequestRetries(1), kgo.DialTimeout(dialTimeout), kgo.DisableClientMetrics())...)
	if err != nil {
		return replica.Home{}, err
	}
	defer cl.Close()
	return replica.FindHome(ctx, cl, e.img, e.cfg.Virtual)
}

// addresses are those of the real brokers at a listener, the live ones first.
func (e *eviction) addresses(listener string) []string {
	var live, others []string
	for _, b := range e.img.Brokers() {
		i := slices.IndexFunc(b.Endpoints, func(ep metadata.Endpoint) bool { return ep.Name == listener })
		switch {
		case e.cfg.Virtual.Is(b.ID) || i < 0:
		case b.Fenced:
			others = append(others, b.Endpoints[i].Addr())
		default:
			live = append(live, b.Endpoints[i].Addr())
		}
	}
	return append(live, others...)
}

// leaderless says which brokers have to come back for the state topic to be read.
func (e *eviction) leaderless() string {
	id, _ := e.img.Topic(coordinator.StateTopic)
	for _, p := range e.img.TopicPartitions(id) {
		if p.Leader < 0 {
			return fmt.Sprintf("its partition %d has no leader; bring back one of brokers %v", p.Partition, p.Replicas)
		}
	}
	return "do the brokers answer?"
}
