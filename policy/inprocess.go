package policy

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// InProcess are Plugins without processes, by name: policies that are part of this one. Tests work
// with it, and who mirrors nothing.
type InProcess map[string]plugins.Policy

// Get implements Plugins.
func (p InProcess) Get(name string) (Plugin, error) {
	one, ok := p[name]
	if !ok {
		return nil, fmt.Errorf("there is no plugin %q", name)
	}
	return inProcess{name, one}, nil
}

type inProcess struct {
	name   string
	policy plugins.Policy
}

func (p inProcess) Name() string { return p.name }

func (p inProcess) Kinds() []Kind {
	var out []Kind
	for _, k := range p.policy.Kinds() {
		out = append(out, Kind(k))
	}
	return out
}

func (p inProcess) lacks(k Kind) error {
	return fmt.Errorf("plugin %s does not decide on %s", p.name, k)
}

func (p inProcess) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	if p.policy.Topics == nil {
		return nil, p.lacks(Topics)
	}
	return p.policy.Topics.SelectTopics(ctx, r)
}

func (p inProcess) SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	if p.policy.Configs == nil {
		return nil, p.lacks(Configs)
	}
	return p.policy.Configs.SelectConfigs(ctx, r)
}

func (p inProcess) SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	if p.policy.ACLs == nil {
		return nil, p.lacks(ACLs)
	}
	return p.policy.ACLs.SelectAcls(ctx, r)
}

func (p inProcess) SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	if p.policy.Groups == nil {
		return nil, p.lacks(Groups)
	}
	return p.policy.Groups.SelectGroups(ctx, r)
}

func (p inProcess) SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	if p.policy.Quotas == nil {
		return nil, p.lacks(Quotas)
	}
	return p.policy.Quotas.SelectQuotas(ctx, r)
}

func (p inProcess) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	if p.policy.Events == nil {
		return nil, p.lacks(Events)
	}
	return p.policy.Events.Notify(ctx, r)
}
