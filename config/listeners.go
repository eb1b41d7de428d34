package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
)

// Prefixes of keys that hold for one listener, and for what is relayed upstream.
const (
	listenerPrefix    = "listener.name."
	upstreamPrefix    = "upstream."
	interBrokerPrefix = "inter.broker."
)

// Protocol is one of Kafka's four security protocols.
type Protocol string

// Kafka's security protocols.
const (
	Plaintext     Protocol = "PLAINTEXT"
	SSL           Protocol = "SSL"
	SASLPlaintext Protocol = "SASL_PLAINTEXT"
	SASLSSL       Protocol = "SASL_SSL"
)

// TLS tells whether the protocol has TLS.
func (p Protocol) TLS() bool { return p == SSL || p == SASLSSL }

// SASL tells whether callers log in with SASL.
func (p Protocol) SASL() bool { return p == SASLPlaintext || p == SASLSSL }

func parseProtocol(v string) (Protocol, error) {
	p := Protocol(strings.ToUpper(strings.TrimSpace(v)))
	switch p {
	case Plaintext, SSL, SASLPlaintext, SASLSSL:
		return p, nil
	}
	return "", fmt.Errorf("%q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", v)
}

// parseProtocolMap reads listener.security.protocol.map as brokers have it, so that it may
// name listeners that are not the sidecar's.
func parseProtocolMap(v string) (map[string]Protocol, error) {
	out := map[string]Protocol{}
	for _, item := range SplitList(v) {
		name, value, found := strings.Cut(item, ":")
		if !found {
			return nil, fmt.Errorf("%q is not NAME:PROTOCOL", item)
		}
		p, err := parseProtocol(value)
		if err != nil {
			return nil, err
		}
		name = strings.ToUpper(strings.TrimSpace(name))
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("listener %s is given twice", name)
		}
		out[name] = p
	}
	return out, nil
}

// listenerKeys are the keys that a listener may have of its own.
func listenerKeys() []string {
	return slices.Concat(keystoreKeys(), truststoreKeys(), []string{"ssl.enabled.protocols", "ssl.cipher.suites", keyClientAuth, keyProtocol})
}

const (
	keyClientAuth = "ssl.client.auth"
	keyProtocol   = "security.protocol"
)

// UpstreamProtocol is that of the home broker's listener to which a client listener relays:
// listener.name.<name>.security.protocol, where it is not the one at home.broker.bootstrap.
func (s *Sidecar) UpstreamProtocol(listener string) Protocol {
	if own := s.ListenerSecurity[strings.ToLower(listener)]; own[keyProtocol] != "" {
		return protocolOf(own)
	}
	return s.HomeProtocol()
}

// HomeProtocol is the protocol of the broker's listener at home.broker.bootstrap.
func (s *Sidecar) HomeProtocol() Protocol { return protocolOf(s.Security) }

// InterBrokerProtocol is that of the listener that brokers use among themselves.
func (s *Sidecar) InterBrokerProtocol() Protocol { return protocolOf(s.InterBrokerSecurity) }

// ControllerProtocol is that of the controllers.
func (s *Sidecar) ControllerProtocol() Protocol { return protocolOf(s.ControllerSecurity) }

func protocolOf(p Properties) Protocol {
	protocol, err := parseProtocol(p.or("security.protocol", string(Plaintext)))
	if err != nil {
		return Plaintext // refused when it was parsed
	}
	return protocol
}

// inherit fills in what keys with a prefix leave open. Where they say that there is no SASL,
// a login for elsewhere is not meant. An own certificate, an own trust and an own login are each taken whole: what is
// mixed would be somebody else's.
func inherit(own, from Properties) {
	noSASL := own["security.protocol"] != "" && !protocolOf(own).SASL()
	var taken []string
	for _, group := range [][]string{keystoreKeys(), truststoreKeys()} {
		// A type alone is no store.
		if slices.ContainsFunc(group, func(k string) bool { return own[k] != "" && !strings.HasSuffix(k, ".type") }) {
			taken = append(taken, group...)
		}
	}
	if own["sasl.jaas.config"] != "" {
		taken = append(taken, keyClientID, keyClientSecret, keyScope)
	}
	for k, v := range from {
		if _, given := own[k]; !given && !slices.Contains(taken, k) && !(noSASL && strings.HasPrefix(k, "sasl.")) {
			own[k] = v
		}
	}
}

