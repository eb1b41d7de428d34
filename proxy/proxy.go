package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/proxy/sockets"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// Config is what a proxy needs to know about its listener. Zero values of the bounds
// take the defaults.
type Config struct {
	// Name names the listener in logs.
	Name string
	// Virtual says that the virtual broker is registered at this listener; see the
	// package's documentation.
	Virtual bool
	// IDs tells virtual brokers from real ones.
	IDs ids.Virtual
	// Home is the node id of the real broker behind the proxy.
	Home int32
	// ClusterID is the cluster's id, which clients of a virtual listener may ask for; empty: any.
	ClusterID string
	// Hosts, Advertised and Compute say what clients are told instead of the addresses that the
	// brokers advertise: by node id, by what is advertised, and by computing it. With none of
	// them the brokers advertise their proxies themselves. With any of them a broker that has
	// no address by any rule is not shown.
	Hosts      map[int32]HostPort
	Advertised map[HostPort]HostPort
	Compute    func(node int32, advertised HostPort) (told HostPort, ok bool)
	// Dial opens an upstream connection. Its context ends with DialTimeout.
	Dial func(ctx context.Context) (net.Conn, error)
	// TLS, if any, is what clients are served with. Dial finds the client's certificate with
	// ClientCertificate.
	TLS *tls.Config
	// ReadOnlyError is what writers to a mirror topic get.
	ReadOnlyError readonly.ErrorCode

	// MaxFrame bounds a request; default 100 MiB, as socket.request.max.bytes.
	MaxFrame int
	// MaxResponse bounds a response that is read into memory; default 100 MiB.
	MaxResponse int
	// BufferedBytes bounds the large requests that all connections together hold in memory, and
	// once more what they are decoded to; default 256 MiB.
	BufferedBytes int64
	// MaxInFlight bounds the unanswered requests of a connection; default 256.
	MaxInFlight int
	// MaxIdle is how long nothing may move on a connection, in either direction, and how long a
	// client may take nothing of its answers; default 10 minutes, as connections.max.idle.ms.
	MaxIdle time.Duration
	// MaxStall is how long a client may send nothing more of a request that it has begun; default
	// 30 s.
	MaxStall time.Duration
	// AnswerTimeout bounds the home broker's answers to what the proxy asks itself; default 1 min.
	AnswerTimeout time.Duration
	// DialTimeout bounds opening an upstream connection; default 10 s.
	DialTimeout time.Duration
	// HandshakeTimeout bounds a client's TLS handshake; default 10 s.
	HandshakeTimeout time.Duration
	// SASL says that the broker's listener has SASL: whoever does not log in within LoginTimeout,
	// TLS handshake included, is closed; default 30 s.
	SASL         bool
	LoginTimeout time.Duration
}

func (c *Config) defaults() error {
	if c.Dial == nil {
		return errors.New("proxy: no way to dial the home broker")
	}
	if c.IDs <= 0 {
		return errors.New("proxy: no offset of virtual broker ids")
	}
	c.MaxFrame = cmpDefault(c.MaxFrame, 100<<20)
	c.MaxResponse = cmpDefault(c.MaxResponse, 100<<20)
	c.BufferedBytes = cmpDefault(c.BufferedBytes, 256<<20)
	c.MaxInFlight = cmpDefault(c.MaxInFlight, 256)
	c.MaxIdle = cmpDefault(c.MaxIdle, 10*time.Minute)
	c.AnswerTimeout = cmpDefault(c.AnswerTimeout, time.Minute)
	c.MaxStall = cmpDefault(c.MaxStall, 30*time.Second)
	c.DialTimeout = cmpDefault(c.DialTimeout, 10*time.Second)
	c.LoginTimeout = cmpDefault(c.LoginTimeout, 30*time.Second)
	c.HandshakeTimeout = min(cmpDefault(c.HandshakeTimeout, 10*time.Second), c.LoginTimeout)
	return nil
}

func cmpDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Proxy serves the client connections of one or more sockets of one listener.
type Proxy struct {
	nothingAdded nothingAdded

	cfg     Config
	deps    Deps
	log     *slog.Logger
	flex    flexTable
	rows    map[int16]*row
	rules   readonly.Rules
	untold  untold
	buffers *buffers
	// budget is what large requests take of while they are in memory, decoding while they are
	// decoded as well.
	budget, decoding *semaphore.Weighted
	// logins is what large requests of logins take of instead.
	logins *semaphore.Weighted
	// rewriters are those of rewriter, made once.
	rewriters map[apiVersion]func(body []byte) (kmsg.Response, error)
	// spliced counts the bytes that passed without coming into this process.
	spliced atomic.Int64
	// What anybody can bring about is logged at a bounded rate: handshakes that failed, connections that
	// ended by a fault, panics.
	handshakes, faults, panics logLimit

	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	tends  sync.WaitGroup
	conn   listenerMetrics

	mu        sync.Mutex // guards the following
	listeners []net.Listener
	conns     map[*conn]struct{}
	lastID    uint64
	stopping  bool
	started   bool
	// refusals are those that the log has not told of, since told.
	refusals int
	told     time.Time
}

