package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// maxItems of a question, and its bytes: gRPC servers take 4 MiB unless they are told otherwise.
	maxItems = 2000
	maxPage  = 3 << 20
)

// question is one kind of question: what it is about, and how it is asked. F are its facts, Q and A
// the messages.
type question[F, Q, A proto.Message] struct {
	kind  policy.Kind
	facts func(Q) []F
	// of makes a question about some of the facts; first tells whether they are the first ones.
	of    func(q Q, plugin map[string]string, facts []F, first bool) Q
	call  func(ctx context.Context, c grpc.ClientConnInterface, q Q) (A, error)
	check func(Q, A) error
	join  func(into, more A)
}

// ask asks in pages that a plugin can take, and joins the answers. The question is not changed.
func ask[F, Q, A proto.Message](ctx context.Context, p *Plugin, k question[F, Q, A], q Q) (A, error) {
	var out, none A
	for i, facts := range pages(k.facts(q)) {
		a, err := askPage(ctx, p, k, k.of(q, p.cfg.Config, facts, i == 0))
		if err != nil {
			return none, err
		}
		if i == 0 {
			out = a
		} else {
			k.join(out, a)
		}
	}
	return out, nil
}

// pages cuts facts into pieces for one message each: at least one, if there are no facts too.
func pages[F proto.Message](facts []F) [][]F {
	var out [][]F
	from, size := 0, 0
	for i, f := range facts {
		n := proto.Size(f)
		if i > from && (i-from >= maxItems || size+n > maxPage) {
			out = append(out, facts[from:i])
			from, size = i, 0
		}
		size += n
	}
	return append(out, facts[from:])
}

// askPage asks one page. It returns with ctx, or when the plugin's time is up; that is measured
// also when whoever asked has no more patience: a plugin that hangs must not go on because of that.
func askPage[F, Q, A proto.Message](ctx context.Context, p *Plugin, k question[F, Q, A], q Q) (A, error) {
	var none A
	doing := func(err error) error {
		return fmt.Errorf("ask plugin %s for %s: %w", p.cfg.Name, k.kind, err)
	}
	if err := p.queue(ctx); err != nil {
		return none, doing(err)
	}
	r, err := p.ready(ctx)
	if err == nil {
		err = r.serves(k.kind)
	}
	if err != nil {
		<-p.calls
		return none, err
	}
	type answer struct {
		a   A
		err error
	}
	answered := make(chan answer, 1)
	own := p.host.own(func() {
		defer func() { <-p.calls }()
		callCtx, cancel := context.WithTimeout(p.host.ctx, p.cfg.Timeout)
		defer cancel()
		// Who no longer wants an answer at all says so to the plugin.
		stop := context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})
		defer stop()
		began := time.Now()
		a, err := k.call(callCtx, r.conn, q)
		p.host.metrics.calls.WithLabelValues(p.cfg.Name, string(k.kind)).Observe(time.Since(began).Seconds())
		if err == nil {
			err = k.check(q, a)
		}
		answered <- answer{a, r.judge(callCtx, k.kind, err)}
	})
	if !own {
		<-p.calls
		return none, doing(errors.New("the sidecar ends"))
	}
	select {
	case got := <-answered:
		if got.err != nil {
			return none, doing(got.err)
		}
		p.answered()
		return got.a, nil
	case <-ctx.Done():
		return none, doing(context.Cause(ctx))
	}
}

