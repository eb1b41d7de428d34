package syncs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// aclRules is a policy by the rules of the mirror, which a test may replace.
type aclRules struct {
	ledger *policy.Ledger
	say    func(a *policyv1.AclFacts) policy.ACLVerdict
	asked  []*policyv1.AclFacts
}

func (p *aclRules) ACLs(_ context.Context, q policy.Question, facts []*policyv1.AclFacts) ([]policy.ACLVerdict, error) {
	p.asked = facts
	rules, err := config.ParseACLRules(q.Config[config.ACLsIncludeKey])
	if err != nil {
		return nil, err
	}
	out := make([]policy.ACLVerdict, len(facts))
	for i, f := range facts {
		if p.say != nil {
			out[i] = p.say(f)
			continue
		}
		a := f.GetAcl()
		rule, ok := rules.Match(a.GetResourceType(), a.GetResourceName(), a.GetOperation(), a.GetPermissionType(), a.GetPrincipal())
		out[i] = policy.ACLVerdict{Verdict: policy.Verdict{Accepted: ok, Plugin: policy.BuiltIn, Reason: "rule " + rule}, As: a}
	}
	return out, nil
}

// aclRig are two clusters and the sync between them.
type aclRig struct {
	*ACLs
	diffRig
	policies *aclRules
}

// diffRig is a mirror between two clusters of which what differs is mirrored.
type diffRig struct {
	t        *testing.T
	src, dst *cluster
	mirrors  *fakeMirrors
	ledger   *policy.Ledger
}

func newDiffRig(t *testing.T, configs ...string) diffRig {
	t.Helper()
	return diffRig{t: t, src: newCluster(t), dst: newCluster(t), ledger: policy.NewLedger(), mirrors: newMirrors(testMirror(t, "m", "there", configs...))}
}

func (r *diffRig) here() Here {
	return Here{Destination: r.dst.cl, ClusterID: "here", Mirrors: r.mirrors, Ledger: r.ledger, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))}
}

func (r *diffRig) run(s Sync, why policyv1.Round_Why) (Report, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	m, err := r.mirrors.Mirror(ctx, "m")
	if err != nil {
		return Report{}, err
	}
	return s.Sync(ctx, m, r.src.cl, why)
}

func (r *diffRig) refresh(s Sync) Report {
	r.t.Helper()
	report, err := r.run(s, policyv1.Round_REFRESH)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// cluster is a fake cluster that counts what it is asked to do.
type cluster struct {
	*kfake.Cluster
	t  *testing.T
	cl *kgo.Client

	mu     sync.Mutex // guards the following
	count  map[int16]int
	left   int // how often it answers script
	script kmsg.Response
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	f, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c := &cluster{Cluster: f, t: t, cl: cl, count: map[int16]int{}}
	f.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count[req.Key()]++
		if c.left == 0 || c.script.Key() != req.Key() {
			return nil, nil, false
		}
		c.left--
		c.script.SetVersion(req.GetVersion())
		return c.script, nil, true
	})
	return c
}

// asked returns how often the cluster was sent a kind of request since the last call.
func (c *cluster) asked(req kmsg.Request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count[req.Key()]
	c.count[req.Key()] = 0
	return n
}

// answers has the cluster answer the next n requests of a kind as given.
func (c *cluster) answers(n int, resp kmsg.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.script = n, resp
}

func (c *cluster) acls() map[string]bool {
	c.t.Helper()
	found, err := readACLs(c.t.Context(), c.cl)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]bool{}
	for a := range found {
		out[a.item()] = true
	}
	return out
}

