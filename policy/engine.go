package policy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// Engine asks the plugins of mirrors. Any number of goroutines may ask it. What it answers has one
// verdict for each of the facts, in their order; the only error is that ctx has ended.
type Engine struct {
	plugins Plugins
	ledger  *Ledger
	log     *slog.Logger
	memory  memory
}

// NewEngine returns an engine.
func NewEngine(plugins Plugins, log *slog.Logger) *Engine {
	return &Engine{plugins: plugins, ledger: NewLedger(), log: log}
}

// Ledger returns what the engine writes its decisions to. Who applies them writes there what came
// of it.
func (e *Engine) Ledger() *Ledger { return e.ledger }

// Forget drops what is known of a mirror that is coordinated elsewhere now, or gone.
func (e *Engine) Forget(mirror string) {
	e.memory.forget(mirror)
	e.ledger.Forget(mirror)
}

// Key is the key of a mirror that names the plugins of a kind.
func Key(k Kind) string { return "mirror.policy." + string(k) }

// Names are the plugins that a mirror names for a kind, in their order.
func Names(config map[string]string, k Kind) []string {
	v, given := config[Key(k)]
	if !given && k != Quotas && k != Events {
		v = BuiltIn
	}
	var out []string
	for _, n := range strings.Split(v, ",") {
		if n = strings.TrimSpace(n); n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// BuiltInOnly tells whether nobody but the built-in plugin is asked about a kind.
func BuiltInOnly(config map[string]string, k Kind) bool {
	return slices.Equal(Names(config, k), []string{BuiltIn})
}

// Check says what is wrong with the policies that a mirror's configuration names anew: plugins that
// are not there, are not what was configured, or do not decide on that kind. Those that were named
// before are not asked: a configuration can be mended while one of them is down.
func (e *Engine) Check(ctx context.Context, before, after map[string]string) error {
	for _, k := range []Kind{Topics, Configs, ACLs, Groups, Quotas, Events} {
		had := Names(before, k)
		for _, n := range Names(after, k) {
			if before != nil && slices.Contains(had, n) {
				continue
			}
			if err := e.checkOne(ctx, k, n); err != nil {
				return fmt.Errorf("%s: %w", Key(k), err)
			}
		}
	}
	return nil
}

func (e *Engine) checkOne(ctx context.Context, k Kind, name string) error {
	p, err := e.plugins.Get(name)
	if err != nil || name == BuiltIn && k != Events {
		return err
	}
	if len(p.Kinds()) == 0 {
		// It runs when it is asked, and so shows what it can do.
		if err := probe(ctx, k, p); err != nil && len(p.Kinds()) == 0 {
			return err
		}
	}
	if !slices.Contains(p.Kinds(), k) {
		return fmt.Errorf("plugin %s does not decide on %s, only on %v", name, k, p.Kinds())
	}
	return nil
}

// probe asks a plugin about nothing.
func probe(ctx context.Context, k Kind, p Plugin) error {
	r := &policyv1.Round{Why: policyv1.Round_EXPLAIN}
	var err error
	switch k {
	case Topics:
		_, err = p.SelectTopics(ctx, &policyv1.SelectTopicsRequest{Round: r})
	case Configs:
		_, err = p.SelectConfigs(ctx, &policyv1.SelectConfigsRequest{Round: r})
	case ACLs:
		_, err = p.SelectAcls(ctx, &policyv1.SelectAclsRequest{Round: r})
	case Groups:
		_, err = p.SelectGroups(ctx, &policyv1.SelectGroupsRequest{Round: r})
	case Quotas:
		_, err = p.SelectQuotas(ctx, &policyv1.SelectQuotasRequest{Round: r})
	case Events:
		_, err = p.Notify(ctx, &policyv1.NotifyRequest{Round: r})
	}
	return err
}

// ran records a plugin's run, and logs what is new in it.
func (e *Engine) ran(mirror string, k Kind, plugin string, err error, warnings []*policyv1.Warning) {
	r := Run{Kind: k, Plugin: plugin, At: time.Now()}
	if err != nil {
		r.LastError = cut(err.Error())
	}
	for _, w := range warnings {
		text := w.GetText()
		if w.GetSubject() != "" {
			text = w.GetSubject() + ": " + text
		}
		r.Warnings = append(r.Warnings, cut(text))
	}
	was := e.ledger.ran(mirror, r)
	for _, w := range r.Warnings {
		if !slices.Contains(was.Warnings, w) {
			e.log.Warn("a policy warns", "mirror", mirror, "kind", k, "policy", plugin, "warning", w)
		}
	}
	switch {
	case r.LastError != "" && r.LastError != was.LastError:
		e.log.Warn("a policy cannot be asked; what it said last stands", "mirror", mirror, "kind", k, "policy", plugin, "err", err)
	case r.LastError == "" && was.LastError != "":
		e.log.Info("a policy can be asked again", "mirror", mirror, "kind", k, "policy", plugin)
	}
}

// Topics asks which topics of the source are mirrored.
func (e *Engine) Topics(ctx context.Context, q Question, facts []*policyv1.TopicFacts) ([]Verdict, error) {
	out, err := run(ctx, e, q, ability[*policyv1.TopicFacts, *policyv1.TopicDecision]{
		kind: Topics, item: (*policyv1.TopicFacts).GetName, said: (*policyv1.TopicDecision).GetDecision,
		ask: func(ctx context.Context, p Plugin, r *policyv1.Round, facts []*policyv1.TopicFacts) ([]*policyv1.TopicDecision, []*policyv1.Warning, error) {
			a, err := p.SelectTopics(ctx, &policyv1.SelectTopicsRequest{Round: r, Topics: facts})
			return a.GetDecisions(), a.GetWarnings(), err
		},
		next: unchanged[*policyv1.TopicFacts, *policyv1.TopicDecision],
	}, facts)
	return verdicts(out), err
}

// Groups asks which groups' offsets are copied.
func (e *Engine) Groups(ctx context.Context, q Question, facts []*policyv1.GroupFacts) ([]Verdict, error) {
	out, err := run(ctx, e, q, ability[*policyv1.GroupFacts, *policyv1.GroupDecision]{
		kind: Groups, item: (*policyv1.GroupFacts).GetGroup, said: (*policyv1.GroupDecision).GetDecision,
		ask: func(ctx context.Context, p Plugin, r *policyv1.Round, facts []*policyv1.GroupFacts) ([]*policyv1.GroupDecision, []*policyv1.Warning, error) {
			a, err := p.SelectGroups(ctx, &policyv1.SelectGroupsRequest{Round: r, Groups: facts})
			return a.GetDecisions(), a.GetWarnings(), err
		},
		next: unchanged[*policyv1.GroupFacts, *policyv1.GroupDecision],
	}, facts)
	return verdicts(out), err
}

func unchanged[F, D any](f F, _ D) (F, bool) { return f, false }

func verdicts[F any](out []outcome[F]) []Verdict {
	if out == nil {
		return nil
	}
	v := make([]Verdict, len(out))
	for i, o := range out {
		v[i] = o.Verdict
	}
	return v
}

// ConfigVerdict is the verdict on a config of a topic, and the value to set.
type ConfigVerdict struct {
	Verdict
	Value string
}

// configFact is one config of one topic.
type configFact struct {
	topic string
	*policyv1.ConfigFacts
}

// Configs asks which configs of topics are copied, and to what. It answers for each topic and each
// of its configs.
func (e *Engine) Configs(ctx context.Context, q Question, facts []*policyv1.TopicConfigFacts) ([][]ConfigVerdict, error) {
	var flat []configFact
	for _, t := range facts {
		for _, c := range t.GetConfigs() {
			flat = append(flat, configFact{t.GetTopic(), c})
		}
	}
	out, err := run(ctx, e, q, ability[configFact, *policyv1.ConfigDecision]{
		kind: Configs, said: (*policyv1.ConfigDecision).GetDecision, ask: askConfigs,
		item: func(f configFact) string { return ConfigItem(f.topic, f.GetName()) },
		next: func(f configFact, d *policyv1.ConfigDecision) (configFact, bool) {
			if d.Value == nil {
				return f, false
			}
			c, _ := proto.Clone(f.ConfigFacts).(*policyv1.ConfigFacts)
			c.SourceValue = d.GetValue()
			return configFact{f.topic, c}, true
		},
		// Every topic has dozens of configs that are nowhere set.
		dull: func(f configFact) bool { return !f.GetSourceSet() },
	}, flat)
	if err != nil {
		return nil, err
	}
	verdicts := make([][]ConfigVerdict, len(facts))
	for i, t := range facts {
		for _, o := range out[:len(t.GetConfigs())] {
			verdicts[i] = append(verdicts[i], ConfigVerdict{o.Verdict, o.fact.GetSourceValue()})
		}
		out = out[len(t.GetConfigs()):]
	}
	return verdicts, nil
}

// askConfigs puts the configs of a topic together again.
func askConfigs(ctx context.Context, p Plugin, r *policyv1.Round, facts []configFact) ([]*policyv1.ConfigDecision, []*policyv1.Warning, error) {
	req := &policyv1.SelectConfigsRequest{Round: r}
	for _, f := range facts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != f.topic {
			req.Topics = append(req.Topics, &policyv1.TopicConfigFacts{Topic: f.topic})
		}
		t := req.Topics[len(req.Topics)-1]
		t.Configs = append(t.Configs, f.ConfigFacts)
	}
	a, err := p.SelectConfigs(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	var out []*policyv1.ConfigDecision
	for _, t := range a.GetTopics() {
		out = append(out, t.GetDecisions()...)
	}
	return out, a.GetWarnings(), nil
}

// ACLVerdict is the verdict on an ACL of the source, and what to create here.
type ACLVerdict struct {
	Verdict
	As *policyv1.AclBinding
}

// ACLs asks which ACLs are created, and for whom.
func (e *Engine) ACLs(ctx context.Context, q Question, facts []*policyv1.AclFacts) ([]ACLVerdict, error) {
	out, err := run(ctx, e, q, ability[*policyv1.AclFacts, *policyv1.AclDecision]{
		kind: ACLs, said: (*policyv1.AclDecision).GetDecision,
		item: func(f *policyv1.AclFacts) string { return ACLItem(f.GetAcl()) },
		ask: func(ctx context.Context, p Plugin, r *policyv1.Round, facts []*policyv1.AclFacts) ([]*policyv1.AclDecision, []*policyv1.Warning, error) {
			a, err := p.SelectAcls(ctx, &policyv1.SelectAclsRequest{Round: r, Acls: facts})
			return a.GetDecisions(), a.GetWarnings(), err
		},
		next: func(f *policyv1.AclFacts, d *policyv1.AclDecision) (*policyv1.AclFacts, bool) {
			if d.GetAs() == nil {
				return f, false
			}
			return &policyv1.AclFacts{Acl: d.GetAs(), ExistsHere: f.GetExistsHere(), Owned: f.GetOwned()}, true
		},
	}, facts)
	if err != nil {
		return nil, err
	}
	verdicts := make([]ACLVerdict, len(out))
	for i, o := range out {
		verdicts[i] = ACLVerdict{o.Verdict, o.fact.GetAcl()}
	}
	return verdicts, nil
}

// QuotaVerdict is the verdict on a quota of the source, and the value to set.
type QuotaVerdict struct {
	Verdict
	Value float64
}

// Quotas asks which client quotas are set here.
func (e *Engine) Quotas(ctx context.Context, q Question, facts []*policyv1.QuotaFacts) ([]QuotaVerdict, error) {
	out, err := run(ctx, e, q, ability[*policyv1.QuotaFacts, *policyv1.QuotaDecision]{
		kind: Quotas, said: (*policyv1.QuotaDecision).GetDecision,
		item: func(f *policyv1.QuotaFacts) string { return QuotaItem(f.GetEntity(), f.GetKey()) },
		ask: func(ctx context.Context, p Plugin, r *policyv1.Round, facts []*policyv1.QuotaFacts) ([]*policyv1.QuotaDecision, []*policyv1.Warning, error) {
			a, err := p.SelectQuotas(ctx, &policyv1.SelectQuotasRequest{Round: r, Quotas: facts})
			return a.GetDecisions(), a.GetWarnings(), err
		},
		next: func(f *policyv1.QuotaFacts, d *policyv1.QuotaDecision) (*policyv1.QuotaFacts, bool) {
			if d.Value == nil {
				return f, false
			}
			c, _ := proto.Clone(f).(*policyv1.QuotaFacts)
			c.SourceValue = d.GetValue()
			return c, true
		},
	}, facts)
	if err != nil {
		return nil, err
	}
	verdicts := make([]QuotaVerdict, len(out))
	for i, o := range out {
		verdicts[i] = QuotaVerdict{o.Verdict, o.fact.GetSourceValue()}
	}
	return verdicts, nil
}
