package security

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The links of the matrix, in the order of its columns.
const (
	linkClient      = "client → proxy"
	linkCLI         = "command line → proxy"
	linkHome        = "proxy → home broker"
	linkControllers = "sidecar → controllers"
	linkVirtual     = "brokers → virtual broker"
	linkSidecars    = "sidecar ↔ sidecar"
	linkSource      = "sidecar → source"
)

func matrixLinks() []string {
	return []string{linkClient, linkCLI, linkHome, linkControllers, linkVirtual, linkSidecars, linkSource}
}

// envMatrix names the file that the cells are written to, for the table at the end; none without it.
const envMatrix = "MIRROR_SECURITY_MATRIX"

// TestMatrix speaks on every link in every way. A cell is good when records were mirrored over the link from end
// to end, and what is wrong was refused on it with an error that says so.
func TestMatrix(t *testing.T) {
	harness.SkipShort(t)
	all, brokers := speeches(), 2 // so that sidecars talk to each other
	if !harness.Full() {
		all, brokers = all[len(all)-1:], 1
	}
	for _, s := range all {
		t.Run(s.String(), func(t *testing.T) {
			cells := map[string]bool{}
			defer func() { report(t, s, cells) }()
			begun := time.Now()
			w := startWorld(t, s, brokers)
			w.mirrorAll(t)
			t.Logf("mirrored after %v", time.Since(begun).Round(time.Second))
			for _, link := range matrixLinks() {
				cells[link] = t.Run(link, func(t *testing.T) { w.refuse(t, link) })
			}
		})
	}
}

// report notes cells; what was not come to has failed.
func report(t *testing.T, s speech, cells map[string]bool) {
	name := os.Getenv(envMatrix)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	line := s.String()
	for _, link := range matrixLinks() {
		line += fmt.Sprintf("\t%t", cells[link])
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Error(err)
	}
}

// entry is where operators and sidecars' users come: a client listener takes nobody's certificate for his name.
func (w *world) entry(n int) string {
	c := w.dst.Sidecars[n%len(w.dst.Sidecars)]
	if w.mutual {
		return c.Virtual
	}
	return c.Proxy
}

func (w *world) operator(t *testing.T, wrong bool, n int) string {
	user := userSidecar
	if w.mutual {
		user = "operator"
	}
	return propertiesFile(t, t.TempDir(), "operator", w.keys(t, user, wrong, n))
}