// Protocol is that of a client listener: what the map says, else what its name says, else
// without TLS. Whether there is SASL is for the home broker to say.
func (s *Sidecar) Protocol(listener string) Protocol {
	if p, ok := s.ListenerProtocols[listener]; ok {
		return p
	}
	if p, err := parseProtocol(listener); err == nil {
		return p
	}
	return Plaintext
}

// listenerTLS are a listener's keys. As in a broker's file, keys without a prefix are for
// whoever has none of his own; an own certificate and an own trust are each taken whole.
func (s *Sidecar) listenerTLS(listener string, def Properties, auth string) Properties {
	own := s.ListenerSecurity[strings.ToLower(listener)]
	out := Properties{}
	for _, group := range [][]string{keystoreKeys(), truststoreKeys(), {"ssl.enabled.protocols"}, {"ssl.cipher.suites"}, {keyClientAuth}} {
		from := own
		if !slices.ContainsFunc(group, func(k string) bool { _, given := own[k]; return given }) {
			from = def
			if group[0] == keyClientAuth {
				from = Properties{keyClientAuth: auth}
			}
		}
		for k, v := range from {
			if slices.Contains(group, k) {
				out[k] = v
			}
		}
	}
	return out
}

// ListenerTLS says where a client listener's TLS settings come from.
func (s *Sidecar) ListenerTLS(listener string) certs.Source {
	return serverSource(listener, s.Live(s.listenerTLS(listener, s.Security, s.ClientAuth)))
}

// VirtualTLS is ListenerTLS of a listener of the virtual broker. Who is to be told by his
// certificate is asked for it.
func (s *Sidecar) VirtualTLS(listener string) certs.Source {
	auth := s.ClientAuth
	if len(s.ReplicaPrincipals) > 0 && auth == "none" {
		auth = "requested"
	}
	return serverSource(listener, s.Live(s.listenerTLS(listener, s.InterBrokerSecurity, auth)))
}

func serverSource(listener string, l *Live) certs.Source {
	return liveSource("listener "+listener, l, func(p Properties) (*tls.Config, error) {
		cfg, err := serverConfig(p)
		if err != nil {
			return nil, fmt.Errorf("%s%s.*, or without the prefix: %w", listenerPrefix, strings.ToLower(listener), err)
		}
		return cfg, nil
	})
}

// OwnTLS are the settings with which the sidecar itself connects: p is one of Security,
// InterBrokerSecurity and ControllerSecurity.
func (s *Sidecar) OwnTLS(name string, p Properties) certs.Source {
	return clientSource(name, s.Live(p))
}

// RelayTLS are the settings with which clients are relayed: own without the sidecar's
// certificate, whose rights are not theirs, and with another one, if any.
func (s *Sidecar) RelayTLS(name string, own, keystore Properties) certs.Source {
	p := maps.Clone(keystore)
	if p == nil {
		p = Properties{}
	}
	for k, v := range own {
		if !slices.Contains(keystoreKeys(), k) {
			p[k] = v
		}
	}
	return clientSource(name, s.Live(p))
}

func clientSource(name string, l *Live) certs.Source {
	return liveSource(name, l, func(p Properties) (*tls.Config, error) {
		cfg, err := tlsConfig(p)
		if err == nil {
			// Each client's connection has a handshake of its own; a resumed one is cheap.
			cfg.ClientSessionCache = tls.NewLRUClientSessionCache(64)
		}
		return cfg, err
	})
}

// liveSource are settings that are read anew when a file changes, or what the keys refer to.
func liveSource(name string, l *Live, build func(Properties) (*tls.Config, error)) certs.Source {
	return certs.Source{
		Name: name, Stamp: l.stamp,
		Files: func() []string {
			p, _, err := l.Now()
			if err != nil {
				return nil
			}
			return tlsFiles(p)
		},
		Load: func() (*tls.Config, error) {
			p, _, err := l.Now()
			if err != nil {
				return nil, err
			}
			return build(p)
		},
	}
}

// tlsFiles are the files that TLS settings are read from.
func tlsFiles(p Properties) []string {
	var out []string
	for _, k := range []string{"ssl.truststore.location", "ssl.keystore.location"} {
		if v := strings.TrimSpace(p[k]); v != "" {
			out = append(out, v)
		}
	}
	return out
}

