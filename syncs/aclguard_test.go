package syncs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

func denied(a acl) acl {
	a.permission = kmsg.ACLPermissionTypeDeny
	return a
}

func prefixed(a acl) acl {
	a.pattern = kmsg.ACLResourcePatternTypePrefixed
	return a
}

func TestGuard(t *testing.T) {
	of := func(principal string) acl { return acl{principal: principal} }
	for _, c := range []struct {
		failed, asked string
		want          bool
	}{
		{"User:x", "User:x", true},
		{"User:x", "User:y", false},
		{"User:x", "User:*", true},
		{"User:*", "User:x", true},
		{"Group:x", "User:y", true},
		{"User:x", "Role:y", true},
	} {
		var g guard
		if g.holds(of(c.asked)) {
			t.Errorf("%+v: nothing has failed yet", c)
		}
		g.add(of(c.failed))
		if got := g.holds(of(c.asked)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if g := (guard{everybody: true}); !g.holds(of("User:x")) {
		t.Error("everybody is held")
	}
}

func TestWhatStaysOnceTopicsAreStopped(t *testing.T) {
	group := topicACL("g", "x")
	group.resource = kmsg.ACLResourceTypeGroup
	for _, c := range []struct {
		acl  acl
		want bool
	}{
		{topicACL("orders", "x"), true},
		{topicACL("order", "x"), false},
		{prefixed(topicACL("order", "x")), true},
		{prefixed(topicACL("orders.", "x")), false},
		{topicACL("*", "x"), true},
		{topicACL("other", "x"), false},
		{denied(topicACL("other", "x")), true},
		{group, true},
	} {
		if got := (Mirror{Stopped: []string{"orders"}}).leaves(c.acl); got != c.want {
			t.Errorf("%s: %v", c.acl.item(), got)
		}
		if (Mirror{}).leaves(c.acl) {
			t.Errorf("%s stays although nothing was stopped", c.acl.item())
		}
	}
}

// TestACLsWhileTopicsAreStopped: the source is cleaned up after clients that are here by now.
func TestACLsWhileTopicsAreStopped(t *testing.T) {
	r := newACLRig(t)
	a, b, stays, all, deny := topicACL("a", "x"), topicACL("b", "x"), topicACL("c", "x"), prefixed(topicACL("a", "y")), denied(topicACL("b", "y"))
	group := topicACL("g", "x")
	group.resource = kmsg.ACLResourceTypeGroup
	r.src.create(a, b, stays, all, deny, group)
	r.round()
	r.mirrors.set(func(f *fakeMirrors) {
		m := f.mirrors["m"]
		m.Stopped = []string{"a"}
		f.mirrors["m"] = m
	})
	r.src.delete(a, b, all, deny, group)
	for _, why := range []policyv1.Round_Why{policyv1.Round_DRY_RUN, policyv1.Round_REFRESH} {
		report, err := r.try(why)
		if err != nil || len(report.Changes) != 1 || report.Changes[0].Item != b.item() || report.Changes[0].Verb != "delete" {
			t.Errorf("%v: %+v %v", why, report, err)
		}
		if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "does not have 4 acls any more that stay here") || !strings.Contains(report.Warnings[0], a.item()) {
			t.Errorf("%v: %q", why, report.Warnings)
		}
	}
	r.same(a, stays, all, deny, group)
	r.owns(stays)
	if report := r.round(); len(report.Changes)+len(report.Warnings) != 0 {
		t.Errorf("they are nobody's, and told of again: %+v", report)
	}
}

// failsToCreate is an answer that refuses one ACL.
func failsToCreate() kmsg.Response {
	resp, bad := kmsg.NewPtrCreateACLsResponse(), kmsg.NewCreateACLsResponseResult()
	bad.ErrorCode = kerr.InvalidRequest.Code
	resp.Results = append(resp.Results, bad)
	return resp
}

// TestACLsNotWithoutWhatDenies: nobody may here what he may not at the source since what denies it
// was not created.
func TestACLsNotWithoutWhatDenies(t *testing.T) {
	allow, other, deny := topicACL("a", "x"), topicACL("a", "y"), denied(topicACL("z", "x"))
	set := func(t *testing.T) *aclRig {
		r := newACLRig(t)
		r.src.create(allow, other, deny)
		return r
	}
	heldBack := func(t *testing.T, report Report, n int) {
		t.Helper()
		if !slices.ContainsFunc(report.Warnings, func(w string) bool {
			return strings.HasPrefix(w, fmt.Sprint(n, " ACLs that allow something are held back"))
		}) {
			t.Errorf("no word of it: %+v", report)
		}
	}
	t.Run("undecided", func(t *testing.T) {
		r := set(t)
		r.policies.say = func(f *policyv1.AclFacts) policy.ACLVerdict {
			undecided := f.GetAcl().GetPermissionType() == "DENY"
			return policy.ACLVerdict{Verdict: policy.Verdict{Accepted: !undecided, Undecided: undecided}, As: f.GetAcl()}
		}
		if report, err := r.try(policyv1.Round_DRY_RUN); err != nil || len(report.Changes) != 0 {
			t.Errorf("%+v %v", report, err)
		}
		heldBack(t, r.round(), 2)
		r.same()
		r.owns()
		if e, _ := r.ledger.Get("m", policy.ACLs, allow.item()); !strings.Contains(e.Skipped, "once what denies") {
			t.Errorf("the ledger has %+v", e)
		}
		r.policies.say = nil
		r.round()
		r.same(allow, other, deny)
	})
	t.Run("refused by this cluster", func(t *testing.T) {
		r := set(t)
		r.dst.answers(1, failsToCreate())
		report, err := r.try(policyv1.Round_REFRESH)
		if err == nil {
			t.Error("no error")
		}
		heldBack(t, report, 1)
		r.same(other)
		r.owns(other)
		heldBack(t, r.round(), 1) // it is not tried again at once
		r.same(other)
		r.refusals.known = nil
		r.round()
		r.same(allow, other, deny)
		r.owns(allow, other, deny)
	})
	t.Run("no answer to be understood", func(t *testing.T) {
		r := set(t)
		r.dst.answers(1, kmsg.NewPtrCreateACLsResponse())
		report, err := r.try(policyv1.Round_REFRESH)
		if err == nil {
			t.Error("no error")
		}
		heldBack(t, report, 2)
		r.same()
		r.owns(deny) // nobody knows whether it was created
		r.round()
		r.same(allow, other, deny)
	})
	t.Run("of an unknown kind", func(t *testing.T) {
		r := newACLRig(t)
		resp, res, a := kmsg.NewPtrDescribeACLsResponse(), kmsg.NewDescribeACLsResponseResource(), kmsg.NewDescribeACLsResponseResourceACL()
		res.ResourceType, res.ResourceName, res.ResourcePatternType = kmsg.ACLResourceTypeTopic, "t", kmsg.ACLResourcePatternTypeLiteral
		a.Principal, a.Host, a.Operation, a.PermissionType = "User:x", "*", 99, kmsg.ACLPermissionTypeDeny
		res.ACLs = append(res.ACLs, a)
		resp.Resources = append(resp.Resources, res)
		r.src.answers(1, resp)
		if report := r.round(); len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "that nothing denies here") {
			t.Errorf("%+v", report)
		}
	})
}

