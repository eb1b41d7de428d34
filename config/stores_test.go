package config

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// TestStoresEverywhere: Java stores with passwords in files, at every place where the sidecar reads keys of TLS.
func TestStoresEverywhere(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	dir := t.TempDir()
	secrets := pki.Write(t, dir, "secrets.properties", "own=own-pass\nclient=client-pass\ntrust=trust-pass")
	ref := func(key string) string { return "${file:" + secrets + ":" + key + "}" }
	p := minimal()
	p["listeners"] = "SSL://:9093"
	p["security.protocol"] = "SSL"
	p["config.providers.allowed.paths"] = dir
	trust := pki.Write(t, dir, "trust.jks", pki.JKSTrust("trust-pass", ca))
	for prefix, name := range map[string]string{"": "own", "controller.": "controller", "inter.broker.": "among", "upstream.": "client", "listener.name.ssl.": "listener"} {
		pass := map[string]string{"client": "client"}[name]
		if pass == "" {
			pass = "own"
		}
		p[prefix+"ssl.keystore.type"] = "JKS"
		p[prefix+"ssl.keystore.location"] = pki.Write(t, dir, name+".jks", ca.Issue(t, pki.Subject{Name: name}).JKS(t, pass+"-pass"))
		p[prefix+"ssl.keystore.password"] = ref(pass)
		if prefix != "upstream." {
			p[prefix+"ssl.truststore.location"], p[prefix+"ssl.truststore.password"] = trust, ref("trust")
		}
	}
	p["listener.name.ssl.ssl.cipher.suites"] = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	p["listener.name.ssl.ssl.client.auth"] = "required"
	s, err := ParseSidecar(p)
	if err != nil {
		t.Fatal(err)
	}
	for want, src := range map[string]certs.Source{
		"own":        s.OwnTLS("home", s.Security),
		"controller": s.OwnTLS("controllers", s.ControllerSecurity),
		"among":      s.OwnTLS("among", s.InterBrokerSecurity),
		"client":     s.RelayTLS("relay", s.Security, s.UpstreamKeystore),
		"listener":   s.ListenerTLS("SSL"),
	} {
		cfg, err := src.Load()
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := cfg.Certificates[0].Leaf.Subject.CommonName; got != want {
			t.Errorf("%s shows %s", want, got)
		}
		if files := src.Files(); len(files) != 2 || filepath.Base(files[1]) != want+".jks" {
			t.Errorf("%s: watches %v", want, files)
		}
	}
	anonymous, err := s.RelayTLS("anonymous", s.Security, nil).Load()
	if err != nil || len(anonymous.Certificates) != 0 {
		t.Errorf("who shows no certificate is relayed with one of the sidecar's: %v", err)
	}
	for key, value := range s.Security {
		if strings.Contains(value, "-pass") {
			t.Errorf("%s has a secret where a reference was", key)
		}
	}
	if got := handshake(t, s.ListenerTLS("SSL"), s.OwnTLS("home", s.Security)); got.Version != tls.VersionTLS12 || got.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 {
		t.Errorf("%s in %s", tls.CipherSuiteName(got.CipherSuite), tls.VersionName(got.Version))
	}
}

// handshake is what a listener and a client agree on.
func handshake(t *testing.T, listener, client certs.Source) tls.ConnectionState {
	t.Helper()
	served, err := certs.New(listener, nil)
	if err != nil {
		t.Fatal(err)
	}
	dials, err := certs.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(a, served.Server()).HandshakeContext(t.Context()) }()
	cfg := dials.Config().Clone()
	cfg.ServerName = "localhost"
	c := tls.Client(b, cfg)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState()
}
