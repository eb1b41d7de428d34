package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
)

const mechanismNames = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"

func securityKeys() []Key {
	return slices.Concat([]Key{
		{Name: "security.protocol", Default: "PLAINTEXT", Doc: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"},
		{Name: "sasl.mechanism", Default: "PLAIN", Doc: mechanismNames},
		{Name: "sasl.jaas.config", Doc: "login module with username and password, or what OAUTHBEARER needs", secret: true},
	}, oauthKeys(), tlsKeys())
}

// ClientOptions turns client security keys (and request.timeout.ms, client.id if
// present) into options for a franz-go client. References must be expanded before.
func ClientOptions(p Properties) ([]kgo.Opt, error) { return ClientOptionsVia(Fixed(p), nil) }

// ClientOptionsVia is ClientOptions with keys whose secrets are read anew for new connections, and
// with a dialer that makes TLS' handshakes, nil for one that has what is read now for ever. It is not
// asked if there is no TLS.
func ClientOptionsVia(l *Live, d *certs.Dialer) ([]kgo.Opt, error) {
	p, version, err := l.Now()
	if err != nil {
		return nil, err
	}
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
		m, err := l.mechanism(p)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(newLiveMechanism(l, m, version)))
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
// References in the keys that count are read with the rights of whoever runs the tool.
func ParseClient(p Properties) ([]kgo.Opt, error) {
	own := Properties{}
	for k, v := range p {
		if isSecurityKey(k) || k == "request.timeout.ms" || k == "client.id" {
			own[k] = v
		}
	}
	own, err := CallersProviders().Expand(own)
	if err != nil {
		return nil, err
	}
	return ClientOptions(own)
}

// Options returns franz-go options for the source: seeds, security, timeouts.
func (m *Mirror) Options(v Providers) ([]kgo.Opt, error) {
	stored, err := OpenSecrets(v.Keys, m.Name, m.Security)
	if err != nil {
		return nil, err
	}
	l := v.Live(stored)
	l.check = v.readable
	p, _, err := l.Now()
	if err != nil {
		return nil, err
	}
	var d *certs.Dialer
	if protocolOf(p).TLS() {
		src := clientSource("connections to "+strings.Join(m.Bootstrap, ","), l)
		src.Brief = true
		d = &certs.Dialer{Timeout: min(m.RequestTimeout, 10*time.Second)}
		if d.TLS, err = certs.New(src, v.Log); err != nil {
			return nil, err
		}
	}
	opts, err := ClientOptionsVia(l, d)
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

// mechanism makes what p logs in with. Who may not read every file may not read every token either.
func (l *Live) mechanism(p Properties) (sasl.Mechanism, error) {
	files := CallersProviders()
	if l.check != nil {
		files = l.providers
	}
	return saslMechanism(p, files)
}

func saslMechanism(p Properties, files Providers) (sasl.Mechanism, error) {
	name := strings.ToUpper(p.or("sasl.mechanism", "PLAIN"))
	switch name {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	case "OAUTHBEARER":
		return oauthMechanism(p, files)
	default:
		return nil, fmt.Errorf("sasl.mechanism: %q is not supported, use %s", name, mechanismNames)
	}
	if p["sasl.jaas.config"] == "" {
		return nil, fmt.Errorf("sasl.jaas.config is required with a SASL security.protocol: set it to <login module> required username=\"…\" password=\"…\"; for sasl.mechanism %s", name)
	}
	e, err := parseJAAS(p["sasl.jaas.config"])
	if err != nil {
		return nil, err
	}
	module := "PlainLoginModule"
	if name != "PLAIN" {
		module = "ScramLoginModule"
	}
	if err := needsModule(e, name, module); err != nil {
		return nil, err
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
	if token {
		return nil, errors.New("sasl.jaas.config: tokenauth logs in with a delegation token, which needs sasl.mechanism SCRAM-SHA-256 or SCRAM-SHA-512 and a ScramLoginModule")
	}
	return plain.Auth{User: user, Pass: pass}.AsMechanism(), nil
}

// needsModule refuses a login module of another mechanism: what it holds was not meant for this one.
func needsModule(e jaasEntry, mechanism, module string) error {
	if e.module == module || strings.HasSuffix(e.module, "."+module) {
		return nil
	}
	hint := ""
	for m, names := range map[string]string{"PlainLoginModule": "PLAIN", "ScramLoginModule": "SCRAM-SHA-256 or SCRAM-SHA-512", "OAuthBearerLoginModule": "OAUTHBEARER"} {
		if strings.HasSuffix(e.module, "."+m) {
			hint = "; with the one that is there, set sasl.mechanism to " + names
		}
	}
	return fmt.Errorf("sasl.jaas.config: sasl.mechanism %s needs a %s%s", mechanism, module, hint)
}