func (c *cluster) create(acls ...acl) {
	c.t.Helper()
	results, err := createACLs(c.t.Context(), c.cl, acls)
	if err = errors.Join(append(results, err)...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) delete(acls ...acl) {
	c.t.Helper()
	results, err := deleteACLs(c.t.Context(), c.cl, acls)
	if err = errors.Join(append(results, err)...); err != nil {
		c.t.Fatal(err)
	}
}

func newACLRig(t *testing.T) *aclRig {
	t.Helper()
	r := &aclRig{diffRig: newDiffRig(t, config.ACLsIncludeKey, "*")}
	r.policies = &aclRules{ledger: r.ledger}
	r.ACLs = r.sync()
	return r
}

// sync is a sync that remembers nothing, as another sidecar's.
func (r *aclRig) sync() *ACLs {
	s := NewACLs(ACLsConfig{Here: r.here(), Policies: r.policies})
	s.doubts.look, s.doubts.patience, s.changeEvery = time.Millisecond, 0, time.Millisecond
	return s
}

func (r *aclRig) try(why policyv1.Round_Why) (Report, error) { return r.run(r.ACLs, why) }

func (r *aclRig) round() Report {
	r.t.Helper()
	return r.refresh(r.ACLs)
}

func (r *aclRig) same(want ...acl) {
	r.t.Helper()
	items := map[string]bool{}
	for _, a := range want {
		items[a.item()] = true
	}
	if got := r.dst.acls(); !maps.Equal(got, items) {
		r.t.Errorf("here are %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(items)))
	}
}

func (r *aclRig) owns(want ...acl) {
	r.t.Helper()
	items := map[string]bool{}
	for _, a := range want {
		items[a.item()] = true
	}
	got := map[string]bool{}
	for i := range r.mirrors.Owned("m", policy.ACLs) {
		got[i] = true
	}
	if !maps.Equal(got, items) {
		r.t.Errorf("owned are %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(items)))
	}
}

// topicACL lets a user read a topic.
func topicACL(name, user string) acl {
	return acl{
		kmsg.ACLResourceTypeTopic, name, kmsg.ACLResourcePatternTypeLiteral, "User:" + user, "*",
		kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow,
	}
}

// TestACLsAreADiff creates what is missing, and then asks for nothing any more.
func TestACLsAreADiff(t *testing.T) {
	r := newACLRig(t)
	a, b, local := topicACL("a", "x"), topicACL("b", "x"), topicACL("local", "y")
	prefixed := topicACL("p-", "x")
	prefixed.pattern, prefixed.operation = kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLOperationWrite
	r.src.create(a, b, prefixed)
	r.dst.create(local, b)
	if report, err := r.try(policyv1.Round_DRY_RUN); err != nil || len(report.Changes) != 2 || report.Changes[0].Verb != "create" {
		t.Errorf("a dry run says %+v %v", report, err)
	}
	r.same(local, b)
	r.owns()
	report := r.round()
	if len(report.Changes) != 2 {
		t.Errorf("%+v", report)
	}
	r.same(a, b, prefixed, local)
	r.owns(a, prefixed)
	if e, ok := r.ledger.Get("m", policy.ACLs, a.item()); !ok || e.LastApplied.IsZero() {
		t.Errorf("the ledger has %+v", e)
	}
	r.dst.asked(&kmsg.CreateACLsRequest{})
	r.dst.asked(&kmsg.DescribeACLsRequest{})
	owns := r.mirrors.owns
	for range 5 {
		if report := r.round(); len(report.Changes) > 0 {
			t.Errorf("nothing has changed: %+v", report)
		}
	}
	if n := r.dst.asked(&kmsg.CreateACLsRequest{}) + r.dst.asked(&kmsg.DeleteACLsRequest{}); n != 0 || r.mirrors.owns != owns {
		t.Errorf("nothing has changed, and %d requests would change something, %d writes", n, r.mirrors.owns-owns)
	}
	if n := r.dst.asked(&kmsg.DescribeACLsRequest{}); n != 5 {
		t.Errorf("%d questions in 5 rounds", n)
	}

	// What goes at the source goes here, if the mirror has created it.
	r.src.delete(a, b)
	r.round()
	r.same(b, prefixed, local)
	r.owns(prefixed)
	if e, ok := r.ledger.Get("m", policy.ACLs, a.item()); ok {
		t.Errorf("it is gone, and the ledger has %+v", e)
	}
}

// TestACLsByPolicy refuses what was accepted before, and makes something else of it.
func TestACLsByPolicy(t *testing.T) {
	r := newACLRig(t)
	a, b := topicACL("a", "x"), topicACL("b", "x")
	r.src.create(a, b)
	r.round()
	r.same(a, b)
	refuse := func(v policy.Verdict) func(f *policyv1.AclFacts) policy.ACLVerdict {
		return func(f *policyv1.AclFacts) policy.ACLVerdict {
			if f.GetAcl().GetResourceName() == "a" {
				return policy.ACLVerdict{Verdict: v, As: f.GetAcl()}
			}
			return policy.ACLVerdict{Verdict: policy.Verdict{Accepted: true}, As: f.GetAcl()}
		}
	}
	// It is not deleted for what somebody has said who cannot be asked, nor for what nobody said.
	r.policies.say = refuse(policy.Verdict{Stale: true, Reason: "no"})
	r.round()
	r.same(a, b)
	r.policies.say = refuse(policy.Verdict{Undecided: true, Reason: "not asked yet"})
	r.round()
	r.same(a, b)
	r.policies.say = refuse(policy.Verdict{Reason: "no"})
	if report := r.round(); len(report.Skipped) != 1 || report.Skipped[0] != (Skip{a.item(), "no"}) {
		t.Errorf("%+v", report)
	}
	r.same(b)
	r.owns(b)
	r.round()
	for _, f := range r.policies.asked {
		if b := f.GetAcl().GetResourceName() == "b"; f.GetOwned() != b || f.GetExistsHere() != b {
			t.Errorf("the policy was told %v", f)
		}
	}

	// Another principal here.
	r.policies.say = func(f *policyv1.AclFacts) policy.ACLVerdict {
		as := topicACL(f.GetAcl().GetResourceName(), "mapped").binding()
		return policy.ACLVerdict{Verdict: policy.Verdict{Accepted: true}, As: as}
	}
	r.round()
	r.same(topicACL("a", "mapped"), topicACL("b", "mapped"))
	r.owns(topicACL("a", "mapped"), topicACL("b", "mapped"))
	if e, _ := r.ledger.Get("m", policy.ACLs, a.item()); e.LastApplied.IsZero() {
		t.Error("the ledger does not name it as the source does")
	}
	// While of one of them nobody knows what it would be here, none is deleted for it.
	mapped := r.policies.say
	r.policies.say = func(f *policyv1.AclFacts) policy.ACLVerdict {
		if f.GetAcl().GetResourceName() == "a" {
			return policy.ACLVerdict{Verdict: policy.Verdict{Undecided: true}, As: f.GetAcl()}
		}
		return mapped(f)
	}
	r.round()
	r.same(topicACL("a", "mapped"), topicACL("b", "mapped"))
	r.policies.say = func(*policyv1.AclFacts) policy.ACLVerdict {
		return policy.ACLVerdict{Verdict: policy.Verdict{Accepted: true, Plugin: "p"}, As: &policyv1.AclBinding{ResourceType: "NONSENSE"}}
	}
	if report := r.round(); len(report.Skipped) != 2 || !strings.Contains(report.Skipped[0].Reason, "policy p has made of it what is no ACL") {
		t.Errorf("%+v", report)
	}
}

// TestACLsWithinBounds: no policy lets these through.
func TestACLsWithinBounds(t *testing.T) {
	with := func(change func(a *acl)) acl {
		a := topicACL("orders", "x")
		change(&a)
		return a
	}
	for name, c := range map[string]struct {
		acl  acl
		want string
	}{
		"one like others":      {with(func(*acl) {}), ""},
		"a user's":             {with(func(a *acl) { a.resource = kmsg.ACLResourceTypeUser }), ""},
		"a host":               {with(func(a *acl) { a.host = "10.0.0.1" }), "it is for host 10.0.0.1, and behind a sidecar brokers see its address"},
		"a mirror":             {with(func(a *acl) { a.resource = mirrorResource }), "ACLs of mirrors are each cluster's own"},
		"of a later Kafka":     {with(func(a *acl) { a.operation = 99 }), "that no ACL here has"},
		"a pattern to match":   {with(func(a *acl) { a.pattern = kmsg.ACLResourcePatternTypeMatch }), "that no ACL here has"},
		"any permission":       {with(func(a *acl) { a.permission = kmsg.ACLPermissionTypeAny }), "that no ACL here has"},
		"a semicolon":          {with(func(a *acl) { a.principal = "User:a;READ" }), "semicolon"},
		"one in a name":        {with(func(a *acl) { a.name = "a;b" }), ""},
		"no name":              {with(func(a *acl) { a.name = "" }), "no resource name"},
		"state":                {with(func(a *acl) { a.name = "__cluster_mirror_state" }), "what each cluster's sidecars keep"},
		"state's transactions": {with(func(a *acl) { a.resource, a.name = kmsg.ACLResourceTypeTransactionalId, "mirror-state-7" }), "what each cluster's sidecars keep"},
		"too long":             {with(func(a *acl) { a.principal = strings.Repeat("x", maxACLText) }), "longer than"},
	} {
		if got := c.acl.bound(false); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := with(func(a *acl) { a.host = "10.0.0.1" }).bound(true); got != "" {
		t.Errorf("a host that is allowed: %q", got)
	}

	r := newACLRig(t)
	ok := topicACL("orders", "x")
	host := with(func(a *acl) { a.host, a.permission = "10.0.0.1", kmsg.ACLPermissionTypeDeny })
	r.src.create(ok, host)
	report := r.round()
	r.same(ok)
	if len(report.Skipped) != 1 || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "denies something at the source that nothing denies here") {
		t.Errorf("%+v", report)
	}
	if e, _ := r.ledger.Get("m", policy.ACLs, host.item()); !strings.Contains(e.Skipped, "10.0.0.1") {
		t.Errorf("the ledger has %+v", e)
	}
	r.cfg.AllowHosts = true
	r.round()
	r.same(ok, host)
}

// TestACLsOfASourceInTrouble deletes nothing for an answer that is not to be trusted.
func TestACLsOfASourceInTrouble(t *testing.T) {
	r := newACLRig(t)
	var all []acl
	for i := range 30 {
		all = append(all, topicACL(fmt.Sprint("t", i), "x"))
	}
	r.src.create(all...)
	r.round()
	r.same(all...)
	r.owns(all...)

	empty := kmsg.NewPtrDescribeACLsResponse()
	failed := kmsg.NewPtrDescribeACLsResponse()
	failed.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	r.src.answers(1, failed)
	if _, err := r.try(policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), "at the source: read ACLs: DESCRIBE on the cluster is needed") {
		t.Errorf("an answer with an error: %v", err)
	}
	r.src.answers(1, empty)
	r.round() // asked again, it has them
	r.same(all...)
	r.doubts.patience = time.Hour
	for range 3 {
		r.src.answers(2, empty)
		if report := r.round(); len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "30 of the 30 acls") {
			t.Errorf("%+v", report)
		}
		r.same(all...)
	}
	// It recovers, and what was remembered of it is forgotten.
	r.round()
	r.doubts.patience = 0
	r.src.answers(2, empty)
	r.round()
	r.same(all...)

	// They are gone indeed: the second round that finds it believes it. Here it is another sidecar
	// that coordinates the mirror in between.
	r.src.delete(all[1:]...)
	r.ACLs = r.sync()
	r.round()
	r.same(all...)
	r.round()
	r.same(all[0])
	r.owns(all[0])
}

// TestComplaint10NoAuthorizerIsQuiet: KAFKA-14781, MirrorMaker 2 logged an error for each round at
// a source without authorizer.
func TestComplaint10NoAuthorizerIsQuiet(t *testing.T) {
	r := newACLRig(t)
	a := topicACL("a", "x")
	r.src.create(a)
	r.round()
	none := kmsg.NewPtrDescribeACLsResponse()
	none.ErrorCode = kerr.SecurityDisabled.Code
	r.src.answers(3, none)
	for range 3 {
		report := r.round()
		if !strings.HasPrefix(report.Note, "the source has no authorizer") || len(report.Warnings) != 0 {
			t.Errorf("%+v", report)
		}
	}
	r.same(a)
	r.owns(a)
	r.dst.answers(1, none)
	if report := r.round(); !strings.HasPrefix(report.Note, "this cluster has no authorizer") {
		t.Errorf("%+v", report)
	}
	r.same(a)
}

// TestComplaint09ACLsAreNotCreatedAnew: KAFKA-15119, MirrorMaker 2 creates every ACL again in every
// round.
func TestComplaint09ACLsAreNotCreatedAnew(t *testing.T) {
	r := newACLRig(t)
	var all []acl
	for i := range 2*aclsAtATime + 1 {
		all = append(all, topicACL(fmt.Sprint("t", i), "x"))
	}
	r.src.create(all...)
	r.round()
	r.same(all...)
	if n := r.dst.asked(&kmsg.CreateACLsRequest{}); n != 3 {
		t.Errorf("%d requests created %d ACLs, at most %d each", n, len(all), aclsAtATime)
	}
	for range 5 {
		r.round()
	}
	if n := r.dst.asked(&kmsg.CreateACLsRequest{}); n != 0 {
		t.Errorf("%d requests created what was there", n)
	}
	more := topicACL("one more", "x")
	r.src.create(more)
	r.round()
	if n := r.dst.asked(&kmsg.CreateACLsRequest{}); n != 1 {
		t.Errorf("%d requests for one ACL more", n)
	}
	r.same(append(all, more)...)
}

// TestACLsArePaced keeps requests that change something apart.
func TestACLsArePaced(t *testing.T) {
	r := newACLRig(t)
	r.changeEvery = 200 * time.Millisecond
	var all []acl
	for i := range 2*aclsAtATime + 1 {
		all = append(all, topicACL(fmt.Sprint("t", i), "x"))
	}
	r.src.create(all...)
	began := time.Now()
	r.round()
	if took := time.Since(began); took < 2*r.changeEvery {
		t.Errorf("three requests within %v", took)
	}
}

// TestACLsAfterACrash: whatever was begun is ended by the next round, at whichever sidecar.
func TestACLsAfterACrash(t *testing.T) {
	a, b := topicACL("a", "x"), topicACL("b", "x")
	for name, c := range map[string]struct {
		before func(r *aclRig) // what the round that crashed has done
		here   []acl
		owned  []acl
	}{
		"written down, not created": {
			func(r *aclRig) { _ = r.mirrors.Own(r.t.Context(), "m", policy.ACLs, []string{a.item()}, nil) },
			[]acl{a},
			[]acl{a},
		},
		"written down, not created, and gone at the source": {
			func(r *aclRig) {
				_ = r.mirrors.Own(r.t.Context(), "m", policy.ACLs, []string{a.item(), b.item()}, nil)
			},
			[]acl{a},
			[]acl{a},
		},
		"deleted, not forgotten": {
			func(r *aclRig) {
				r.round()
				_ = r.mirrors.Own(r.t.Context(), "m", policy.ACLs, []string{b.item()}, nil)
			},
			[]acl{a},
			[]acl{a},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newACLRig(t)
			r.src.create(a)
			c.before(r)
			r.ACLs = r.sync()
			r.round()
			r.same(c.here...)
			r.owns(c.owned...)
		})
	}

	// Without the record nothing is created.
	r := newACLRig(t)
	r.src.create(a)
	r.mirrors.ownErr = errors.New("not the coordinator any more")
	if _, err := r.try(policyv1.Round_REFRESH); err == nil {
		t.Error("no word of it")
	}
	r.same()
}

