package plugins

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/host"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

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

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// The policies of the sidecar's own are a plugin like any other.
func TestBuiltIn(t *testing.T) {
	harness.SkipShort(t)
	check(t, "built-in", "--", filepath.Join(stack.Binaries(), "mirror-sidecar"), "plugin", "built-in")
}

// TestExamplesInGo builds the examples in Go and asks them as a sidecar does.
func TestExamplesInGo(t *testing.T) {
	harness.SkipShort(t)
	bin := t.TempDir()
	do(t, root(t), "go", "build", "-o", bin+"/", "./plugins/examples/...")

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

	deaf := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer deaf.Close()
	check(t, "example naming", "--", filepath.Join(bin, "naming"))
	check(t, "example groupprefix", "--", filepath.Join(bin, "groupprefix"))
	check(t, "example webhook", "--config", "url="+deaf.URL, "--", filepath.Join(bin, "webhook"))

	// What is wrong with a configuration is said before anything is decided.
	_, err = plugin(t, filepath.Join(bin, "webhook"), map[string]string{"url": "nowhere"}).Notify(within(t), &policyv1.NotifyRequest{})
	if err == nil || !strings.Contains(err.Error(), "no address of an HTTP server") {
		t.Errorf("with a wrong address: %v", err)
	}
}

// buildPython builds the example in Python in a folder of its own, and returns the program.
func buildPython(t *testing.T) string {
	t.Helper()
	with := venv(t)
	dir := filepath.Join(t.TempDir(), "principals")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root(t), "plugins", "examples", "principals"))); err != nil {
		t.Fatal(err)
	}
	do(t, dir, "make", "VENV="+with, "PROTO="+filepath.Join(root(t), "plugins", "policyv1", "policy.proto"),
		"SDK="+filepath.Join(root(t), "plugins", "python", "mirror_policy.py"), "build", "test")
	return filepath.Join(dir, "principals.pyz")
}

// TestExampleInPython builds the example in Python, runs its tests, and asks it as a sidecar does: over the same
// handshake, with TLS on both sides.
func TestExampleInPython(t *testing.T) {
	harness.SkipShort(t)
	program := buildPython(t)
	check(t, "example principals", "--config", "map=User:CN=(.*) -> User:\\1", "--", program)
	p := plugin(t, program, map[string]string{"map": `User:legacy-.* -> ; User:(.*) -> User:\1@here`})
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
