package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// pageSize is how many items one question has at most.
const pageSize = 2000

// ability is how plugins are asked about one kind: F are the facts of one item, D is the decision
// on it.
type ability[F, D any] struct {
	kind Kind
	item func(F) string
	ask  func(ctx context.Context, p Plugin, r *policyv1.Round, facts []F) ([]D, []*policyv1.Warning, error)
	said func(D) *policyv1.Decision
	// next is what the following plugin sees, and who applies it, if the decision changes anything.
	next func(F, D) (F, bool)
	// dull items are not worth to be remembered when they are refused. What was said of them before,
	// when they may not have been dull, is forgotten then.
	dull func(F) bool
}

// outcome is what the plugins say of one item, and the item as they have left it.
type outcome[F any] struct {
	Verdict
	fact F
}

// run asks the plugins of a mirror about items: each sees only what those before it have accepted,
// as they have changed it. Once a plugin cannot be asked it is not asked again in this round: what
// it said last stands, and what it never decided on is refused. Only the end of ctx is an error.
func run[F, D any](ctx context.Context, e *Engine, q Question, a ability[F, D], facts []F) ([]outcome[F], error) {
	out := make([]outcome[F], len(facts))
	names := Names(q.Config, a.kind)
	for i, f := range facts {
		out[i] = outcome[F]{Verdict: Verdict{Accepted: true}, fact: f}
		if len(names) == 0 {
			out[i].Verdict = Verdict{Rule: Key(a.kind), Reason: fmt.Sprintf("%s names no policy", Key(a.kind))}
		}
	}
	began := time.Now()
	for n, name := range names {
		var live []int
		for i := range out {
			if out[i].Accepted {
				live = append(live, i)
			}
		}
		if len(live) == 0 && len(facts) > 0 {
			break
		}
		asking, cancel := q.share(ctx, a.kind, began, len(names)-n)
		err := askOne(ctx, asking, e, q, a, name, facts, live, out)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("mirror %s: ask the policies for %s: %w", q.Mirror, a.kind, err)
		}
	}
	if q.counts() {
		for i, f := range facts {
			if !out[i].Accepted && a.dull != nil && a.dull(f) {
				e.ledger.drop(q.Mirror, a.kind, a.item(f))
				continue
			}
			e.ledger.decided(q.Mirror, a.kind, a.item(f), out[i].Verdict)
		}
		if q.Why == policyv1.Round_REFRESH {
			e.memory.prune(q.Mirror, a.kind)
			e.ledger.prune(q.Mirror, a.kind)
		}
	}
	return out, nil
}

// share is the time that the next of some plugins has of what is left of a round: one that needs all of
// it would keep those after it from ever being asked.
func (q Question) share(ctx context.Context, k Kind, began time.Time, plugins int) (context.Context, context.CancelFunc) {
	if q.Within <= 0 {
		return context.WithCancel(ctx)
	}
	left := time.Until(began.Add(q.Within))
	return context.WithTimeoutCause(ctx, left/time.Duration(plugins), fmt.Errorf("%s are not decided on within %s", k, q.Within))
}