// TestACLsThatAreRefused by this cluster are told of, not owned, and not tried again at once.
func TestACLsThatAreRefused(t *testing.T) {
	r := newACLRig(t)
	a, b := topicACL("a", "x"), topicACL("b", "x")
	r.src.create(a, b)
	resp := kmsg.NewPtrCreateACLsResponse()
	bad := kmsg.NewCreateACLsResponseResult()
	bad.ErrorCode = kerr.InvalidRequest.Code
	resp.Results = append(resp.Results, bad, kmsg.NewCreateACLsResponseResult())
	r.dst.answers(1, resp)
	if _, err := r.try(policyv1.Round_REFRESH); err == nil || !strings.Contains(err.Error(), a.item()) {
		t.Errorf("%v", err)
	}
	r.owns(b)
	if e, _ := r.ledger.Get("m", policy.ACLs, a.item()); !strings.Contains(e.LastError, "INVALID_REQUEST") {
		t.Errorf("the ledger has %+v", e)
	}
	r.round() // b was not really created
	r.same(b)
	r.owns(b)
	r.refusals.known = nil
	r.round()
	r.same(a, b)
}

// TestACLsThatDeny come first and go last.
func TestACLsThatDeny(t *testing.T) {
	r := newACLRig(t)
	allow, deny := topicACL("a", "x"), topicACL("z", "x")
	deny.permission = kmsg.ACLPermissionTypeDeny
	r.src.create(allow, deny)
	var order []string
	r.dst.ControlKey((&kmsg.CreateACLsRequest{}).Key(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		for _, c := range req.(*kmsg.CreateACLsRequest).Creations {
			order = append(order, "create "+c.ResourceName)
		}
		return nil, nil, false
	})
	r.dst.ControlKey((&kmsg.DeleteACLsRequest{}).Key(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		for _, f := range req.(*kmsg.DeleteACLsRequest).Filters {
			order = append(order, "delete "+*f.ResourceName)
		}
		return nil, nil, false
	})
	r.round()
	r.policies.say = func(*policyv1.AclFacts) policy.ACLVerdict {
		return policy.ACLVerdict{Verdict: policy.Verdict{Reason: "no"}}
	}
	r.round()
	if want := []string{"create z", "create a", "delete a", "delete z"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}

// TestACLsAfterTheMirror: after a failover the source is cleaned up, and clients are here.
func TestACLsAfterTheMirror(t *testing.T) {
	r := newACLRig(t)
	a, b := topicACL("a", "x"), topicACL("b", "x")
	r.src.create(a)
	r.round()
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Ended = true
		f.mirrors["m"] = m
	})
	r.src.delete(a)
	r.src.create(b)
	for range 3 {
		if report := r.round(); !strings.Contains(report.Note, "all topics of the mirror are stopped: the acls here are left as they are") {
			t.Errorf("%+v", report)
		}
	}
	r.same(a)
	r.owns(a)
}

// TestACLsWanted: without rules the built-in policy is not even asked.
func TestACLsWanted(t *testing.T) {
	for want, props := range map[bool][][]string{
		true:  {{config.ACLsIncludeKey, "*"}, {"mirror.policy.acls", "mine"}, {"mirror.policy.acls", "built-in,mine"}},
		false: {nil, {config.ACLsExcludeKey, "*"}, {config.ACLsIncludeKey, "*", "mirror.policy.acls", ""}},
	} {
		for _, p := range props {
			if got := (&ACLs{}).Wanted(testMirror(t, "m", "there", p...)); got != want {
				t.Errorf("%v: %v", p, got)
			}
		}
	}
}
