package syncs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// maxQuotas bounds what is read of one cluster.
const maxQuotas = 100_000

// The types of entities, in the order in which they are named.
const (
	entityUser   = "user"
	entityClient = "client-id"
	entityIP     = "ip"
)

// quota is one value for one entity. Several make a user's quotas.
type quota struct {
	entity []component
	key    string
	value  float64
}

// component is one part of an entity: its user, say.
type component struct {
	kind      string
	name      string
	isDefault bool // of the type, name is empty
}

func componentOf(kind string, name *string) component {
	if name == nil {
		return component{kind: kind, isDefault: true}
	}
	return component{kind: kind, name: *name}
}

// ordered puts the parts of an entity, which come in any order, into one.
func ordered(entity []component) []component {
	order := []string{entityUser, entityClient, entityIP}
	slices.SortFunc(entity, func(a, b component) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind)), cmp.Compare(a.kind, b.kind))
	})
	return entity
}

func (q quota) facts() *policyv1.QuotaFacts {
	f := &policyv1.QuotaFacts{Key: q.key, SourceValue: q.value}
	for _, c := range q.entity {
		e := &policyv1.QuotaEntity{Type: c.kind}
		if !c.isDefault {
			e.Name = &c.name
		}
		f.Entity = append(f.Entity, e)
	}
	return f
}

// of is whom it is for.
func (q quota) of() string { return strings.TrimSuffix(q.item(), ";"+q.key) }

// item names it, for the ledger and the state topic.
func (q quota) item() string {
	f := q.facts()
	return policy.QuotaItem(f.GetEntity(), f.GetKey())
}

// bound says why a quota is not set here whatever the policies say; empty if it may be.
func (q quota) bound(allowHosts bool) string {
	for _, c := range q.entity {
		switch {
		case c.kind == entityIP && !allowHosts:
			return "it is for an ip address, and behind a sidecar brokers see its address instead of the client's; the sidecars' allow.host.rules.ignored mirrors it all the same"
		case c.kind != entityUser && c.kind != entityClient && c.kind != entityIP:
			return fmt.Sprintf("it is for a %s, which this build does not know", c.kind)
		case strings.Contains(c.name, ";") || slices.ContainsFunc([]string{entityUser, entityClient, entityIP}, func(kind string) bool { return strings.Contains(c.name, ","+kind+"=") }):
			return fmt.Sprintf("the name %q could be taken for another part of the entity", c.name)
		}
	}
	if text := q.item(); len(text) > maxACLText {
		return fmt.Sprintf("its entity is longer than %d bytes", maxACLText)
	}
	return ""
}

// readQuotas returns all client quotas of a cluster, by item. What could be taken for another one is
// left out of here, and in skipped.
func readQuotas(ctx context.Context, cl *kgo.Client) (found map[string]quota, skipped []Skip, err error) {
	resp, err := kmsg.NewPtrDescribeClientQuotasRequest().RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, fmt.Errorf("read client quotas: %w", err)
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return nil, nil, fmt.Errorf("read client quotas: DESCRIBE_CONFIGS on the cluster is needed: %w", err)
	case err != nil:
		return nil, nil, fmt.Errorf("read client quotas: %w%s", err, detail(resp.ErrorMessage))
	}
	found = map[string]quota{}
	for _, e := range resp.Entries {
		var entity []component
		for _, c := range e.Entity {
			entity = append(entity, componentOf(c.Type, c.Name))
		}
		entity = ordered(entity)
		for _, v := range e.Values {
			q := quota{entity: entity, key: v.Key, value: v.Value}
			if why := q.bound(true); why != "" {
				skipped = append(skipped, Skip{q.item(), why})
				continue
			}
			found[q.item()] = q
		}
		if len(found) > maxQuotas {
			return nil, nil, fmt.Errorf("read client quotas: there are more than %d", maxQuotas)
		}
	}
	return found, skipped, nil
}
