package kit

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// kind is how a plugin is asked about one kind: facts in, one decision for each out.
type kind struct {
	name policy.Kind
	// told: there is nothing to decide.
	told bool
	ask  func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error)

	ordinary func(n int) []proto.Message
	odd      func() []proto.Message
	// bare are facts of which almost nothing is known, unknown ones have words that Kafka has not yet.
	bare, unknown func() []proto.Message
	// large is one item of the size that they may well have.
	large func() proto.Message
}

func of[F any](facts []proto.Message) []F {
	out := make([]F, len(facts))
	for i, f := range facts {
		out[i] = f.(F)
	}
	return out
}

func plain[D proto.Message](decisions []D) []proto.Message {
	out := make([]proto.Message, len(decisions))
	for i, d := range decisions {
		out[i] = d
	}
	return out
}

func one(m proto.Message) func() []proto.Message {
	return func() []proto.Message { return []proto.Message{m} }
}

func kinds() []kind {
	return []kind{
		{
			name: policy.Topics,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				a, err := p.SelectTopics(ctx, &policyv1.SelectTopicsRequest{Round: r, Topics: of[*policyv1.TopicFacts](facts)})
				return plain(a.GetDecisions()), err
			},
			ordinary: func(n int) []proto.Message { return many(n, topic) },
			odd: func() []proto.Message {
				return strange(topic, func(t *policyv1.TopicFacts, n string) { t.Name = n })
			},
			bare: one(&policyv1.TopicFacts{Name: "bare"}),
			unknown: one(&policyv1.TopicFacts{
				Name: "later", StateHere: "TELEPORTING", MirrorHere: "west", Configs: map[string]string{"quantum.enable": "maybe"}, Partitions: -1, ExistsHere: true,
			}),
			large: func() proto.Message {
				t := topic(1)
				t.Configs["follower.replication.throttled.replicas"] = strings.Repeat("100000:100000,", 20_000)
				return t
			},
		},
		{
			name: policy.Configs,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				a, err := p.SelectConfigs(ctx, &policyv1.SelectConfigsRequest{Round: r, Topics: of[*policyv1.TopicConfigFacts](facts)})
				return plain(a.GetTopics()), err
			},
			// Sidecars count configs, not topics.
			ordinary: func(n int) []proto.Message { return many((n+configsEach-1)/configsEach, topicConfigs) },
			odd: func() []proto.Message {
				return strange(topicConfigs, func(t *policyv1.TopicConfigFacts, n string) {
					t.Topic = n
					t.Configs = append(t.Configs, &policyv1.ConfigFacts{Name: n, SourceValue: n, SourceSet: true, ValueHere: proto.String(n), EffectiveHere: n})
				})
			},
			bare: one(&policyv1.TopicConfigFacts{Topic: "bare", Configs: []*policyv1.ConfigFacts{{Name: "retention.ms"}}}),
			unknown: one(&policyv1.TopicConfigFacts{Topic: "later", Configs: []*policyv1.ConfigFacts{
				{Name: "quantum.enable", SourceValue: "maybe", SourceSet: true}, {Name: "hidden", SourceSet: true, Sensitive: true},
			}}),
			large: func() proto.Message {
				t := topicConfigs(1)
				t.Configs[2].SourceValue = strings.Repeat("100000:100000,", 2000)
				return t
			},
		},
		{
			name: policy.ACLs,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				a, err := p.SelectAcls(ctx, &policyv1.SelectAclsRequest{Round: r, Acls: of[*policyv1.AclFacts](facts)})
				return plain(a.GetDecisions()), err
			},
			ordinary: func(n int) []proto.Message { return many(n, acl) },
			odd: func() []proto.Message {
				return strange(acl, func(a *policyv1.AclFacts, n string) { a.Acl.ResourceName, a.Acl.Principal = n, "User:"+n })
			},
			bare: one(&policyv1.AclFacts{}),
			unknown: one(&policyv1.AclFacts{Acl: &policyv1.AclBinding{
				ResourceType: "NEBULA", ResourceName: "later", PatternType: "LITERAL", Principal: "Robot:r2", Host: "*", Operation: "TELEPORT", PermissionType: "ALLOW",
			}}),
			large: func() proto.Message {
				a := acl(1)
				a.Acl.Principal = "User:CN=" + strings.Repeat("a", 2000)
				return a
			},
		},
		{
			name: policy.Groups,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				a, err := p.SelectGroups(ctx, &policyv1.SelectGroupsRequest{Round: r, Groups: of[*policyv1.GroupFacts](facts)})
				return plain(a.GetDecisions()), err
			},
			ordinary: func(n int) []proto.Message { return many(n, group) },
			odd: func() []proto.Message {
				return strange(group, func(g *policyv1.GroupFacts, n string) { g.Group = n })
			},
			bare:    one(&policyv1.GroupFacts{Group: "bare"}),
			unknown: one(&policyv1.GroupFacts{Group: "later", Type: "quantum", SourceState: "Superposed", StateHere: "Entangled"}),
			large: func() proto.Message {
				g := group(0)
				for p := range int32(20_000) {
					g.Offsets = append(g.Offsets, &policyv1.GroupOffset{Topic: strings.Repeat("t", 100), Partition: p, SourceOffset: 1 << 40, OffsetHere: -1, EndHere: 1 << 41})
				}
				return g
			},
		},
		{
			name: policy.Quotas,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				a, err := p.SelectQuotas(ctx, &policyv1.SelectQuotasRequest{Round: r, Quotas: of[*policyv1.QuotaFacts](facts)})
				return plain(a.GetDecisions()), err
			},
			ordinary: func(n int) []proto.Message { return many(n, quota) },
			odd: func() []proto.Message {
				return strange(quota, func(q *policyv1.QuotaFacts, n string) {
					q.Entity = []*policyv1.QuotaEntity{{Type: "user", Name: proto.String(n)}}
				})
			},
			bare:    one(&policyv1.QuotaFacts{Key: "producer_byte_rate"}),
			unknown: one(&policyv1.QuotaFacts{Entity: []*policyv1.QuotaEntity{{Type: "galaxy"}}, Key: "warp_factor", SourceValue: -1}),
			large: func() proto.Message {
				q := quota(0)
				q.Entity = []*policyv1.QuotaEntity{{Type: "client-id", Name: proto.String(strings.Repeat("c", 10_000))}}
				return q
			},
		},
		{
			name: policy.Events, told: true,
			ask: func(ctx context.Context, p policy.Plugin, r *policyv1.Round, facts []proto.Message) ([]proto.Message, error) {
				_, err := p.Notify(ctx, &policyv1.NotifyRequest{Round: r, Events: of[*policyv1.Event](facts), GivenUp: 3})
				return nil, err
			},
			// What is told goes somewhere.
			ordinary: func(n int) []proto.Message { return many(min(n, 20), event) },
			odd: func() []proto.Message {
				return strange(event, func(e *policyv1.Event, n string) { e.Topic, e.Error = n, n })
			},
			bare:    one(&policyv1.Event{}),
			unknown: one(&policyv1.Event{Topic: "later", FromState: "TELEPORTING", ToState: "ENTANGLED", Partition: -1}),
			large: func() proto.Message {
				e := event(1)
				e.Error = strings.Repeat("why ", 5000)
				return e
			},
		},
	}
}
