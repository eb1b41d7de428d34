package examples

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// patience bounds everything that is waited for: CI's machines are slow.
const patience = 2 * time.Minute

// goExamples are those that the Go command builds.
var goExamples = []string{"naming", "groupprefix", "webhook"}

// plugin runs a program as a sidecar would.
func plugin(t *testing.T, program string, conf map[string]string) policy.Plugin {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(program), filepath.Ext(program))
	h, err := host.New(host.Config{
		Plugins: map[string]*config.Plugin{name: {Name: name, Command: []string{program}, Timeout: patience, Config: conf}},
	}, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.Output(), nil)))
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
	p, err := h.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a command, in a folder.
func run(ctx context.Context, t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestGo builds the examples in Go and asks them as a sidecar does.
func TestGo(t *testing.T) {
	harness.SkipShort(t)
	bin := t.TempDir()
	run(within(t), t, "", "go", "build", "-o", bin+"/", "./...")
	for _, name := range goExamples {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Error(err)
		}
	}

	naming := plugin(t, filepath.Join(bin, "naming"), map[string]string{"teams": "billing"})
	topics, err := naming.SelectTopics(within(t), &policyv1.SelectTopicsRequest{Topics: []*policyv1.TopicFacts{
		{Name: "billing.orders.paid"}, {Name: "shipping.orders.sent"}, {Name: "orders"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, rule := range []string{"form", "teams", "form"} {
		d := topics.Decisions[i].Decision
		if d.Rule != rule || (d.Verdict == policyv1.Decision_ACCEPT) != (i == 0) {
			t.Errorf("naming of %s: %v", topics.Decisions[i].Name, d)
		}
	}

	groups, err := plugin(t, filepath.Join(bin, "groupprefix"), map[string]string{"include": "app-"}).
		SelectGroups(within(t), &policyv1.SelectGroupsRequest{Groups: []*policyv1.GroupFacts{{Group: "app-1"}, {Group: "tool"}}})
	if err != nil {
		t.Fatal(err)
	}
	if groups.Decisions[0].Decision.Verdict != policyv1.Decision_ACCEPT || groups.Decisions[1].Decision.Verdict != policyv1.Decision_REFUSE {
		t.Errorf("groupprefix: %v", groups)
	}

	got := make(chan map[string]any, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		got <- body
	}))
	defer s.Close()
	_, err = plugin(t, filepath.Join(bin, "webhook"), map[string]string{"url": s.URL}).Notify(within(t), &policyv1.NotifyRequest{
		Round: &policyv1.Round{Mirror: "east"}, Events: []*policyv1.Event{{Topic: "orders", ToState: "FAILED"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if body := <-got; body["mirror"] != "east" {
		t.Errorf("posted: %v", body)
	}

	// What is wrong with a configuration is said before anything is decided.
	_, err = plugin(t, filepath.Join(bin, "webhook"), map[string]string{"url": "nowhere"}).Notify(within(t), &policyv1.NotifyRequest{})
	if err == nil || !strings.Contains(err.Error(), "no address of an HTTP server") {
		t.Errorf("with a wrong address: %v", err)
	}
}

// buildPython builds the example in Python in a folder of its own, and returns the program.
func buildPython(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // the package index may be slow
	defer cancel()
	venv, err := harness.PolicyPython(ctx, filepath.Join("..", "python", "requirements.txt"))
	if err != nil {
		t.Skipf("no Python for policies here: %v", err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "principals")
	if err := os.CopyFS(dir, os.DirFS("principals")); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, dir, "make", "VENV="+venv, "PROTO="+filepath.Join(root, "policyv1", "policy.proto"), "SDK="+filepath.Join(root, "python", "mirror_policy.py"), "build", "test")
	return filepath.Join(dir, "principals.pyz")
}

// TestPython builds the example in Python, runs its tests, and asks it as a sidecar does: over the same
// handshake, with TLS on both sides.
func TestPython(t *testing.T) {
	harness.SkipShort(t)
	p := plugin(t, buildPython(t), map[string]string{"map": `User:legacy-.* -> ; User:(.*) -> User:\1@here`})
	acl := func(principal string) *policyv1.AclFacts {
		return &policyv1.AclFacts{Acl: &policyv1.AclBinding{
			ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL",
			Principal: principal, Host: "*", Operation: "READ", PermissionType: "ALLOW",
		}}
	}
	resp, err := p.SelectAcls(within(t), &policyv1.SelectAclsRequest{Acls: []*policyv1.AclFacts{acl("User:alice"), acl("User:legacy-etl"), acl("Group:x")}})
	if err != nil {
		t.Fatal(err)
	}
	mapped, left, same := resp.Decisions[0], resp.Decisions[1], resp.Decisions[2]
	if mapped.Decision.Verdict != policyv1.Decision_ACCEPT || mapped.As.GetPrincipal() != "User:alice@here" || mapped.As.ResourceName != "orders" {
		t.Errorf("mapped: %v", mapped)
	}
	if left.Decision.Verdict != policyv1.Decision_REFUSE || left.As != nil {
		t.Errorf("left out: %v", left)
	}
	if same.Decision.Verdict != policyv1.Decision_ACCEPT || same.As != nil {
		t.Errorf("the same: %v", same)
	}
	if kinds := p.Kinds(); len(kinds) != 1 || kinds[0] != policy.ACLs {
		t.Errorf("kinds: %v", kinds)
	}
}
