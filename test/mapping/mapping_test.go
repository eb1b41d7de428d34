package mapping

import (
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// patience bounds every wait: CI's machines are slow.
const patience = time.Minute

// world is three brokers that advertise themselves, with a sidecar each, and a firewall.
type world struct {
	*stack.Stack
	firewall links.Links
	// told are the addresses that clients are to be told, by listener, in the order of the brokers.
	told map[string][]string

	// The proxies of byAddress serve TLS, before brokers that do not.
	ca    *pki.CA
	trust string // its file
}

const (
	byAddress = harness.ListenerClient   // mapped by bootstrap.server.mapping
	byPort    = harness.ListenerInternal // by deterministic.listeners
)

// properties are those of Java clients, and of the command line.
func (w *world) properties(listener string) map[string]string {
	if listener != byAddress {
		return nil
	}
	return map[string]string{"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": w.trust}
}

func start(t *testing.T) *world {
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	network := links.New()
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	st, err := stack.Start(ctx, stack.Config{
		Kafka: harness.Config{Name: "dest", Brokers: 3}, Bin: stack.Binaries(), Network: network, NoSidecars: true, Mapped: true,
		Sidecar: map[string]string{"listeners": "", "advertised.listeners": ""},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range st.Sidecars {
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
			}
		}
		if err := st.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Stack: st, told: map[string][]string{}, ca: pki.NewCA(t, "test authority")}
	w.trust = pki.Write(t, st.Dir(), "trust.pem", w.ca.PEM())
	w.configure(t)
	if err := st.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	if w.firewall, err = network.Between(links.Client, "dest-*"); err != nil {
		t.Fatal(err)
	}
	w.firewall.Cut()
	return w
}

// configure gives all sidecars the same entries, as one file for all machines would.
func (w *world) configure(t *testing.T) {
	ports, err := harness.FreePorts(len(w.Sidecars))
	if err != nil {
		t.Fatal(err)
	}
	minPort := freeRange(t, len(w.Sidecars))
	store := pki.Write(t, w.Dir(), "sidecars.pem", w.ca.Issue(t, pki.Subject{Name: "sidecars"}).Store)
	var entries []string
	for i, c := range w.Sidecars {
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i]))
		entries = append(entries, w.Cluster.Node(c.Broker).Advertised(byAddress)+",127.0.0.1:"+strconv.Itoa(ports[i])+","+at)
		w.told[byAddress] = append(w.told[byAddress], at)
		w.told[byPort] = append(w.told[byPort], net.JoinHostPort("127.0.0.1", strconv.Itoa(minPort+int(c.Broker))))
	}
	for i, c := range w.Sidecars {
		own := map[string]string{
			"bootstrap.server.mapping":                           strings.Join(entries, ";"),
			"listener.security.protocol.map":                     byAddress + ":SSL",
			"listener.name.client.ssl.keystore.location":         store,
			"deterministic.listeners":                            "true",
			"listener.name.internal.dynamic.sequential.min.port": strconv.Itoa(minPort),
			"listener.name.internal.home.broker.bootstrap":       w.Cluster.Node(c.Broker).Advertised(byPort),
		}
		replace(t, c.ConfigFile(), "listeners", byPort+"://"+w.told[byPort][i])
		for _, k := range slices.Sorted(maps.Keys(own)) {
			replace(t, c.ConfigFile(), k, own[k])
		}
	}
}

// replace sets a key in a properties file.
func replace(t *testing.T, file, key, value string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, key+"=") })
	if err := os.WriteFile(file, []byte(strings.Join(append(lines, key+"="+value, ""), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freeRange finds n free ports in a row and returns the one before the first.
func freeRange(t *testing.T, n int) int {
	t.Helper()
	for range 50 {
		ports, err := harness.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		free := true
		for i := range n {
			ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]+i)))
			if err != nil {
				free = false
				break
			}
			_ = ln.Close()
		}
		if free {
			return ports[0] - 1
		}
	}
	t.Fatal("no range of free ports")
	return 0
}

// client is a franz-go client that starts at one proxy and goes to proxies only.
func (w *world) client(t *testing.T, listener, seed string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	dial := new(net.Dialer).DialContext
	if listener == byAddress {
		dial = (&tls.Dialer{Config: &tls.Config{RootCAs: w.ca.Pool()}}).DialContext
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seed), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !slices.Contains(w.told[listener], addr) {
				t.Errorf("a client was sent to %s, want one of %v", addr, w.told[listener])
				return nil, errors.New("not a proxy")
			}
			return dial(ctx, network, addr)
		}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// awaitBrokers waits until a listener tells of exactly these brokers, at their proxies.