func clientAuth(p Properties) (tls.ClientAuthType, error) {
	switch v := strings.ToLower(p.or(keyClientAuth, "none")); v {
	case "none":
		return tls.NoClientCert, nil
	case "requested":
		return tls.VerifyClientCertIfGiven, nil
	case "required":
		return tls.RequireAndVerifyClientCert, nil
	default:
		return 0, fmt.Errorf("%s: %q is none of none, requested, required", keyClientAuth, v)
	}
}

// serverConfig turns a listener's keys into settings of a TLS server.
func serverConfig(p Properties) (*tls.Config, error) {
	cfg, err := tlsConfig(p)
	if err != nil {
		return nil, err
	}
	if len(cfg.Certificates) == 0 {
		return nil, errors.New("a listener with TLS needs a certificate: ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key")
	}
	auth, err := clientAuth(p)
	if err != nil {
		return nil, err
	}
	if auth != tls.NoClientCert && cfg.RootCAs == nil {
		// The system's authorities give certificates to everybody.
		return nil, fmt.Errorf("%s: ssl.truststore.location or ssl.truststore.certificates must say whose certificates are accepted", keyClientAuth)
	}
	return &tls.Config{
		Certificates: cfg.Certificates, ClientCAs: cfg.RootCAs, ClientAuth: auth,
		MinVersion: cfg.MinVersion, MaxVersion: cfg.MaxVersion, CipherSuites: cfg.CipherSuites,
		// Small first records make a web page show sooner; here they are so many more system calls.
		DynamicRecordSizingDisabled: true,
	}, nil
}

// takeListenerKey keeps listener.name.<name>.<key> and tells whether there is such a key.
func (s *Sidecar) takeListenerKey(key, value string) bool {
	rest, ok := strings.CutPrefix(key, listenerPrefix)
	if !ok {
		return false
	}
	name, bare, _ := strings.Cut(rest, ".")
	if name == "" || !slices.Contains(listenerKeys(), bare) {
		return false
	}
	name = strings.ToLower(name)
	if s.ListenerSecurity[name] == nil {
		s.ListenerSecurity[name] = Properties{}
	}
	s.ListenerSecurity[name][bare] = value
	return true
}

// CheckListener looks at the security of a client listener.
func (s *Sidecar) CheckListener(name string) error {
	if v := s.ListenerSecurity[strings.ToLower(name)][keyProtocol]; v != "" {
		if _, err := parseProtocol(v); err != nil {
			return fmt.Errorf("%s%s.%s: %w", listenerPrefix, strings.ToLower(name), keyProtocol, err)
		}
	}
	upstream := s.UpstreamProtocol(name)
	if p, mapped := s.ListenerProtocols[name]; mapped && p.SASL() != upstream.SASL() {
		return fmt.Errorf("listener.security.protocol.map: %s is %s, but the home broker's listener is %s (security.protocol): SASL passes through, so both have it or neither", name, p, upstream)
	}
	if !s.Protocol(name).TLS() {
		return nil
	}
	cfg, err := s.ListenerTLS(name).Load()
	if err != nil {
		return err
	}
	if cfg.ClientAuth != tls.NoClientCert && !upstream.SASL() && len(s.UpstreamKeystore) == 0 {
		return fmt.Errorf("%s of listener %s: who a client's certificate says it is does not reach the broker; give SASL_SSL, or an identity with few rights for all of them (%sssl.keystore.location)", keyClientAuth, name, upstreamPrefix)
	}
	return nil
}

// checkListeners looks at what can be known of the listeners without the cluster.
func (s *Sidecar) checkListeners() error {
	var errs []error
	for _, l := range s.Listeners {
		if err := s.CheckListener(l.NameOr(DefaultListener)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(s.UpstreamKeystore) > 0 {
		up, err := s.RelayTLS("upstream", s.Security, s.UpstreamKeystore).Load()
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("%sssl.keystore.*: %w", upstreamPrefix, err))...)
		}
		own, err := s.OwnTLS("own", s.Security).Load()
		if err == nil && len(own.Certificates) > 0 && len(up.Certificates) > 0 && sameSubject(own.Certificates[0], up.Certificates[0]) {
			errs = append(errs, fmt.Errorf("%sssl.keystore.*: it is the sidecar's own identity, whose rights every client would have", upstreamPrefix))
		}
	}
	return errors.Join(errs...)
}

func sameSubject(a, b tls.Certificate) bool {
	x, errX := x509.ParseCertificate(a.Certificate[0])
	y, errY := x509.ParseCertificate(b.Certificate[0])
	return errX == nil && errY == nil && certs.Principal(x) == certs.Principal(y)
}
