package syncs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// quotaRules accepts everything, unless a test says something else.
type quotaRules struct {
	say func(f *policyv1.QuotaFacts) policy.QuotaVerdict
}

func (p *quotaRules) Quotas(_ context.Context, _ policy.Question, facts []*policyv1.QuotaFacts) ([]policy.QuotaVerdict, error) {
	out := make([]policy.QuotaVerdict, len(facts))
	for i, f := range facts {
		out[i] = policy.QuotaVerdict{Verdict: policy.Verdict{Accepted: true}, Value: f.GetSourceValue()}
		if p.say != nil {
			out[i] = p.say(f)
		}
	}
	return out, nil
}

type quotaRig struct {
	*Quotas
	diffRig
	policies *quotaRules
}

func newQuotaRig(t *testing.T) *quotaRig {
	t.Helper()
	r := &quotaRig{diffRig: newDiffRig(t, config.QuotasIncludeKey, ".*", "mirror.policy.quotas", "built-in"), policies: &quotaRules{}}
	r.Quotas = NewQuotas(QuotasConfig{Here: r.here(), Policies: r.policies})
	r.doubts.look, r.doubts.patience, r.changeEvery = time.Millisecond, 0, time.Millisecond
	return r
}

func (r *quotaRig) try(why policyv1.Round_Why) (Report, error) { return r.run(r.Quotas, why) }

func (r *quotaRig) round() Report {
	r.t.Helper()
	return r.refresh(r.Quotas)
}

func (c *cluster) alter(changes ...quotaChange) {
	c.t.Helper()
	results, err := alterQuotas(c.t.Context(), c.cl, changes)
	if err = errors.Join(append(results, err)...); err != nil {
		c.t.Fatal(err)
	}
}

func (r *quotaRig) same(want map[string]float64) {
	r.t.Helper()
	found, _, err := readQuotas(r.t.Context(), r.dst.cl)
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]float64{}
	for item, q := range found {
		got[item] = q.value
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("here are %v, want %v", got, want)
	}
}

func (r *quotaRig) owns(want ...string) {
	r.t.Helper()
	if got := slices.Sorted(maps.Keys(r.mirrors.Owned("m", policy.Quotas))); !slices.Equal(got, want) {
		r.t.Errorf("owned are %v, want %v", got, want)
	}
}

func user(name string, key string, value float64) quotaChange {
	return quotaChange{quota: quota{entity: []component{{kind: entityUser, name: name}}, key: key, value: value}}
}

func without(c quotaChange) quotaChange {
	c.remove = true
	return c
}