// queue waits for a place among the calls.
func (p *Plugin) queue(ctx context.Context) error {
	timeout := time.NewTimer(p.cfg.Timeout)
	defer timeout.Stop()
	select {
	case p.calls <- struct{}{}:
		return nil
	case <-timeout.C:
		return fmt.Errorf("it has had %d questions to answer for %v", concurrent, p.cfg.Timeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// judge says what a failed call means, and ends the process if that is called for.
func (r *run) judge(ctx context.Context, k policy.Kind, err error) error {
	var bad *nonsenseError
	switch code := status.Code(err); {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return r.fault(err)
	case late(ctx, code, r.plugin.cfg.Timeout):
		return r.fault(fmt.Errorf("hangs: it has not answered a question for %s within %v", k, r.plugin.cfg.Timeout))
	case ctx.Err() != nil:
		return ctx.Err()
	case code == codes.Unavailable:
		return r.broken(err)
	case code == codes.ResourceExhausted && strings.HasSuffix(brief(err), fmt.Sprintf("vs. %d)", maxAnswer)):
		return r.fault(fmt.Errorf("answers too much: more than %d bytes to a question for %s", maxAnswer, k))
	case code == codes.Unimplemented:
		return fmt.Errorf("says that it decides on %s, and does not: %s", k, brief(err))
	default:
		return fmt.Errorf("does not decide: %s", brief(err))
	}
}

// late tells whether a call has failed because its time was up. The plugin's side has the same
// deadline and may see it first: it then breaks off the call, and this side has some time left.
func late(ctx context.Context, code codes.Code, timeout time.Duration) bool {
	switch deadline, ok := ctx.Deadline(); {
	case ctx.Err() != nil:
		return errors.Is(ctx.Err(), context.DeadlineExceeded)
	case code == codes.DeadlineExceeded, code == codes.Canceled:
		return ok && time.Until(deadline) < timeout/4
	}
	return false
}

// answered: what was wrong before is over.
func (p *Plugin) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		p.lastErr, p.next = nil, time.Time{}
	}
}

func withConfig(r *policyv1.Round, plugin map[string]string) *policyv1.Round {
	out := &policyv1.Round{}
	if r != nil {
		out = proto.CloneOf(r)
	}
	out.PluginConfig = plugin
	return out
}

// request is a question for decisions.
type request interface {
	proto.Message
	GetRound() *policyv1.Round
}

// decides is the question of a kind on whose items a plugin decides. of makes a message of facts,
// decided returns what is in an answer.
func decides[F proto.Message, Q request, A proto.Message, D any](kind policy.Kind, method string, facts func(Q) []F, check func(Q, A) error,
	of func(*policyv1.Round, []F) Q, decided func(A) (*[]D, *[]*policyv1.Warning),
) question[F, Q, A] {
	return question[F, Q, A]{
		kind: kind, facts: facts, check: check,
		of: func(q Q, plugin map[string]string, f []F, _ bool) Q { return of(withConfig(q.GetRound(), plugin), f) },
		call: func(ctx context.Context, c grpc.ClientConnInterface, q Q) (A, error) {
			var none A
			a, _ := none.ProtoReflect().New().Interface().(A)
			if err := c.Invoke(ctx, method, q, a); err != nil {
				return none, err
			}
			return a, nil
		},
		join: func(into, more A) {
			decisions, warnings := decided(into)
			d, w := decided(more)
			*decisions = append(*decisions, *d...)
			*warnings = checkWarnings(slices.Concat(*warnings, *w))
		},
	}
}

// SelectTopics implements policy.Plugin.
func (p *Plugin) SelectTopics(ctx context.Context, q *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	return ask(ctx, p, decides(policy.Topics, policyv1.TopicPolicy_SelectTopics_FullMethodName, (*policyv1.SelectTopicsRequest).GetTopics, CheckTopics,
		func(r *policyv1.Round, f []*policyv1.TopicFacts) *policyv1.SelectTopicsRequest {
			return &policyv1.SelectTopicsRequest{Round: r, Topics: f}
		},
		func(a *policyv1.SelectTopicsResponse) (*[]*policyv1.TopicDecision, *[]*policyv1.Warning) {
			return &a.Decisions, &a.Warnings
		}), q)
}

// SelectConfigs implements policy.Plugin.
func (p *Plugin) SelectConfigs(ctx context.Context, q *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	return ask(ctx, p, decides(policy.Configs, policyv1.ConfigPolicy_SelectConfigs_FullMethodName, (*policyv1.SelectConfigsRequest).GetTopics, CheckConfigs,
		func(r *policyv1.Round, f []*policyv1.TopicConfigFacts) *policyv1.SelectConfigsRequest {
			return &policyv1.SelectConfigsRequest{Round: r, Topics: f}
		},
		func(a *policyv1.SelectConfigsResponse) (*[]*policyv1.TopicConfigDecisions, *[]*policyv1.Warning) {
			return &a.Topics, &a.Warnings
		}), q)
}

// SelectAcls implements policy.Plugin.
func (p *Plugin) SelectAcls(ctx context.Context, q *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	return ask(ctx, p, decides(policy.ACLs, policyv1.AclPolicy_SelectAcls_FullMethodName, (*policyv1.SelectAclsRequest).GetAcls, CheckACLs,
		func(r *policyv1.Round, f []*policyv1.AclFacts) *policyv1.SelectAclsRequest {
			return &policyv1.SelectAclsRequest{Round: r, Acls: f}
		},
		func(a *policyv1.SelectAclsResponse) (*[]*policyv1.AclDecision, *[]*policyv1.Warning) {
			return &a.Decisions, &a.Warnings
		}), q)
}

// SelectGroups implements policy.Plugin.
func (p *Plugin) SelectGroups(ctx context.Context, q *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	return ask(ctx, p, decides(policy.Groups, policyv1.GroupPolicy_SelectGroups_FullMethodName, (*policyv1.SelectGroupsRequest).GetGroups, CheckGroups,
		func(r *policyv1.Round, f []*policyv1.GroupFacts) *policyv1.SelectGroupsRequest {
			return &policyv1.SelectGroupsRequest{Round: r, Groups: f}
		},
		func(a *policyv1.SelectGroupsResponse) (*[]*policyv1.GroupDecision, *[]*policyv1.Warning) {
			return &a.Decisions, &a.Warnings
		}), q)
}

// SelectQuotas implements policy.Plugin.
func (p *Plugin) SelectQuotas(ctx context.Context, q *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	return ask(ctx, p, decides(policy.Quotas, policyv1.QuotaPolicy_SelectQuotas_FullMethodName, (*policyv1.SelectQuotasRequest).GetQuotas, CheckQuotas,
		func(r *policyv1.Round, f []*policyv1.QuotaFacts) *policyv1.SelectQuotasRequest {
			return &policyv1.SelectQuotasRequest{Round: r, Quotas: f}
		},
		func(a *policyv1.SelectQuotasResponse) (*[]*policyv1.QuotaDecision, *[]*policyv1.Warning) {
			return &a.Decisions, &a.Warnings
		}), q)
}

// Notify implements policy.Plugin.
func (p *Plugin) Notify(ctx context.Context, q *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	return ask(ctx, p, question[*policyv1.Event, *policyv1.NotifyRequest, *policyv1.NotifyResponse]{
		kind:  policy.Events,
		facts: (*policyv1.NotifyRequest).GetEvents,
		of: func(q *policyv1.NotifyRequest, plugin map[string]string, f []*policyv1.Event, first bool) *policyv1.NotifyRequest {
			out := &policyv1.NotifyRequest{Round: withConfig(q.GetRound(), plugin), Events: f}
			if first {
				out.GivenUp = q.GetGivenUp()
			}
			return out
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
			return policyv1.NewEventSinkClient(c).Notify(ctx, q)
		},
		check: func(*policyv1.NotifyRequest, *policyv1.NotifyResponse) error { return nil },
		join:  func(_, _ *policyv1.NotifyResponse) {},
	}, q)
}
