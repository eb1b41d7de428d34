package main

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		group, include, exclude string
		accepted                bool
		rule                    string
	}{
		{"app-orders", "", "", true, "rest"},
		{"app-orders", "app-", "", true, "include app-"},
		{"tool-orders", "app-, batch-", "", false, "rest"},
		{"console-consumer-7", "", "console-,tmp-", false, "exclude console-"},
		{"app-test-orders", "app-", "app-test-", false, "exclude app-test-"},
		{"app-test-keep-orders", "app-,app-test-keep-", "app-test-", true, "include app-test-keep-"},
	} {
		config := map[string]string{include: c.include, exclude: c.exclude}
		d, err := decide(t.Context(), &policyv1.Round{PluginConfig: config}, &policyv1.GroupFacts{Group: c.group})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Verdict == policyv1.Decision_ACCEPT; got != c.accepted || d.Rule != c.rule || d.Reason == "" {
			t.Errorf("%s with %v: %v", c.group, config, d)
		}
	}
}

func TestCheckConfig(t *testing.T) {
	for _, c := range []struct {
		config map[string]string
		ok     bool
	}{
		{nil, true},
		{map[string]string{include: "a,b", exclude: "a-"}, true},
		{map[string]string{include: "a,b", exclude: "b"}, false},
		{map[string]string{"includes": "a"}, false},
	} {
		if err := checkConfig(c.config); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.config, err)
		}
	}
}
