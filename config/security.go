package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
)

func securityKeys() []Key {
	return []Key{
		{Name: "security.protocol", Default: "PLAINTEXT", Doc: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"},
		{Name: "sasl.mechanism", Default: "PLAIN", Doc: "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"},
		{Name: "sasl.jaas.config", Doc: "login module with username and password", secret: true},
		{Name: "ssl.truststore.type", Default: "PEM", Doc: "PEM"},
		{Name: "ssl.truststore.certificates", Doc: "trusted certificates, PEM"},
		{Name: "ssl.truststore.location", Doc: "file of trusted certificates, PEM"},
		{Name: "ssl.keystore.type", Default: "PEM", Doc: "PEM"},
		{Name: "ssl.keystore.certificate.chain", Doc: "client certificate with its chain, PEM"},
		{Name: "ssl.keystore.key", Doc: "key of the client certificate, PEM", secret: true},
		{Name: "ssl.keystore.location", Doc: "file with client certificate and key, PEM"},
		{Name: "ssl.endpoint.identification.algorithm", Default: "https", Doc: "https, or empty to accept any host name"},
		{Name: "ssl.enabled.protocols", Default: "TLSv1.2,TLSv1.3", Doc: "TLS versions"},
	}
}

// ClientOptions turns client security keys (and request.timeout.ms, client.id if
// present) into options for a franz-go client. References must be expanded before.
func ClientOptions(p Properties) ([]kgo.Opt, error) { return ClientOptionsVia(p, nil) }

// ClientOptionsVia is ClientOptions with a dialer that makes TLS' handshakes, nil for one
// that has what is read now for ever. It is not asked if there is no TLS.
func ClientOptionsVia(p Properties, d *certs.Dialer) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	protocol := strings.ToUpper(p.or("security.protocol", "PLAINTEXT"))
	var useTLS, useSASL bool
	switch protocol {
	case "PLAINTEXT":
	case "SSL":
		useTLS = true
	case "SASL_PLAINTEXT":
		useSASL = true
	case "SASL_SSL":
		useTLS, useSASL = true, true
	default:
		return nil, fmt.Errorf("security.protocol: %q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", protocol)
	}
	if useTLS && d != nil {
		opts = append(opts, kgo.Dialer(d.DialContext))
	} else if useTLS {
		cfg, err := tlsConfig(p)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if useSASL {
		m, err := saslMechanism(p)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	} else if p["sasl.jaas.config"] != "" {
		// Silence would mean to connect without the identity that was meant.
		return nil, fmt.Errorf("sasl.jaas.config is set, but security.protocol is %s; use SASL_SSL or SASL_PLAINTEXT", protocol)
	}
	if v, ok := p["request.timeout.ms"]; ok {
		d, err := parseMillis(v, 1, 1<<31-1)
		if err != nil {
			return nil, fmt.Errorf("request.timeout.ms: %w", err)
		}
		// franz-go adds the overhead to a request's own timeout, as Kafka's clients do
		// not; for requests without one it is the whole timeout.
		opts = append(opts, kgo.RequestTimeoutOverhead(max(d, 100*time.Millisecond)))
	}
	if v := p["client.id"]; v != "" {
		opts = append(opts, kgo.ClientID(v))
	}
	return opts, nil
}

// ParseClient reads a client properties file (--command-config, --source-config):
// unknown keys are ignored there, since people share these files between tools.
func ParseClient(p Properties) ([]kgo.Opt, error) { return ClientOptions(p) }

// Options returns franz-go options for the source: seeds, security, timeouts.
func (m *Mirror) Options(v Providers) ([]kgo.Opt, error) {
	p, err := v.Expand(m.Security)
	if err != nil {
		return nil, err
	}
	if err := v.readable(p); err != nil {
		return nil, err
	}
	opts, err := ClientOptions(p)
	if err != nil {
		return nil, err
	}
	return append(opts,
		kgo.SeedBrokers(m.Bootstrap...),
		kgo.RequestTimeoutOverhead(max(m.RequestTimeout, 100*time.Millisecond)),
		kgo.DialTimeout(min(m.RequestTimeout, 10*time.Second)),
	), nil
}

func (p Properties) or(key, def string) string {
	if v := strings.TrimSpace(p[key]); v != "" {
		return v
	}
	return def
}

func saslMechanism(p Properties) (sasl.Mechanism, error) {
	name := strings.ToUpper(p.or("sasl.mechanism", "PLAIN"))
	switch name {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default:
		return nil, fmt.Errorf("sasl.mechanism: %q is not supported, use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", name)
	}
	if p["sasl.jaas.config"] == "" {
		return nil, errors.New("sasl.jaas.config is required with a SASL security.protocol")
	}
	e, err := parseJAAS(p["sasl.jaas.config"])
	if err != nil {
		return nil, err
	}
	want := "PlainLoginModule"
	if name != "PLAIN" {
		want = "ScramLoginModule"
	}
	if !strings.HasSuffix(e.module, want) {
		return nil, fmt.Errorf("sasl.jaas.config: sasl.mechanism %s needs a %s", name, want)
	}
	user, okUser := e.options["username"]
	pass, okPass := e.options["password"]
	if !okUser || !okPass {
		return nil, errors.New("sasl.jaas.config: username and password are required")
	}
	token := strings.EqualFold(e.options["tokenauth"], "true")
	switch name {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass, IsToken: token}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: pass, IsToken: token}.AsSha512Mechanism(), nil
	}
	return plain.Auth{User: user, Pass: pass}.AsMechanism(), nil
}

