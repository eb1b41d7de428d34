package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// TestMain is also the plugins of these tests: a host starts this program with what it is to be as
// its argument.
func TestMain(m *testing.M) {
	if os.Getenv(plugins.Handshake().MagicCookieKey) != "" {
		bePlugin(os.Args[1])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == beHost {
		runHost()
		return
	}
	goleak.VerifyTestMain(m)
}

// beHost makes this program a host that has a plugin run, and never ends by itself.
const beHost = "host"

func runHost() {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	h, err := New(Config{Plugins: map[string]*config.Plugin{"it": {Name: "it", Command: []string{path, "topics"}, Timeout: patience}}}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	if err := h.plugins["it"].Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(h.plugins["it"].Status().PID)
	select {}
}

// bePlugin is a process that does as it is told, by its argument, and then by the names of what it
// is asked about.
func bePlugin(as string) {
	switch as {
	case "ends":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "waits":
		select {}
	case "talks":
		fmt.Println("hello world")
		select {}
	case "version 2", "no info":
		h := plugins.Handshake()
		if as == "version 2" {
			h.ProtocolVersion = 2
		}
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig: h, Plugins: goplugin.PluginSet{plugins.Name: nothing{}}, GRPCServer: goplugin.DefaultGRPCServer,
		})
		return
	}
	p := plugins.Policy{Name: "test", Version: "1.2"}
	p.CheckConfig = func(c map[string]string) error {
		if c["colour"] == "blue" {
			return errors.New("colour is red or green")
		}
		return nil
	}
	p.Topics = topics{}
	switch as {
	case "all":
		p.Configs = plugins.ConfigFunc(func(context.Context, *policyv1.Round, string, *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			return plugins.Accept("", "why not"), nil, nil
		})
		p.ACLs = plugins.ACLFunc(func(context.Context, *policyv1.Round, *policyv1.AclFacts) (*policyv1.Decision, *policyv1.AclBinding, error) {
			return plugins.Accept("", "why not"), nil, nil
		})
		p.Groups = plugins.GroupFunc(func(context.Context, *policyv1.Round, *policyv1.GroupFacts) (*policyv1.Decision, error) {
			return plugins.Refuse("", "no groups"), nil
		})
		p.Quotas = plugins.QuotaFunc(func(context.Context, *policyv1.Round, *policyv1.QuotaFacts) (*policyv1.Decision, *float64, error) {
			nan := math.NaN()
			return plugins.Accept("", "why not"), &nan, nil
		})
		p.Events = plugins.EventFunc(func(_ context.Context, _ *policyv1.Round, e *policyv1.Event) error {
			if e.GetTopic() == "error" {
				return errors.New("no such channel")
			}
			return nil
		})
	case "none":
		p.Topics = nil
	case "liar": // names a kind that it does not serve
		plugins.Serve(plugins.Policy{Name: "test", Topics: topics{}, Groups: unserved{}})
		return
	}
	plugins.Serve(p)
}

type unserved struct{}

func (unserved) SelectGroups(context.Context, *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	return policyv1.UnimplementedGroupPolicyServer{}.SelectGroups(context.Background(), nil)
}

type nothing struct{ plugins.Connection }

func (nothing) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

// topics accepts, and does to each topic what its name says.
type topics struct{}

