package syncs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// QuotaPolicies say which client quotas are set; policy.Engine does.
type QuotaPolicies interface {
	Quotas(ctx context.Context, q policy.Question, facts []*policyv1.QuotaFacts) ([]policy.QuotaVerdict, error)
}

// QuotasConfig is what Quotas needs.
type QuotasConfig struct {
	Here
	Policies QuotaPolicies
	// AllowHosts lets quotas of ip addresses through.
	AllowHosts bool
}

// Quotas sets the source's client quotas here, as policies say, in the way that ACLs does: the
// difference only, written down before and forgotten after, and nothing that it has not set. What
// somebody else has set to another value stays.
type Quotas struct {
	cfg      QuotasConfig
	doubts   *doubts
	refusals refusals

	changeEvery time.Duration // in tests it is shorter
}

var _ Sync = (*Quotas)(nil)

// NewQuotas returns the sync of client quotas.
func NewQuotas(cfg QuotasConfig) *Quotas {
	return &Quotas{cfg: cfg, doubts: newDoubts(policy.Quotas, cfg.Log), changeEvery: changeEvery}
}

// Kind implements Sync.
func (*Quotas) Kind() policy.Kind { return policy.Quotas }

// Wanted implements Sync.
func (*Quotas) Wanted(m Mirror) bool { return m.asks(policy.Quotas, !m.Config.QuotasInclude.Empty()) }

// Sync implements Sync.
func (s *Quotas) Sync(ctx context.Context, m Mirror, src *kgo.Client, why policyv1.Round_Why) (Report, error) {
	if m.Ended {
		return Report{Note: m.ended(policy.Quotas)}, nil
	}
	r := &quotaRound{round: round{Here: s.cfg.Here, kind: policy.Quotas, m: m, why: why}, s: s, src: src}
	var err error
	if r.source, r.report.Skipped, err = readQuotas(ctx, src); err != nil {
		s.doubts.forget(m.Name)
		return Report{}, fmt.Errorf("at the source: %w", err)
	}
	if r.here, _, err = readQuotas(ctx, s.cfg.Destination); err != nil {
		return Report{}, fmt.Errorf("here: %w", err)
	}
	if err := r.decide(ctx); err != nil {
		return Report{}, err
	}
	return r.run(ctx)
}

// quotaRound is one run for one mirror.
type quotaRound struct {
	round
	s            *Quotas
	src          *kgo.Client
	source, here map[string]quota

	facts diffFacts
	want  map[string]quota
	set   []string          // were set by this mirror, to another value than they have here
	first map[string]string // by item: the first of the other mirrors by name that have set it
}

// decide asks the policies, and keeps within what they cannot widen.
func (r *quotaRound) decide(ctx context.Context) error {
	r.want = map[string]quota{}
	r.facts = r.newFacts()
	for item := range r.here {
		r.facts.here[item] = true
	}
	r.first = r.Mirrors.OwnedFirst(r.m.Name, policy.Quotas)
	items := slices.Sorted(maps.Keys(r.source))
	facts := make([]*policyv1.QuotaFacts, len(items))
	for i, item := range items {
		facts[i] = r.source[item].facts()
		if here, ok := r.here[item]; ok {
			facts[i].ValueHere = &here.value
		}
		_, facts[i].Owned = r.facts.owned[item]
	}
	verdicts, err := r.s.cfg.Policies.Quotas(ctx, r.question(), facts)
	if err != nil {
		return err
	}
	for i, v := range verdicts {
		r.take(items[i], v)
	}
	return nil
}

// take takes the verdict on one quota of the source.
func (r *quotaRound) take(item string, v policy.QuotaVerdict) {
	r.facts.decided(item, v.Verdict)
	if !v.Accepted {
		r.report.Skipped = append(r.report.Skipped, Skip{item, v.Reason})
		return
	}
	want := r.source[item]
	want.value = v.Value
	if why := want.bound(r.s.cfg.AllowHosts); why != "" {
		r.skip(item, why)
		return
	}
	r.want[item], r.facts.wanted[item] = want, true
	here, there := r.here[item]
	_, mine := r.facts.owned[item]
	first := r.first[item]
	switch {
	case !there || here.value == want.value:
	case first != "" && (!mine || first < r.m.Name):
		// Of several one may say what it is, always the same. The first by name does: when it does
		// not want it any more it gives it up in favour of the last, which may not want it.
		r.skip(item, fmt.Sprintf("mirror %s has set it to %v", first, here.value))
		delete(r.facts.elsewhere, item) // nothing is adopted that has another value
	case mine:
		r.set = append(r.set, item)
	default:
		delete(r.facts.elsewhere, item) // a mirror's that has ended
		r.skip(item, fmt.Sprintf("somebody has set it to %v here; once that is removed it follows the source", here.value))
	}
}

