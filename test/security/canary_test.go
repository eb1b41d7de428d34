package security

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// canaryArg makes the test's own program the plugin "canary".
const canaryArg = "be-the-plugin-canary"

// canaryPlugin needs a secret of its own, and tells none.
func canaryPlugin() plugins.Policy {
	return plugins.Policy{
		Name: "canary", Version: "1",
		Topics: plugins.TopicFunc(func(_ context.Context, r *policyv1.Round, _ *policyv1.TopicFacts) (*policyv1.Decision, error) {
			if len(r.GetPluginConfig()["token"]) == 0 || len(r.GetPluginConfig()["referred.token"]) == 0 {
				return plugins.Refuse("no token", "the plugin was given no token"), nil
			}
			return plugins.Accept("a token", "the plugin was given its token"), nil
		}),
	}
}

// canaries are secrets that nothing else looks like, by what they are.
type canaries map[string]string

func (c canaries) add(what string) string {
	c[what] = fmt.Sprintf("Canary%03dKw9Zq", len(c)+1)
	return c[what]
}

// leaks tells which secrets are in an output, as they are or as base64 of them has it.
func (c canaries) leaks(out []byte) (found []string) {
	for what, secret := range c {
		forms := [][]byte{[]byte(secret)}
		for shift := range 3 { // the part of base64 that does not depend on what is around it
			enc := base64.RawStdEncoding.EncodeToString(append(bytes.Repeat([]byte{'.'}, shift), secret...))
			forms = append(forms, []byte(enc[4:len(enc)-4]))
		}
		if slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Contains(out, f) }) {
			found = append(found, what)
		}
	}
	slices.Sort(found)
	return found
}

// check fails for each secret in an output. What is empty was not looked at.
func (c canaries) check(t *testing.T, where string, out []byte) {
	t.Helper()
	if len(out) == 0 {
		t.Errorf("%s: there is nothing to look at", where)
	}
	for _, what := range c.leaks(out) {
		t.Errorf("%s tells %s", where, what)
	}
}

// canaryWorld is a sidecar with secrets in every place that takes one.
type canaryWorld struct {
	*env
	secrets canaries
	at      string // its proxy
	login   []string
	outputs int
}

func (w *canaryWorld) check(t *testing.T, where string, out []byte) {
	t.Helper()
	w.outputs++
	w.secrets.check(t, where, out)
}

// cli runs the command line, whose output is looked at whatever becomes of it.
func (w *canaryWorld) cli(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := w.dst.CLIAt(t.Context(), w.at, append(slices.Clone(args), w.login...)...)
	text := []byte(out)
	if err != nil {
		text = fmt.Appendf(text, "%v", err)
	}
	w.check(t, "kafka-cluster-mirrors "+strings.Join(args, " "), append(text, '\n'))
	return out, err
}

