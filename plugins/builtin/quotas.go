package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// quotas selects client quotas by their entity, and changes no value.
type quotas struct{}

// SelectQuotas implements plugins.QuotaPolicy.
func (quotas) SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	include, err := namePatterns(r.GetRound(), config.QuotasIncludeKey)
	if err != nil {
		return nil, err
	}
	return plugins.QuotaFunc(func(_ context.Context, _ *policyv1.Round, q *policyv1.QuotaFacts) (*policyv1.Decision, *float64, error) {
		return selectQuota(include, q), nil, nil
	}).SelectQuotas(ctx, r)
}

func selectQuota(include []config.Pattern, q *policyv1.QuotaFacts) *policyv1.Decision {
	if p, ok := firstMatch(include, entityText(q.GetEntity())); ok {
		return plugins.Accept(config.QuotasIncludeKey, fmt.Sprintf("included by the pattern %q", p))
	}
	return plugins.Refuse(config.QuotasIncludeKey, "no pattern of the mirror matches")
}

// entityText is whom a quota is for: user=alice,client-id=<default>.
func entityText(entity []*policyv1.QuotaEntity) string {
	parts := make([]string, len(entity))
	for i, e := range entity {
		name := "<default>"
		if e.Name != nil {
			name = e.GetName()
		}
		parts[i] = e.GetType() + "=" + name
	}
	return strings.Join(parts, ",")
}
