package builtin

import (
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
)

// Policy is the built-in plugin.
func Policy(version string) plugins.Policy {
	return plugins.Policy{Name: config.PluginBuiltIn, Version: version, Topics: topics{}, Configs: configs{}, ACLs: acls{}, Groups: groups{}, Quotas: quotas{}}
}