func plainLogin(user, pass string) string {
	return fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password="%s";`, user, pass)
}

// TestNoSecretIsTold puts secrets that nothing else looks like into every place that takes one, does what
// operators do, right and wrong, and looks for them in everything that comes out.
func TestNoSecretIsTold(t *testing.T) {
	harness.SkipShort(t)
	dir := t.TempDir()
	c := canaries{}
	sidecarPass, brokerPass := c.add("the sidecar's password"), c.add("the password of a file of properties")
	storePass := c.add("the password of a keystore")
	literal, referred := c.add("a mirror's password"), c.add("a mirror's password in a mounted directory")
	wrong, broken := c.add("a wrong password"), c.add("what is no login module")
	token, referredToken := c.add("a plugin's token"), c.add("a plugin's token in the environment")
	t.Setenv("CANARY_REFERRED", referredToken)
	t.Setenv("CANARY_UNUSED", c.add("what else is in the sidecar's environment"))

	e := &env{ca: pki.NewCA(t, "test authority")}
	e.trust = pki.Write(t, dir, "trust.pem", e.ca.PEM())
	own := e.ca.Issue(t, pki.Subject{Name: "sidecar"})
	e.store = pki.Write(t, dir, "sidecar.pem", own.Store)
	c["the sidecar's private key"] = keyLine(t, own.Key)
	store := pki.Write(t, dir, "sidecar.jks", own.JKS(t, storePass))
	broker := pki.Write(t, dir, "broker.pem", e.ca.Issue(t, pki.Subject{Name: "broker"}).Store)
	mirrorKey := e.ca.Issue(t, pki.Subject{Name: "mirror"}).Key
	c["a mirror's private key"] = keyLine(t, mirrorKey)
	mounted := filepath.Join(dir, "mounted")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	pki.Write(t, mounted, "password", referred+"\n")
	pki.Write(t, mounted, "login.properties", "broker="+brokerPass+"\nother="+c.add("what else is in a file of properties")+"\n")

	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
		kfake.Superuser("PLAIN", "literal", literal), kfake.Superuser("PLAIN", "referred", referred))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)

	nodes := server(broker, e.trust)
	for k, v := range nodes {
		nodes[k] = strings.NewReplacer(password(userSidecar), sidecarPass, password(userBroker), brokerPass).Replace(v)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fromFile := plainLogin(userBroker, "${file:"+filepath.Join(mounted, "login.properties")+":broker}")
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e.dst, err = stack.Start(ctx, stack.Config{
		Log: log, Bin: stack.Binaries(),
		Kafka: harness.Config{
			Name: "destination", Brokers: 1, Log: log, Properties: nodes, Format: scramUsers(),
			ClientOpts: []kgo.Opt{e.dialer(), kgo.SASL(mechanism("PLAIN", userBroker, brokerPass))},
		},
		Sidecar: map[string]string{
			"log.level": "debug", "http.pprof": "true",
			"mirror.metadata.refresh.interval.ms": "1000",
			"config.providers.allowed.paths":      mounted, "config.providers.allowed.env": "CANARY_REFERRED",
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plainLogin(userSidecar, sidecarPass),
			"inter.broker.security.protocol": "SASL_SSL", "inter.broker.sasl.jaas.config": plainLogin(userSidecar, sidecarPass),
			"controller.security.protocol": "SASL_SSL", "controller.sasl.jaas.config": fromFile,
			"ssl.truststore.location":                      e.trust,
			"listener.security.protocol.map":               "CLIENT:SASL_SSL",
			"listener.name.client.ssl.keystore.type":       "JKS",
			"listener.name.client.ssl.keystore.location":   store,
			"listener.name.client.ssl.keystore.password":   storePass,
			"listener.name.internal.ssl.keystore.location": e.store,
			"plugin.canary.command":                        program + " " + canaryArg,
			"plugin.canary.sha256":                         fileSum(t, program),
			"plugin.canary.config.token":                   token,
			"plugin.canary.config.referred.token":          "${env:CANARY_REFERRED}",
		},
	})
	t.Cleanup(func() {
		if e.dst != nil {
			if t.Failed() {
				t.Logf("sidecar:\n%s", e.dst.Sidecars[0].LogTail())
			}
			if err := e.dst.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stateKey, err := os.ReadFile(e.dst.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	c["the key of stored secrets"] = strings.TrimSpace(string(stateKey))[:40]
	tools := pki.Write(t, dir, "tools.properties", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.location="+e.trust+
		"\nsasl.jaas.config="+strings.ReplaceAll(plainLogin(userBroker, "${file:"+filepath.Join(mounted, "login.properties")+":broker}"), `\`, `\\`)+"\n")
	w := &canaryWorld{env: e, secrets: c, at: e.dst.Proxies()[0], login: []string{"--command-config", tools}}

	mirror := func(user, pass string) string {
		return "bootstrap.servers=" + strings.Join(source.ListenAddrs(), ",") + "\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n" +
			"sasl.jaas.config=" + plainLogin(user, pass) + "\nmirror.policy.topics=built-in,canary\n"
	}
	// What is right.
	for name, text := range map[string]string{
		"literal":  mirror("literal", literal),
		"referred": mirror("referred", "${dir:"+mounted+":password}"),
	} {
		if _, err := w.cli(t, "--create", "--mirror", name, "--mirror-config", pki.Write(t, dir, name+".properties", text), "--json"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.cli(t, "--alter", "--mirror", "referred", "--add-config-file",
		pki.Write(t, dir, "key.properties", "ssl.keystore.key="+strings.ReplaceAll(mirrorKey, "\n", `\n`)+"\nssl.keystore.certificate.chain="+strings.ReplaceAll(own.Chain, "\n", `\n`)+"\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cli(t, "--start", "--mirror", "literal", "--topics", "orde.*"); err != nil {
		t.Fatal(err)
	}
	if err := harness.Await(t.Context(), patience, func(context.Context) error {
		if out, err := w.cli(t, "--describe", "--mirror", "literal", "--json"); err != nil || !strings.Contains(out, `"orders"`) {
			return fmt.Errorf("the topic is not mirrored: %s, %w", out, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// What is wrong.
	notLoggedIn := pki.Write(t, dir, "wrong.properties", strings.ReplaceAll("security.protocol=SASL_SSL\nssl.truststore.location="+e.trust+"\nsasl.jaas.config="+plainLogin(userBroker, wrong)+"\n", `\`, `\\`))
	for what, do := range map[string]func() (string, error){
		"a wrong password of the tool": func() (string, error) {
			old := w.login
			defer func() { w.login = old }()
			w.login = []string{"--command-config", notLoggedIn}
			return w.cli(t, "--list")
		},
		"a wrong password of a mirror": func() (string, error) {
			return w.cli(t, "--create", "--mirror", "wrong", "--mirror-config", pki.Write(t, dir, "m1", mirror("literal", wrong)))
		},
		"no login module": func() (string, error) {
			return w.cli(t, "--create", "--mirror", "broken", "--mirror-config", pki.Write(t, dir, "m2", strings.Replace(mirror("literal", broken), "required", "requires "+broken, 1)))
		},
		"an open quote": func() (string, error) {
			return w.cli(t, "--create", "--mirror", "broken", "--mirror-config", pki.Write(t, dir, "m3", mirror("literal", broken+`\\"`)))
		},
		"no provider": func() (string, error) {
			return w.cli(t, "--create", "--mirror", "broken", "--mirror-config", pki.Write(t, dir, "m4", mirror("literal", "${vault:"+broken+"}")))
		},
		"a file of secrets that is not allowed": func() (string, error) {
			return w.cli(t, "--create", "--mirror", "broken", "--mirror-config", pki.Write(t, dir, "m5", mirror("literal", "${dir:"+dir+":sidecar.pem}")))
		},
		"a secret under another name": func() (string, error) {
			return w.cli(t, "--alter", "--mirror", "literal", "--add-config-file", pki.Write(t, dir, "m6", "sasl.jass.config="+broken+"\n"))
		},
		"no keystore": func() (string, error) {
			return w.cli(t, "--alter", "--mirror", "literal", "--add-config-file", pki.Write(t, dir, "m7", "security.protocol=SASL_SSL\nssl.keystore.key="+broken+"\nssl.keystore.certificate.chain="+broken+"\n"))
		},
		"somewhere else": func() (string, error) {
			return w.cli(t, "--alter", "--mirror", "literal", "--add-config", "bootstrap.servers=elsewhere.example:9092")
		},
	} {
		if out, err := do(); err == nil {
			t.Errorf("%s is no error: %s", what, out)
		}
	}
	w.lookAtCommandLine(t)
	w.lookAtTheWire(t, wrong)
	w.lookAtHTTP(t)
	w.lookAtStateTopic(t)
	w.lookAtProcesses(t)
	w.lookAtStarts(t, dir, broken)
	w.changeKey(t)

	// The sidecar dies as if by a mistake of its own: it writes down what it was doing.
	sidecar := e.dst.Sidecars[0]
	if err := syscall.Kill(sidecar.Process().PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-sidecar.Process().Done():
	case <-time.After(patience):
		t.Fatal("the sidecar does not end")
	}
	text, err := os.ReadFile(sidecar.LogFile())
	if err != nil || !bytes.Contains(text, []byte("level=DEBUG")) || !bytes.Contains(text, []byte("goroutine ")) {
		t.Errorf("the log: %v", err)
	}
	w.check(t, "the sidecar's log", text)
	looked := 0
	err = filepath.WalkDir(sidecar.DataDir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if looked++; len(b) > 0 {
			w.check(t, "the file "+filepath.Base(path)+" of data.dir", b)
		}
		return err
	})
	if err != nil || looked == 0 {
		t.Errorf("data.dir: %d files, %v", looked, err)
	}
	if harness.Full() {
		w.loseKey(t)
	}
	t.Logf("%d secrets were looked for in %d outputs", len(c), w.outputs)
}

