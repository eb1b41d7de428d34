package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const (
	// dialTimeout bounds the making of a connection, its TLS handshake included.
	dialTimeout = 10 * time.Second
	// amongTimeout is dialTimeout towards the other brokers: a paused one, whose kernel accepts
	// connections, must not hold up what others could answer.
	amongTimeout = 3 * time.Second
)

// transport is how connections are made, those of the sidecar itself and those that carry
// its clients. Without TLS a dialer dials plain TCP.
type transport struct {
	// The sidecar's own, under its own certificate if it has one.
	home, among, controllers *certs.Dialer
	// Clients', never under the sidecar's certificate: to the home broker's listeners for
	// clients, with and without TLS, and to the listener that brokers use among themselves.
	relayTLS, relayPlain, relayAmong relay

	log    *slog.Logger
	expiry *certs.Expiry
}

// watch loads settings, and has the end of their certificate told.
func (t *transport) watch(src certs.Source) (*certs.Watched, error) {
	w, err := certs.New(src, t.log)
	if err == nil {
		t.expiry.Add(w)
	}
	return w, err
}

// relay is how clients are relayed to one of the home broker's listeners: as is under
// upstream.ssl.keystore.*, if there is one, anonymous under no certificate.
type relay struct{ as, anonymous *certs.Dialer }

// dialer is for a client with the given certificate, nil if it has shown none. Where the
// certificate is all that the broker knows of its callers, who has none does not get one here.
func (r relay) dialer(p config.Protocol, cert *x509.Certificate) *certs.Dialer {
	if p == config.SSL && cert == nil {
		return r.anonymous
	}
	return r.as
}

// toHome is how clients are relayed to a listener of the home broker that is for clients.
func (t *transport) toHome(p config.Protocol, cert *x509.Certificate) *certs.Dialer {
	if p.TLS() {
		return t.relayTLS.dialer(p, cert)
	}
	return t.relayPlain.dialer(p, cert)
}

func newTransport(cfg *config.Sidecar, log *slog.Logger) (*transport, error) {
	t := &transport{log: log, expiry: certs.NewExpiry()}
	var errs []error
	dialer := func(p config.Protocol, src certs.Source) *certs.Dialer {
		d := &certs.Dialer{Timeout: dialTimeout}
		if p.TLS() {
			var err error
			if d.TLS, err = t.watch(src); err != nil {
				errs = append(errs, err)
			}
		}
		return d
	}
	home, among, ctl := cfg.HomeProtocol(), cfg.InterBrokerProtocol(), cfg.ControllerProtocol()
	relayed := config.Plaintext
	if home.TLS() || slices.ContainsFunc(slices.Collect(maps.Keys(cfg.ListenerSecurity)), func(l string) bool { return cfg.UpstreamProtocol(l).TLS() }) {
		relayed = config.SSL
	}
	t.home = dialer(home, cfg.OwnTLS("own connections to the home broker", cfg.Security))
	t.among = dialer(among, cfg.OwnTLS("own connections to brokers", cfg.InterBrokerSecurity))
	t.controllers = dialer(ctl, cfg.OwnTLS("own connections to controllers", cfg.ControllerSecurity))
	// Whom a handshake waits for is given up as soon as where there is none.
	t.among.Timeout, t.controllers.Timeout = amongTimeout, controller.AttemptTimeout
	t.relayTLS = relay{
		as:        dialer(relayed, cfg.RelayTLS("clients' connections to the home broker", cfg.Security, cfg.UpstreamKeystore)),
		anonymous: dialer(relayed, cfg.RelayTLS("anonymous clients' connections to the home broker", cfg.Security, nil)),
	}
	t.relayPlain = relay{as: dialer(config.Plaintext, certs.Source{}), anonymous: dialer(config.Plaintext, certs.Source{})}
	t.relayAmong = relay{
		as:        dialer(among, cfg.RelayTLS("connections relayed from the virtual broker", cfg.InterBrokerSecurity, cfg.UpstreamKeystore)),
		anonymous: dialer(among, cfg.RelayTLS("anonymous connections relayed from the virtual broker", cfg.InterBrokerSecurity, nil)),
	}
	for _, d := range []*certs.Dialer{t.home, t.relayTLS.as, t.relayTLS.anonymous} {
		d.ServerName = cfg.HomeServerName
	}
	return t, errors.Join(errs...)
}

// protocolOf names the number that registrations have.
func protocolOf(e metadata.Endpoint) config.Protocol {
	switch e.SecurityProtocol {
	case 0:
		return config.Plaintext
	case 1:
		return config.SSL
	case 2:
		return config.SASLPlaintext
	case 3:
		return config.SASLSSL
	}
	return config.Protocol(fmt.Sprintf("protocol %d", e.SecurityProtocol))
}

// endpointNamed finds a listener by the name that the configuration has, in upper case.
func endpointNamed(b metadata.Broker, name string) (metadata.Endpoint, bool) {
	for _, e := range b.Endpoints {
		if strings.EqualFold(e.Name, name) {
			return e, true
		}
	}
	return metadata.Endpoint{}, false
}

// served is what a listener of the virtual broker stands for.
type served struct {
	name     string
	protocol config.Protocol
	// among: it is the one that brokers use among themselves.
	among bool
}

