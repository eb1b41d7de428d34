package config

import (
	"crypto/tls"
	"maps"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

func TestListeners(t *testing.T) {
	ca := pki.NewCA(t, "ca")
	dir := t.TempDir()
	mine := pki.Write(t, dir, "mine.pem", ca.Issue(t, pki.Subject{Name: "mine"}).Store)
	clients := pki.Write(t, dir, "clients.pem", ca.Issue(t, pki.Subject{Name: "clients"}).Store)
	trust := pki.Write(t, dir, "trust.pem", ca.PEM())
	base := func(more Properties) Properties {
		p := minimal()
		p["listeners"] = "CLIENT://:9092,SSL://:9093,plain://:9094"
		p["listener.name.client.ssl.keystore.location"] = clients
		p["ssl.keystore.location"], p["ssl.truststore.location"] = mine, trust
		p["listener.security.protocol.map"] = "CLIENT:SSL,CONTROLLER:SASL_SSL"
		maps.Copy(p, more)
		return p
	}
	s, err := ParseSidecar(base(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		protocol Protocol
		shown    string
	}{"CLIENT": {SSL, "clients"}, "SSL": {SSL, "mine"}, "PLAIN": {Plaintext, "mine"}} {
		if p := s.Protocol(name); p != want.protocol {
			t.Errorf("%s is %s", name, p)
		}
		cfg, err := s.ListenerTLS(name).Load()
		if err != nil {
			t.Fatal(err)
		}
		if cfg.ClientAuth != tls.NoClientCert || cfg.MinVersion != tls.VersionTLS12 || cfg.Certificates[0].Leaf.Subject.CommonName != want.shown {
			t.Errorf("%s: %+v", name, cfg)
		}
	}
	for name, c := range map[string]struct {
		more Properties
		want string
	}{
		"no file":                {Properties{"listener.name.ssl.ssl.keystore.location": dir + "/none.pem"}, "none.pem"},
		"no key":                 {Properties{"listener.name.ssl.ssl.keystore.certificate.chain": ca.PEM()}, "together"},
		"a type alone":           {Properties{"listener.name.client.ssl.keystore.type": "JKS"}, "set ssl.keystore.type=PEM"},
		"a typo":                 {Properties{"listener.name.client.ssl.keystore.locaton": mine}, "listener.name.<name>.ssl.keystore.location"},
		"client auth":            {Properties{"ssl.client.auth": "maybe"}, "requested"},
		"nobody to relay as":     {Properties{"ssl.client.auth": "required"}, "upstream.ssl.keystore.location"},
		"relayed as the sidecar": {Properties{"upstream.ssl.keystore.location": mine}, "sidecar's own identity"},
		"SASL on one side":       {Properties{"listener.security.protocol.map": "CLIENT:SASL_SSL"}, "SASL passes through"},
		"upstream protocol":      {Properties{"listener.name.client.security.protocol": "TLS"}, "listener.name.client.security.protocol"},
		"SASL behind":            {Properties{"listener.name.client.security.protocol": "SASL_SSL"}, "SASL passes through"},
		"protocol":               {Properties{"listener.security.protocol.map": "CLIENT:TLS"}, "SASL_SSL"},
	} {
		if _, err := ParseSidecar(base(c.more)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	required := Properties{"ssl.client.auth": "required", "upstream.ssl.keystore.location": clients}
	if s, err = ParseSidecar(base(required)); err != nil {
		t.Fatal(err)
	}
	if cfg, err := s.ListenerTLS("CLIENT").Load(); err != nil || cfg.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Errorf("client auth: %v", err)
	}
	// The system's authorities give certificates to everybody.
	delete(required, "ssl.truststore.location")
	p := base(required)
	delete(p, "ssl.truststore.location")
	if _, err := ParseSidecar(p); err == nil || !strings.Contains(err.Error(), "whose certificates are accepted") {
		t.Errorf("no trust: %v", err)
	}
}

func TestInterBrokerSecurity(t *testing.T) {
	p := minimal()
	p["security.protocol"], p["sasl.jaas.config"] = "SASL_SSL", "PlainLoginModule required username=u password=p;"
	p["inter.broker.security.protocol"] = "SSL"
	s, err := ParseSidecar(p)
	if err != nil {
		t.Fatal(err)
	}
	if s.HomeProtocol() != SASLSSL || s.InterBrokerProtocol() != SSL || s.ControllerProtocol() != SASLSSL {
		t.Error(s.HomeProtocol(), s.InterBrokerProtocol(), s.ControllerProtocol())
	}
	if s.InterBrokerSecurity["sasl.jaas.config"] != "" || s.ControllerSecurity["sasl.jaas.config"] == "" {
		t.Error("a login goes where there is none, or not where there is one")
	}
}
