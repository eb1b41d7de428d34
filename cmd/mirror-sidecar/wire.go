package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/fx"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/health"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// bootstrapTimeout bounds finding the cluster at start: a sidecar that waits for ever
// tells nobody what is wrong.
const bootstrapTimeout = 30 * time.Second

// wiring is the whole sidecar. Parts start in the order of their dependencies and stop in
// the opposite order.
func wiring() fx.Option {
	return fx.Options(
		fx.Provide(newSyncer),
		fx.Invoke(func(*syncs.Syncer) {}),
		fx.Provide(
			fromFront, newControllers, newCluster, newClients, newBroker, newStore,
			newPlugins, newEngine, newCoordinator, newHerald, newBuffers, newSources, newManager, newProxies,
		),
		fx.Invoke(func(*proxies, *coordinator.Reconciler, *coordinator.Herald, *replica.Manager) {}),
		fx.Invoke(watchRights),
	)
}

// fromFront are the parts that are there before all others.
func fromFront(r *front) (*prometheus.Registry, *health.Server, *transport, *proxy.Fences) {
	return r.metrics, r.health, r.transport, r.fences
}

func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// newBuffers is the memory that records travel in, from sources to followers.
func newBuffers(cfg *config.Sidecar) *pool.Pool { return pool.New(cfg.BufferMemory) }

func newControllers(lc fx.Lifecycle, cfg *config.Sidecar, t *transport, log *slog.Logger) (*controller.Client, error) {
	opts, err := config.ClientOptionsVia(cfg.Live(cfg.ControllerSecurity), t.controllers)
	if err != nil {
		return nil, err
	}
	c, err := controller.New(cfg.Controllers, opts, log)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{OnStop: func(context.Context) error { c.Close(); return nil }})
	return c, nil
}

// cluster is what must be known before anything else can be built.
type cluster struct {
	id       string
	image    *metadata.Image
	observer *metadata.Observer
	home     replica.Home
	opts     []kgo.Opt // security towards brokers, at the listener that they use among themselves
}