// servedAt finds out which of the home broker's listeners a virtual one stands for: that of its
// name, and without one the listener that brokers use among themselves.
func servedAt(cfg *config.Sidecar, c *cluster, l config.Listener) (served, error) {
	home, ok := c.image.Broker(c.home.ID)
	if !ok {
		return served{}, fmt.Errorf("home broker %d is not registered", c.home.ID)
	}
	ep, ok := endpointNamed(home, l.Name)
	if !ok { // no name, or one of the operator's own
		if ep, ok = endpoint(home, c.home.Listener); !ok {
			return served{}, fmt.Errorf("home broker %d has no listener", c.home.ID)
		}
	}
	s := served{name: ep.Name, protocol: protocolOf(ep), among: ep.Name == c.home.Listener}
	want, key := cfg.HomeProtocol(), "security.protocol"
	if s.among {
		want, key = cfg.InterBrokerProtocol(), "inter.broker.security.protocol, or security.protocol,"
	}
	if want != s.protocol {
		return s, fmt.Errorf("virtual.listeners: the home broker's listener %s is %s, but %s is %s", s.name, s.protocol, key, want)
	}
	return s, nil
}

// listenerTLS makes what a listener's clients are served with, nil for plain TCP.
func (t *transport) listenerTLS(p config.Protocol, src certs.Source, advertised string) (*tls.Config, error) {
	if !p.TLS() {
		return nil, nil
	}
	w, err := t.watch(src)
	if err != nil {
		return nil, err
	}
	// Who checks names finds out anyway; the operator does so here, in time.
	if leaf := w.Leaf(); leaf != nil && advertised != "" && !net.ParseIP(advertised).IsUnspecified() {
		if err := leaf.VerifyHostname(advertised); err != nil {
			t.log.Warn("the certificate is not for the address that is advertised: who verifies names refuses it", "tls", src.Name, "error", err)
		}
	}
	return w.Server(), nil
}

// relayClient says how who came to a client listener is relayed to the home broker.
func (t *transport) relayClient(upstream config.Protocol) func(ctx context.Context) (*certs.Dialer, error) {
	return func(ctx context.Context) (*certs.Dialer, error) {
		return t.toHome(upstream, proxy.ClientCertificate(ctx)), nil
	}
}

// relayVirtual says how who came to a virtual listener is relayed to the brokers. With mutual
// TLS brokers and sidecars are told by their certificates, which end here: they are relayed
// under the sidecar's own, and everybody else is not.
func (t *transport) relayVirtual(cfg *config.Sidecar, s served) func(ctx context.Context) (*certs.Dialer, error) {
	return func(ctx context.Context) (*certs.Dialer, error) {
		switch cert := proxy.ClientCertificate(ctx); {
		case !s.among:
			return t.toHome(s.protocol, cert), nil
		case s.protocol != config.SSL || cert == nil:
			return t.relayAmong.dialer(s.protocol, cert), nil
		case cfg.ReplicaPrincipals.Has(cert):
			return t.among, nil
		case len(cfg.UpstreamKeystore) > 0:
			return t.relayAmong.dialer(s.protocol, cert), nil
		default:
			return nil, fmt.Errorf("the client's certificate of %q is not in mirror.replica.principals, and there is no upstream.ssl.keystore.location to relay others under", certs.Principal(cert))
		}
	}
}

// warnOfOneAddress tells the operator of listeners of the home broker whose clients find
// another protocol than theirs where they are told to find the virtual broker.
func warnOfOneAddress(cfg *config.Sidecar, c *cluster, log *slog.Logger) {
	home, _ := c.image.Broker(c.home.ID)
	first, err := servedAt(cfg, c, cfg.VirtualListeners[0])
	if err != nil {
		return
	}
	for _, ep := range home.Endpoints {
		named := false
		for _, l := range cfg.VirtualListeners {
			named = named || strings.EqualFold(l.Name, ep.Name)
		}
		if p := protocolOf(ep); !named && p != first.protocol {
			log.Warn("clients around the proxies that come by this listener of the home broker find another protocol at the virtual broker; give it a virtual listener of its own, NAME://host:port",
				"listener", ep.Name, "protocol", p, "virtual", first.protocol)
		}
	}
}

// checkListenerNames refuses keys of listeners that there are not.
func checkListenerNames(cfg *config.Sidecar, c *cluster, listeners []config.ClientListener) error {
	known := map[string]bool{strings.ToLower(c.home.Listener): true}
	for _, l := range listeners {
		known[strings.ToLower(l.Name)] = true
	}
	for _, l := range cfg.VirtualListeners {
		known[strings.ToLower(l.Name)] = true
	}
	for name := range cfg.ListenerSecurity {
		if !known[name] {
			return fmt.Errorf("listener.name.%s.*: there is no such listener", name)
		}
	}
	for name := range cfg.ListenerAddresses {
		if !known[strings.ToLower(name)] {
			return fmt.Errorf("listener.name.%s.*: there is no such listener", strings.ToLower(name))
		}
	}
	return nil
}

// advertisedHost is the host under which others come to a listener, as far as it is known.
func advertisedHost(advertised []config.Listener, l config.Listener) string {
	for _, a := range advertised {
		if a.Name == l.Name {
			return a.Host
		}
	}
	if len(advertised) > 0 {
		return advertised[0].Host
	}
	return l.Host
}
