package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

func mirrorAPIs() kgo.Opt { return kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())) }

// footprint is what bad input must not change: the brokers that are registered, the
// topics with their configs, the mirrors.
func (e *env) footprint(t *testing.T) string {
	t.Helper()
	brokers, err := registered(t.Context(), e.dst.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintln("brokers", brokers)
	topics, err := e.dstAdmin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range topics.Sorted() {
		if strings.HasPrefix(d.Topic, "__") {
			continue
		}
		configs := topicConfigs(t, e.dstClient, d.Topic)
		text += fmt.Sprintln("topic", d.Topic, d.Partitions.Sorted())
		for _, k := range slices.Sorted(maps.Keys(configs)) {
			text += fmt.Sprintln("  ", k, configs[k])
		}
	}
	req := protocol.NewListClusterMirrorsRequest()
	req.IncludeTopicNames = true
	resp, err := e.api.SeedBrokers()[0].Request(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range resp.(*protocol.ListClusterMirrorsResponse).Mirrors {
		text += fmt.Sprintln("mirror", m.MirrorName, m.SourceClusterID, m.TopicNames)
	}
	return text
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// testBadInput runs the command line with what it cannot do. It needs a destination
// without mirrors.
func (e *env) testBadInput(t *testing.T) {
	const mirror, missing, ours, theirs = "bad", "missing", "has-data", "in-sync"
	source := strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")
	good := mirrorConfig(t, map[string]string{"bootstrap.servers": source})
	before := e.footprint(t)
	for _, tc := range []struct {
		name string
		args []string
		want []string // all in the message
	}{
		{"nothing asked for", nil, nil},
		{"unknown flag", []string{"--crate", "--mirror", mirror}, []string{"crate"}},
		{"two verbs", []string{"--create", "--delete", "--mirror", mirror}, nil},
		{"an argument", []string{"--list", "extra"}, []string{"extra"}},
		{"no mirror", []string{"--create", "--mirror-config", good}, []string{"mirror"}},
		{"no config file", []string{"--create", "--mirror", mirror, "--mirror-config", filepath.Join(t.TempDir(), "none")}, []string{"none"}},
		{"bad mirror name", []string{"--create", "--mirror", "a/b", "--mirror-config", good}, []string{"a/b"}},
		{"reserved mirror name", []string{"--create", "--mirror", "x.stopped", "--mirror-config", good}, []string{"x.stopped"}},
		{
			"unknown key",
			[]string{"--create", "--mirror", mirror, "--mirror-config", mirrorConfig(t, map[string]string{"bootstrap.server": source})},
			[]string{"bootstrap.server", "bootstrap.servers"},
		},
		{
			"bad value",
			[]string{"--create", "--mirror", mirror, "--mirror-config", mirrorConfig(t, map[string]string{"bootstrap.servers": source, "mirror.fetch.max.bytes": "many"})},
			[]string{"mirror.fetch.max.bytes", "many"},
		},
		{
			"unreachable source",
			[]string{"--create", "--mirror", mirror, "--mirror-config", mirrorConfig(t, map[string]string{"bootstrap.servers": nobody(t), "request.timeout.ms": "3000"})},
			[]string{"source"},
		},
		{
			"source is the destination",
			[]string{"--create", "--mirror", mirror, "--mirror-config", mirrorConfig(t, map[string]string{"bootstrap.servers": strings.Join(e.dst.Direct(), ",")})},
			[]string{"cluster"},
		},
		{"start in no mirror", []string{"--start", "--mirror", "none", "--topics", ours}, []string{"none"}},
		{"stop in no mirror", []string{"--stop", "--mirror", "none", "--topics", ours}, []string{"none"}},
		{"describe no mirror", []string{"--describe", "--mirror", "none"}, []string{"none"}},
		{"delete no mirror", []string{"--delete", "--mirror", "none"}, []string{"none"}},
	} {
		t.Run(tc.name, func(t *testing.T) { e.refused(t, tc.want, tc.args...) })
	}
	if after := e.footprint(t); after != before {
		t.Errorf("something has changed:\nbefore\n%s\nafter\n%s", before, after)
	}

	// What needs a mirror.
	createTopic(t, e.dstClient, 1, 1, ours, "retention.ms", "-1")
	e.createSource(t, 1, ours)
	write(t, e.writer(t, e.dst.Direct()), ours, 1, 11, "ours")
	createTopic(t, e.dstClient, 2, 1, theirs)
	e.createSource(t, 3, theirs)
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", good)
	before = e.footprint(t)
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"mirror exists", []string{"--create", "--mirror", mirror, "--mirror-config", good}, []string{mirror}},
		{"missing topic", []string{"--start", "--mirror", mirror, "--topics", missing}, []string{missing, "source"}},
		{"topic with data", []string{"--start", "--mirror", mirror, "--topics", ours}, []string{ours, "11"}},
		{"other number of partitions", []string{"--start", "--mirror", mirror, "--topics", theirs}, []string{theirs, "2", "3"}},
		{"internal topic", []string{"--start", "--mirror", mirror, "--topics", "__consumer_offsets"}, []string{"__consumer_offsets"}},
		{"stop what is not mirrored", []string{"--stop", "--mirror", mirror, "--topics", ours}, []string{ours}},
	} {
		t.Run(tc.name, func(t *testing.T) { e.refused(t, tc.want, tc.args...) })
	}
	if after := e.footprint(t); after != before {
		t.Errorf("something has changed:\nbefore\n%s\nafter\n%s", before, after)
	}
	// The topic with data is as writable as before.
	write(t, e.writer(t, e.dst.Proxies()), ours, 1, 1, "ours")
	e.cli(t, "--delete", "--mirror", mirror)
	if r, err := e.dstAdmin.DeleteTopics(t.Context(), ours, theirs); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	if r, err := e.srcAdmin.DeleteTopics(t.Context(), ours, theirs); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
}

// refused runs the command line and wants an exit status other than 0 and a message.
func (e *env) refused(t *testing.T, want []string, args ...string) {
	t.Helper()
	begun := time.Now()
	out, err := e.tryCLI(t, args...)
	var failed *stack.CLIError
	if !errors.As(err, &failed) {
		t.Fatalf("%v: %v, output %q", args, err, out)
	}
	// What became of each topic is the answer, that something was refused is the error.
	said := strings.TrimSpace(failed.Stdout + failed.Stderr)
	t.Logf("%v after %v: %s", args, time.Since(begun).Round(time.Millisecond), said)
	if strings.TrimSpace(failed.Stderr) == "" {
		t.Errorf("%v: no error message", args)
	}
	checkMessage(t, said, want)
}

func checkMessage(t *testing.T, said string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(said, w) {
			t.Errorf("the message has no word of %q:\n%s", w, said)
		}
	}
	for _, bad := range []string{"panic:", "goroutine ", "nil pointer", "could not build arguments"} {
		if strings.Contains(said, bad) {
			t.Errorf("no message for people (%q):\n%s", bad, said)
		}
	}
}

