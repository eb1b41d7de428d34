package config

import (
	"strings"
	"testing"
)

func TestACLRules(t *testing.T) {
	type acl struct{ resource, name, operation, permission, principal string }
	read := acl{"TOPIC", "orders", "READ", "ALLOW", "User:alice"}
	for rules, want := range map[string]map[acl]string{
		"": {read: ""},
		"*": {
			read: "*",
			{"CLUSTER", "kafka-cluster", "ALTER", "DENY", "User:*"}: "*",
		},
		"topic": {
			read:                                  "topic",
			{"GROUP", "g", "READ", "ALLOW", "u"}:  "",
			{"TOPIC", "*", "READ", "ALLOW", "u"}:  "topic",
			{"TOPIC", "a.", "WRITE", "DENY", "u"}: "topic",
		},
		"Group;*;read, TOPIC;orders|pay.*;*;ALLOW;User:(alice|bob)": {
			read: "TOPIC;orders|pay.*;*;ALLOW;User:(alice|bob)",
			{"TOPIC", "orders-2", "READ", "ALLOW", "User:alice"}: "",
			{"TOPIC", "payments", "READ", "DENY", "User:alice"}:  "",
			{"TOPIC", "payments", "ALL", "ALLOW", "User:bob"}:    "TOPIC;orders|pay.*;*;ALLOW;User:(alice|bob)",
			{"TOPIC", "payments", "ALL", "ALLOW", "User:bobby"}:  "",
			{"GROUP", "g", "READ", "DENY", "User:x"}:             "Group;*;read",
			{"GROUP", "g", "DESCRIBE", "DENY", "User:x"}:         "",
		},
		"transactional_id;x;any;*": {
			{"TRANSACTIONAL_ID", "x", "WRITE", "ALLOW", "User:CN=a,O=b"}: "transactional_id;x;any;*",
			{"TRANSACTIONAL_ID", "xy", "WRITE", "ALLOW", "User:a"}:       "",
		},
		// The literal name * is not what the regular expression a|b means.
		"TOPIC;a|b": {
			{"TOPIC", "*", "READ", "ALLOW", "User:a"}:  "",
			{"TOPIC", "ab", "READ", "ALLOW", "User:a"}: "",
			{"TOPIC", "b", "READ", "ALLOW", "User:a"}:  "TOPIC;a|b",
		},
	} {
		r, err := ParseACLRules(rules)
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		for a, rule := range want {
			got, ok := r.Match(a.resource, a.name, a.operation, a.permission, a.principal)
			if got != rule || ok != (rule != "") {
				t.Errorf("%q, %+v: rule %q, want %q", rules, a, got, rule)
			}
		}
	}
	for rules, want := range map[string]string{
		"TOPIC;a;READ;ALLOW;User:a;x":  "at most five",
		"TOPICS":                       `"TOPICS" is no resource type: TOPIC, GROUP, CLUSTER`,
		"TOPIC;a;FETCH":                "is no operation: ALL, READ",
		"TOPIC;a;READ;MAYBE":           "is no permission type: DENY, ALLOW",
		"TOPIC;(;READ":                 "resource name: ",
		"TOPIC;a;READ;ALLOW;(":         "principal: ",
		"CLUSTER_MIRROR":               "is no resource type",
		"TOPIC;a)|(b;READ;ALLOW;User:": "is not a regular expression",
	} {
		if _, err := ParseACLRules(rules); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rules, err, want)
		}
	}
	if r, err := ParseACLRules(" a;b , GROUP "); err == nil {
		t.Errorf("%s was taken", r)
	}
	if r, err := ParseACLRules(" TOPIC;b , GROUP "); err != nil || r.String() != "TOPIC;b,GROUP" {
		t.Errorf("%q, %v", r, err)
	}
}
