package security

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/certs"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/proxy"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// patience bounds every wait: CI's machines are slow.
const patience = 60 * time.Second

// sessionLifetime is how long a session of renewed lasts, connections.max.reauth.ms.
const (
	sessionLifetime = 4 * time.Second
	renewed         = "SCRAM-SHA-512"
)

const (
	userClient  = "alice"
	userSidecar = "sidecar"
	userBroker  = "broker"
	topic       = "logins"
)

func password(user string) string { return user + "-secret" }

// mechanisms are those that every listener accepts.
func mechanisms() []string { return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} }

// mechanism logs in with Go.
func mechanism(name, user, pass string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: pass}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: pass}.AsSha512Mechanism()
	}
	// A token that nobody signed, which is what brokers without a key accept.
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, now.Unix()-1, now.Add(time.Hour).Unix())
	return oauth.Auth{Token: part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "."}.AsMechanism()
}

// jaas logs in with Java.
func jaas(name, user, pass string) string {
	const common = "org.apache.kafka.common.security."
	switch name {
	case "PLAIN":
		return fmt.Sprintf(common+`plain.PlainLoginModule required username=%q password=%q;`, user, pass)
	case "OAUTHBEARER":
		return fmt.Sprintf(common+`oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=%q;`, user)
	}
	return fmt.Sprintf(common+`scram.ScramLoginModule required username=%q password=%q;`, user, pass)
}

// keys are Java's client properties.
func keys(mech, user, pass string, trust string) map[string]string {
	p := map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mech, "sasl.jaas.config": jaas(mech, user, pass),
		"client.id": "test-" + strings.ToLower(mech),
	}
	if trust != "" {
		p["security.protocol"] = "SASL_SSL"
		p["ssl.truststore.type"], p["ssl.truststore.location"] = "PEM", trust
	}
	return p
}

// route is one way from a client to the broker.
type route struct {
	name   string
	addr   string
	secure bool // towards the client
}

type env struct {
	ca    *pki.CA
	trust string // the authority's file
	store string // the sidecar's own certificate, the listener's too
	src   *harness.Cluster
	dst   *stack.Stack
	// routes are by a sidecar, and by proxies of the test's own: with and without TLS on either side.
	routes []route
}

// server are the security properties of a destination's nodes: clients come without TLS, brokers
// and controllers with it.
func server(store, trust string) map[string]string {
	p := map[string]string{
		"listener.security.protocol.map":       "INTERNAL:SASL_SSL,CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_SSL",
		"ssl.keystore.type":                    "PEM",
		"ssl.keystore.location":                store,
		"ssl.truststore.type":                  "PEM",
		"ssl.truststore.location":              trust,
		"sasl.enabled.mechanisms":              strings.Join(mechanisms(), ","),
		"sasl.mechanism.inter.broker.protocol": "PLAIN",
		"sasl.mechanism.controller.protocol":   "PLAIN",
		"delegation.token.secret.key":          "a-key",
		"authorizer.class.name":                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found":       "true",
		"super.users":                          "User:" + userBroker + ";User:" + userSidecar,
	}
	login := fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password=%q`, userBroker, password(userBroker))
	for _, u := range []string{userBroker, userSidecar, userClient} {
		login += fmt.Sprintf(` user_%s=%q`, u, password(u))
	}
	for _, l := range []string{"internal", "client", "controller"} {
		p["listener.name."+l+".plain.sasl.jaas.config"] = login + ";"
		p["listener.name."+l+".scram-sha-256.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		p["listener.name."+l+".scram-sha-512.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		p["listener.name."+l+".oauthbearer.sasl.jaas.config"] = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
	}
	p["listener.name.client."+strings.ToLower(renewed)+".connections.max.reauth.ms"] = strconv.FormatInt(sessionLifetime.Milliseconds(), 10)
	return p
}

// scramUsers are arguments of the format tool.
func scramUsers() []string {
	var out []string
	for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		out = append(out, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, userClient, password(userClient)))
	}
	return out
}

// start starts a source, and a destination of one broker with a sidecar: with TLS towards
// clients and without to the home broker, with TLS at the virtual listener on both sides.
func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	dir := t.TempDir()
	e := &env{ca: pki.NewCA(t, "test authority")}
	e.trust = pki.Write(t, dir, "trust.pem", e.ca.PEM())
	e.store = pki.Write(t, dir, "sidecar.pem", e.ca.Issue(t, pki.Subject{Name: "sidecar"}).Store)
	broker := pki.Write(t, dir, "broker.pem", e.ca.Issue(t, pki.Subject{Name: "broker"}).Store)
	e.run(t, stack.Config{
		Kafka: harness.Config{
			Properties: server(broker, e.trust), Format: scramUsers(),
			ClientOpts: []kgo.Opt{e.dialer(), kgo.SASL(mechanism("PLAIN", userBroker, password(userBroker)))},
		},
		Sidecar: map[string]string{
			"security.protocol":                            "SASL_PLAINTEXT",
			"sasl.mechanism":                               "PLAIN",
			"sasl.jaas.config":                             jaas("PLAIN", userSidecar, password(userSidecar)),
			"inter.broker.security.protocol":               "SASL_SSL",
			"controller.security.protocol":                 "SASL_SSL",
			"ssl.truststore.location":                      e.trust,
			"listener.security.protocol.map":               "CLIENT:SASL_SSL",
			"listener.name.client.ssl.keystore.location":   e.store,
			"listener.name.internal.ssl.keystore.location": e.store,
		},
	})
	home := e.dst.Cluster.Brokers()[0]
	e.routes = []route{
		{name: "TLS+PLAINTEXT", addr: e.dst.Proxies()[0], secure: true},
		{name: "PLAINTEXT+PLAINTEXT", addr: e.ownProxy(t, false, home.Addr(harness.ListenerClient), false)},
		{name: "PLAINTEXT+TLS", addr: e.ownProxy(t, false, home.Addr(harness.ListenerInternal), true)},
		{name: "TLS+TLS", addr: e.ownProxy(t, true, home.Addr(harness.ListenerInternal), true), secure: true},
	}
	return e
}

// run starts a source, and a destination with its sidecars, of one broker unless more are asked for.
func (e *env) run(t *testing.T, cfg stack.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log})
		return err
	})
	group.Go(func() (err error) {
		cfg.Kafka.Name, cfg.Kafka.Brokers, cfg.Kafka.Log, cfg.Bin = "destination", max(1, cfg.Kafka.Brokers), log, stack.Binaries()
		e.dst, err = stack.Start(ctx, cfg)
		return err
	})
	err := group.Wait()
	t.Cleanup(func() {
		if e.src != nil {
			if err := e.src.Stop(); err != nil {
				t.Error(err)
			}
		}
		if e.dst == nil {
			return
		}
		if t.Failed() {
			for _, c := range e.dst.Sidecars {
				t.Logf("sidecar %d:\n%s", c.Broker, c.LogTail())
			}
			if e.dst.Cluster != nil {
				for _, n := range e.dst.Cluster.Nodes() {
					t.Logf("the end of the log of %s:\n%s", n, n.LogTail())
				}
			}
		}
		if err := e.dst.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dialer lets a Go client make TLS' handshakes.
func (e *env) dialer() kgo.Opt {
	return kgo.DialTLSConfig(&tls.Config{RootCAs: e.ca.Pool()})
}

// noMirrors is of a destination without mirrors.
type noMirrors struct{}

func (noMirrors) MirrorOf(ids.UUID) (string, bool)                 { return "", false }
func (noMirrors) ReadOnly(ids.TopicPartition) bool                 { return false }
func (noMirrors) Recorded(ids.UUID) bool                           { return false }
func (noMirrors) Stray(ids.TopicPartition) (stray bool, sure bool) { return false, true }

// ownProxy starts a proxy in front of one of the home broker's listeners.
func (e *env) ownProxy(t *testing.T, secure bool, upstream string, upstreamSecure bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	image := metadata.NewImage(stack.VirtualOffset)
	cfg := proxy.Config{
		Name: "OWN", IDs: stack.VirtualOffset, Home: e.dst.Sidecars[0].Broker,
		Hosts: map[int32]proxy.HostPort{e.dst.Sidecars[0].Broker: {Host: host, Port: int32(n)}},
		Dial:  proxy.Dialer(func() []string { return []string{upstream} }, nil),
	}
	if secure {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{e.ca.Issue(t, pki.Subject{Name: "own"}).TLS(t)}, MinVersion: tls.VersionTLS12}
	}
	if upstreamSecure {
		w, err := certs.New(certs.Source{Name: "upstream", Load: func() (*tls.Config, error) { return &tls.Config{RootCAs: e.ca.Pool()}, nil }}, log)
		if err != nil {
			t.Fatal(err)
		}
		with := &certs.Dialer{TLS: w}
		cfg.Dial = proxy.Dialer(func() []string { return []string{upstream} }, func(context.Context) (*certs.Dialer, error) { return with, nil })
	}
	leaders := proxy.NewLeaders(image, stack.VirtualOffset)
	p, err := proxy.New(cfg, proxy.Deps{View: image, Mirrors: noMirrors{}, Leaders: leaders, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = p.Stop(ctx) // clients that are left are closed
		leaders.Close()
	})
	return ln.Addr().String()
}

// client is a Go client of a route.
func (e *env) client(t *testing.T, r route, m sasl.Mechanism, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := []kgo.Opt{kgo.SeedBrokers(r.addr), kgo.SASL(m), kgo.DisableClientMetrics(), kgo.RequestTimeoutOverhead(patience)}
	if r.secure {
		all = append(all, e.dialer())
	}
	cl, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// propertiesFile writes Java's client properties.
func propertiesFile(t *testing.T, dir, name string, p map[string]string) string {
	t.Helper()
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	file := filepath.Join(dir, name+".properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
