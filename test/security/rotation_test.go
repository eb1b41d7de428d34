package security

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

const userMirror = "mirror"

// rotation are two clusters of which everything that expires is replaced while records flow.
type rotation struct {
	env
	old, next  *pki.CA
	dir        string
	net        *links.Fabric
	load       *workload.Load
	login      []kgo.Opt // of a client that trusts both authorities
	operator   string
	generation int
}

// TestRotation replaces passwords at both clusters, the certificates of brokers and sidecars by those
// of another authority, and what the sidecars trust, all while records are written and mirrored; then every
// connection is cut. No process is restarted and no record is lost.
func TestRotation(t *testing.T) {
	r := startRotation(t)
	pids := map[int32]int{}
	for _, c := range r.dst.Sidecars {
		pids[c.Broker] = c.Process().PID()
	}
	rounds := 1
	if harness.Full() {
		rounds = 3
	}
	for range rounds {
		r.rotate(t)
	}
	if err := r.load.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	// Its owner has a login of his own at the source.
	reader := propertiesFile(t, r.dir, "reader", keys("PLAIN", userBroker, password(userBroker), filepath.Join(r.dir, "both.pem")))
	if _, err := r.dst.CLIAt(t.Context(), r.proxy(), "--verify", "--mirror", "east", "--source-config", reader, "--command-config", r.operator); err != nil {
		t.Error(err)
	}
	report, err := r.load.Check(t.Context(), workload.CheckConfig{Bootstrap: r.dst.Proxies(), Committed: true})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d rotations: %+v, %+v", rounds, r.load.Total(), report)
	for _, c := range r.dst.Sidecars {
		if !c.Running() || c.Process().PID() != pids[c.Broker] {
			t.Errorf("sidecar %d is another process", c.Broker)
		}
	}
}

// rotatedServer are the brokers' properties: TLS and logins at every listener.
func rotatedServer(store, trust string) map[string]string {
	p := server(store, trust)
	p["listener.security.protocol.map"] = "INTERNAL:SASL_SSL,CLIENT:SASL_SSL,CONTROLLER:SASL_SSL"
	return p
}

func startRotation(t *testing.T) *rotation {
	t.Helper()
	harness.SkipShort(t)
	r := &rotation{old: pki.NewCA(t, "old authority"), next: pki.NewCA(t, "next authority"), dir: t.TempDir(), net: links.New()}
	t.Cleanup(func() {
		if err := r.net.Close(); err != nil {
			t.Error(err)
		}
	})
	// What brokers trust is replaced by their own means; here it is the sidecars'.
	both := pki.Write(t, r.dir, "both.pem", r.old.PEM()+r.next.PEM())
	store := pki.Write(t, r.dir, "broker-0.pem", r.old.Issue(t, pki.Subject{Name: "broker"}).Store)
	pki.Write(t, r.dir, "trust.pem", r.old.PEM())
	r.writeStore(t, r.old)
	for _, user := range []string{userSidecar, userMirror} {
		r.writePassword(t, user)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(r.old.PEM() + r.next.PEM()))
	r.login = []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.SASL(mechanism("PLAIN", userBroker, password(userBroker)))}
	format := func(user string) []string {
		return []string{"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", user, r.password(user))}
	}
	r.operator = propertiesFile(t, r.dir, "operator", keys("PLAIN", userSidecar, password(userSidecar), both))

	brokers := 1
	if harness.Full() {
		brokers = 2 // so that sidecars talk to each other
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r.together(t, func(ctx context.Context) (err error) {
		r.src, err = harness.Start(ctx, harness.Config{
			Name: "source", Brokers: 1, Log: log, Network: r.net,
			Properties: rotatedServer(store, both), Format: format(userMirror), ClientOpts: r.login,
		})
		return err
	}, func(ctx context.Context) (err error) {
		r.dst, err = stack.Start(ctx, stack.Config{
			Network: r.net, Bin: stack.Binaries(),
			Kafka: harness.Config{
				Name: "destination", Brokers: brokers, Log: log,
				Properties: rotatedServer(store, both), Format: format(userSidecar), ClientOpts: r.login,
			},
			Sidecar: map[string]string{
				"security.protocol":              "SASL_SSL",
				"sasl.mechanism":                 "SCRAM-SHA-512",
				"sasl.jaas.config":               r.jaas(userSidecar),
				"ssl.truststore.location":        filepath.Join(r.dir, "trust.pem"),
				"ssl.keystore.type":              "JKS",
				"ssl.keystore.location":          filepath.Join(r.dir, "sidecar.jks"),
				"ssl.keystore.password":          "${file:" + filepath.Join(r.dir, "store.secret") + ":password}",
				"listener.security.protocol.map": "CLIENT:SASL_SSL",
				"config.providers.allowed.paths": r.dir,
			},
		})
		return err
	})
	r.startLoad(t)
	return r
}