// mirrorAll mirrors topics that both sidecars lead partitions of, one mirror for each form of login, and
// waits until real brokers have copied everything and clients have read it behind both proxies.
func (w *world) mirrorAll(t *testing.T) {
	t.Helper()
	src, dst := w.src.ClientT(t), w.dst.Cluster.ClientT(t)
	const partitions, each = 4, 50
	for n := range 2 {
		name, mirror := fmt.Sprintf("topic-%d", n+1), fmt.Sprintf("mirror-%d", n+1)
		if _, err := kadm.NewClient(src).CreateTopic(t.Context(), partitions, 1, nil, name); err != nil {
			t.Fatal(err)
		}
		if err := harness.AwaitTopic(t.Context(), src, name); err != nil {
			t.Fatal(err)
		}
		var batch []*kgo.Record
		for i := range partitions * each {
			batch = append(batch, &kgo.Record{Topic: name, Value: fmt.Appendf(nil, "%d", i)})
		}
		if err := src.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		source := w.source(t, false, n+1)
		operator := w.operator(t, false, n+1)
		for _, args := range [][]string{
			{"--create", "--mirror", mirror, "--mirror-config", source},
			{"--start", "--mirror", mirror, "--topics", name, "--wait"},
		} {
			if _, err := w.dst.CLIAt(t.Context(), w.entry(n), append(args, "--command-config", operator)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 2 {
		name := fmt.Sprintf("topic-%d", n+1)
		reader := w.client(t, w.dst.Sidecars[n%len(w.dst.Sidecars)].Proxy, w.keys(t, userClient, false, n+1), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for got := 0; got < partitions*each; {
			fs := reader.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("%s: %d records: %v", name, got, err)
			}
			got += fs.NumRecords()
		}
		// Only what follows the virtual broker comes into its in-sync replicas.
		var leaders []int32
		harness.AwaitT(t, patience, "real brokers in sync with "+name, func(ctx context.Context) error {
			d, err := kadm.NewClient(dst).ListTopics(ctx, name)
			if err != nil {
				return err
			}
			leaders = nil
			for _, p := range d[name].Partitions {
				leaders = append(leaders, p.Leader)
				if !slices.ContainsFunc(p.ISR, func(b int32) bool { return b < stack.VirtualOffset }) {
					return fmt.Errorf("%d has in sync %v", p.Partition, p.ISR)
				}
			}
			return nil
		})
		t.Logf("%s is led by %v", name, leaders)
	}
}

// source is the configuration of a mirror.
func (w *world) source(t *testing.T, wrong bool, n int) string {
	keys := w.keys(t, userClient, wrong, n)
	keys["bootstrap.servers"] = strings.Join(w.src.Bootstrap(harness.ListenerClient), ",")
	return propertiesFile(t, t.TempDir(), "source", keys)
}

// says is what an error must have that a person can act on.
func (w *world) says() *regexp.Regexp {
	switch {
	case w.mechanism == "OAUTHBEARER":
		return regexp.MustCompile(`(?i)invalid_client|SASL_AUTHENTICATION_FAILED|authentication failed`)
	case w.sasl():
		return regexp.MustCompile(`(?i)SASL_AUTHENTICATION_FAILED|authentication failed`)
	}
	return regexp.MustCompile(`(?i)certificate`)
}

// refuse has somebody with wrong keys come over a link.
func (w *world) refuse(t *testing.T, link string) {
	if !w.tls() && !w.sasl() {
		return // nobody is refused
	}
	for n := 1; n <= 2; n++ {
		if n == 2 && w.mechanism != "OAUTHBEARER" {
			break // the same login in another form
		}
		switch link {
		case linkClient:
			w.refuseClient(t, w.dst.Sidecars[0].Proxy, w.keys(t, userClient, true, n))
		case linkVirtual:
			w.refuseClient(t, w.dst.Sidecars[0].Virtual, w.keys(t, userBroker, true, n))
		case linkCLI:
			_, err := w.dst.CLIAt(t.Context(), w.entry(0), "--list", "--command-config", w.operator(t, true, n))
			w.refused(t, err)
		case linkSource:
			_, err := w.dst.CLIAt(t.Context(), w.entry(0), "--create", "--mirror", fmt.Sprintf("wrong-%d", n), "--mirror-config", w.source(t, true, n), "--command-config", w.operator(t, false, 1))
			w.refused(t, err)
		case linkSidecars:
			if len(w.dst.Sidecars) == 1 {
				t.Skip("there is no such link")
			}
			w.refuseSidecar(t, "inter.broker.", n)
		default:
			w.refuseSidecar(t, map[string]string{linkHome: "", linkControllers: "controller."}[link], n)
		}
	}
}

func (w *world) refused(t *testing.T, err error) {
	t.Helper()
	if err == nil || !w.says().MatchString(err.Error()) || strings.Contains(err.Error(), "-secret") {
		t.Errorf("refused with %v, want %v", err, w.says())
	} else {
		t.Log(err)
	}
}

func (w *world) refuseClient(t *testing.T, at string, keys map[string]string) {
	t.Helper()
	cl := w.client(t, at, keys)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A connection that is closed at the handshake is one that is tried again; the handshake itself says why.
	var err error
	for !w.says().MatchString(fmt.Sprint(err)) && ctx.Err() == nil {
		if err = cl.Ping(ctx); err == nil {
			break
		}
	}
	w.refused(t, err)
}

// refuseSidecar starts the last sidecar anew, with wrong keys on one link.
func (w *world) refuseSidecar(t *testing.T, prefix string, n int) {
	t.Helper()
	if !harness.Full() {
		// A start that fails says why when it gives up for the first time, after half a minute.
		t.Skip("only with MIRROR_FULL=1")
	}
	c := w.dst.Sidecars[len(w.dst.Sidecars)-1]
	if w.mechanism != "OAUTHBEARER" {
		n = int(c.Broker) // the form that it has
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(c.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := config.ParseProperties(file)
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	right := maps.Clone(keys)
	for k := range w.keys(t, userSidecar, false, int(c.Broker)) {
		delete(keys, prefix+k)
	}
	for k, v := range w.keys(t, userSidecar, true, n) {
		keys[prefix+k] = v
	}
	name := strings.TrimSuffix(filepath.Base(c.ConfigFile()), ".properties")
	propertiesFile(t, filepath.Dir(c.ConfigFile()), name, keys)
	defer propertiesFile(t, filepath.Dir(c.ConfigFile()), name, right)
	log, err := os.ReadFile(c.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	from := len(log)
	if err := c.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "the refusal in the sidecar's log", func(context.Context) error {
		log, err := os.ReadFile(c.LogFile())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log[from:])) {
			if w.says().MatchString(line) && !strings.Contains(line, "level=INFO") {
				t.Log(strings.TrimSpace(line))
				return nil
			}
		}
		return fmt.Errorf("it says: %.3000s", log[from:])
	})
}
