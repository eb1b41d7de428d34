package syncs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// changeEvery is the least time between two requests that change something.
const changeEvery = time.Second

// ACLPolicies say which ACLs are created; policy.Engine does.
type ACLPolicies interface {
	ACLs(ctx context.Context, q policy.Question, facts []*policyv1.AclFacts) ([]policy.ACLVerdict, error)
}

// ACLsConfig is what ACLs needs.
type ACLsConfig struct {
	Here
	Policies ACLPolicies
	// AllowHosts lets ACLs for single hosts through.
	AllowHosts bool
}

// ACLs creates the source's ACLs here, as policies say, and deletes those that it has created when
// the source does not have them any more. Every run compares both clusters, and changes what
// differs.
//
// It writes down what it is about to create before it does, and forgets what it has deleted after
// it did: whatever comes in between, the next run, here or at another sidecar, finds out what is
// missing. What was here before it, or has been created by others, it never deletes.
type ACLs struct {
	cfg      ACLsConfig
	doubts   *doubts
	refusals refusals

	changeEvery time.Duration // in tests it is shorter
}

var _ Sync = (*ACLs)(nil)

// NewACLs returns the sync of ACLs.
func NewACLs(cfg ACLsConfig) *ACLs {
	return &ACLs{cfg: cfg, doubts: newDoubts(policy.ACLs, cfg.Log), changeEvery: changeEvery}
}

// Kind implements Sync.
func (*ACLs) Kind() policy.Kind { return policy.ACLs }

// Wanted implements Sync.
func (*ACLs) Wanted(m Mirror) bool { return m.asks(policy.ACLs, len(m.Config.ACLsInclude) > 0) }

// Sync implements Sync.
func (s *ACLs) Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) (Report, error) {
	if m.Ended {
		return Report{Note: m.ended(policy.ACLs)}, nil
	}
	r := &aclRound{round: round{Here: s.cfg.Here, kind: policy.ACLs, m: m, why: why}, s: s, src: src}
	source, err := readACLs(ctx, src)
	if err != nil {
		s.doubts.forget(m.Name)
	}
	if errors.Is(err, errNoAuthorizer) {
		return Report{Note: "the source has no authorizer, so there are no ACLs to mirror; those that were mirrored stay"}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("at the source: %w", err)
	}
	here, err := readACLs(ctx, s.cfg.Destination)
	if errors.Is(err, errNoAuthorizer) {
		return Report{Note: "this cluster has no authorizer, so ACLs cannot be created"}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("here: %w", err)
	}
	r.source, r.here = source, here
	if err := r.decide(ctx); err != nil {
		return Report{}, err
	}
	r.warnOfSCRAM(ctx)
	return r.run(ctx)
}

// warnOfSCRAM names users that ACLs are perhaps mirrored for, and that cannot log in here. Who may not
// ask, or asks a source that is too old to be asked, is told nothing.
func (r *aclRound) warnOfSCRAM(ctx context.Context) {
	source, err := readSCRAM(ctx, r.src)
	if err != nil || len(source) == 0 {
		return
	}
	here, err := readSCRAM(ctx, r.Destination)
	if err != nil {
		return
	}
	if text := missingSCRAM(source, here); text != "" {
		r.report.Warnings = append(r.report.Warnings, text)
	}
}

// aclRound is one run for one mirror.
type aclRound struct {
	round
	s      *ACLs
	src    *kgo.Client
	source map[acl]bool
	here   map[acl]bool

	facts diffFacts
	acls  map[string]acl // by item: what is here or is to be
	guard guard
	from  map[string][]string // by item: the items of the source that it is made of, for the ledger

	atSource map[string]bool // by item
}

// decide asks the policies, and keeps within what they cannot widen.
func (r *aclRound) decide(ctx context.Context) error {
	r.acls, r.from = map[string]acl{}, map[string][]string{}
	r.facts = r.newFacts()
	for a := range r.here {
		if strangers := a.bound(true); strangers != "" {
			continue // nothing that is created by a mirror looks so
		}
		item := a.item()
		r.facts.here[item], r.acls[item] = true, a
	}
	asked := make([]acl, 0, len(r.source))
	for a := range r.source {
		if a.unknown() {
			r.report.Skipped = append(r.report.Skipped, Skip{a.item(), a.bound(true)})
			if a.permission == kmsg.ACLPermissionTypeDeny && a.resource != mirrorResource {
				r.warnOfDeny(a.item(), a.bound(true))
			}
			continue
		}
		asked = append(asked, a)
	}
	items := make(map[acl]string, len(asked))
	r.atSource = make(map[string]bool, len(asked))
	for _, a := range asked {
		items[a] = a.item()
		r.atSource[items[a]] = true
	}
	slices.SortFunc(asked, func(a, b acl) int { return strings.Compare(items[a], items[b]) })
	facts := make([]*policyv1.AclFacts, len(asked))
	for i, a := range asked {
		_, mine := r.facts.owned[items[a]]
		facts[i] = &policyv1.AclFacts{Acl: a.binding(), ExistsHere: r.here[a], Owned: mine}
	}
	verdicts, err := r.s.cfg.Policies.ACLs(ctx, r.question(), facts)
	if err != nil {
		return err
	}
	for i, v := range verdicts {
		r.take(asked[i], items[asked[i]], v)
	}
	return nil
}

