package builtin

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// acls selects ACLs by the rules of a mirror, and changes none.
type acls struct{}

// SelectAcls implements plugins.ACLPolicy.
func (acls) SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	include, err := aclRules(r.GetRound(), config.ACLsIncludeKey)
	if err != nil {
		return nil, err
	}
	exclude, err := aclRules(r.GetRound(), config.ACLsExcludeKey)
	if err != nil {
		return nil, err
	}
	return plugins.ACLFunc(func(_ context.Context, _ *policyv1.Round, a *policyv1.AclFacts) (*policyv1.Decision, *policyv1.AclBinding, error) {
		return selectACL(include, exclude, a.GetAcl()), nil, nil
	}).SelectAcls(ctx, r)
}

func aclRules(r *policyv1.Round, key string) (config.ACLRules, error) {
	rules, err := config.ParseACLRules(r.GetMirrorConfig()[key])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return rules, nil
}

func selectACL(include, exclude config.ACLRules, a *policyv1.AclBinding) *policyv1.Decision {
	match := func(rules config.ACLRules) (string, bool) {
		return rules.Match(a.GetResourceType(), a.GetResourceName(), a.GetOperation(), a.GetPermissionType(), a.GetPrincipal())
	}
	if rule, ok := match(exclude); ok {
		return plugins.Refuse(config.ACLsExcludeKey, fmt.Sprintf("excluded by the rule %q", rule))
	}
	if rule, ok := match(include); ok {
		return plugins.Accept(config.ACLsIncludeKey, fmt.Sprintf("included by the rule %q", rule))
	}
	if len(include) == 0 {
		return plugins.Refuse(config.ACLsIncludeKey, "the mirror has no rules for ACLs")
	}
	return plugins.Refuse(config.ACLsIncludeKey, "no rule of the mirror fits")
}
