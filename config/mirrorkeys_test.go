package config

import "testing"

// TestSameSource: a filter may change while the source is read; whatever else changes needs
// a new connection.
func TestSameSource(t *testing.T) {
	filters := map[string]bool{
		TopicsIncludeKey: true, TopicsExcludeKey: true, "mirror.groups.include": true, "mirror.groups.exclude": true,
		ACLsIncludeKey: true, ACLsExcludeKey: true, QuotasIncludeKey: true,
		"mirror.stop.pid.reset": true, PropertiesAlwaysKey: true, PropertiesIncludeKey: true, PropertiesExcludeKey: true,
	}
	for _, kind := range []string{"topics", "configs", "acls", "groups", "quotas", "events"} {
		filters[PolicyPrefix+kind] = true
	}
	base := Properties{"bootstrap.servers": "a:1"}
	for _, k := range MirrorKeys() {
		changed := base.Clone()
		changed[k.Name] = "something else"
		if got := SameSource(base, changed); got != filters[k.Name] {
			t.Errorf("%s: the same source: %t", k.Name, got)
		}
		if def, known := MirrorDefault(k.Name); !known || def != k.Default {
			t.Errorf("%s: default %q, %t", k.Name, def, known)
		}
	}
	said := base.Clone()
	said["request.timeout.ms"], said["security.protocol"] = "30000", "PLAINTEXT"
	if !SameSource(base, said) {
		t.Error("a default that is written out changes nothing")
	}
	if _, known := MirrorDefault("nonsense"); known {
		t.Error("a default of nonsense")
	}
}

func TestIsList(t *testing.T) {
	known := map[string]bool{}
	for _, k := range MirrorKeys() {
		known[k.Name] = true
	}
	for _, k := range []string{"bootstrap.servers", TopicsIncludeKey, TopicsExcludeKey, "mirror.groups.include", "mirror.groups.exclude", ACLsIncludeKey, ACLsExcludeKey, QuotasIncludeKey, PropertiesExcludeKey, "mirror.policy.topics", "ssl.enabled.protocols"} {
		if !known[k] || !IsList(k) {
			t.Errorf("%s: known %t, a list %t", k, known[k], IsList(k))
		}
	}
	if IsList("request.timeout.ms") || IsList("sasl.jaas.config") {
		t.Error("no lists")
	}
	if got := JoinList(SplitList(" a, ,b ")); got != "a,b" {
		t.Errorf("%q", got)
	}
}

func TestHidden(t *testing.T) {
	for key, value := range map[string]string{
		"sasl.jaas.config": "x", "ssl.keystore.key": "x", "ssl.key.password": "x", "ssl.keystore.password": "x",
		"ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE----- x -----BEGIN PRIVATE KEY-----", "ssl.truststore.certificates": "-----BEGIN EC PRIVATE KEY-----",
	} {
		if !Hidden(key, value) || (Properties{key: value}).Redacted()[key] != redactedValue {
			t.Errorf("%s is shown", key)
		}
	}
	if Hidden("ssl.keystore.certificate.chain", "-----BEGIN CERTIFICATE-----") || Hidden("bootstrap.servers", "a:1") {
		t.Error("hidden for nothing")
	}
}

func TestForPolicies(t *testing.T) {
	got := ForPolicies(Properties{"bootstrap.servers": "a:1", "sasl.jaas.config": "secret", "mirror.policy.topics": "", "ssl.keystore.certificate.chain": "-----BEGIN PRIVATE KEY-----"})
	for key, want := range map[string]string{"bootstrap.servers": "a:1", TopicsExcludeKey: "__.*", "mirror.policy.acls": "built-in"} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if v, given := got["mirror.policy.topics"]; !given || v != "" {
		t.Error("no policy at all is not what a policy is told")
	}
	for _, secret := range []string{"sasl.jaas.config", "ssl.keystore.certificate.chain"} {
		if _, shown := got[secret]; shown {
			t.Errorf("%s is shown to policies", secret)
		}
	}
}