func (r *aclRound) warnOfDeny(item, why string) {
	r.report.Warnings = append(r.report.Warnings, fmt.Sprintf("%s denies something at the source that nothing denies here: %s", item, why))
}

// take takes the verdict on one ACL of the source.
func (r *aclRound) take(a acl, item string, v policy.ACLVerdict) {
	r.facts.decided(item, v.Verdict)
	if v.Undecided && a.permission == kmsg.ACLPermissionTypeDeny {
		r.guard.everybody = true // nor is it known for whom it would be here
	}
	if !v.Accepted {
		r.report.Skipped = append(r.report.Skipped, Skip{item, v.Reason})
		return
	}
	as, err := aclOf(v.As)
	why := as.bound(r.s.cfg.AllowHosts)
	if err != nil {
		why = fmt.Sprintf("policy %s has made of it what is no ACL: %v", v.Plugin, err)
	}
	if why != "" {
		r.skip(item, why)
		if a.permission == kmsg.ACLPermissionTypeDeny || as.permission == kmsg.ACLPermissionTypeDeny {
			r.warnOfDeny(item, why)
		}
		return
	}
	target := as.item()
	r.facts.wanted[target], r.acls[target] = true, as
	r.from[target] = append(r.from[target], item)
}

func (r *aclRound) run(ctx context.Context) (Report, error) {
	d := compare(r.facts)
	if !r.acts() {
		// What denies comes first, and goes last.
		allow, deny := r.divide(d.create)
		gone, _ := r.leave(d.gone)
		r.tell("create", slices.Concat(deny, r.held(allow)), "")
		r.tell("delete", d.remove, "the policies refuse it now")
		r.tell("delete", gone, "the source does not have it any more")
		return r.report, nil
	}
	r.Ledger.Only(r.m.Name, policy.ACLs, r.listed)
	for item := range r.facts.wanted {
		if r.facts.here[item] {
			r.applied(item, nil)
		}
	}
	if d.empty() {
		r.s.doubts.forget(r.m.Name)
		return r.report, nil
	}
	d.create = r.s.refusals.without(r.m.Name, d.create, func(item string, err error) {
		r.applied(item, err)
		r.failed(item)
	})
	gone, warning, err := r.s.doubts.believe(ctx, r.m.Name, d.gone, len(r.facts.owned), len(r.source), func(ctx context.Context) (bool, error) {
		again, err := readACLs(ctx, r.src)
		return maps.Equal(again, r.source), err
	})
	if err != nil {
		return r.report, err
	}
	if warning != "" {
		r.report.Warnings = append(r.report.Warnings, warning)
	}
	gone, left := r.leave(gone)
	if len(left) > 0 {
		r.Log.Warn("ACLs that the source does not have any more stay here, and are not the mirror's any more: topics of it are stopped", "mirror", r.m.Name, "acls", left)
		d.disown = append(d.disown, left...)
	}
	err = r.change(ctx, d, gone)
	return r.report, err
}

// listed tells whether the source has something of this name.
func (r *aclRound) listed(item string) bool { return r.atSource[item] }

// leave parts what is gone at the source from what stays all the same, since topics were stopped.
func (r *aclRound) leave(items []string) (gone, left []string) {
	for _, item := range items {
		if r.m.leaves(r.acls[item]) {
			left = append(left, item)
		} else {
			gone = append(gone, item)
		}
	}
	if len(left) > 0 {
		r.report.Warnings = append(r.report.Warnings, leftBehind(policy.ACLs, left))
	}
	return gone, left
}

// divide parts what allows something from what denies something.
func (r *aclRound) divide(items []string) (allow, deny []string) {
	for _, item := range items {
		if r.acls[item].permission == kmsg.ACLPermissionTypeDeny {
			deny = append(deny, item)
		} else {
			allow = append(allow, item)
		}
	}
	return allow, deny
}

// failed notes that a DENY of the source is not here.
func (r *aclRound) failed(item string) {
	if a := r.acls[item]; a.permission == kmsg.ACLPermissionTypeDeny {
		r.guard.add(a)
	}
}