// New returns a proxy that does not serve yet.
func New(cfg Config, deps Deps) (*Proxy, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if err := deps.defaults(cfg); err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg:     cfg,
		deps:    deps,
		log:     deps.Log.With("listener", cfg.Name),
		flex:    newFlexTable(),
		buffers: new(buffers),
		budget:  semaphore.NewWeighted(cfg.BufferedBytes),
		conns:   make(map[*conn]struct{}),

		decoding: semaphore.NewWeighted(cfg.BufferedBytes),
		logins:   semaphore.NewWeighted(loginBytes),
	}
	p.conn = deps.Connections.of(cfg.Name)
	p.rows = rowsFor(cfg, deps)
	p.makeRewriters()
	p.rules = readonly.Rules{
		Lookup:     p.mirrorOf,
		Unsure:     p.unsure,
		TopicName:  deps.View.TopicName,
		Code:       cfg.ReadOnlyError,
		StateTopic: stateTopic,
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p, nil
}

// Start serves the connections that ln accepts, until Stop. It closes ln.
func (p *Proxy) Start(ln net.Listener) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return errors.New("proxy: start after stop")
	}
	p.listeners = append(p.listeners, ln)
	if !p.started {
		p.started = true
		p.tends.Go(p.tend)
	}
	p.wg.Go(func() { p.accept(ln) })
	return nil
}

// StopListening accepts no more connections; those there are go on.
func (p *Proxy) StopListening() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ln := range p.listeners {
		_ = ln.Close()
	}
}

// Stop accepts no more connections, lets those there are finish what they have begun,
// and closes what is left when ctx ends. It returns when all have ended.
func (p *Proxy) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	for _, ln := range p.listeners {
		_ = ln.Close()
	}
	for c := range p.conns {
		c.drain()
	}
	p.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { p.cancel(errStopped) })
	defer stop()
	p.wg.Wait()
	p.cancel(errStopped)
	p.tends.Wait()
	return ctx.Err()
}

func (p *Proxy) accept(ln net.Listener) {
	defer ln.Close()
	for {
		if p.deps.Limits.pace(p.ctx) != nil {
			return
		}
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			p.log.Warn("accept failed", "err", err)
			// Mostly a lack of file descriptors: connections must end first.
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-p.ctx.Done():
				return
			}
		}
		p.add(nc)
	}
}

// add serves a new connection.
func (p *Proxy) add(nc net.Conn) {
	from := nc.RemoteAddr()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		_ = nc.Close()
		return
	}
	if limit := p.deps.Limits.admit(from); limit != "" {
		_ = nc.Close()
		p.refuse(from, limit)
		return
	}
	p.tune(nc)
	p.lastID++
	c := &conn{
		p:      p,
		id:     p.lastID,
		log:    p.log.With("session", p.lastID, "client", from),
		client: p.secured(sockets.Wrap(nc)),
	}
	c.login.begun = time.Now()
	c.login.done.Store(!p.cfg.SASL)
	c.ctx, c.cancel = context.WithCancelCause(p.ctx)
	p.conns[c] = struct{}{}
	p.conn.begin()
	p.wg.Go(func() {
		defer func() {
			p.deps.Limits.release(from)
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, c)
		}()
		if err := c.guarded(c.serve); err != nil { // neither of its goroutines', which say so themselves
			c.close(err)
			c.hangUp()
			c.logEnd()
		}
	})
}

// refuse counts a refused connection, and tells of it once a second at most. p.mu is held.
func (p *Proxy) refuse(from net.Addr, limit string) {
	p.conn.refuse(limit)
	p.refusals++
	if now := time.Now(); now.Sub(p.told) >= time.Second {
		p.log.Warn("connections refused", "limit", limit, "client", from, "connections", len(p.conns), "refused", p.refusals)
		p.told, p.refusals = now, 0
	}
}

// apiName names an API for people.
func (p *Proxy) apiName(key int16) string {
	if key > kmsg.MaxKey {
		return fmt.Sprintf("mirror API %d", key)
	}
	return kmsg.NameForKey(key)
}