// newKey is a line of a key file.
func (w *canaryWorld) newKey(t *testing.T, what string) string {
	t.Helper()
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	line := base64.StdEncoding.EncodeToString(raw)
	w.secrets[what] = line[:40]
	return line
}

func (w *canaryWorld) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.dst.Sidecars[0].HTTP+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	w.check(t, path, append(body, '\n'))
	return string(body)
}

// changeKey replaces the key of stored secrets, as docs/security.md says.
func (w *canaryWorld) changeKey(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(w.dst.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	// One line for each key that secrets are encrypted with, and for those in clear.
	stored := regexp.MustCompile(`(?m)^kafka_mirror_stored_secrets\{key="([0-9a-z]+)"\} (\d+)$`)
	keys := func() map[string]string {
		out := map[string]string{}
		for _, m := range stored.FindAllStringSubmatch(w.get(t, "/metrics"), -1) {
			out[m[1]] = m[2]
		}
		return out
	}
	before := keys()
	if len(before) != 2 || before["none"] != "0" {
		t.Fatalf("stored secrets by key: %v", before)
	}
	now := w.newKey(t, "the next key of stored secrets")
	pki.Write(t, w.dst.Dir(), filepath.Base(w.dst.KeyFile()), now+"\n"+string(old))
	harness.AwaitT(t, patience, "what is stored is encrypted with the new key", func(context.Context) error {
		after := keys()
		for id := range before {
			if _, still := after[id]; still && id != "none" || len(after) != 2 {
				return fmt.Errorf("stored secrets by key: %v, before %v", after, before)
			}
		}
		return nil
	})
	harness.AwaitT(t, patience, "the end of it is told", func(context.Context) error {
		log, err := os.ReadFile(w.dst.Sidecars[0].LogFile())
		if err != nil || !bytes.Contains(log, []byte("all stored secrets are encrypted with the first key")) {
			return fmt.Errorf("not in the log: %w", err)
		}
		return nil
	})
	pki.Write(t, w.dst.Dir(), filepath.Base(w.dst.KeyFile()), now+"\n")
	w.lookAtStateTopic(t)
	if out := w.get(t, "/readyz"); strings.Contains(out, "secrets") {
		t.Errorf("/readyz: %s", out)
	}
}

// loseKey starts the sidecar again with a key that has encrypted nothing: one mirror cannot be read, the
// other one can.
func (w *canaryWorld) loseKey(t *testing.T) {
	t.Helper()
	pki.Write(t, w.dst.Dir(), filepath.Base(w.dst.KeyFile()), w.newKey(t, "another key of stored secrets")+"\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.dst.Sidecars[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	if out := w.get(t, "/readyz"); !strings.Contains(out, "mirror literal cannot be read here: sasl.jaas.config") || !strings.Contains(out, "state.key does not have") || strings.Contains(out, "mirror referred cannot be read here: sasl.jaas.config") {
		t.Errorf("/readyz: %s", out)
	}
	harness.AwaitT(t, patience, "what cannot be read is described", func(context.Context) error {
		if out, err := w.cli(t, "--describe", "--mirror", "literal", "--json"); err != nil || !strings.Contains(out, "does not have; add that key, or give the secret again") {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	// Given again, it goes on.
	again := pki.Write(t, w.dst.Dir(), "again.properties", "sasl.jaas.config="+plainLogin("literal", w.secrets["a mirror's password"])+"\n")
	if _, err := w.cli(t, "--alter", "--mirror", "literal", "--add-config-file", again); err != nil {
		t.Error(err)
	}
	harness.AwaitT(t, patience, "it goes on with the secret that was given again", func(context.Context) error {
		if out, err := w.cli(t, "--describe", "--mirror", "literal", "--json"); err != nil || strings.Contains(out, "does not have") {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
}

// TestCanariesAreFound: what looks for secrets finds them.
func TestCanariesAreFound(t *testing.T) {
	c := canaries{}
	secret := c.add("a secret")
	for _, out := range []string{secret, "x=" + secret + ";", base64.StdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte("\x00user\x00" + secret + "\n"))} {
		if len(c.leaks([]byte(out))) != 1 {
			t.Errorf("not found in %q", out)
		}
	}
	if len(c.leaks([]byte("Canary999Kw9Zq"))) != 0 {
		t.Error("found what is another secret")
	}
}

func (w *canaryWorld) lookAtCommandLine(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"--list"},
		{"--list", "--json"},
		{"--describe"},
		{"--describe", "--json"},
		{"--describe", "--policies"},
		{"--describe", "--policies", "--json"},
		{"--describe-configs", "--mirror", "literal"},
		{"--describe-configs", "--mirror", "literal", "--json"},
		{"--describe-configs", "--mirror", "referred", "--json"},
		{"--explain", "--mirror", "literal", "--topic", "orders"},
		{"--explain", "--mirror", "literal", "--topic", "orders", "--json"},
		{"--decode-state"},
		{"--alter", "--mirror", "literal", "--add-config", "mirror.topics.exclude=x.*", "--dry-run"},
	} {
		if _, err := w.cli(t, args...); err != nil {
			t.Error(err)
		}
	}
}

// lookAtTheWire asks as other tools do.
func (w *canaryWorld) lookAtTheWire(t *testing.T, wrong string) {
	t.Helper()
	brokerPass := w.secrets["the password of a file of properties"]
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.at), w.dialer(), kgo.SASL(mechanism("PLAIN", userBroker, brokerPass)), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const mirrorResource kmsg.ConfigResourceType = 64
	d := kmsg.NewPtrDescribeConfigsRequest()
	d.IncludeSynonyms, d.IncludeDocumentation = true, true
	for _, m := range []string{"literal", "referred"} {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = mirrorResource, m
		d.Resources = append(d.Resources, r)
	}
	a := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = mirrorResource, "literal"
	entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	value := plainLogin("literal", wrong) + "}"
	entry.Name, entry.Value = "sasl.jaas.config", &value
	res.Configs = append(res.Configs, entry)
	a.Resources = append(a.Resources, res)
	describe := protocol.NewDescribeClusterMirrorsRequest()
	local := protocol.NewDescribeClusterMirrorsRequest()
	local.LocalOnly = true
	list := protocol.NewListClusterMirrorsRequest()
	for what, req := range map[string]kmsg.Request{"DescribeConfigs": d, "IncrementalAlterConfigs": a, "DescribeClusterMirrors": &describe, "DescribeClusterMirrors among sidecars": &local, "ListClusterMirrors": &list} {
		resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		w.check(t, what, resp.AppendTo(nil))
	}
}

func (w *canaryWorld) lookAtHTTP(t *testing.T) {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	for _, path := range []string{
		"/livez", "/readyz", "/metrics", "/", "/api/v1/", "/api/v1/mirrors", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1",
		"/debug/pprof/cmdline", "/debug/vars",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.dst.Sidecars[0].HTTP+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		w.check(t, path, append(body, resp.Status...))
	}
}

// lookAtStateTopic looks at the segments on every broker's disk. What is encrypted there must be there.
func (w *canaryWorld) lookAtStateTopic(t *testing.T) {
	t.Helper()
	adm := kadm.NewClient(w.dst.Cluster.ClientT(t))
	topics, err := adm.ListTopicsWithInternal(t.Context(), protocol.StateTopic)
	if err != nil {
		t.Fatal(err)
	}
	sealedIn := 0
	for _, n := range w.dst.Cluster.Brokers() {
		for _, p := range topics[protocol.StateTopic].Partitions.Numbers() {
			dir, err := n.PartitionDir(protocol.StateTopic, p)
			if err != nil {
				t.Fatal(err)
			}
			segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
			if err != nil || len(segments) == 0 {
				t.Errorf("no segments in %s: %v", dir, err)
			}
			for _, s := range segments {
				b, err := os.ReadFile(s)
				if err != nil {
					t.Fatal(err)
				}
				sealedIn += bytes.Count(b, []byte("sealed:v1:"))
				w.check(t, fmt.Sprintf("the state topic's partition %d on broker %d", p, n.ID()), append(b, '\n'))
			}
		}
	}
	if sealedIn < 2 { // a password and a private key
		t.Errorf("%d secrets are encrypted in the state topic", sealedIn)
	}
}

// lookAtProcesses looks at what every user of the machine sees, and at what the plugin was given to see.
func (w *canaryWorld) lookAtProcesses(t *testing.T) {
	t.Helper()
	pid := w.dst.Sidecars[0].Process().PID()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	w.check(t, "the sidecar's command line", line)
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range children {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		for _, child := range strings.Fields(string(text)) {
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			if err != nil || !bytes.Contains(line, []byte(canaryArg)) {
				continue
			}
			seen++
			w.check(t, "the plugin's command line", line)
			environ, err := os.ReadFile("/proc/" + child + "/environ")
			if err != nil {
				t.Error(err)
			}
			w.check(t, "the plugin's environment", append(environ, '\n'))
		}
	}
	if seen == 0 {
		t.Error("the plugin does not run")
	}
}

// lookAtStarts starts sidecars that are told nonsense.
func (w *canaryWorld) lookAtStarts(t *testing.T, dir, broken string) {
	t.Helper()
	text, err := os.ReadFile(w.dst.Sidecars[0].ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	notAKey := pki.Write(t, dir, "no-key", broken+"\n")
	storePass := w.secrets["the password of a keystore"]
	for name, c := range map[string]struct{ old, now string }{
		"a wrong password of a keystore": {storePass, broken},
		"no login module":                {"required username=", "requires " + broken + " username="},
		"no key":                         {"state.encryption.key.file=", "state.encryption.key.file=" + notAKey + "\n#"},
		"a secret under another name":    {"http.pprof=true", "sasl.jass.config=" + broken},
		"no properties":                  {"http.pprof=true", `\u12` + broken},
		"twice":                          {"http.pprof=true", "log.level=" + broken},
		"no provider":                    {"${env:CANARY_REFERRED}", "${vault:" + broken + "}"},
	} {
		changed := strings.ReplaceAll(string(text), c.old, c.now)
		if changed == string(text) {
			t.Fatalf("%s: nothing was changed", name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "mirror-sidecar"), "run", "--config", pki.Write(t, dir, "start.properties", changed))
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || len(out) == 0 {
			t.Errorf("%s: the sidecar starts: %s", name, out)
		}
		w.check(t, "a start with "+name, out)
	}
}

// keyLine is a line of a private key's PEM text that is only its own.
func keyLine(t *testing.T, key string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		t.Fatal("no PEM")
	}
	lines := strings.Split(key, "\n")
	return lines[2] // the first one also says what kind of key it is
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