func (r *quotaRound) run(ctx context.Context) (Report, error) {
	d := compare(r.facts)
	if !r.acts() {
		for _, item := range slices.Concat(d.create, r.set) {
			r.tellSet(item, r.want[item].value)
		}
		r.tell("remove", d.remove, "the policies refuse it now")
		r.tell("remove", r.leave(d.gone), "the source does not have it any more")
		return r.report, nil
	}
	r.Ledger.Only(r.m.Name, policy.Quotas, func(item string) bool { _, there := r.source[item]; return there })
	for item, q := range r.want {
		if here, ok := r.here[item]; ok && here.value == q.value {
			r.applied(item, nil)
		}
	}
	if d.empty() && len(r.set) == 0 {
		r.s.doubts.forget(r.m.Name)
		return r.report, nil
	}
	d.create = r.s.refusals.without(r.m.Name, d.create, r.applied)
	gone, warning, err := r.s.doubts.believe(ctx, r.m.Name, d.gone, len(r.facts.owned), len(r.source), func(ctx context.Context) (bool, error) {
		again, _, err := readQuotas(ctx, r.src)
		same := func(a, b quota) bool { return a.value == b.value }
		return maps.EqualFunc(again, r.source, same), err
	})
	if err != nil {
		return r.report, err
	}
	if warning != "" {
		r.report.Warnings = append(r.report.Warnings, warning)
	}
	if left := r.leave(gone); len(left) < len(gone) {
		r.Log.Warn("client quotas that the source does not have any more stay here, and are not the mirror's any more: topics of it are stopped", "mirror", r.m.Name, "quotas", gone)
		d.disown, gone = append(d.disown, gone...), left
	}
	err = r.change(ctx, d, gone)
	return r.report, err
}

// leave returns what is to be removed of what is gone at the source: nothing once topics were
// stopped, for their clients are here, and whose clients a quota is for is not known.
func (r *quotaRound) leave(gone []string) []string {
	if len(gone) == 0 || len(r.m.Stopped) == 0 {
		return gone
	}
	r.report.Warnings = append(r.report.Warnings, leftBehind(policy.Quotas, gone))
	return nil
}

// change brings this cluster to what it should be. What is not done is found by the next round.
func (r *quotaRound) change(ctx context.Context, d diff, gone []string) error {
	if err := r.Mirrors.Own(ctx, r.m.Name, policy.Quotas, slices.Concat(d.create, d.adopt), nil); err != nil {
		return err
	}
	var changes []quotaChange
	for _, item := range slices.Concat(d.create, r.set) {
		changes = append(changes, quotaChange{quota: r.want[item]})
	}
	for _, item := range slices.Concat(d.remove, gone) {
		changes = append(changes, quotaChange{quota: r.here[item], remove: true})
	}
	forget := d.disown
	pace := pacer{every: r.s.changeEvery}
	var errs []error
	var asked int
	for part := range slices.Chunk(changes, quotasAtATime) {
		err := pace.wait(ctx)
		var results []error
		if err == nil {
			asked += len(part)
			results, err = alterQuotas(ctx, r.Destination, part)
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		for i, c := range part {
			item := c.item()
			if results[i] != nil {
				errs = append(errs, fmt.Errorf("%s: %w", item, results[i]))
			}
			if give := r.changed(c, item, results[i]); give {
				forget = append(forget, item)
			}
		}
	}
	for _, c := range changes[asked:] {
		if item := c.item(); !r.facts.here[item] {
			forget = append(forget, item) // so that it is not taken for our own when somebody sets it
		}
	}
	if len(r.report.Changes) > 0 {
		r.Log.Info("client quotas of a mirror were changed here as at its source", "mirror", r.m.Name, "changes", len(r.report.Changes))
	}
	return firstErrors(append(errs, r.own(ctx, nil, forget)), maxErrors)
}

// changed keeps what became of a change, and tells whether the mirror does not own the quota any more.
func (r *quotaRound) changed(c quotaChange, item string, err error) (giveUp bool) {
	if c.remove {
		if err == nil {
			r.tell("remove", []string{item}, "")
		}
		return err == nil
	}
	r.applied(item, err)
	_, there := r.here[item]
	switch {
	case err != nil && !there:
		r.s.refusals.add(r.m.Name, item, err)
		return true // so that it is not taken for our own when somebody sets it
	case err != nil:
		return false
	}
	r.tellSet(item, c.value)
	return false
}

// tellSet tells that a quota was or would be set.
func (r *quotaRound) tellSet(item string, value float64) {
	if here, there := r.here[item]; there {
		r.tell("set", []string{item}, fmt.Sprintf("from %v to %v", here.value, value))
	} else {
		r.tell("create", []string{item}, fmt.Sprintf("set to %v", value))
	}
}
