package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check returns nil when a part can do its work for clients, else why not.
type Check func() error

// Server answers over HTTP. /livez says that the process runs and depends on nothing
// else; /readyz says that it can serve clients.
type Server struct {
	addr   string
	server *http.Server

	mu     sync.Mutex // guards the following
	names  []string
	checks map[string]Check
	warned []string // names in warnings
	warns  map[string]Check

	done chan struct{}
}

// Config is what a server is for.
type Config struct {
	// Listen is the address, which Start binds. An empty one serves nothing.
	Listen string
	// Loopback says that only this machine reaches it.
	Loopback bool
	// Profiles serves /debug/pprof/, which costs CPU and shows how the process works.
	Profiles bool
	Log      *slog.Logger
}

const (
	// maxHeader bounds a request's header, in which nothing is expected.
	maxHeader = 16 << 10
	// headerTimeout and idleTimeout are how long the header of a request may take to come, and its
	// connection to bring another one; writeTimeout is how long an answer may take to go.
	headerTimeout  = 5 * time.Second
	idleTimeout    = time.Minute
	writeTimeout   = 30 * time.Second
	profileTimeout = 3 * time.Minute
)

// New returns a server that does not serve yet.
func New(cfg Config, metrics *prometheus.Registry) (*Server, error) {
	s := &Server{addr: cfg.Listen, checks: map[string]Check{}, warns: map[string]Check{}, done: make(chan struct{})}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 8}))
	write := writeTimeout
	if cfg.Profiles {
		write = profileTimeout
		// Not the command line, in which flags may have secrets.
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	g := &guard{to: mux, loopback: cfg.Loopback, log: cfg.Log, panics: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "kafka_mirror", Name: "http_panics_total", Help: "HTTP requests that ended by a mistake in the sidecar.",
	})}
	s.server = &http.Server{
		Handler: g, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: write,
		MaxHeaderBytes: maxHeader, ConnState: newConns().changed, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true, // OPTIONS * is no GET either
	}
	return s, metrics.Register(g.panics)
}

// Ready adds a check to /readyz.
func (s *Server) Ready(name string, c Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.checks[name]; !known {
		s.names = append(s.names, name)
	}
	s.checks[name] = c
}

// Warn adds a check whose failure /readyz tells, but that does not make the process unready.
func (s *Server) Warn(name string, c Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.warns[name]; !known {
		s.warned = append(s.warned, name)
	}
	s.warns[name] = c
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs, warnings []error
	for _, n := range s.names {
		if err := s.checks[n](); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n, err))
		}
	}
	for _, n := range s.warned {
		if err := s.warns[n](); err != nil {
			warnings = append(warnings, fmt.Errorf("warning: %s: %w", n, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		http.Error(w, errors.Join(err, errors.Join(warnings...)).Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready")
	for _, err := range warnings {
		_, _ = fmt.Fprintln(w, err)
	}
}

// Start binds the address and serves in the background.
func (s *Server) Start(ctx context.Context) error {
	if s.addr == "" {
		close(s.done)
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(ln) // ends by Stop
	}()
	return nil
}

// Stop ends serving.
func (s *Server) Stop(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	return err
}
