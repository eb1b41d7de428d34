package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

func TestNotWanted(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		kind     policy.Kind
		key      string
	}{
		{map[string]string{}, policy.ACLs, "mirror.acls.include"},
		{map[string]string{"mirror.acls.include": " ,"}, policy.ACLs, "mirror.acls.include"},
		{map[string]string{"mirror.acls.include": "TOPIC"}, policy.ACLs, ""},
		{map[string]string{"mirror.policy.acls": "own"}, policy.ACLs, ""},
		{map[string]string{"mirror.policy.acls": "", "mirror.acls.include": "TOPIC"}, policy.ACLs, "mirror.policy.acls"},
		{map[string]string{"mirror.quotas.include": "user=.*"}, policy.Quotas, "mirror.policy.quotas"},
		{map[string]string{"mirror.policy.quotas": "built-in"}, policy.Quotas, "mirror.quotas.include"},
		{map[string]string{"mirror.policy.quotas": "built-in", "mirror.quotas.include": "user=.*"}, policy.Quotas, ""},
		{map[string]string{"mirror.groups.include": ".*"}, policy.Groups, ""},
		{map[string]string{"mirror.groups.include": ""}, policy.Groups, "mirror.groups.include"},
	} {
		if key, why := notWanted(c.settings, c.kind); key != c.key || (why == "") != (key == "") {
			t.Errorf("%s with %v: %q, %q, want %q", c.kind, c.settings, key, why, c.key)
		}
	}
}
