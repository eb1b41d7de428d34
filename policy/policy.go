package policy

import (
	"context"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// Kind is what a policy decides on, as mirror.policy.<kind> names it.
type Kind string

// The kinds (contract.md §9).
const (
	Topics  Kind = "topics"
	Configs Kind = "configs"
	ACLs    Kind = "acls"
	Groups  Kind = "groups"
	Quotas  Kind = "quotas"
	Events  Kind = "events"
)

// BuiltIn is the name of the plugin that is part of the sidecar.
const BuiltIn = config.PluginBuiltIn

// Plugin is a plugin as the engine asks it. Answers have been checked: they decide on what was
// asked and nothing else, in its order. Errors say which plugin was asked for what, and why there
// is no answer: it has crashed, does not answer in time, or answers nonsense.
type Plugin interface {
	Name() string
	// Kinds are those that it decides on, empty before it has run for the first time.
	Kinds() []Kind
	SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error)
	SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error)
	SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error)
	SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error)
	SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error)
	Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error)
}

// Plugins are those that the sidecar is configured with, and the one built in.
type Plugins interface {
	// Get returns a plugin. An error says that there is none of that name, or that its program is
	// not the one whose sha256 is configured.
	Get(name string) (Plugin, error)
}

// Question is what a round of questions is about.
type Question struct {
	Mirror               string
	SourceClusterID      string
	DestinationClusterID string
	// Config is the mirror's configuration with defaults and without secrets.
	Config map[string]string
	Why    policyv1.Round_Why
	// Within bounds how long the plugins are asked, if it is not 0. Those that have not answered by
	// then cannot be asked: what they said last stands. A refresh goes on with those there the next time.
	Within time.Duration
	// Peek asks without consequences: nothing of the answer is remembered, whatever Why is.
	Peek bool
}

// Verdict is what the plugins say of one item.
type Verdict struct {
	Accepted bool
	// Plugin decided: the first that refused, or the last that was asked.
	Plugin string
	Rule   string
	Reason string
	// Stale: a plugin could not be asked, and what it said last stands. Undecided: it never said
	// anything of this item, which counts as refused.
	Stale, Undecided bool
}

// Entry is what is known of one item of a mirror: a topic, a config of a topic (topic/key), an ACL
// as the command line writes it, a group, a quota.
type Entry struct {
	Verdict
	// Since the verdict is what it is, as far as this process knows.
	Since time.Time
	// LastApplied is when something of it was last written to this cluster, or found to be there
	// already; LastError why it was not, and Skipped why nothing was done although it is accepted.
	LastApplied time.Time
	LastError   string
	Skipped     string
}
