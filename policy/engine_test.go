package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// scripted is a plugin that refuses what its function names, or cannot be asked.
type scripted struct {
	name   string
	refuse func(item string) bool
	value  func(item string) *string // of configs
	err    error
	short  bool // forgets the last decision
	hangs  bool // answers nothing about topics
	takes  time.Duration
	kinds  []Kind
	warn   string
	seen   []string
	pages  []int32
	values []string

	fails, hangsAt string // topics whose pages it does not answer
}

func (s *scripted) Name() string  { return s.name }
func (s *scripted) Kinds() []Kind { return s.kinds }

func (s *scripted) decide(item string) *policyv1.Decision {
	s.seen = append(s.seen, item)
	if s.refuse != nil && s.refuse(item) {
		return &policyv1.Decision{Verdict: policyv1.Decision_REFUSE, Rule: "no", Reason: s.name + " does not want " + item}
	}
	return &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Rule: "yes", Reason: s.name + " wants " + item}
}

func (s *scripted) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(r.GetTopics(), func(t *policyv1.TopicFacts) bool { return name != "" && t.GetName() == name })
	}
	if s.hangs || has(s.hangsAt) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	if has(s.fails) {
		return nil, errors.New("this page is not to its taste")
	}
	s.pages = append(s.pages, r.GetRound().GetPage())
	a := &policyv1.SelectTopicsResponse{}
	for _, t := range r.GetTopics() {
		a.Decisions = append(a.Decisions, &policyv1.TopicDecision{Name: t.GetName(), Decision: s.decide(t.GetName())})
	}
	if s.short {
		a.Decisions = a.Decisions[1:]
	}
	if s.warn != "" {
		a.Warnings = append(a.Warnings, &policyv1.Warning{Subject: "t", Text: s.warn})
	}
	return a, nil
}

func (s *scripted) SelectConfigs(_ context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	if s.err != nil {
		return nil, s.err
	}
	a := &policyv1.SelectConfigsResponse{}
	for _, t := range r.GetTopics() {
		d := &policyv1.TopicConfigDecisions{Topic: t.GetTopic()}
		for _, c := range t.GetConfigs() {
			item := ConfigItem(t.GetTopic(), c.GetName())
			s.values = append(s.values, c.GetSourceValue())
			one := &policyv1.ConfigDecision{Name: c.GetName(), Decision: s.decide(item)}
			if s.value != nil {
				one.Value = s.value(item)
			}
			d.Decisions = append(d.Decisions, one)
		}
		a.Topics = append(a.Topics, d)
	}
	return a, nil
}

func (s *scripted) SelectAcls(_ context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	if s.err != nil {
		return nil, s.err
	}
	a := &policyv1.SelectAclsResponse{}
	for _, f := range r.GetAcls() {
		d := &policyv1.AclDecision{Decision: s.decide(f.GetAcl().GetPrincipal())}
		if s.value != nil {
			as := &policyv1.AclBinding{Principal: *s.value(f.GetAcl().GetPrincipal())}
			d.As = as
		}
		a.Decisions = append(a.Decisions, d)
	}
	return a, nil
}

func (s *scripted) SelectGroups(context.Context, *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	return &policyv1.SelectGroupsResponse{}, s.err
}

func (s *scripted) SelectQuotas(context.Context, *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	return &policyv1.SelectQuotasResponse{}, s.err
}

func (s *scripted) Notify(context.Context, *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	return &policyv1.NotifyResponse{}, s.err
}

type scriptedPlugins map[string]*scripted

func (p scriptedPlugins) Get(name string) (Plugin, error) {
	s, ok := p[name]
	if !ok {
		return nil, fmt.Errorf("there is no plugin %q", name)
	}
	return s, nil
}

func newEngine(t testing.TB, plugins ...*scripted) (*Engine, scriptedPlugins) {
	t.Helper()
	all := scriptedPlugins{}
	for _, p := range plugins {
		all[p.name] = p
	}
	return NewEngine(all, slog.New(slog.DiscardHandler)), all
}

