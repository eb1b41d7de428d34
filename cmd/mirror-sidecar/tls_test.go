package main

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// TestPausedControllers: one that lets TLS' handshake wait is given up well within a broker's session of 9 s.
func TestPausedControllers(t *testing.T) {
	var lc net.ListenConfig
	paused, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer paused.Close()
	cfg, err := config.ParseSidecar(config.Properties{
		"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "c:2", "virtual.listeners": "v:3", "security.protocol": "SSL",
	})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTransport(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*certs.Dialer{"controllers": tr.controllers, "brokers": tr.among} {
		if d.Timeout > 4*time.Second {
			t.Errorf("%s: given up after %v", name, d.Timeout)
		}
	}
	if c, err := tr.controllers.DialContext(t.Context(), "tcp", paused.Addr().String()); err == nil {
		c.Close()
		t.Error("a handshake with nobody")
	}
}

// TestCertificatesThatClientsAreRelayedUnder: never the sidecar's own, but for brokers and
// sidecars; and none for who has shown none, where the certificate is all that counts.
func TestCertificatesThatClientsAreRelayedUnder(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	dir := t.TempDir()
	own := pki.Write(t, dir, "own.pem", ca.Issue(t, pki.Subject{Name: "sidecar"}).Store)
	clients := pki.Write(t, dir, "clients.pem", ca.Issue(t, pki.Subject{Name: "clients"}).Store)
	trust := pki.Write(t, dir, "trust.pem", ca.PEM())
	broker, other := ca.Issue(t, pki.Subject{Name: "broker"}).Leaf, ca.Issue(t, pki.Subject{Name: "other"}).Leaf
	parse := func(protocol string, upstream string) (*config.Sidecar, *transport) {
		t.Helper()
		p := config.Properties{
			"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "c:2", "virtual.listeners": "v:3",
			"security.protocol": protocol, "ssl.keystore.location": own, "ssl.truststore.location": trust,
			"mirror.replica.principals": "User:CN=broker",
		}
		if protocol == "SASL_SSL" {
			p["sasl.jaas.config"] = "PlainLoginModule required username=a password=b;"
		}
		if upstream != "" {
			p["upstream.ssl.keystore.location"] = upstream
		}
		cfg, err := config.ParseSidecar(p)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := newTransport(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg, tr
	}
	shown := func(d *certs.Dialer) string {
		if leaf := d.TLS.Leaf(); leaf != nil {
			return leaf.Subject.CommonName
		}
		return ""
	}
	_, none := parse("SSL", "")
	_, some := parse("SSL", clients)
	_, sasl := parse("SASL_SSL", clients)
	for name, c := range map[string]struct {
		got  *certs.Dialer
		want string
	}{
		"no identity":                {none.toHome(config.SSL, other), ""},
		"no identity, anonymous":     {none.toHome(config.SSL, nil), ""},
		"identity":                   {some.toHome(config.SSL, other), "clients"},
		"identity, anonymous":        {some.toHome(config.SSL, nil), ""},
		"a broker is a client there": {some.toHome(config.SSL, broker), "clients"},
		"SASL says who":              {sasl.toHome(config.SASLSSL, nil), "clients"},
		"the sidecar itself":         {some.among, "sidecar"},
	} {
		if got := shown(c.got); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	cfg, tr := parse("SSL", "")
	if !cfg.ReplicaPrincipals.Has(broker) || cfg.ReplicaPrincipals.Has(other) {
		t.Error(cfg.ReplicaPrincipals)
	}
	if src := cfg.VirtualTLS("INTERNAL"); func() bool { c, err := src.Load(); return err != nil || c.ClientAuth != tls.VerifyClientCertIfGiven }() {
		t.Error("brokers are not asked for certificates")
	}
	if _, err := tr.relayVirtual(cfg, served{protocol: config.SSL, among: true})(t.Context()); err != nil {
		t.Errorf("anonymous: %v", err)
	}
}

// TestOtherAuthoritiesAtTheVirtualListener: a broker's name in a certificate of an authority that is not trusted opens
// no connection, also where none need be shown.
func TestOtherAuthoritiesAtTheVirtualListener(t *testing.T) {
	ca, stranger := pki.NewCA(t, "ca"), pki.NewCA(t, "ca") // the names prove nothing
	dir := t.TempDir()
	for _, auth := range []string{"requested", "required"} {
		cfg, err := config.ParseSidecar(config.Properties{
			"home.broker.bootstrap": "a:1", "controller.quorum.bootstrap.servers": "c:2", "virtual.listeners": "v:3",
			"security.protocol": "SSL", "ssl.client.auth": auth, "mirror.replica.principals": "User:CN=broker",
			"ssl.keystore.location":          pki.Write(t, dir, "own.pem", ca.Issue(t, pki.Subject{Name: "sidecar"}).Store),
			"ssl.truststore.location":        pki.Write(t, dir, "trust.pem", ca.PEM()),
			"upstream.ssl.keystore.location": pki.Write(t, dir, "clients.pem", ca.Issue(t, pki.Subject{Name: "clients"}).Store),
		})
		if err != nil {
			t.Fatal(err)
		}
		server, err := cfg.VirtualTLS("INTERNAL").Load()
		if err != nil {
			t.Fatal(err)
		}
		for by, want := range map[*pki.CA]bool{ca: true, stranger: false} {
			cert := by.Issue(t, pki.Subject{Name: "broker"}).TLS(t)
			here, there := net.Pipe()
			client := tls.Client(there, &tls.Config{
				RootCAs: ca.Pool(), ServerName: "sidecar", InsecureSkipVerify: true, // who is asked here is the client
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer there.Close()
				if client.HandshakeContext(t.Context()) == nil {
					_, _ = client.Read(make([]byte, 1)) // until the server has said what it thinks of the certificate
				}
			}()
			accepted := tls.Server(here, server)
			err := accepted.HandshakeContext(t.Context())
			here.Close()
			<-done
			if (err == nil) != want {
				t.Errorf("%s, a certificate of the authority that is trusted: %v: %v", auth, want, err)
			}
			if err == nil && !cfg.ReplicaPrincipals.Has(accepted.ConnectionState().PeerCertificates[0]) {
				t.Errorf("%s: a broker is not known by its certificate", auth)
			}
		}
	}
}
