package policy

import (
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// ConfigItem names a config of a topic, as --explain --config takes it.
func ConfigItem(topic, key string) string { return topic + "/" + key }

// ACLItem names an ACL: the five fields of a rule (contract.md §6), and the two that a rule leaves open.
func ACLItem(a *policyv1.AclBinding) string {
	return strings.Join([]string{
		a.GetResourceType(), a.GetResourceName(), a.GetOperation(), a.GetPermissionType(), a.GetPrincipal(), a.GetPatternType(), a.GetHost(),
	}, ";")
}

// QuotaItem names a quota: user=alice,client-id=<default>;producer_byte_rate.
func QuotaItem(entity []*policyv1.QuotaEntity, key string) string {
	parts := make([]string, len(entity))
	for i, e := range entity {
		name := "<default>"
		if e.Name != nil {
			name = e.GetName()
		}
		parts[i] = e.GetType() + "=" + name
	}
	return strings.Join(parts, ",") + ";" + key
}