// TestQuotas sets what is missing, follows values, and touches nothing that others have set.
func TestQuotas(t *testing.T) {
	r := newQuotaRig(t)
	alice, bob, carol := user("alice", "producer_byte_rate", 1000), user("bob", "producer_byte_rate", 500), user("carol", "consumer_byte_rate", 7)
	both := quotaChange{quota: quota{
		entity: []component{{kind: entityUser, name: "alice"}, {kind: entityClient, isDefault: true}}, key: "request_percentage", value: 12.5,
	}}
	r.src.alter(alice, bob, carol, both)
	r.dst.alter(user("bob", "producer_byte_rate", 9), carol, user("local", "producer_byte_rate", 1))
	if report, err := r.try(policyv1.Round_DRY_RUN); err != nil || len(report.Changes) != 2 || report.Changes[0] != (Change{"user=alice,client-id=<default>;request_percentage", "create", "set to 12.5"}) {
		t.Errorf("a dry run says %+v %v", report, err)
	}
	r.owns()
	report := r.round()
	want := map[string]float64{
		"user=alice;producer_byte_rate": 1000, "user=alice,client-id=<default>;request_percentage": 12.5,
		"user=bob;producer_byte_rate": 9, "user=carol;consumer_byte_rate": 7, "user=local;producer_byte_rate": 1,
	}
	r.same(want)
	r.owns("user=alice,client-id=<default>;request_percentage", "user=alice;producer_byte_rate")
	if len(report.Skipped) != 1 || !strings.Contains(report.Skipped[0].Reason, "somebody has set it to 9 here") {
		t.Errorf("%+v", report)
	}
	if e, _ := r.ledger.Get("m", policy.Quotas, "user=bob;producer_byte_rate"); !strings.Contains(e.Skipped, "set it to 9") {
		t.Errorf("the ledger has %+v", e)
	}
	r.dst.asked(&kmsg.AlterClientQuotasRequest{})
	for range 3 {
		r.round()
	}
	if n := r.dst.asked(&kmsg.AlterClientQuotasRequest{}); n != 0 {
		t.Errorf("%d requests for nothing", n)
	}

	// Values follow the source where the mirror has set them, whoever has changed them.
	r.src.alter(user("alice", "producer_byte_rate", 2000))
	r.dst.alter(quotaChange{quota: quota{entity: both.entity, key: both.key, value: 99}})
	report = r.round()
	want["user=alice;producer_byte_rate"] = 2000
	r.same(want)
	if len(report.Changes) != 2 || report.Changes[1] != (Change{"user=alice;producer_byte_rate", "set", "from 1000 to 2000"}) {
		t.Errorf("%+v", report.Changes)
	}

	// What is removed at the source is removed here, if the mirror has set it.
	r.src.alter(without(alice), without(carol))
	r.round()
	delete(want, "user=alice;producer_byte_rate")
	r.same(want)
	r.owns("user=alice,client-id=<default>;request_percentage")
	// All is gone: another round has to find the same.
	r.src.alter(without(both), without(bob))
	if report := r.round(); len(report.Warnings) != 1 {
		t.Errorf("%+v", report)
	}
	r.same(want)
	r.round()
	delete(want, "user=alice,client-id=<default>;request_percentage")
	r.same(want)
	r.owns()
}

// TestQuotasByPolicy sets other values than the source's, and keeps to what was said last.
func TestQuotasByPolicy(t *testing.T) {
	r := newQuotaRig(t)
	r.src.alter(user("alice", "producer_byte_rate", 1000))
	const item = "user=alice;producer_byte_rate"
	r.policies.say = func(f *policyv1.QuotaFacts) policy.QuotaVerdict {
		return policy.QuotaVerdict{Verdict: policy.Verdict{Accepted: true}, Value: f.GetSourceValue() / 2}
	}
	r.round()
	r.same(map[string]float64{item: 500})
	for _, v := range []policy.Verdict{{Undecided: true}, {Stale: true}} {
		r.policies.say = func(*policyv1.QuotaFacts) policy.QuotaVerdict { return policy.QuotaVerdict{Verdict: v} }
		r.round()
		r.same(map[string]float64{item: 500})
	}
	r.policies.say = func(f *policyv1.QuotaFacts) policy.QuotaVerdict {
		if !f.GetOwned() || f.GetValueHere() != 500 {
			t.Errorf("the policy was told %v", f)
		}
		return policy.QuotaVerdict{Verdict: policy.Verdict{Reason: "no"}}
	}
	r.round()
	r.same(map[string]float64{})
	r.owns()
}

// TestQuotasOfTwoMirrors: what another mirror has set to another value stays.
func TestQuotasOfTwoMirrors(t *testing.T) {
	r := newQuotaRig(t)
	r.src.alter(user("alice", "producer_byte_rate", 1000), user("bob", "producer_byte_rate", 500))
	r.dst.alter(user("alice", "producer_byte_rate", 1), user("bob", "producer_byte_rate", 500))
	items := []string{"user=alice;producer_byte_rate", "user=bob;producer_byte_rate"}
	if err := r.mirrors.Own(t.Context(), "other", policy.Quotas, items, nil); err != nil {
		t.Fatal(err)
	}
	report := r.round()
	r.same(map[string]float64{items[0]: 1, items[1]: 500})
	r.owns(items[1]) // the same value is as good as its own
	if len(report.Skipped) != 1 || report.Skipped[0].Reason != "mirror other has set it to 1" {
		t.Errorf("%+v", report)
	}
}