// newCluster reads the metadata log to its end and finds the home broker in it.
func newCluster(lc fx.Lifecycle, sh fx.Shutdowner, cfg *config.Sidecar, r *front, t *transport, ctl *controller.Client, log *slog.Logger) (*cluster, error) {
	ctx, cancel := r.ctx, context.CancelFunc(func() {})
	if !r.early {
		ctx, cancel = context.WithTimeout(r.ctx, bootstrapTimeout)
	}
	defer cancel()
	opts, err := config.ClientOptionsVia(cfg.Live(cfg.InterBrokerSecurity), t.among)
	if err != nil {
		return nil, err
	}
	homeOpts, err := config.ClientOptionsVia(cfg.Live(cfg.Security), t.home)
	if err != nil {
		return nil, err
	}
	var desc controller.Cluster
	err = r.insist(ctx, func(ctx context.Context) error {
		var err error
		if desc, err = ctl.Describe(ctx); err != nil {
			return fmt.Errorf("controllers at %v: %w", cfg.Controllers, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{id: desc.ID, image: r.image, opts: opts}
	c.observer = metadata.NewObserver(metadata.ObserverConfig{ClusterID: desc.ID, ReplicaID: -1}, c.image, ctl, log)

	// The observer runs until everything else has stopped; whatever it cannot follow ends
	// the process, for an image that stands still is worse than none.
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.observer.Run(run) }()
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			go func() {
				if err := <-done; err != nil && run.Err() == nil {
					log.Error("the metadata log cannot be followed", "error", err)
					_ = sh.Shutdown(fx.ExitCode(1))
				}
				close(done)
			}()
			return nil
		},
		OnStop: func(context.Context) error {
			stop()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	})
	select {
	case <-c.observer.CaughtUp():
	case err := <-done:
		stop()
		return nil, fmt.Errorf("metadata log: %w", err)
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("metadata log of %v: not read to its end within %v", cfg.Controllers, bootstrapTimeout)
	}
	cl, err := kgo.NewClient(append(homeOpts, kgo.SeedBrokers(cfg.HomeBroker...), kgo.RequestRetries(3), kgo.DisableClientMetrics())...)
	if err != nil {
		stop()
		return nil, err
	}
	defer cl.Close()
	err = r.insist(ctx, func(ctx context.Context) (err error) {
		c.home, err = findHome(ctx, cl, c.image, cfg.VirtualOffset, desc.ID)
		return err
	})
	if err == nil && r.early && c.home.ID != r.home {
		r.data.forget()
		err = fmt.Errorf("the broker at home.broker.bootstrap was broker %d and is broker %d: the sidecar has to start anew", r.home, c.home.ID)
	}
	if err != nil {
		stop()
		return nil, err
	}
	log.Info("found the home broker", "cluster", c.id, "broker", c.home.ID, "listener", c.home.Listener)
	return c, nil
}

// otherClusterError is a mistake that no waiting mends.
type otherClusterError struct{ home, controllers string }

func (e *otherClusterError) Error() string {
	return fmt.Sprintf("home.broker.bootstrap is of cluster %s, controller.quorum.bootstrap.servers of cluster %s", e.home, e.controllers)
}

// insist does what others must answer for. A relay that serves clients already tries until
// it succeeds: to end the process would take the broker from them.
func (r *front) insist(ctx context.Context, do func(ctx context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, bootstrapTimeout)
		err := do(once)
		cancel()
		var wrong *otherClusterError
		if err == nil || !r.early || ctx.Err() != nil || errors.As(err, &wrong) {
			return err
		}
		r.waitsFor(err)
		r.log.Warn("the sidecar cannot start yet; it relays meanwhile what has nothing to do with mirrors", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// findHome waits for the home broker, which may be starting as well.
func findHome(ctx context.Context, cl *kgo.Client, image *metadata.Image, v ids.Virtual, clusterID string) (replica.Home, error) {
	return untilFound(ctx, func() (replica.Home, error) {
		// A broker of another cluster is a mistake that no waiting mends, and one that its id
		// does not show: most clusters have a broker 1.
		id, err := clusterOf(ctx, cl)
		switch {
		case err != nil:
			return replica.Home{}, err
		case id != clusterID:
			return replica.Home{}, &otherClusterError{home: id, controllers: clusterID}
		}
		return replica.FindHome(ctx, cl, image, v)
	})
}

// untilFound tries until it succeeds or the time is up, and says then what was wrong while there was time: of the
// try that is cut off it is only known that it was.
func untilFound(ctx context.Context, try func() (replica.Home, error)) (replica.Home, error) {
	var why error
	for {
		home, err := try()
		var wrong *otherClusterError
		if err == nil || errors.As(err, &wrong) {
			return home, err
		}
		if ctx.Err() == nil || why == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			return replica.Home{}, why
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// clusterOf asks the home broker itself, not whom it names.
func clusterOf(ctx context.Context, cl *kgo.Client) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return "", fmt.Errorf("home broker: %w", err)
	}
	m, ok := resp.(*kmsg.MetadataResponse)
	if !ok || m.ClusterID == nil {
		return "", errors.New("home broker: it does not tell its cluster's id")
	}
	return *m.ClusterID, nil
}

// clients reach the brokers of this cluster at the listener that they use among
// themselves, around every proxy.
type clients struct {
	seeds        []kgo.Opt
	calls, polls *replica.Brokers
	peers        *coordinator.KafkaPeers
}

func newClients(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster) *clients {
	var addrs []string
	for _, b := range c.image.Brokers() {
		if !cfg.VirtualOffset.Is(b.ID) {
			if ep, ok := endpoint(b, c.home.Listener); ok {
				addrs = append(addrs, ep.Addr())
			}
		}
	}
	out := &clients{
		seeds: append(slices.Clone(c.opts), kgo.SeedBrokers(addrs...)),
		calls: replica.NewBrokers(c.image, c.home.Listener, c.opts),
		polls: replica.NewBrokers(c.image, c.home.Listener, c.opts),
		peers: coordinator.NewKafkaPeers(cfg.VirtualOffset.Of(c.home.ID), c.image, c.home.Listener, c.opts),
	}
	lc.Append(fx.Hook{OnStop: func(context.Context) error {
		out.calls.Close()
		out.polls.Close()
		out.peers.Close()
		return nil
	}})
	return out
}

func endpoint(b metadata.Broker, listener string) (metadata.Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	if len(b.Endpoints) == 0 {
		return metadata.Endpoint{}, false
	}
	return b.Endpoints[0], true
}

func newBroker(cfg *config.Sidecar, c *cluster, cl *clients, ctl *controller.Client, reg *prometheus.Registry, log *slog.Logger) (*replica.Broker, error) {
	home, ok := c.image.Broker(c.home.ID)
	if !ok {
		return nil, fmt.Errorf("home broker %d is not registered", c.home.ID)
	}
	at := cfg.VirtualListeners
	if len(cfg.VirtualAdvertisedListeners) > 0 {
		at = cfg.VirtualAdvertisedListeners
	}
	endpoints := replica.EndpointsLike(home, at[0].Host, at[0].Port)
	for i := range endpoints {
		for _, l := range at {
			if l.Name == endpoints[i].Name {
				endpoints[i].Host, endpoints[i].Port = l.Host, l.Port
			}
		}
	}
	b, err := replica.NewBroker(replica.BrokerConfig{
		HomeID: c.home.ID, HomeSession: c.home.Session, Virtual: cfg.VirtualOffset, ClusterID: c.id, Endpoints: endpoints, Lag: c.observer.Lag,
		MaxMetadataVersion: maxMetadataVersion(), AllowUncordoned: cfg.AllowUncordoned,
		Home: func(ctx context.Context) error {
			_, err := cl.calls.Request(ctx, c.home.ID, kmsg.NewPtrApiVersionsRequest())
			return err
		},
	}, c.image, ctl, log)
	if err != nil {
		return nil, err
	}
	return b, reg.Register(b)
}

func newStore(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, cl *clients, ctl *controller.Client, log *slog.Logger) (*coordinator.Store, error) {
	s, err := coordinator.NewStore(coordinator.StoreConfig{
		Partitions: cfg.StatePartitions, ReplicationFactor: cfg.StateReplicationFactor,
		Virtual: cfg.VirtualOffset, Self: cfg.VirtualOffset.Of(c.home.ID), Opts: cl.seeds, Listener: c.home.Listener,
	}, c.image, ctl, log)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error { return s.Start(ctx, c.observer.CaughtUp()) },
		OnStop:  s.Stop,
	})
	return s, nil
}

// led lets the coordinator ask the manager, which is built after it.
type led struct {
	broker  *replica.Broker
	manager *replica.Manager
	sources *coordinator.Sources
}

func (l *led) Status() []coordinator.PartitionStatus {
	if l.manager == nil {
		return nil
	}
	out := l.sources.Status(l.manager.Status())
	if err := l.broker.Contested(); err != nil {
		for i := range out {
			if out[i].Detail == "" {
				out[i].Detail, out[i].ErrorMessage = coordinator.DetailUnregistered, err.Error()
			}
		}
	}
	return out
}

// newFences makes the fences that the coordinator puts up and the proxies keep to.
func newFences() *proxy.Fences { return proxy.NewFences(time.Now) }

func newEngine(h *host.Host, log *slog.Logger) *policy.Engine { return policy.NewEngine(h, log) }

func newCoordinator(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, cl *clients, store *coordinator.Store,
	b *replica.Broker, policies *policy.Engine, fences *proxy.Fences, ctl *controller.Client, reg *prometheus.Registry, log *slog.Logger,
) (*coordinator.Coordinator, *coordinator.Reconciler, *led, error) {
	dest, err := coordinator.NewDestination(c.home.ID, cfg.VirtualOffset, c.image, ctl, cl.seeds, log)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.Providers.Keys.Exposed(); err != nil {
		log.Warn("the keys of mirrors' secrets are not kept from others", "error", err)
	}
	l := &led{broker: b}
	co, err := coordinator.New(coordinator.Config{
		Self: b.ID(), Virtual: cfg.VirtualOffset, VirtualReplicas: cfg.VirtualReplicas,
		StopReplicaWait: cfg.StopReplicaWait, RefreshInterval: cfg.RefreshInterval, ClusterID: c.id, ReplicaLag: c.home.ReplicaLag, Keys: cfg.Providers.Keys,
	}, coordinator.Deps{
		Image: c.image, Store: store, Destination: dest, Source: coordinator.KafkaSource(cfg.Providers, c.home.ID),
		Peers: cl.peers, Broker: b, Partitions: l, Fences: fences, Policies: policies,
		Caller: func(ctx context.Context) (coordinator.Caller, bool) { return proxy.CallerOf(ctx) },
	}, log)
	if err != nil {
		return nil, nil, nil, err
	}
	r := coordinator.NewReconciler(co, log)
	lc.Append(fx.Hook{OnStart: co.Start, OnStop: func(ctx context.Context) error {
		err := co.Stop(ctx)
		dest.Close()
		return err
	}})
	lc.Append(fx.Hook{OnStart: r.Start, OnStop: r.Stop})
	f := coordinator.NewRefresher(co, r, log)
	lc.Append(fx.Hook{OnStart: f.Start, OnStop: f.Stop})
	s := coordinator.NewSweeper(co, log)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	restorer := coordinator.NewRestorer(co, log)
	lc.Append(fx.Hook{OnStart: restorer.Start, OnStop: restorer.Stop})
	return co, r, l, errors.Join(reg.Register(s), reg.Register(restorer))
}

func newSources(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, store *coordinator.Store, buffers *pool.Pool, reg *prometheus.Registry, log *slog.Logger) (*coordinator.Sources, error) {
	s := coordinator.NewSources(coordinator.SourcesConfig{
		HomeID: c.home.ID, ClusterID: c.id, Fetchers: cfg.ReplicaFetchers, Providers: cfg.Providers, Buffers: buffers,
	}, store.View(), log)
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s, errors.Join(reg.Register(s), reg.Register(coordinator.NewStoredSecrets(store.View())))
}

func newManager(lc fx.Lifecycle, cfg *config.Sidecar, c *cluster, cl *clients, b *replica.Broker, ctl *controller.Client,
	co *coordinator.Coordinator, l *led, sources *coordinator.Sources, buffers *pool.Pool, reg *prometheus.Registry, log *slog.Logger,
) (*replica.Manager, error) {
	metrics, err := replica.NewMetrics(reg)
	if err != nil {
		return nil, err
	}
	m, err := replica.NewManager(replica.ManagerConfig{
		ID: b.ID(), Virtual: cfg.VirtualOffset, MaxLag: c.home.ReplicaLag, Segment: c.home.Segment, Buffers: buffers, StopReplicaWait: cfg.StopReplicaWait,
		RetryInitialBackoff: cfg.RetryInitialBackoff, RetryMaxBackoff: cfg.RetryMaxBackoff, RetryMaxAttempts: cfg.RetryMaxAttempts, Metrics: metrics,
	}, c.image, b, ctl, coordinator.NewLeaders(co), sources, cl.calls, cl.polls, log)
	if err != nil {
		return nil, err
	}
	l.manager, l.sources = m, sources
	lc.Append(fx.Hook{OnStart: m.Start, OnStop: m.Stop})
	counts := replica.NewCounts(c.image, b.ID(), cfg.VirtualOffset, m.OwnMinISR)
	lc.Append(fx.Hook{OnStop: func(context.Context) error { counts.Close(); return nil }})
	return m, errors.Join(reg.Register(m), reg.Register(counts))
}

// behindVirtual lists whom the virtual listener relays to, best first. Who comes there found
// the virtual broker around the proxies, at the listener that brokers use among
// themselves. With the home broker dead it is any other that lives: the virtual broker may
// lead, and its followers and the other sidecars must reach it.
func behindVirtual(c *cluster, cfg *config.Sidecar) []string {
	var home, live, others []string
	for _, b := range c.image.Brokers() {
		ep, ok := endpoint(b, c.home.Listener)
		switch {
		case cfg.VirtualOffset.Is(b.ID) || !ok:
		case b.ID == c.home.ID && !b.Fenced:
			home = append(home, ep.Addr())
		case !b.Fenced:
			live = append(live, ep.Addr())
		default:
			others = append(others, ep.Addr())
		}
	}
	if len(home)+len(live)+len(others) == 0 {
		return cfg.HomeBroker[:1]
	}
	return slices.Concat(home, live, others)
}

// proxies are the listeners: one for each of `listeners`, one for `virtual.listeners`.
type proxies struct{}

// follower lets the proxy hand followers' requests to the manager.
type follower struct{ *replica.Manager }

func (f follower) Fetch(ctx context.Context, req *kmsg.FetchRequest) (proxy.FetchReply, error) {
	return f.Manager.Fetch(ctx, req)
}

// mirrors tells the proxy what is recorded of mirrors.
type mirrors struct{ co *coordinator.Coordinator }

func (m mirrors) MirrorOf(topic ids.UUID) (string, bool) {
	_, mirror, ok := m.co.MirrorTopic(topic)
	return mirror.Name, ok
}

func (m mirrors) Recorded(topic ids.UUID) bool {
	_, ok := m.co.View().TopicByID(topic)
	return ok
}

func (m mirrors) Stray(tp ids.TopicPartition) (stray, sure bool) { return m.co.Stray(tp) }

func (m mirrors) ReadOnly(tp ids.TopicPartition) bool {
	_, ro := m.co.ReadOnly(tp)
	return ro
}

// placer chooses brokers for clients' topics in a cluster that knows no cordon.
type placer struct {
	*coordinator.Coordinator
	image *metadata.Image
}

// Needed implements proxy.Placement.
func (p placer) Needed() bool { return !replica.Cordons(p.image) }

func newProxies(lc fx.Lifecycle, sh fx.Shutdowner, cfg *config.Sidecar, c *cluster, cl *clients, co *coordinator.Coordinator,
	m *replica.Manager, b *replica.Broker, store *coordinator.Store, fences *proxy.Fences, t *transport, h *health.Server, r *front, log *slog.Logger,
) (*proxies, error) {
	listeners, err := clientListeners(cfg, c, log)
	if err != nil {
		return nil, err
	}
	if err := checkListenerNames(cfg, c, listeners); err != nil {
		return nil, err
	}
	warnOfOneAddress(cfg, c, log)
	if r.early && !reflect.DeepEqual(r.listeners, listeners) {
		// Which addresses clients are told cannot change under them.
		r.data.forget()
		return nil, errors.New("the listeners of the home broker are others than when this sidecar ran last: it has to start anew")
	}
	saveCtx, stopSaving := context.WithCancel(context.Background())
	deps := proxy.Deps{
		View: c.image, Mirrors: mirrors{co}, Leaders: r.leaders, CaughtUp: c.observer.CaughtUp(), Lineage: m, Replica: follower{m},
		Mirror: co, Coordinators: co, Configs: configs{co}, Assignments: co, Placement: placer{co, c.image}, Fences: fences, Brokers: cl.calls,
		// Clients' limits are not those of brokers, which must get through.
		Limits: proxy.NewLimits(proxy.LimitsConfig{Total: cfg.MaxConnections}), Connections: r.conns, Log: log,
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			// Clients are served from now on at the latest.
			if err := r.open(ctx, c.home.ID, listeners); err != nil {
				return err
			}
			r.bind(proxy.Parts{
				Mirrors: deps.Mirrors, Lineage: m, Mirror: co, Coordinators: co, Configs: deps.Configs,
				Assignments: co, Placement: deps.Placement, Brokers: cl.calls,
			})
			r.keepSaving(saveCtx, saved{
				ClusterID: c.id, HomeBroker: cfg.HomeBroker, VirtualOffset: cfg.VirtualOffset,
			}, c.home.ID, store.Ready(), mirrors{co}.ReadOnly)
			return nil
		},
		OnStop: func(context.Context) error {
			stopSaving()
			r.saving.Wait()
			r.unbind(store.Ready(), mirrors{co}.ReadOnly)
			return nil
		},
	})
	add := func(pc proxy.Config, addr string) error {
		p, err := proxy.New(pc, deps)
		if err != nil {
			return err
		}
		lc.Append(fx.Hook{
			OnStart: func(ctx context.Context) error {
				var listen net.ListenConfig
				ln, err := listen.Listen(ctx, "tcp", addr)
				if err != nil {
					return fmt.Errorf("listener %s: %w", pc.Name, err)
				}
				return p.Start(ln)
			},
			OnStop: func(ctx context.Context) error {
				// Clients hold their connections for ever; whoever is idle is not waited for.
				ctx, cancel := context.WithTimeout(ctx, cfg.DrainTimeout)
				defer cancel()
				if err := p.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
				return nil
			},
		})
		return nil
	}
	for i, l := range cfg.VirtualListeners {
		name := "VIRTUAL"
		if i > 0 {
			name = fmt.Sprintf("VIRTUAL-%d", i)
		}
		stands, err := servedAt(cfg, c, l)
		if err != nil {
			return nil, err
		}
		secure, err := t.listenerTLS(stands.protocol, cfg.VirtualTLS(stands.name), advertisedHost(cfg.VirtualAdvertisedListeners, l))
		if err != nil {
			return nil, fmt.Errorf("virtual.listeners: %s of the home broker is %s: %w", stands.name, stands.protocol, err)
		}
		behind := func() []string { return behindVirtual(c, cfg) }
		if !stands.among {
			behind = func() []string { return cfg.HomeBroker[:1] }
		}
		pc := proxyConfig(cfg, c.home.ID)
		pc.ClusterID, pc.SASL = c.id, stands.protocol.SASL()
		pc.Name, pc.Virtual, pc.TLS, pc.Dial = name, true, secure, proxy.Dialer(behind, t.relayVirtual(cfg, stands))
		if err := add(pc, addressOf(l)); err != nil {
			return nil, err
		}
	}
	if err := watchHostRules(lc, cfg, c, listeners, t, h, log); err != nil {
		return nil, err
	}
	// Registered last and gone first: whoever is told of the virtual broker finds it
	// listening.
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			if err := b.Start(ctx); err != nil {
				return err
			}
			go func() {
				if err, ok := <-b.Failed(); ok && err != nil {
					log.Error("the virtual broker failed; the sidecar ends, to be started anew", "error", err)
					_ = sh.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := b.Stop(ctx); err != nil {
				log.Warn("the virtual broker was not fenced in time", "error", err)
			}
			return nil
		},
	})
	h.Ready("virtual broker", func() error {
		if !b.Live() {
			return errors.New("not live in the cluster")
		}
		return nil
	})
	h.Warn("virtual broker", b.Contested)
	h.Ready("state", store.Unread)
	// Clients are served all the same, and it is the same at every sidecar.
	h.Warn("state", store.Unwritable)
	h.Warn("secrets", co.Secrets)
	return &proxies{}, nil
}