func (topics) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	out := &policyv1.SelectTopicsResponse{}
	add := func(name string, d *policyv1.Decision) {
		out.Decisions = append(out.Decisions, &policyv1.TopicDecision{Name: name, Decision: d})
	}
	for _, t := range r.GetTopics() {
		yes := plugins.Accept("names", "it has a good name")
		switch name := t.GetName(); name {
		case "crash":
			slog.Error("out of cheese")
			os.Exit(7)
		case "hang":
			select {}
		case "panic":
			panic("mistake")
		case "error":
			return nil, errors.New("the directory does not answer")
		case "unavailable":
			return nil, status.Error(codes.Unavailable, "the directory is closed")
		case "missing":
		case "doubled":
			add(name, yes)
			add(name, yes)
		case "renamed":
			add(name+"2", yes)
		case "undecided":
			add(name, &policyv1.Decision{Reason: "hm"})
		case "no decision":
			add(name, nil)
		case "unknown verdict":
			add(name, &policyv1.Decision{Verdict: 9, Reason: "hm"})
		case "no reason":
			add(name, &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Reason: " \n"})
		case "long reason":
			add(name, &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Reason: strings.Repeat("x", 1025)})
		case "long rule":
			add(name, &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Rule: strings.Repeat("x", 257), Reason: "long"})
		case "too much":
			out.Warnings = append(out.Warnings, &policyv1.Warning{Text: strings.Repeat("x", maxAnswer)})
			add(name, yes)
		case "warnings":
			for range 1000 {
				out.Warnings = append(out.Warnings, &policyv1.Warning{Subject: name, Text: strings.Repeat("é", 2000)})
			}
			add(name, yes)
		case "control":
			add(name, &policyv1.Decision{Verdict: policyv1.Decision_REFUSE, Rule: "a\x1b[2Jb", Reason: "red\n\x1b]0;x\x07 and so on"})
		case "environment":
			add(name, plugins.Accept(fmt.Sprint(os.Getpid()), strings.Join(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PLUGIN_") }), " ")))
		case "folder":
			dir, _ := os.Getwd()
			add(name, plugins.Accept(dir, os.Args[0]))
		case "config":
			add(name, plugins.Accept("config", fmt.Sprint(r.GetRound().GetPluginConfig(), " ", r.GetRound().GetMirror())))
		case "child": // which keeps the standard error open
			//nolint:noctx // it is to outlive everything
			p, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Files: []*os.File{nil, nil, os.Stderr}})
			if err != nil {
				return nil, err
			}
			add(name, plugins.Accept(fmt.Sprint(p.Pid), "born"))
		case "chatter":
			for i := range 500 {
				fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("x", 5000))
			}
			add(name, yes)
		default:
			add(name, yes)
		}
	}
	return out, ctx.Err()
}

// me is this program and its SHA-256.
func me(t *testing.T) (string, string) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return path, hex.EncodeToString(sum[:])
}

// patience is for what must come on any machine.
const patience = 60 * time.Second

// start returns a host with one plugin, "it".
func start(t *testing.T, as string, change ...func(*Config, *config.Plugin)) (*Host, *Plugin) {
	t.Helper()
	path, sum := me(t)
	p := &config.Plugin{Name: "it", Command: []string{path, as}, SHA256: sum, Timeout: patience}
	cfg := Config{Plugins: map[string]*config.Plugin{"it": p}, StartTimeout: patience, InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, Starts: 1000}
	for _, c := range change {
		c(&cfg, p)
	}
	h, err := New(cfg, registry(t), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return h, h.plugins["it"]
}

// registry returns one for the test's metrics, whose metrics all have documented names.
func registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all, err := reg.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, f := range all {
			if !strings.Contains(string(page), f.GetName()) {
				t.Errorf("docs/metrics.md does not have %s", f.GetName())
			}
		}
	})
	return reg
}

// metric is the sum of one metric over its labels; of a histogram, how much it has seen.
func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func timeout(d time.Duration) func(*Config, *config.Plugin) {
	return func(_ *Config, p *config.Plugin) { p.Timeout = d }
}

func waiting(d time.Duration) func(*Config, *config.Plugin) {
	return func(c *Config, _ *config.Plugin) { c.InitialBackoff, c.MaxBackoff = d, d }
}

// about asks about topics.
func about(ctx context.Context, p *Plugin, names ...string) (*policyv1.SelectTopicsResponse, error) {
	q := &policyv1.SelectTopicsRequest{Round: &policyv1.Round{Mirror: "east"}}
	for _, n := range names {
		q.Topics = append(q.Topics, &policyv1.TopicFacts{Name: n})
	}
	return p.SelectTopics(ctx, q)
}

// insist asks until there is an answer: after a failure there is a wait.
func insist(t *testing.T, p *Plugin, names ...string) *policyv1.SelectTopicsResponse {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		a, err := about(t.Context(), p, names...)
		if err == nil {
			return a
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer again: %v", err)
		}
	}
}