// TestACLsThatDenyOutliveThoseThatAllow also when the latter cannot be deleted.
func TestACLsThatDenyOutliveThoseThatAllow(t *testing.T) {
	r := newACLRig(t)
	allow, deny, other := topicACL("a", "x"), denied(topicACL("z", "x")), denied(topicACL("z", "y"))
	r.src.create(allow, deny, other)
	r.round()
	r.policies.say = func(*policyv1.AclFacts) policy.ACLVerdict {
		return policy.ACLVerdict{Verdict: policy.Verdict{Reason: "no"}}
	}
	resp, bad := kmsg.NewPtrDeleteACLsResponse(), kmsg.NewDeleteACLsResponseResult()
	bad.ErrorCode = kerr.UnknownServerError.Code
	resp.Results = append(resp.Results, bad)
	r.dst.answers(1, resp)
	if _, err := r.try(policyv1.Round_REFRESH); err == nil {
		t.Error("no error")
	}
	r.same(allow, deny)
	r.owns(allow, deny)
	r.round()
	r.same()
	r.owns()
}

// TestACLsThatWereNotAskedFor are not owned after a request has failed as a whole.
func TestACLsThatWereNotAskedFor(t *testing.T) {
	r := newACLRig(t)
	var all []acl
	for i := range 2*aclsAtATime + 1 {
		all = append(all, topicACL(fmt.Sprint("t", i), "x"))
	}
	r.src.create(all...)
	r.dst.answers(1, kmsg.NewPtrCreateACLsResponse())
	if _, err := r.try(policyv1.Round_REFRESH); err == nil {
		t.Error("no error")
	}
	if n := len(r.mirrors.Owned("m", policy.ACLs)); n != aclsAtATime {
		t.Errorf("%d are owned, and %d were asked for", n, aclsAtATime)
	}
	r.round()
	r.same(all...)
	r.owns(all...)
}

// TestDoubtEndsWithTheSource: a source that cannot be read in between was not found twice, one
// after the other, to have lost everything.
func TestDoubtEndsWithTheSource(t *testing.T) {
	r := newACLRig(t)
	a := topicACL("a", "x")
	r.src.create(a)
	r.round()
	failed := kmsg.NewPtrDescribeACLsResponse()
	failed.ErrorCode = kerr.UnknownServerError.Code
	for _, between := range []func(){
		func() {
			r.src.answers(1, failed)
			if _, err := r.try(policyv1.Round_REFRESH); err == nil {
				t.Error("no error")
			}
		},
		func() { r.unanswered("m") },
		func() {},
	} {
		r.same(a)
		r.src.answers(2, kmsg.NewPtrDescribeACLsResponse())
		r.round()
		between()
	}
	r.src.answers(2, kmsg.NewPtrDescribeACLsResponse())
	r.round()
	r.same()
}