// askOne asks one plugin about the items of out that are live. A refresh goes on where the last one
// had to end: one that begins at the same page each time would never get to the end of a long list. A
// page that fails by itself is passed over, and asked last. asking ends with the plugin's time; only the
// end of ctx is an error.
func askOne[F, D any](ctx, asking context.Context, e *Engine, q Question, a ability[F, D], plugin string, facts []F, live []int, out []outcome[F]) error {
	mem := memoryKey{q.Mirror, a.kind, plugin}
	resumes := q.counts() && q.Why == policyv1.Round_REFRESH
	if from, ok := e.memory.resumes(mem); ok && resumes {
		if at := slices.IndexFunc(live, func(i int) bool { return a.item(facts[i]) == from }); at > 0 {
			live = slices.Concat(live[at:], live[:at])
		}
	}
	p, err := e.plugins.Get(plugin)
	asked := err == nil
	var warnings []*policyv1.Warning
	r := q.round()
	for at := 0; at < len(live); at += pageSize {
		part := live[at:min(at+pageSize, len(live))]
		var said []D
		if err == nil {
			var warns []*policyv1.Warning
			if said, warns, err = askPage(asking, a, p, r, part, out); err != nil {
				next := at + len(part)
				if asking.Err() != nil {
					err = fmt.Errorf("%w: %w", context.Cause(asking), err)
					if at > 0 { // or else it is a page that takes longer than a round
						next = at
					}
				}
				if resumes {
					e.memory.resume(mem, a.item(facts[live[next%len(live)]]))
				}
			}
			warnings = append(warnings, warns[:min(len(warns), maxWarnings-len(warnings))]...)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for j, i := range part {
			if err == nil {
				heed(e, q, a, mem, facts[i], &out[i], said[j])
			} else {
				fallBack(e, a, mem, facts[i], &out[i], err)
			}
		}
		// Not changed in place: a question that was given up may still be read.
		r = proto.CloneOf(r)
		r.Page++
	}
	if asked && err == nil && resumes {
		e.memory.resume(mem, "")
	}
	if q.counts() && (len(live) > 0 || err != nil) { // or else nobody was asked
		e.ran(q.Mirror, a.kind, plugin, err, warnings)
	}
	return nil
}

// askPage asks one plugin about some of the items. Answers were checked where they came from, but
// what does not fit the question would be taken for another item's.
func askPage[F, D any](ctx context.Context, a ability[F, D], p Plugin, r *policyv1.Round, part []int, out []outcome[F]) ([]D, []*policyv1.Warning, error) {
	facts := make([]F, len(part))
	for j, i := range part {
		facts[j] = out[i].fact
	}
	said, warnings, err := a.ask(ctx, p, r, facts)
	if err != nil {
		return nil, nil, err
	}
	if len(said) != len(facts) {
		return nil, nil, fmt.Errorf("plugin %s was asked for %d %s and decided on %d", p.Name(), len(facts), a.kind, len(said))
	}
	for j, d := range said {
		if v := a.said(d).GetVerdict(); v != policyv1.Decision_ACCEPT && v != policyv1.Decision_REFUSE {
			return nil, nil, fmt.Errorf("plugin %s neither accepts nor refuses %s", p.Name(), a.item(facts[j]))
		}
	}
	return said, warnings, nil
}

// heed takes a plugin's decision on an item.
func heed[F, D any](e *Engine, q Question, a ability[F, D], mem memoryKey, asked F, o *outcome[F], d D) {
	s := a.said(d)
	o.Accepted, o.Plugin = s.GetVerdict() == policyv1.Decision_ACCEPT, mem.plugin
	o.Rule, o.Reason = strings.Clone(s.GetRule()), strings.Clone(s.GetReason())
	kept := remembered{said: said{o.Accepted, o.Rule, o.Reason}}
	if o.Accepted {
		if f, changed := a.next(o.fact, d); changed {
			o.fact, kept.decision = f, d
		}
	}
	switch {
	case !q.counts():
	case !o.Accepted && a.dull != nil && a.dull(asked):
		e.memory.drop(mem, a.item(asked))
	default:
		e.memory.keep(mem, a.item(asked), kept)
	}
}

// fallBack takes what a plugin that cannot be asked has said before.
func fallBack[F, D any](e *Engine, a ability[F, D], mem memoryKey, asked F, o *outcome[F], why error) {
	was, ok := e.memory.recall(mem, a.item(asked))
	o.Plugin = mem.plugin
	if !ok {
		o.Verdict = Verdict{Plugin: mem.plugin, Undecided: true, Reason: fmt.Sprintf("policy %s has not decided on it yet: %v", mem.plugin, why)}
		return
	}
	o.Accepted, o.Rule, o.Reason, o.Stale = was.accepted, was.rule, was.reason, true
	if d, ok := was.decision.(D); ok && o.Accepted {
		o.fact, _ = a.next(o.fact, d)
	}
}

// counts tells whether the decisions of a round are what the mirror goes by: a question is none.
func (q Question) counts() bool {
	return !q.Peek && q.Why != policyv1.Round_DRY_RUN && q.Why != policyv1.Round_EXPLAIN
}

// round is what every question of a round says of it.
func (q Question) round() *policyv1.Round {
	return &policyv1.Round{
		Mirror: q.Mirror, SourceClusterId: q.SourceClusterID, DestinationClusterId: q.DestinationClusterID,
		MirrorConfig: q.Config, Why: q.Why,
	}
}