func question(kind Kind, names string) Question {
	return Question{Mirror: "m", Config: map[string]string{Key(kind): names}, Why: policyv1.Round_REFRESH}
}

func topics(names ...string) []*policyv1.TopicFacts {
	var out []*policyv1.TopicFacts
	for _, n := range names {
		out = append(out, &policyv1.TopicFacts{Name: n})
	}
	return out
}

func among(names ...string) func(string) bool {
	return func(n string) bool { return slices.Contains(names, n) }
}

func TestFirstRefusalWins(t *testing.T) {
	a, b := &scripted{name: "a", refuse: among("x", "y")}, &scripted{name: "b", refuse: among("y", "z")}
	e, _ := newEngine(t, a, b)
	out, err := e.Topics(t.Context(), question(Topics, "a, b"), topics("w", "x", "y", "z"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Verdict{
		{Accepted: true, Plugin: "b", Rule: "yes", Reason: "b wants w"},
		{Plugin: "a", Rule: "no", Reason: "a does not want x"},
		{Plugin: "a", Rule: "no", Reason: "a does not want y"},
		{Plugin: "b", Rule: "no", Reason: "b does not want z"},
	}
	if !slices.Equal(out, want) {
		t.Errorf("verdicts are %+v, want %+v", out, want)
	}
	if want := []string{"w", "z"}; !slices.Equal(b.seen, want) {
		t.Errorf("b was asked about %v, want what a accepted: %v", b.seen, want)
	}
}

func TestNoPolicyMirrorsNothing(t *testing.T) {
	e, _ := newEngine(t)
	out, err := e.Topics(t.Context(), question(Topics, ""), topics("t"))
	if err != nil || len(out) != 1 || out[0].Accepted || !strings.Contains(out[0].Reason, "names no policy") {
		t.Errorf("without a policy a topic is %+v, %v", out, err)
	}
	if got := Names(nil, Quotas); got != nil {
		t.Errorf("quotas are mirrored by %v unless somebody asks for it", got)
	}
	if got := Names(nil, Topics); !slices.Equal(got, []string{BuiltIn}) {
		t.Errorf("topics are selected by %v unless somebody says otherwise", got)
	}
}

func TestLastGoodDecisionStands(t *testing.T) {
	p := &scripted{name: "p", refuse: among("no")}
	e, _ := newEngine(t, p)
	q := question(Topics, "p")
	if _, err := e.Topics(t.Context(), q, topics("yes", "no")); err != nil {
		t.Fatal(err)
	}
	before, _ := e.Ledger().Get("m", Topics, "yes")
	p.err = errors.New("crashed")
	out, err := e.Topics(t.Context(), q, topics("yes", "no", "new"))
	if err != nil {
		t.Fatal(err)
	}
	if !out[0].Accepted || !out[0].Stale || out[0].Reason != "p wants yes" {
		t.Errorf("what was accepted is %+v", out[0])
	}
	if out[1].Accepted || !out[1].Stale || out[1].Reason != "p does not want no" {
		t.Errorf("what was refused is %+v", out[1])
	}
	if out[2].Accepted || !out[2].Undecided || !strings.Contains(out[2].Reason, "crashed") {
		t.Errorf("what was never decided on is %+v", out[2])
	}
	after, _ := e.Ledger().Get("m", Topics, "yes")
	if !after.Since.Equal(before.Since) || !after.Stale {
		t.Errorf("the entry went from %+v to %+v: the verdict is the same since then", before, after)
	}
	runs := e.Ledger().Runs("m")
	if len(runs) != 1 || runs[0].LastError != "crashed" {
		t.Errorf("the run is %+v", runs)
	}
	// A policy that is not there at all is one that cannot be asked.
	q.Config[Key(Topics)] = "gone"
	if out, err = e.Topics(t.Context(), q, topics("yes")); err != nil || out[0].Accepted || !out[0].Undecided {
		t.Errorf("without its plugin a topic is %+v, %v", out, err)
	}
}

func TestDryRunsAreNotWhatTheMirrorGoesBy(t *testing.T) {
	p := &scripted{name: "p"}
	e, _ := newEngine(t, p)
	q := question(Topics, "p")
	for _, why := range []policyv1.Round_Why{policyv1.Round_DRY_RUN, policyv1.Round_EXPLAIN} {
		q.Why = why
		if out, err := e.Topics(t.Context(), q, topics("t")); err != nil || !out[0].Accepted {
			t.Fatalf("%v, %v", out, err)
		}
	}
	if _, known := e.Ledger().Get("m", Topics, "t"); known || len(e.Ledger().Runs("m")) > 0 {
		t.Error("a question was taken for a round")
	}
	p.err = errors.New("gone")
	if out, _ := e.Topics(t.Context(), q, topics("t")); !out[0].Undecided {
		t.Errorf("a question's answer stands: %+v", out[0])
	}
}

func TestNonsenseIsNoAnswer(t *testing.T) {
	p := &scripted{name: "p", short: true}
	e, _ := newEngine(t, p)
	out, err := e.Topics(t.Context(), question(Topics, "p"), topics("a", "b"))
	if err != nil || !out[0].Undecided || !out[1].Undecided || !strings.Contains(out[0].Reason, "decided on 1") {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestPages(t *testing.T) {
	p := &scripted{name: "p"}
	e, _ := newEngine(t, p)
	names := make([]string, 2*pageSize+1)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	out, err := e.Topics(t.Context(), question(Topics, "p"), topics(names...))
	if err != nil || len(out) != len(names) || !slices.Equal(p.pages, []int32{0, 1, 2}) || !slices.Equal(p.seen, names) {
		t.Errorf("%d verdicts, pages %v, %v", len(out), p.pages, err)
	}
}

func TestEndOfTheAskerIsNoVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, _ := newEngine(t, &scripted{name: "p", err: context.Canceled})
	if out, err := e.Topics(ctx, question(Topics, "p"), topics("a")); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestConfigValuesGoFromPolicyToPolicy(t *testing.T) {
	ten := "10"
	a := &scripted{name: "a", value: func(item string) *string {
		if item == "t/retention.ms" {
			return &ten
		}
		return nil
	}}
	b := &scripted{name: "b", refuse: among("u/x")}
	e, _ := newEngine(t, a, b)
	facts := []*policyv1.TopicConfigFacts{
		{Topic: "t", Configs: []*policyv1.ConfigFacts{{Name: "cleanup.policy", SourceValue: "compact", SourceSet: true}, {Name: "retention.ms", SourceValue: "7", SourceSet: true}}},
		{Topic: "none"},
		{Topic: "u", Configs: []*policyv1.ConfigFacts{{Name: "x", SourceValue: "1"}}},
	}
	q := question(Configs, "a,b")
	for _, down := range []error{nil, errors.New("down")} {
		a.err = down
		out, err := e.Configs(t.Context(), q, facts)
		if err != nil || len(out) != 3 || len(out[0]) != 2 || len(out[1]) != 0 || len(out[2]) != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		if out[0][0].Value != "compact" || out[0][1].Value != "10" || !out[0][1].Accepted {
			t.Errorf("with a %v: %+v", down, out[0])
		}
		if out[2][0].Accepted {
			t.Errorf("with a %v: refused is %+v", down, out[2][0])
		}
	}
	if want := []string{"compact", "10", "1"}; !slices.Equal(b.values[:3], want) {
		t.Errorf("b saw %v, want %v", b.values, want)
	}
	if facts[0].Configs[1].SourceValue != "7" {
		t.Error("the facts of the asker were changed")
	}
	if _, known := e.Ledger().Get("m", Configs, "u/x"); known {
		t.Error("a config that is nowhere set is kept in the ledger")
	}
}

// TestRefusedOnceItIsNotSet: a config that was accepted while the source had set it, and is refused
// since it is not set there, stays refused while the plugin cannot be asked.
func TestRefusedOnceItIsNotSet(t *testing.T) {
	a := &scripted{name: "a"}
	e, _ := newEngine(t, a)
	fact := &policyv1.ConfigFacts{Name: "retention.ms", SourceValue: "7", SourceSet: true}
	ask := func() ConfigVerdict {
		t.Helper()
		out, err := e.Configs(t.Context(), question(Configs, "a"), []*policyv1.TopicConfigFacts{{Topic: "t", Configs: []*policyv1.ConfigFacts{fact}}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0][0]
	}
	if v := ask(); !v.Accepted {
		t.Fatalf("while it is set: %+v", v)
	}
	fact.SourceSet, fact.SourceValue, a.refuse = false, "604800000", among("t/retention.ms")
	if v := ask(); v.Accepted {
		t.Fatalf("once it is not set: %+v", v)
	}
	a.err = errors.New("down")
	if v := ask(); v.Accepted {
		t.Errorf("while the plugin cannot be asked: %+v", v)
	}
	if got, known := e.Ledger().Get("m", Configs, "t/retention.ms"); known {
		t.Errorf("the ledger still has %+v", got)
	}
}

// TestTimeOfARoundIsUp: plugins that have not answered by then are not waited for, and what they said
// last stands.
func TestTimeOfARoundIsUp(t *testing.T) {
	a, b := &scripted{name: "a"}, &scripted{name: "b"}
	e, _ := newEngine(t, a, b)
	q := question(Topics, "a,b")
	if _, err := e.Topics(t.Context(), q, topics("t")); err != nil {
		t.Fatal(err)
	}
	a.hangs, b.hangs, q.Within = true, true, time.Millisecond
	v, err := e.Topics(t.Context(), q, topics("t", "new"))
	if err != nil {
		t.Fatal(err)
	}
	if !v[0].Accepted || !v[0].Stale || v[0].Plugin != "b" || v[1].Accepted || !v[1].Undecided || !strings.Contains(v[1].Reason, "topics are not decided on within 1ms") {
		t.Errorf("%+v", v)
	}
}

// TestNobodyWasAsked: a round about nothing is no run of any plugin, unless there is none of that name.
func TestNobodyWasAsked(t *testing.T) {
	a := &scripted{name: "a", err: errors.New("down")}
	e, _ := newEngine(t, a)
	q := question(Topics, "a")
	for _, facts := range [][]*policyv1.TopicFacts{topics("x"), nil} {
		if _, err := e.Topics(t.Context(), q, facts); err != nil {
			t.Fatal(err)
		}
		if runs := e.Ledger().Runs("m"); len(runs) != 1 || !strings.Contains(runs[0].LastError, "down") {
			t.Errorf("asked about %d topics: %+v", len(facts), runs)
		}
	}
	if _, err := e.Topics(t.Context(), question(Topics, "nobody"), nil); err != nil {
		t.Fatal(err)
	}
	if runs := e.Ledger().Runs("m"); len(runs) != 2 || runs[1].Plugin != "nobody" || runs[1].LastError == "" {
		t.Errorf("with a plugin that is not there: %+v", runs)
	}
}

func TestACLsAreMappedFromPolicyToPolicy(t *testing.T) {
	mapped := "User:mapped"
	a, b := &scripted{name: "a", value: func(string) *string { return &mapped }}, &scripted{name: "b"}
	e, _ := newEngine(t, a, b)
	facts := []*policyv1.AclFacts{{Acl: &policyv1.AclBinding{Principal: "User:alice"}}}
	out, err := e.ACLs(t.Context(), question(ACLs, "a,b"), facts)
	if err != nil || out[0].As.GetPrincipal() != mapped || !slices.Equal(b.seen, []string{mapped}) {
		t.Errorf("%+v, %v, b saw %v", out, err, b.seen)
	}
	if _, known := e.Ledger().Get("m", ACLs, ACLItem(facts[0].Acl)); !known {
		t.Error("the ledger does not know the ACL by what it is at the source")
	}
}

func TestPoliciesAreCheckedBeforeTheyAreNamed(t *testing.T) {
	e, _ := newEngine(t, &scripted{name: "built-in"}, &scripted{name: "topics", kinds: []Kind{Topics}}, &scripted{name: "down", err: errors.New("does not start")})
	set := func(k Kind, names string) map[string]string { return map[string]string{Key(k): names} }
	for _, c := range []struct {
		before, after map[string]string
		want          string
	}{
		{nil, nil, ""},
		{nil, set(Topics, "built-in,topics"), ""},
		{nil, set(Topics, "nobody"), `mirror.policy.topics: there is no plugin "nobody"`},
		{nil, set(ACLs, "topics"), "mirror.policy.acls: plugin topics does not decide on acls"},
		{nil, set(Groups, "down"), "mirror.policy.groups: does not start"},
		{set(Groups, "down"), set(Groups, "down"), ""},
		{nil, set(Events, "built-in"), "mirror.policy.events: plugin built-in does not decide on events"},
	} {
		got := ""
		if err := e.Check(t.Context(), c.before, c.after); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("from %v to %v: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestLedgerIsBoundedAndForgets(t *testing.T) {
	l := NewLedger()
	for i := range maxEntries + 10 {
		l.Skipped("m", Groups, fmt.Sprint(i), "active here")
	}
	if n := len(l.Skips("m", Groups, maxEntries*2)); n != maxEntries {
		t.Errorf("%d entries are kept", n)
	}
	if got := l.Find("m", Groups, "4999", 3); len(got) != 3 || got[0].Item != "4999" || got[0].Why() != "active here" {
		t.Errorf("found %+v", got)
	}
	l.Failed("m", Groups, "1", errors.New(strings.Repeat("x", 5000)))
	if e, _ := l.Get("m", Groups, "1"); len(e.LastError) > maxText || e.Skipped != "" {
		t.Errorf("%d bytes of an error are kept", len(e.LastError))
	}
	l.Done("m", Groups, errors.New("source away"))
	if runs := l.Runs("m"); len(runs) != 1 || runs[0].LastError != "source away" {
		t.Errorf("runs are %+v", runs)
	}
	l.Forget("m")
	if _, known := l.Get("m", Groups, "1"); known || len(l.Runs("m")) > 0 {
		t.Error("a mirror that is gone is not forgotten")
	}
}

// TestChainProperties runs random rounds with plugins that come and go, against a plain account of
// what each has said last.
func TestChainProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "plugins")
		var plugins []*scripted
		var names []string
		for i := range n {
			plugins = append(plugins, &scripted{name: fmt.Sprintf("p%d", i)})
			names = append(names, plugins[i].name)
		}
		e, _ := newEngine(t, plugins...)
		q := question(Topics, strings.Join(names, ","))
		last := map[string]bool{} // by plugin and item: accepted
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			items := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f]`), 1, 6, rapid.ID).Draw(rt, "items")
			refused := map[string][]string{}
			for _, p := range plugins {
				p.seen, p.err = nil, nil
				refused[p.name] = rapid.SliceOf(rapid.SampledFrom(items)).Draw(rt, "refused")
				p.refuse = among(refused[p.name]...)
				if rapid.IntRange(0, 3).Draw(rt, "down") == 0 {
					p.err = errors.New("down")
				}
			}
			out, err := e.Topics(context.Background(), q, topics(items...))
			if err != nil || len(out) != len(items) {
				rt.Fatalf("%d verdicts on %d items, %v", len(out), len(items), err)
			}
			for i, item := range items {
				want := Verdict{Accepted: true}
				for _, p := range plugins {
					if !want.Accepted {
						if slices.Contains(p.seen, item) {
							rt.Fatalf("%s was asked about %s, which was refused before", p.name, item)
						}
						continue
					}
					want.Plugin = p.name
					if p.err != nil {
						said, known := last[p.name+item]
						want.Accepted, want.Stale, want.Undecided = said, want.Stale || known, !known
						if !known {
							want.Stale = false
						}
						continue
					}
					want.Accepted = !slices.Contains(refused[p.name], item)
					last[p.name+item] = want.Accepted
				}
				got := out[i]
				if got.Accepted != want.Accepted || got.Plugin != want.Plugin || got.Undecided != want.Undecided || got.Stale != want.Stale {
					rt.Fatalf("%s is %+v, want %+v", item, got, want)
				}
				if got.Reason == "" || !got.Undecided && !strings.HasSuffix(got.Reason, item) {
					rt.Fatalf("%s has the reason %q", item, got.Reason)
				}
			}
		}
	})
}

// TestSlowPolicyGetsToTheEnd: a list that takes longer than a round has is gone through in several ones,
// by each of the policies; and a page that fails, or takes longer than a round, keeps no other from
// being asked about.
func TestSlowPolicyGetsToTheEnd(t *testing.T) {
	names := make([]string, 5*pageSize)
	for i := range names {
		names[i] = fmt.Sprintf("%05d", i)
	}
	page := func(n int) []string { return names[n*pageSize : (n+1)*pageSize] }
	round := func(t *testing.T, e *Engine, q Question) (undecided int) {
		t.Helper()
		v, err := e.Topics(t.Context(), q, topics(names...))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range v {
			if one.Undecided {
				undecided++
			}
		}
		return undecided
	}
	t.Run("two that are slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := &scripted{name: "a", takes: 20 * time.Second}, &scripted{name: "b", takes: 20 * time.Second}
			e, _ := newEngine(t, a, b)
			q := question(Topics, "a,b")
			q.Within = time.Minute // is a page for each
			for i, want := range []int{4, 4, 3, 2, 1, 0} {
				if n := round(t, e, q); n != want*pageSize {
					t.Errorf("after round %d %d are undecided, want %d", i, n, want*pageSize)
				}
			}
			// With more time they begin at the beginning again, once they are through.
			q.Within = time.Hour
			round(t, e, q)
			a.seen = nil
			if round(t, e, q); !slices.Equal(a.seen, names) {
				t.Errorf("%d were asked about", len(a.seen))
			}
		})
	})
	t.Run("a page that fails", func(t *testing.T) {
		p := &scripted{name: "p", fails: page(1)[0]}
		e, _ := newEngine(t, p)
		round(t, e, question(Topics, "p"))
		if n := round(t, e, question(Topics, "p")); n != pageSize || !slices.Equal(p.seen, slices.Concat(page(0), page(2), page(3), page(4), page(0))) {
			t.Errorf("%d are undecided, %d were asked about", n, len(p.seen))
		}
		if p.fails = ""; round(t, e, question(Topics, "p")) > 0 {
			t.Error("the page is not decided on once it can be")
		}
	})
	t.Run("a page that takes for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &scripted{name: "p", hangsAt: page(0)[0]}
			e, _ := newEngine(t, p)
			q := question(Topics, "p")
			q.Within = time.Minute
			round(t, e, q)
			if n := round(t, e, q); n != pageSize {
				t.Errorf("%d are undecided", n)
			}
		})
	})
	t.Run("a question", func(t *testing.T) {
		p := &scripted{name: "p", fails: page(1)[0]}
		e, _ := newEngine(t, p)
		q := question(Topics, "p")
		q.Peek = true
		round(t, e, q)
		if p.seen = nil; round(t, e, q) != 4*pageSize || !slices.Equal(p.seen, page(0)) {
			t.Errorf("%d were asked about", len(p.seen))
		}
	})
}