func tlsConfig(p Properties) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, k := range []string{"ssl.truststore.type", "ssl.keystore.type"} {
		if t := p.or(k, "PEM"); !strings.EqualFold(t, "PEM") {
			return nil, fmt.Errorf("%s: %q is not supported, convert the store to PEM", k, t)
		}
	}
	trust, err := pemValue(p, "ssl.truststore.certificates", "ssl.truststore.location")
	if err != nil {
		return nil, err
	}
	if trust != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(trust)) {
			return nil, errors.New("ssl.truststore: no certificate found in the PEM text")
		}
	}
	chain, err := pemValue(p, "ssl.keystore.certificate.chain", "ssl.keystore.location")
	if err != nil {
		return nil, err
	}
	key, err := pemValue(p, "ssl.keystore.key", "ssl.keystore.location")
	if err != nil {
		return nil, err
	}
	switch {
	case chain != "" && key != "":
		if strings.Contains(key, "ENCRYPTED") {
			return nil, errors.New("ssl.keystore.key: encrypted keys are not supported; decrypt it (openssl pkcs8) and hand it over as a secret")
		}
		cert, err := tls.X509KeyPair([]byte(chain), []byte(key))
		if err != nil {
			return nil, errors.New("ssl.keystore: certificate chain and key do not form a pair")
		}
		cfg.Certificates = []tls.Certificate{cert}
	case chain != "" || key != "":
		return nil, errors.New("ssl.keystore: certificate chain and key are needed together")
	}
	if v, given := p["ssl.endpoint.identification.algorithm"]; given && strings.TrimSpace(v) == "" {
		// The name is not checked, the chain still is.
		roots := cfg.RootCAs
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("the server sent no certificate")
			}
			pool := x509.NewCertPool()
			for _, c := range cs.PeerCertificates[1:] {
				pool.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: pool})
			return err
		}
	} else if given && !strings.EqualFold(strings.TrimSpace(v), "https") {
		return nil, fmt.Errorf("ssl.endpoint.identification.algorithm: %q is neither https nor empty", v)
	}
	if err := tlsVersions(cfg, p.or("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")); err != nil {
		return nil, err
	}
	return cfg, nil
}

func tlsVersions(cfg *tls.Config, list string) error {
	lo, hi := uint16(0xffff), uint16(0)
	for _, v := range SplitList(list) {
		var n uint16
		switch v {
		case "TLSv1.2":
			n = tls.VersionTLS12
		case "TLSv1.3":
			n = tls.VersionTLS13
		default:
			return fmt.Errorf("ssl.enabled.protocols: %q is neither TLSv1.2 nor TLSv1.3", v)
		}
		lo, hi = min(lo, n), max(hi, n)
	}
	cfg.MinVersion, cfg.MaxVersion = lo, hi
	return nil
}

// pemValue returns the PEM text of a key or of the file another key names.
func pemValue(p Properties, inline, location string) (string, error) {
	if v := p[inline]; v != "" {
		return normalisePEM(inline, v)
	}
	path := p[location]
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", location, err)
	}
	return normalisePEM(location, string(b))
}

// normalisePEM breaks lines where a properties file has joined them: PEM pasted into
// one line, blanks for line breaks, is what Kafka accepts.
func normalisePEM(key, text string) (string, error) {
	var b strings.Builder
	rest := text
	for {
		_, after, found := strings.Cut(rest, "-----BEGIN ")
		if !found {
			break
		}
		label, after, found := strings.Cut(after, "-----")
		if !found {
			return "", fmt.Errorf("%s: broken PEM text", key)
		}
		body, after, found := strings.Cut(after, "-----END "+label+"-----")
		if !found {
			return "", fmt.Errorf("%s: PEM block %q does not end", key, label)
		}
		block := "-----BEGIN " + label + "-----\n" + strings.Join(strings.Fields(body), "\n") + "\n-----END " + label + "-----\n"
		if parsed, _ := pem.Decode([]byte(block)); parsed == nil {
			return "", fmt.Errorf("%s: PEM block %q cannot be decoded", key, label)
		}
		b.WriteString(block)
		rest = after
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("%s: no PEM block found (JKS and PKCS12 stores must be converted to PEM)", key)
	}
	return b.String(), nil
}
