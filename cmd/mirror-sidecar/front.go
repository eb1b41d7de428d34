package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/health"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
	"github.com/cluster-mirroring/mirror-sidecar/replica"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// front is what clients connect to. Where a former process has left what it knew of the cluster,
// the relay begins before the rest of the sidecar and does without it: the death of a sidecar
// is none of the broker's for topics that are not mirrored. It ends last in any case.
type front struct {
	cfg       *config.Sidecar
	log       *slog.Logger
	metrics   *prometheus.Registry
	health    *health.Server
	transport *transport
	image     *metadata.Image
	leaders   *proxy.Leaders
	fences    *proxy.Fences
	late      *proxy.Late
	limits    *proxy.Limits
	conns     proxy.ConnMetrics
	data      *dataDir // nil without data.dir

	// ctx ends when the process is asked to end.
	ctx context.Context
	// early says that clients are served already, with what a former process knew of broker home.
	early     bool
	listeners []config.ClientListener
	// answers says that /livez does.
	answers bool
	home    int32

	proxies []*proxy.Proxy
	saving  sync.WaitGroup
	stopped sync.Once

	mu      sync.Mutex // guards the following
	waiting error      // what the rest of the sidecar waits for; nil: it is there
}

// newFront makes a front that does not listen yet.
func newFront(ctx context.Context, cfg *config.Sidecar, data *dataDir, log *slog.Logger) (*front, error) {
	r := &front{
		cfg: cfg, log: log, metrics: newMetrics(), image: metadata.NewImage(cfg.VirtualOffset), fences: newFences(),
		data: data, ctx: ctx, waiting: errors.New("the sidecar is starting"),
		limits: proxy.NewLimits(proxy.LimitsConfig{
			Total: cfg.MaxConnections, PerIP: &cfg.MaxConnectionsPerIP, PerIPOverrides: cfg.MaxConnectionsPerIPOverrides, Rate: cfg.MaxConnectionRate,
		}),
		late: proxy.NewLate(coordinator.Keys(), coordinator.NotYet),
	}
	var err error
	if r.transport, err = newTransport(cfg, log); err != nil {
		return nil, err
	}
	if err = r.metrics.Register(r.transport.expiry); err != nil {
		return nil, err
	}
	if r.conns, err = proxy.NewConnMetrics(r.metrics); err != nil {
		return nil, err
	}
	if r.health, err = health.New(health.Config{Listen: cfg.HTTPListen, Loopback: config.Loopback(cfg.HTTPListen), Profiles: cfg.HTTPProfiles, Log: log}, r.metrics); err != nil {
		return nil, err
	}
	r.health.Ready("start", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiting
	})
	if s, ok := data.load(cfg, log); ok {
		held := map[ids.UUID]bool{}
		for _, t := range s.Topics {
			held[t.ID] = t.Held
		}
		r.image.Restore(s.Topics, s.Home)
		r.late.Restored, r.late.Held = true, func(topic ids.UUID) bool { return held[topic] }
		r.early, r.home = true, s.Home.ID
		if r.listeners, err = clientListeners(cfg, &cluster{image: r.image, home: replica.Home{ID: r.home}}, log); err != nil {
			return nil, err
		}
	}
	r.leaders = proxy.NewLeaders(r.image, cfg.VirtualOffset)
	return r, nil
}

// waitsFor tells /readyz what keeps the sidecar from being there.
func (r *front) waitsFor(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = err
}

// open begins to serve clients of the home broker. It does so once.
func (r *front) open(ctx context.Context, home int32, listeners []config.ClientListener) error {
	if len(r.proxies) > 0 {
		return nil
	}
	for _, l := range listeners {
		name := l.Name
		if err := r.cfg.CheckListener(name); err != nil {
			return err
		}
		secure, err := r.transport.listenerTLS(r.cfg.Protocol(name), r.cfg.ListenerTLS(name), advertisedHost(r.cfg.AdvertisedListeners, l.Listener))
		if err != nil {
			return err
		}
		pc := proxyConfig(r.cfg, home)
		pc.Name, pc.TLS, pc.SASL = name, secure, r.cfg.UpstreamProtocol(name).SASL()
		at := []string{l.Home}
		pc.Dial = proxy.Dialer(func() []string { return at }, r.transport.relayClient(r.cfg.UpstreamProtocol(name)))
		p, err := proxy.New(addressed(pc, l), r.late.Deps(proxy.Deps{
			View: r.image, Leaders: r.leaders, Fences: r.fences, Limits: r.limits, Connections: r.conns, Log: r.log,
		}))
		if err != nil {
			return err
		}
		ln, err := r.data.listen(ctx, addressOf(l.Listener))
		if err != nil {
			return fmt.Errorf("listener %s: %w", name, err)
		}
		if err := p.Start(ln); err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
	}
	return nil
}