// TestQuotasThatTwoMirrorsHaveSet follow the first of them by name, whether or not the other one
// wants something.
func TestQuotasThatTwoMirrorsHaveSet(t *testing.T) {
	const item = "user=alice;producer_byte_rate"
	for other, want := range map[string]float64{"a": 1000, "z": 2000} {
		r := newQuotaRig(t)
		r.src.alter(user("alice", "producer_byte_rate", 1000))
		r.round()
		if err := r.mirrors.Own(t.Context(), other, policy.Quotas, []string{item}, nil); err != nil {
			t.Fatal(err)
		}
		r.src.alter(user("alice", "producer_byte_rate", 2000))
		r.round()
		r.same(map[string]float64{item: want})
		r.owns(item)
		// The other one gives it up.
		if err := r.mirrors.Own(t.Context(), other, policy.Quotas, nil, []string{item}); err != nil {
			t.Fatal(err)
		}
		r.round()
		r.same(map[string]float64{item: 2000})
	}
}

// TestQuotasOfAMirrorThatHasEnded stay as they are: another one takes over those only that are as its
// source has them.
func TestQuotasOfAMirrorThatHasEnded(t *testing.T) {
	r := newQuotaRig(t)
	r.src.alter(user("alice", "producer_byte_rate", 1000))
	r.dst.alter(user("alice", "producer_byte_rate", 1))
	const item = "user=alice;producer_byte_rate"
	if err := r.mirrors.Own(t.Context(), "other", policy.Quotas, []string{item}, nil); err != nil {
		t.Fatal(err)
	}
	r.mirrors.set(func(f *fakeMirrors) { f.mirrors["other"] = Mirror{Name: "other", Ended: true} })
	for range 2 {
		r.round()
		r.same(map[string]float64{item: 1})
		r.owns()
	}
}

// TestQuotasWhileTopicsAreStopped stay: whose clients they are for is not known.
func TestQuotasWhileTopicsAreStopped(t *testing.T) {
	r := newQuotaRig(t)
	alice, bob := user("alice", "producer_byte_rate", 1000), user("bob", "producer_byte_rate", 500)
	r.src.alter(alice, bob)
	r.round()
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Stopped = []string{"a"}
		f.mirrors["m"] = m
	})
	r.src.alter(without(alice), user("bob", "producer_byte_rate", 600))
	report := r.round()
	r.same(map[string]float64{"user=alice;producer_byte_rate": 1000, "user=bob;producer_byte_rate": 600})
	r.owns("user=bob;producer_byte_rate")
	if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "user=alice;producer_byte_rate") {
		t.Errorf("%+v", report)
	}
}

// TestQuotasThatWereNotAskedFor are not owned after a request has failed as a whole.
func TestQuotasThatWereNotAskedFor(t *testing.T) {
	r := newQuotaRig(t)
	var all []quotaChange
	for i := range quotasAtATime + 1 {
		all = append(all, user(fmt.Sprint("u", i), "producer_byte_rate", 1000))
	}
	r.src.alter(all...)
	r.dst.answers(1, kmsg.NewPtrAlterClientQuotasResponse())
	if _, err := r.try(policyv1.Round_REFRESH); err == nil {
		t.Error("no error")
	}
	if n := len(r.mirrors.Owned("m", policy.Quotas)); n != quotasAtATime {
		t.Errorf("%d are owned, and %d were asked for", n, quotasAtATime)
	}
}