// held leaves out what is not created while something that denies is not here, and tells of it.
func (r *aclRound) held(items []string) []string {
	const why = "it is created once what denies something to the same client is here, which is undecided or has failed"
	var hold int
	out := slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		if !r.guard.holds(r.acls[item]) {
			return false
		}
		hold++
		for _, source := range r.from[item] {
			r.skip(source, why)
		}
		return true
	})
	if hold > 0 {
		r.report.Warnings = append(r.report.Warnings, fmt.Sprintf("%d ACLs that allow something are held back until what denies something to the same clients is here, which is undecided or has failed", hold))
	}
	return out
}

// change brings this cluster to what it should be. What is not done is found by the next round.
// What denies comes first and goes last, each in requests of its own: nobody may in between, nor
// after one of them has failed, what he may not otherwise.
func (r *aclRound) change(ctx context.Context, d diff, gone []string) error {
	allow, deny := r.divide(d.create)
	allow = r.held(allow)
	create := slices.Concat(deny, allow)
	if err := r.Mirrors.Own(ctx, r.m.Name, policy.ACLs, slices.Concat(create, d.adopt), nil); err != nil {
		return err
	}
	c := &aclChanges{aclRound: r, pace: pacer{every: r.s.changeEvery}, forget: d.disown, asked: map[string]bool{}}
	c.create(ctx, deny)
	c.create(ctx, r.held(allow)) // some of what denies may have failed just now
	for _, item := range create {
		if !c.asked[item] {
			c.forget = append(c.forget, item) // so that it is not taken for our own when somebody creates it
		}
	}
	allow, deny = r.divide(slices.Concat(d.remove, gone))
	c.remove(ctx, allow)
	c.remove(ctx, slices.DeleteFunc(deny, func(item string) bool { return r.guard.holds(r.acls[item]) }))
	if len(r.report.Changes) > 0 {
		r.Log.Info("ACLs of a mirror were changed here as at its source", "mirror", r.m.Name, "changes", len(r.report.Changes))
	}
	return firstErrors(append(c.errs, r.own(ctx, nil, c.forget)), maxErrors)
}

// aclChanges are the requests of one round.
type aclChanges struct {
	*aclRound
	pace   pacer
	forget []string
	errs   []error
	asked  map[string]bool // were in a request, whatever became of it
}

// create creates ACLs. After a request that has failed as a whole nothing more is created, and
// nothing that denies is deleted.
func (c *aclChanges) create(ctx context.Context, items []string) {
	for part := range slices.Chunk(items, aclsAtATime) {
		results, err := c.ask(ctx, part, createACLs)
		if err != nil {
			return
		}
		for i, item := range part {
			if results[i] != nil {
				c.forget = append(c.forget, item) // so that it is not taken for our own when somebody creates it
				c.s.refusals.add(c.m.Name, item, results[i])
				c.errs = append(c.errs, fmt.Errorf("%s: %w", item, results[i]))
				c.failed(item)
			}
			c.applied(item, results[i])
		}
		c.tell("create", succeeded(part, results), "")
	}
}

// remove deletes ACLs. What denies something to whom something is still allowed stays.
func (c *aclChanges) remove(ctx context.Context, items []string) {
	for part := range slices.Chunk(items, aclsAtATime) {
		results, err := c.ask(ctx, part, deleteACLs)
		if err != nil {
			return
		}
		done := succeeded(part, results)
		c.forget = append(c.forget, done...)
		c.tell("delete", done, "")
		for i, item := range part {
			if results[i] != nil {
				c.errs = append(c.errs, fmt.Errorf("%s: %w", item, results[i]))
				c.guard.add(c.acls[item])
			}
		}
	}
}

// ask sends one request in its time. After an error nobody knows what became of it.
func (c *aclChanges) ask(ctx context.Context, items []string, do func(context.Context, *kgo.Client, []acl) ([]error, error)) (results []error, err error) {
	if err = c.pace.wait(ctx); err == nil {
		acls := make([]acl, len(items))
		for i, item := range items {
			acls[i], c.asked[item] = c.acls[item], true
		}
		results, err = do(ctx, c.Destination, acls)
	}
	if err != nil {
		c.errs, c.guard.everybody = append(c.errs, err), true
	}
	return results, err
}

// applied tells the ledger what became of an ACL, by the names that it has at the source.
func (r *aclRound) applied(item string, err error) {
	for _, source := range r.from[item] {
		r.round.applied(source, err)
	}
}

// succeeded returns the items without an error.
func succeeded(items []string, results []error) []string {
	var out []string
	for i, item := range items {
		if results[i] == nil {
			out = append(out, item)
		}
	}
	return out
}

// maxErrors bounds how many errors of one round of ACLs or quotas are told.
const maxErrors = 10
