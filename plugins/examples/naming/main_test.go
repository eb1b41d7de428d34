package main

import (
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		topic, teams string
		accepted     bool
		rule, says   string
	}{
		{"billing.orders.paid", "", true, "form", "team billing"},
		{"billing.orders.paid", "billing, shipping", true, "form", "team billing"},
		{"billing.orders.paid", "shipping", false, "teams", `no team "billing"`},
		{"orders", "", false, "form", "1 parts"},
		{"a.b.c.d", "", false, "form", "4 parts"},
		{"Billing.orders.paid", "", false, "team", `"Billing" is no team`},
		{"billing..paid", "", false, "domain", `"" is no domain`},
		{"billing.orders.paid_v2", "", false, "name", `"paid_v2" is no name`},
	} {
		d, err := decide(t.Context(), &policyv1.Round{PluginConfig: map[string]string{"teams": c.teams}}, &policyv1.TopicFacts{Name: c.topic})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Verdict == policyv1.Decision_ACCEPT; got != c.accepted || d.Rule != c.rule || !strings.Contains(d.Reason, c.says) {
			t.Errorf("%s with teams %q: %v", c.topic, c.teams, d)
		}
	}
}

func TestCheckConfig(t *testing.T) {
	for key, ok := range map[string]bool{"teams=a,b-2": true, "teams=": true, "teams=A": false, "team=a": false} {
		k, v, _ := strings.Cut(key, "=")
		if err := checkConfig(map[string]string{k: v}); (err == nil) != ok {
			t.Errorf("%s: %v", key, err)
		}
	}
}