// sidecarEnds runs a sidecar that must end by itself, and returns what it said.
func sidecarEnds(t *testing.T, within time.Duration, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "mirror-sidecar"), append([]string{"run"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("the sidecar has not ended within %v:\n%s", within, out.String())
	}
	if err == nil {
		t.Errorf("the sidecar ended with status 0:\n%s", out.String())
	}
	t.Logf("ended after %v (%v): %s", time.Since(begun).Round(time.Millisecond), err, strings.TrimSpace(out.String()))
	return out.String()
}

// TestSidecarBadConfig starts sidecars with what they cannot work with; no cluster is
// needed.
func TestSidecarBadConfig(t *testing.T) {
	harness.SkipShort(t)
	t.Parallel() // one of them takes half a minute, which is spent waiting
	base := func(extra map[string]string) []string {
		props := config.Properties{
			"home.broker.bootstrap": nobody(t), "controller.quorum.bootstrap.servers": nobody(t),
			"listeners": "CLIENT://" + nobody(t), "virtual.listeners": nobody(t), "http.listen": nobody(t),
		}
		maps.Copy(props, extra)
		return []string{"--config", mirrorConfig(t, props)}
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"unknown flag", append(base(nil), "--listen=x"), []string{"listen"}},
		{"unknown key", base(map[string]string{"home.broker.bootstraps": "x"}), []string{"home.broker.bootstraps", "home.broker.bootstrap"}},
		{"bad number", base(map[string]string{"mirror.virtual.replicas": "two"}), []string{"mirror.virtual.replicas", "two"}},
		{"bad address", base(map[string]string{"virtual.listeners": "nowhere"}), []string{"virtual.listeners"}},
		{"no file", []string{"--config", filepath.Join(t.TempDir(), "none")}, []string{"none"}},
		{"nothing", nil, []string{"home.broker.bootstrap"}},
		{"an argument", append(base(nil), "extra"), []string{"extra"}},
		{"unreachable controllers", base(nil), []string{"controller"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkMessage(t, sidecarEnds(t, patience, tc.args...), tc.want)
		})
	}
}

// TestSidecarWrongCluster starts sidecars at clusters that they must not join.
func TestSidecarWrongCluster(t *testing.T) {
	harness.SkipShort(t)
	t.Parallel()
	// One whose metadata.version is too old for cordoned log dirs, and another one.
	var clusters []*harness.Cluster
	for name, format := range map[string][]string{"old": {"--release-version", "4.2"}, "other": nil} {
		clusters = append(clusters, harness.StartT(t, harness.Config{Name: name, Brokers: 1, Format: format}))
	}
	if clusters[0].Name() != "old" {
		clusters[0], clusters[1] = clusters[1], clusters[0]
	}
	old, other := clusters[0], clusters[1]
	run := func(t *testing.T, home string, controllers *harness.Cluster, want ...string) {
		t.Helper()
		text := sidecarEnds(t, patience,
			"--home-broker-bootstrap", home,
			"--controller-quorum-bootstrap-servers", strings.Join(controllers.ControllerBootstrap(), ","),
			"--listeners", "CLIENT://"+nobody(t), "--virtual-listeners", nobody(t), "--http-listen", nobody(t))
		checkMessage(t, text, want)
		for _, c := range clusters {
			brokers, err := registered(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if len(brokers) != 1 {
				t.Errorf("cluster %s has the brokers %v", c.Name(), brokers)
			}
			topics, err := kadm.NewClient(c.ClientT(t)).ListTopicsWithInternal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(topics) != 0 {
				t.Errorf("cluster %s has the topics %v", c.Name(), topics.Names())
			}
		}
	}
	at := func(c *harness.Cluster) string { return c.Brokers()[0].Addr(harness.ListenerClient) }
	t.Run("metadata.version", func(t *testing.T) { run(t, at(old), old, "metadata.version", "4.3") })
	t.Run("home of another cluster", func(t *testing.T) { run(t, at(other), old, old.ID(), other.ID()) })
	t.Run("controllers of another cluster", func(t *testing.T) { run(t, at(old), other, old.ID(), other.ID()) })
	t.Run("no home broker", func(t *testing.T) { run(t, nobody(t), other, "home broker", "refused") })
}