// together starts both clusters at once, and ends them with the test.
func (e *env) together(t *testing.T, starts ...func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var group errgroup.Group
	for _, start := range starts {
		group.Go(func() error { return start(ctx) })
	}
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
		}
		if err := e.dst.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rotation) startLoad(t *testing.T) {
	t.Helper()
	var err error
	r.load, err = workload.New(workload.Config{
		Bootstrap: r.src.Bootstrap(harness.ListenerClient), Opts: r.login, Rate: 50,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.load.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	source := propertiesFile(t, r.dir, "source", map[string]string{
		"bootstrap.servers": strings.Join(r.src.Bootstrap(harness.ListenerClient), ","),
		"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": r.jaas(userMirror),
		"ssl.truststore.location": filepath.Join(r.dir, "trust.pem"),
	})
	for _, args := range [][]string{
		{"--create", "--mirror", "east", "--mirror-config", source},
		{"--start", "--mirror", "east", "--topics", strings.Join(r.load.TopicNames(), ","), "--wait"},
	} {
		if _, err := r.dst.CLIAt(t.Context(), r.proxy(), append(args, "--command-config", r.operator)...); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rotation) proxy() string { return r.dst.Proxies()[0] }

func (r *rotation) password(user string) string { return fmt.Sprintf("%s-%d", user, r.generation) }

func (r *rotation) writePassword(t *testing.T, user string) {
	t.Helper()
	pki.Write(t, r.dir, user+".secret", "password="+r.password(user)+"\n")
}

// writeStore gives the sidecars a certificate in a store with a password of its own.
func (r *rotation) writeStore(t *testing.T, ca *pki.CA) *x509.Certificate {
	t.Helper()
	own := ca.Issue(t, pki.Subject{Name: "sidecar"})
	pki.Write(t, r.dir, "sidecar.jks", own.JKS(t, r.password("store")))
	r.writePassword(t, "store")
	return own.Leaf
}

// jaas refers to a password that changes.
func (r *rotation) jaas(user string) string {
	return fmt.Sprintf(`org.apache.kafka.common.security.scram.ScramLoginModule required username="%s" password="${file:%s:password}";`, user, filepath.Join(r.dir, user+".secret"))
}

// rotate replaces everything once, and cuts every connection.
func (r *rotation) rotate(t *testing.T) {
	t.Helper()
	ca := []*pki.CA{r.next, r.old}[r.generation%2]
	r.generation++
	begun := time.Now()
	// First everybody trusts both authorities: a certificate of either may be shown to him.
	pki.Write(t, r.dir, "trust.pem", r.old.PEM()+r.next.PEM())
	leaf := ca.Issue(t, pki.Subject{Name: "broker"})
	store := pki.Write(t, r.dir, fmt.Sprintf("broker-%d.pem", r.generation), leaf.Store)
	own := r.writeStore(t, ca)
	for user, cluster := range map[string]*harness.Cluster{userMirror: r.src, userSidecar: r.dst.Cluster} {
		adm := kadm.NewClient(cluster.ClientT(t))
		r.newBrokerCertificate(t, adm, cluster, store, leaf.Leaf)
		altered, err := adm.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: r.password(user)}})
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		r.writePassword(t, user)
	}
	for _, c := range r.dst.Sidecars {
		r.await(t, fmt.Sprintf("sidecar %d's new certificate", c.Broker), c.Proxy, own)
		r.await(t, fmt.Sprintf("virtual broker %d's new certificate", c.VirtualID()), c.Virtual, own)
	}
	// Then the one authority goes.
	pki.Write(t, r.dir, "trust.pem", ca.PEM())
	before := r.opened()
	r.net.All().ResetNow()
	acked := r.load.Total().Acked
	r.reconnected(t, before)
	// The controllers, the source's metadata and the state topic are needed for a topic that is new.
	fresh := fmt.Sprintf("fresh-%d", r.generation)
	src := r.src.ClientT(t)
	if _, err := kadm.NewClient(src).CreateTopic(t.Context(), 1, 1, nil, fresh); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), src, fresh); err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "a new topic's start", func(ctx context.Context) error {
		_, err := r.dst.CLIAt(ctx, r.proxy(), "--start", "--mirror", "east", "--topics", fresh, "--wait", "--command-config", r.operator)
		return err
	})
	r.caughtUp(t)
	t.Logf("rotation %d: %v, %d records acknowledged after the cut", r.generation, time.Since(begun).Round(time.Millisecond), r.load.Total().Acked-acked)
}