// bind gives the relay the rest of the sidecar.
func (r *front) bind(parts proxy.Parts) {
	r.late.Bind(parts)
	r.waitsFor(nil)
}

// unbind takes it away again: it ends. stateRead is closed when the mirrors' state is known, which
// readOnly goes by.
func (r *front) unbind(stateRead <-chan struct{}, readOnly func(ids.TopicPartition) bool) {
	r.waitsFor(errors.New("the sidecar is ending"))
	held := heldNow(r.image, readOnly)
	select {
	case <-stateRead:
		r.late.Unbind(func(topic ids.UUID) bool { return held[topic] })
	default:
		former := r.late.Held
		r.late.Unbind(func(topic ids.UUID) bool { return held[topic] || former(topic) })
	}
}

// heldNow returns the topics of which a partition is read only. Those that have virtual replicas
// are among them: they may lose them before the process ends.
func heldNow(image *metadata.Image, readOnly func(ids.TopicPartition) bool) map[ids.UUID]bool {
	held := make(map[ids.UUID]bool)
	some := anyOf(readOnly)
	for _, t := range image.Save(some) {
		if t.Held || some(t.Partitions) {
			held[t.ID] = true
		}
	}
	return held
}

// anyOf tells of a topic's partitions what is asked of one.
func anyOf(readOnly func(ids.TopicPartition) bool) func([]*metadata.Partition) bool {
	return func(parts []*metadata.Partition) bool {
		return slices.ContainsFunc(parts, func(p *metadata.Partition) bool {
			return readOnly(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
		})
	}
}

// keepSaving saves what the image says whenever that changes, until ctx ends, for the next
// process. It begins when the mirrors' state is known, without which not all is.
func (r *front) keepSaving(ctx context.Context, s saved, home int32, stateRead <-chan struct{}, readOnly func(ids.TopicPartition) bool) {
	if r.data == nil {
		return
	}
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	held := anyOf(readOnly)
	save := func() {
		broker, ok := r.image.Broker(home)
		if !ok {
			return
		}
		s.Topics, s.Home = r.image.Save(held), broker
		if err := r.data.save(s); err != nil {
			r.log.Warn("what the next process could begin with was not saved", "error", err)
		}
	}
	r.saving.Go(func() {
		select {
		case <-stateRead:
		case <-ctx.Done():
			return
		}
		defer r.image.Subscribe(func(metadata.Delta) { note() })()
		tick := time.NewTicker(saveEvery)
		defer tick.Stop()
		note()
		for quiet := 0; ; quiet++ {
			select {
			case <-ctx.Done():
				save()
				return
			case <-tick.C:
			}
			select {
			case <-changed:
			default:
				// The mirrors' state changes without a word of the image's.
				if quiet < saveAnyway {
					continue
				}
			}
			save()
			quiet = 0
		}
	})
}

const (
	// saveEvery is how often a change is saved at most.
	saveEvery = time.Second
	// saveAnyway is after how many of these times it is looked although nothing has changed.
	saveAnyway = 10
)

// stopListening leaves new connections to the process that takes over.
func (r *front) stopListening() {
	for _, p := range r.proxies {
		p.StopListening()
	}
}

// stop ends the connections, each when what is due has been answered, and waits no longer
// than drain.timeout.ms. What it is asked again it has done.
func (r *front) stop() { r.stopped.Do(r.end) }

func (r *front) end() {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.DrainTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range r.proxies {
		all.Go(func() {
			if err := p.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				r.log.Warn("a listener did not stop in order", "error", err)
			}
		})
	}
	all.Wait()
	r.leaders.Close()
	if r.answers {
		hctx, hcancel := context.WithTimeout(context.Background(), time.Second)
		defer hcancel()
		_ = r.health.Stop(hctx)
	}
}

// proxyConfig is what the listeners have in common.
func proxyConfig(cfg *config.Sidecar, home int32) proxy.Config {
	code := readonly.PolicyViolation
	if cfg.ReadOnlyTopicError {
		code = readonly.ReadOnlyTopic
	}
	return proxy.Config{
		IDs: cfg.VirtualOffset, Home: home, ReadOnlyError: code,
		MaxFrame: cfg.MaxRequest, MaxIdle: cfg.MaxIdle, MaxStall: cfg.MaxStall, LoginTimeout: cfg.MaxLogin,
	}
}

func addressOf(l config.Listener) string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }
