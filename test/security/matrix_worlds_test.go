package security

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// speech is how everybody of a world speaks to everybody: a protocol, and a mechanism or certificates.
type speech struct {
	protocol  string
	mechanism string // of SASL
	mutual    bool   // TLS with certificates of clients
	stores    string // where sidecar 2 has its certificates: PEM, JKS or PKCS12; inline PEM at sidecar 1
}

func speeches() []speech {
	return []speech{
		{protocol: "PLAINTEXT"},
		{protocol: "SSL", stores: "PEM"},
		{protocol: "SSL", mutual: true, stores: "PKCS12"},
		{protocol: "SASL_PLAINTEXT", mechanism: "PLAIN"},
		{protocol: "SASL_PLAINTEXT", mechanism: "SCRAM-SHA-256"},
		{protocol: "SASL_PLAINTEXT", mechanism: "SCRAM-SHA-512"},
		{protocol: "SASL_PLAINTEXT", mechanism: "OAUTHBEARER"},
		{protocol: "SASL_SSL", mechanism: "PLAIN", stores: "JKS"},
		{protocol: "SASL_SSL", mechanism: "SCRAM-SHA-256", stores: "PEM"},
		{protocol: "SASL_SSL", mechanism: "SCRAM-SHA-512", stores: "PKCS12"},
		{protocol: "SASL_SSL", mechanism: "OAUTHBEARER", stores: "JKS"},
	}
}

func (s speech) tls() bool  { return strings.HasSuffix(s.protocol, "SSL") }
func (s speech) sasl() bool { return strings.HasPrefix(s.protocol, "SASL") }

func (s speech) String() string {
	switch {
	case s.mutual:
		return s.protocol + " mutual TLS"
	case s.mechanism == "OAUTHBEARER":
		return s.protocol + " OAUTHBEARER credentials and file"
	case s.sasl():
		return s.protocol + " " + s.mechanism
	}
	return s.protocol
}

// world are two clusters and two sidecars that speak in one way.
type world struct {
	env
	speech
	dir      string
	stranger *pki.CA // nobody trusts it
	idp      *httptest.Server
}

const storePassword = "store-secret"

// startWorld starts it. Sidecar 1 logs in with client credentials and sidecar 2 with a file where there are tokens.
func startWorld(t *testing.T, s speech, brokers int) *world {
	t.Helper()
	w := &world{speech: s, dir: t.TempDir(), stranger: pki.NewCA(t, "stranger")}
	w.ca = pki.NewCA(t, "authority")
	w.trust = pki.Write(t, w.dir, "trust.pem", w.ca.PEM())
	pki.Write(t, w.dir, "stranger-trust.pem", w.stranger.PEM())
	broker := pki.Write(t, w.dir, "broker.pem", w.ca.Issue(t, pki.Subject{Name: "broker"}).Store)
	w.startIDP(t)
	opts, err := config.ParseClient(w.keys(t, userBroker, false, 1))
	if err != nil {
		t.Fatal(err)
	}
	cluster := harness.Config{Properties: w.server(broker), Format: w.scram(), ClientOpts: opts, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	w.together(t, func(ctx context.Context) (err error) {
		c := cluster
		c.Name, c.Brokers = "source", 1
		w.src, err = harness.Start(ctx, c)
		return err
	}, func(ctx context.Context) (err error) {
		c := cluster
		c.Name, c.Brokers = "destination", brokers
		w.dst, err = stack.Start(ctx, stack.Config{Kafka: c, Bin: stack.Binaries(), EachSidecar: func(c *stack.Sidecar) map[string]string { return w.sidecar(t, int(c.Broker)) }})
		return err
	})
	return w
}

// sidecar are the keys of one: every link from it speaks as the world does, each under a prefix of its own so that
// it can be given wrong ones alone.
func (w *world) sidecar(t *testing.T, n int) map[string]string {
	p := map[string]string{
		"listener.security.protocol.map":   "CLIENT:" + w.protocol,
		"config.providers.allowed.paths":   w.dir,
		"mirror.oauthbearer.allowed.urls":  w.idp.URL,
		"mirror.replica.principals":        "User:CN=broker;User:CN=sidecar;User:CN=operator",
		"mirror.failed.retry.max.attempts": "0",
	}
	keys := w.keys(t, userSidecar, false, n)
	for _, prefix := range []string{"", "controller.", "inter.broker."} {
		for k, v := range keys {
			p[prefix+k] = v
		}
	}
	if !w.mutual {
		delete(p, "mirror.replica.principals")
	} else {
		p["ssl.client.auth"] = "required"
		p["upstream.ssl.keystore.location"] = pki.Write(t, w.dir, "clients.pem", w.ca.Issue(t, pki.Subject{Name: "clients"}).Store)
	}
	if w.tls() {
		maps.Copy(p, w.own(t, userSidecar, n, w.ca))
	}
	return p
}

// own are keys of a certificate, in the form that user n has it.
func (w *world) own(t *testing.T, user string, n int, ca *pki.CA) map[string]string {
	t.Helper()
	c := ca.Issue(t, pki.Subject{Name: user})
	if n == 1 {
		oneLine := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }
		return map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": oneLine(c.Chain), "ssl.keystore.key": oneLine(c.Key)}
	}
	name := fmt.Sprintf("%s-%d", user, n)
	if w.stores == "PEM" {
		return map[string]string{"ssl.keystore.location": pki.Write(t, w.dir, name+".pem", c.Store)}
	}
	file := pki.Write(t, w.dir, name+".jks", c.JKS(t, storePassword))
	if w.stores == "PKCS12" {
		file = w.pkcs12(t, file)
	}
	return map[string]string{"ssl.keystore.type": w.stores, "ssl.keystore.location": file, "ssl.keystore.password": storePassword}
}

// trusted are keys of whom to trust.
func (w *world) trusted(t *testing.T, n int) map[string]string {
	t.Helper()
	switch {
	case n == 1:
		return map[string]string{"ssl.truststore.type": "PEM", "ssl.truststore.certificates": strings.ReplaceAll(strings.TrimSpace(w.ca.PEM()), "\n", " ")}
	case w.stores == "PEM":
		return map[string]string{"ssl.truststore.location": w.trust}
	}
	file := pki.Write(t, w.dir, "trust.jks", pki.JKSTrust(storePassword, w.ca))
	if w.stores == "PKCS12" {
		file = w.pkcs12(t, file)
	}
	return map[string]string{"ssl.truststore.type": w.stores, "ssl.truststore.location": file, "ssl.truststore.password": storePassword}
}

// pkcs12 has Java's tool convert a store.
func (w *world) pkcs12(t *testing.T, jks string) string {
	t.Helper()
	out := strings.TrimSuffix(jks, ".jks") + ".p12"
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), "keytool", "-importkeystore", "-noprompt", "-srckeystore", jks, "-srcstoretype", "JKS", "-srcstorepass", storePassword,
		"-destkeystore", out, "-deststoretype", "PKCS12", "-deststorepass", storePassword).CombinedOutput()
	if err != nil {
		t.Fatalf("keytool: %v: %s", err, text)
	}
	return out
}

// keys are what a client speaks with, or tries to with wrong ones; n chooses the form that they come in.
func (w *world) keys(t *testing.T, user string, wrong bool, n int) map[string]string {
	t.Helper()
	p := map[string]string{"security.protocol": w.protocol}
	if w.tls() {
		maps.Copy(p, w.trusted(t, n))
		if wrong && !w.sasl() && !w.mutual {
			// What is refused is whom it meets.
			for k := range p {
				if strings.HasPrefix(k, "ssl.truststore.") {
					delete(p, k)
				}
			}
			p["ssl.truststore.location"] = filepath.Join(w.dir, "stranger-trust.pem")
		}
	}
	if w.mutual {
		ca := w.ca
		if wrong {
			ca = w.stranger
		}
		maps.Copy(p, w.own(t, user, n, ca))
	}
	if !w.sasl() {
		return p
	}
	p["sasl.mechanism"] = w.mechanism
	pass := password(user)
	if wrong {
		pass = "wrong"
	}
	if w.mechanism != "OAUTHBEARER" {
		p["sasl.jaas.config"] = jaas(w.mechanism, user, pass)
		return p
	}
	if n == 1 {
		p["sasl.oauthbearer.token.endpoint.url"] = w.idp.URL
		p["sasl.jaas.config"] = fmt.Sprintf(`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=%q clientSecret=%q;`, user, pass)
		return p
	}
	token, file := unsigned(user), user
	if wrong {
		token, file = "not.a.token", "wrong"
	}
	p["sasl.oauthbearer.token.endpoint.url"] = "file://" + pki.Write(t, w.dir, file+".token", token)
	return p
}

// unsigned is a token as brokers without a key accept it.
func unsigned(user string) string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	return part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, user, now.Unix()-1, now.Add(time.Hour).Unix())) + "."
}

// startIDP starts where tokens are given for client credentials.
func (w *world) startIDP(t *testing.T) {
	t.Helper()
	w.idp = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		id, secret, _ := r.BasicAuth()
		if secret != password(id) || r.FormValue("grant_type") != "client_credentials" {
			rw.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(rw).Encode(map[string]string{"error": "invalid_client"})
			return
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"access_token": unsigned(id), "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(w.idp.Close)
	if !w.tls() {
		w.idp.Start()
		return
	}
	w.idp.TLS = &tls.Config{Certificates: []tls.Certificate{w.ca.Issue(t, pki.Subject{Name: "idp"}).TLS(t)}, MinVersion: tls.VersionTLS12}
	w.idp.StartTLS()
}

// server are the properties of both clusters' nodes: every listener speaks so.
func (w *world) server(store string) map[string]string {
	p := map[string]string{"default.replication.factor": "1"}
	var protocols []string
	for _, l := range []string{harness.ListenerInternal, harness.ListenerClient, harness.ListenerController} {
		protocols = append(protocols, l+":"+w.protocol)
	}
	p["listener.security.protocol.map"] = strings.Join(protocols, ",")
	if w.tls() {
		p["ssl.keystore.type"], p["ssl.keystore.location"] = "PEM", store
		p["ssl.truststore.type"], p["ssl.truststore.location"] = "PEM", w.trust
	}
	if w.mutual {
		p["ssl.client.auth"] = "required"
	}
	if !w.sasl() {
		return p
	}
	all := server(store, w.trust)
	for k, v := range all {
		if strings.HasPrefix(k, "sasl.") || strings.Contains(k, ".sasl.jaas.config") {
			p[k] = v
		}
	}
	p["sasl.mechanism.inter.broker.protocol"] = w.mechanism
	for _, l := range []string{"internal", "client", "controller"} {
		for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} {
			p["listener.name."+l+"."+strings.ToLower(m)+".sasl.jaas.config"] = jaas(m, userBroker, password(userBroker))
		}
	}
	return p
}

// scram are the users of both SCRAM mechanisms, as arguments of the format tool.
func (w *world) scram() []string {
	var out []string
	if !strings.HasPrefix(w.mechanism, "SCRAM") {
		return nil
	}
	for _, u := range []string{userBroker, userSidecar, userClient} {
		out = append(out, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", w.mechanism, u, password(u)))
	}
	return out
}

// client is one that has keys.
func (w *world) client(t *testing.T, at string, keys map[string]string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts, err := config.ParseClient(keys)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(append(append(opts, kgo.SeedBrokers(at), kgo.DisableClientMetrics()), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
