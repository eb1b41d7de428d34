package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// setQuota sets how many bytes a user may produce in a second; a negative number removes that.
func setQuota(t *testing.T, adm *kadm.Client, user string, rate float64) {
	t.Helper()
	r, err := adm.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &user}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: max(rate, 0), Remove: rate < 0}},
	}})
	for _, x := range r {
		err = errors.Join(err, x.Err)
	}
	if err != nil {
		t.Fatalf("quota of %s: %v", user, err)
	}
}

// hasQuotas returns when these are what users whose names begin so may produce.
func hasQuotas(t *testing.T, adm *kadm.Client, prefix string, want map[string]float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the quotas are %v", want), func(ctx context.Context) error {
		all, err := adm.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: kmsg.QuotasMatchTypeAny}})
		got := map[string]float64{}
		for _, q := range all {
			if name := q.Entity[0].Name; name != nil && strings.HasPrefix(*name, prefix) {
				got[*name] = q.Values[0].Value
			}
		}
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("they are %v", got)
		}
		return err
	})
}

// policiesQuotas: quotas that match follow the source and go with it, and are written down as the
// mirror's; what somebody else has set stays.
func policiesQuotas(t *testing.T, e *env) {
	src := kadm.NewClient(e.srcClient)
	for user, rate := range map[string]float64{"c9-13.a": 1e6, "c9-13.b": 2e6, "c9-13.c": 3e6, "other.c9-13": 4e6} {
		setQuota(t, src, user, rate)
	}
	setQuota(t, e.dstAdmin, "c9-13.c", 7)
	m := e.mirror(t, "c9-13", "mirror.policy.quotas", "built-in", "mirror.quotas.include", "user=c9-13[.].*")
	hasQuotas(t, e.dstAdmin, "c9-13", map[string]float64{"c9-13.a": 1e6, "c9-13.b": 2e6, "c9-13.c": 7})
	owned := map[string]bool{}
	for _, s := range e.state(t) {
		k, ok := s.key.(protocol.OwnedKey)
		if !ok || k.MirrorName != m {
			continue
		}
		if want := javaPartition(m, statePartitions); k.Kind != "quotas" || s.partition != want {
			t.Errorf("%+v in partition %d, want %d", k, s.partition, want)
		}
		for _, item := range s.value.(*protocol.OwnedValue).Items {
			owned[item.Item] = item.SinceMs > 0
		}
	}
	if want := map[string]bool{"user=c9-13.a;producer_byte_rate": true, "user=c9-13.b;producer_byte_rate": true}; !maps.Equal(owned, want) {
		t.Errorf("written down as the mirror's: %v, want %v", owned, want)
	}
	setQuota(t, src, "c9-13.a", 5e6)
	setQuota(t, src, "c9-13.b", -1)
	hasQuotas(t, e.dstAdmin, "c9-13", map[string]float64{"c9-13.a": 5e6, "c9-13.c": 7})
	hasQuotas(t, e.dstAdmin, "other.c9-13", map[string]float64{})
}

// rightsQuotas: who may describe the cluster, but not configs, is told which quotas are left out, and
// not what they are.
func rightsQuotas(t *testing.T, e *env) {
	s := e.secured(t)
	const user, item = "c8-5.a", "user=c8-5.a;producer_byte_rate"
	setQuota(t, kadm.NewClient(e.srcClient), user, 1e6)
	setQuota(t, s.admin(t), user, 424242)
	m := s.mirrorWith(t, "c8-5-quotas", e.sourceConfig("mirror.policy.quotas", "built-in", "mirror.quotas.include", "user=c8-5[.].*"))
	cl := apiClient(t, s.addr(), login("auditor"))
	reason := func(ctx context.Context) (string, error) {
		d, err := describe(ctx, cl, m)
		if err != nil {
			return "", err
		}
		for _, p := range d.Policies {
			i := slices.IndexFunc(p.Skipped, func(s protocol.PolicySkip) bool { return p.Kind == "quotas" && s.Name == item })
			if i >= 0 {
				return p.Skipped[i].Reason, nil
			}
		}
		return "", fmt.Errorf("%s is not named: %+v", item, d.Policies)
	}
	says := func(want string) {
		t.Helper()
		eventually(t, "what is said of a quota that is left out", func(ctx context.Context) error {
			why, err := reason(ctx)
			if err == nil && !strings.Contains(why, want) {
				err = errors.New(why)
			}
			if strings.Contains(want, "DESCRIBE_CONFIGS") && strings.Contains(why, "424242") {
				t.Errorf("without DESCRIBE_CONFIGS it is told that %q", why)
			}
			return err
		})
	}
	explained := func() error {
		req := protocol.NewExplainClusterMirrorRequest()
		req.MirrorName, req.Kind, req.Name = &m, "quota", item
		r := askAt[*protocol.ExplainClusterMirrorResponse](t, s.addr(), &req, login("auditor"))
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	refused(t, explained(), protocol.ClusterMirrorAuthorizationFailed, "DESCRIBE")
	s.allow(t, "auditor", kadm.OpDescribe)
	says("lacks DESCRIBE_CONFIGS")
	refused(t, explained(), protocol.ClusterMirrorAuthorizationFailed, "DESCRIBE_CONFIGS")
	s.allow(t, "auditor", kadm.OpDescribeConfigs)
	says("424242")
	if err := explained(); err != nil {
		t.Errorf("with DESCRIBE_CONFIGS: %v", err)
	}
}