func (w *world) awaitBrokers(t *testing.T, listener string, brokers ...int32) {
	t.Helper()
	want := make(map[int32]string)
	for i, c := range w.Sidecars {
		if slices.Contains(brokers, c.Broker) {
			want[c.Broker] = w.told[listener][i]
		}
	}
	cl := w.client(t, listener, w.told[listener][0])
	defer cl.Close()
	harness.AwaitT(t, patience, fmt.Sprintf("%s tells of %v", listener, brokers), func(ctx context.Context) error {
		m, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		got := make(map[int32]string)
		for _, b := range m.Brokers {
			got[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
		d, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		described := make(map[int32]string)
		for _, b := range d.Brokers {
			described[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
		if !maps.Equal(got, want) || !maps.Equal(described, want) {
			return fmt.Errorf("brokers %v, described %v, want %v", got, described, want)
		}
		return nil
	})
}

func TestMapping(t *testing.T) {
	w := start(t)
	for _, listener := range []string{byAddress, byPort} {
		t.Run(listener, func(t *testing.T) {
			w.awaitBrokers(t, listener, 1, 2, 3)
			seeds := w.told[listener][:1]
			if harness.Full() {
				seeds = w.told[listener]
			}
			for i, seed := range seeds {
				topic := fmt.Sprintf("%s-%d", strings.ToLower(listener), i)
				t.Run("franz-go at "+fmt.Sprint(i+1), func(t *testing.T) { w.franz(t, listener, seed, topic) })
			}
			if harness.Full() || listener == byAddress {
				t.Run("java", func(t *testing.T) { w.java(t, listener, strings.ToLower(listener)+"-0") })
			}
			t.Run("command line", func(t *testing.T) { w.commandLine(t, listener) })
		})
	}
	if harness.Full() {
		t.Run("a broker goes and comes", func(t *testing.T) { w.comesAndGoes(t) })
	}
	if s := w.firewall.Stats(); s.Opened+s.Refused > 0 {
		t.Errorf("clients came around the proxies: %+v", s)
	}
}

const records = 300

func (w *world) franz(t *testing.T, listener, seed, topic string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := w.client(t, listener, seed, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, 3, 3, nil, topic)
	if err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	if err := harness.AwaitTopic(ctx, cl, topic); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		cl.Produce(ctx, kgo.StringRecord(strconv.Itoa(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	group := w.client(t, listener, seed, kgo.ConsumerGroup("g-"+topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make(map[string]bool)
	for len(got) < records {
		fetches := group.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(got), records, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[string(r.Value)] = true })
	}
	if err := group.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
}

// java writes a transaction, and reads as a group, starting at the last proxy.
func (w *world) java(t *testing.T, listener, topic string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	in := w.Cluster.Installation()
	last := w.told[listener][len(w.told[listener])-1:]
	p := harness.JavaProduce{Bootstrap: last, Topic: topic, TransactionalID: "tx-" + topic, Properties: w.properties(listener)}
	for i := range 30 {
		p.Records = append(p.Records, harness.JavaRecord{Partition: int32(i % 3), Value: []byte(strconv.Itoa(i))})
	}
	produced, err := in.Produce(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range produced {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	got, err := in.Consume(ctx, harness.JavaConsume{
		Bootstrap: last, Group: "java-" + topic, Topic: topic, ReadCommitted: true, Count: records + 30, Properties: w.properties(listener),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != records+30 {
		t.Errorf("%d records, want %d", len(got), records+30)
	}
}

// commandLine asks every sidecar for its mirrors.
func (w *world) commandLine(t *testing.T, listener string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var text strings.Builder
	for k, v := range w.properties(listener) {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	file := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range w.told[listener] {
		if out, err := w.CLIAt(ctx, at, "--list", "--json", "--command-config", file); err != nil || strings.TrimSpace(out) != "[]" {
			t.Errorf("%q, %v", out, err)
		}
	}
}

// comesAndGoes stops the last broker and starts it again.
func (w *world) comesAndGoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	node := w.Cluster.Node(3)
	if err := node.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, listener := range []string{byAddress, byPort} {
		w.awaitBrokers(t, listener, 1, 2)
	}
	if err := node.Launch(ctx); err != nil { // the test could not ask whether it is ready
		t.Fatal(err)
	}
	for _, listener := range []string{byAddress, byPort} {
		w.awaitBrokers(t, listener, 1, 2, 3)
	}
}