func TestQuotasWithinBounds(t *testing.T) {
	of := func(c ...component) quota { return quota{entity: c, key: "producer_byte_rate"} }
	for name, c := range map[string]struct {
		quota quota
		want  string
	}{
		"a user":                {of(component{kind: entityUser, name: "CN=a,O=b"}), ""},
		"the default of all":    {of(component{kind: entityUser, isDefault: true}, component{kind: entityClient, isDefault: true}), ""},
		"an address":            {of(component{kind: entityIP, name: "10.0.0.1"}), "it is for an ip address, and behind a sidecar"},
		"all addresses":         {of(component{kind: entityIP, isDefault: true}), "it is for an ip address, and behind a sidecar"},
		"of a later Kafka":      {of(component{kind: "tenant", name: "x"}), "it is for a tenant"},
		"two parts in one name": {of(component{kind: entityUser, name: "a,client-id=b"}), "could be taken for another part"},
		"a semicolon":           {of(component{kind: entityUser, name: "a;b"}), "could be taken for another part"},
		"too long":              {of(component{kind: entityUser, name: strings.Repeat("x", maxACLText)}), "longer than"},
	} {
		if got := c.quota.bound(false); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := newQuotaRig(t)
	r.src.alter(quotaChange{quota: quota{entity: []component{{kind: entityIP, name: "10.0.0.1"}}, key: "connection_creation_rate", value: 5}})
	if report := r.round(); len(report.Skipped) != 1 || !strings.Contains(report.Skipped[0].Reason, "behind a sidecar") {
		t.Errorf("%+v", report)
	}
	r.same(map[string]float64{})
	r.cfg.AllowHosts = true
	r.round()
	r.same(map[string]float64{"ip=10.0.0.1;connection_creation_rate": 5})
}

// TestQuotasInTrouble tells of what this cluster refuses, and of a source that does not answer.
func TestQuotasInTrouble(t *testing.T) {
	r := newQuotaRig(t)
	r.src.alter(user("alice", "producer_byte_rate", 1000))
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	e := kmsg.NewAlterClientQuotasResponseEntry()
	part := kmsg.NewAlterClientQuotasResponseEntryEntity()
	name := "alice"
	part.Type, part.Name = entityUser, &name
	e.Entity, e.ErrorCode = append(e.Entity, part), kerr.InvalidRequest.Code
	resp.Entries = append(resp.Entries, e)
	r.dst.answers(1, resp)
	if _, err := r.try(policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), "user=alice;producer_byte_rate: change: INVALID_REQUEST") {
		t.Errorf("%v", err)
	}
	r.owns()
	r.round()
	r.same(map[string]float64{}) // not tried again at once
	r.refusals.known = nil
	r.round()
	r.same(map[string]float64{"user=alice;producer_byte_rate": 1000})

	failed := kmsg.NewPtrDescribeClientQuotasResponse()
	failed.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	r.src.answers(1, failed)
	if _, err := r.try(policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), "DESCRIBE_CONFIGS on the cluster is needed") {
		t.Errorf("%v", err)
	}
}

// TestQuotasAfterTheMirror leaves them to who has taken over.
func TestQuotasAfterTheMirror(t *testing.T) {
	r := newQuotaRig(t)
	r.src.alter(user("alice", "producer_byte_rate", 1000))
	r.round()
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Ended = true
		f.mirrors["m"] = m
	})
	r.src.alter(without(user("alice", "producer_byte_rate", 1000)))
	for range 3 {
		if report := r.round(); report.Note == "" {
			t.Errorf("%+v", report)
		}
	}
	r.same(map[string]float64{"user=alice;producer_byte_rate": 1000})
}

// TestQuotasWanted: they are off unless a policy is named, and the built-in one has patterns.
func TestQuotasWanted(t *testing.T) {
	for want, props := range map[bool][][]string{
		true:  {{config.QuotasIncludeKey, ".*", "mirror.policy.quotas", "built-in"}, {"mirror.policy.quotas", "mine"}},
		false: {nil, {config.QuotasIncludeKey, ".*"}, {"mirror.policy.quotas", "built-in"}},
	} {
		for _, p := range props {
			if got := (&Quotas{}).Wanted(testMirror(t, "m", "there", p...)); got != want {
				t.Errorf("%v: %v", p, got)
			}
		}
	}
}