// newBrokerCertificate is how brokers replace theirs.
func (r *rotation) newBrokerCertificate(t *testing.T, adm *kadm.Client, cluster *harness.Cluster, store string, leaf *x509.Certificate) {
	t.Helper()
	for _, n := range cluster.Nodes() {
		var alter []kadm.AlterConfig
		for _, l := range []string{"internal", "client", "controller"} {
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: "listener.name." + l + ".ssl.keystore.location", Value: kadm.StringPtr(store)},
				kadm.AlterConfig{Op: kadm.SetConfig, Name: "listener.name." + l + ".ssl.keystore.type", Value: kadm.StringPtr("PEM")})
		}
		answers, err := adm.AlterBrokerConfigs(t.Context(), alter, n.ID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answers.On(fmt.Sprint(n.ID()), nil); err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Err != nil {
				t.Fatalf("%s: %v: %s", n, a.Err, a.ErrMessage)
			}
		}
		for _, l := range []string{harness.ListenerInternal, harness.ListenerClient, harness.ListenerController} {
			r.await(t, n.String()+" at "+l, n.Addr(l), leaf)
		}
	}
}

// await waits until a certificate is shown at an address.
func (r *rotation) await(t *testing.T, what, addr string, want *x509.Certificate) {
	t.Helper()
	harness.AwaitT(t, patience, what, func(ctx context.Context) error {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if got := c.(*tls.Conn).ConnectionState().PeerCertificates[0]; !got.Equal(want) {
			return fmt.Errorf("shows %s of %s", got.Subject, got.Issuer)
		}
		return nil
	})
}

// opened is how many connections there have been of each kind of link that begins or ends at a
// sidecar: of all brokers together, for which of them a sidecar has something to say is not for this test.
func (r *rotation) opened() map[string]int64 {
	kind := func(party string) string { return strings.TrimRight(party, "-0123456789") }
	out := map[string]int64{}
	for _, l := range r.net.All() {
		from, to := kind(l.From), kind(l.To)
		if from == links.Client || from != "sidecar" && to != "sidecar" {
			continue
		}
		if r.controllersAround() && strings.HasPrefix(to, "controller.") {
			continue
		}
		if from == "sidecar" {
			from = l.From
		}
		out[from+" to "+to] += l.Stats().Opened
	}
	return out
}

// controllersAround: of several controllers the active one says itself where it is, which is around
// the fabric.
func (r *rotation) controllersAround() bool { return len(r.dst.Cluster.Controllers()) > 1 }

// reconnected waits until every kind of link has new connections.
func (r *rotation) reconnected(t *testing.T, before map[string]int64) {
	t.Helper()
	for _, c := range r.dst.Sidecars {
		for _, to := range []string{"source", "destination", "controller.destination"} {
			if before[c.Party()+" to "+to] == 0 && !(r.controllersAround() && to == "controller.destination") {
				t.Errorf("%s has not been connected to %s: %v", c.Party(), to, before)
			}
		}
	}
	if before["destination to sidecar"] == 0 {
		t.Errorf("no broker has been connected to a virtual broker: %v", before)
	}
	harness.AwaitT(t, patience, "new connections on every link", func(context.Context) error {
		now := r.opened()
		for link, n := range before {
			if now[link] == n {
				var all []string
				for _, l := range r.net.All() {
					all = append(all, fmt.Sprintf("%s: %+v", l, l.Stats()))
				}
				return fmt.Errorf("%s: none; all links:\n%s", link, strings.Join(all, "\n"))
			}
		}
		return nil
	})
	t.Logf("connections before the cut %v, and in all %v", before, r.opened())
}

// caughtUp waits until what is acknowledged now has come to the destination.
func (r *rotation) caughtUp(t *testing.T) {
	t.Helper()
	if err := r.load.WaitAcked(t.Context(), r.load.Total().Acked/int64(len(r.load.TopicNames()))); err != nil {
		t.Fatal(err)
	}
	want, err := kadm.NewClient(r.src.ClientT(t)).ListEndOffsets(t.Context(), r.load.TopicNames()...)
	if err != nil {
		t.Fatal(err)
	}
	there := kadm.NewClient(r.dst.Cluster.ClientT(t))
	harness.AwaitT(t, patience, "the mirror at the source's end", func(ctx context.Context) error {
		got, err := there.ListEndOffsets(ctx, r.load.TopicNames()...)
		if err != nil {
			return err
		}
		var missing error
		want.Each(func(o kadm.ListedOffset) {
			if g, ok := got.Lookup(o.Topic, o.Partition); !ok || g.Err != nil || g.Offset < o.Offset {
				missing = fmt.Errorf("%s-%d: %d of %d (%w)", o.Topic, o.Partition, g.Offset, o.Offset, g.Err)
			}
		})
		return missing
	})
}
