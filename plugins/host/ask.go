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

// SelectTopics implements policy.Plugin.
func (p *Plugin) SelectTopics(ctx context.Context, q *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	return ask(ctx, p, question[*policyv1.TopicFacts, *policyv1.SelectTopicsRequest, *policyv1.SelectTopicsResponse]{
		kind:  policy.Topics,
		facts: (*policyv1.SelectTopicsRequest).GetTopics,
		of: func(q *policyv1.SelectTopicsRequest, plugin map[string]string, f []*policyv1.TopicFacts, _ bool) *policyv1.SelectTopicsRequest {
			return &policyv1.SelectTopicsRequest{Round: withConfig(q.GetRound(), plugin), Topics: f}
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
			return policyv1.NewTopicPolicyClient(c).SelectTopics(ctx, q)
		},
		check: CheckTopics,
		join: func(into, more *policyv1.SelectTopicsResponse) {
			into.Decisions = append(into.Decisions, more.GetDecisions()...)
			into.Warnings = checkWarnings(slices.Concat(into.GetWarnings(), more.GetWarnings()))
		},
	}, q)
}

// SelectConfigs implements policy.Plugin.
func (p *Plugin) SelectConfigs(ctx context.Context, q *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	return ask(ctx, p, question[*policyv1.TopicConfigFacts, *policyv1.SelectConfigsRequest, *policyv1.SelectConfigsResponse]{
		kind:  policy.Configs,
		facts: (*policyv1.SelectConfigsRequest).GetTopics,
		of: func(q *policyv1.SelectConfigsRequest, plugin map[string]string, f []*policyv1.TopicConfigFacts, _ bool) *policyv1.SelectConfigsRequest {
			return &policyv1.SelectConfigsRequest{Round: withConfig(q.GetRound(), plugin), Topics: f}
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
			return policyv1.NewConfigPolicyClient(c).SelectConfigs(ctx, q)
		},
		check: CheckConfigs,
		join: func(into, more *policyv1.SelectConfigsResponse) {
			into.Topics = append(into.Topics, more.GetTopics()...)
			into.Warnings = checkWarnings(slices.Concat(into.GetWarnings(), more.GetWarnings()))
		},
	}, q)
}

// SelectAcls implements policy.Plugin.
func (p *Plugin) SelectAcls(ctx context.Context, q *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	return ask(ctx, p, question[*policyv1.AclFacts, *policyv1.SelectAclsRequest, *policyv1.SelectAclsResponse]{
		kind:  policy.ACLs,
		facts: (*policyv1.SelectAclsRequest).GetAcls,
		of: func(q *policyv1.SelectAclsRequest, plugin map[string]string, f []*policyv1.AclFacts, _ bool) *policyv1.SelectAclsRequest {
			return &policyv1.SelectAclsRequest{Round: withConfig(q.GetRound(), plugin), Acls: f}
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
			return policyv1.NewAclPolicyClient(c).SelectAcls(ctx, q)
		},
		check: CheckACLs,
		join: func(into, more *policyv1.SelectAclsResponse) {
			into.Decisions = append(into.Decisions, more.GetDecisions()...)
			into.Warnings = checkWarnings(slices.Concat(into.GetWarnings(), more.GetWarnings()))
		},
	}, q)
}

// SelectGroups implements policy.Plugin.
func (p *Plugin) SelectGroups(ctx context.Context, q *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	return ask(ctx, p, question[*policyv1.GroupFacts, *policyv1.SelectGroupsRequest, *policyv1.SelectGroupsResponse]{
		kind:  policy.Groups,
		facts: (*policyv1.SelectGroupsRequest).GetGroups,
		of: func(q *policyv1.SelectGroupsRequest, plugin map[string]string, f []*policyv1.GroupFacts, _ bool) *policyv1.SelectGroupsRequest {
			return &policyv1.SelectGroupsRequest{Round: withConfig(q.GetRound(), plugin), Groups: f}
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
			return policyv1.NewGroupPolicyClient(c).SelectGroups(ctx, q)
		},
		check: CheckGroups,
		join: func(into, more *policyv1.SelectGroupsResponse) {
			into.Decisions = append(into.Decisions, more.GetDecisions()...)
			into.Warnings = checkWarnings(slices.Concat(into.GetWarnings(), more.GetWarnings()))
		},
	}, q)
}

// SelectQuotas implements policy.Plugin.
func (p *Plugin) SelectQuotas(ctx context.Context, q *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	return ask(ctx, p, question[*policyv1.QuotaFacts, *policyv1.SelectQuotasRequest, *policyv1.SelectQuotasResponse]{
		kind:  policy.Quotas,
		facts: (*policyv1.SelectQuotasRequest).GetQuotas,
		of: func(q *policyv1.SelectQuotasRequest, plugin map[string]string, f []*policyv1.QuotaFacts, _ bool) *policyv1.SelectQuotasRequest {
			return &policyv1.SelectQuotasRequest{Round: withConfig(q.GetRound(), plugin), Quotas: f}
		},
		call: func(ctx context.Context, c grpc.ClientConnInterface, q *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
			return policyv1.NewQuotaPolicyClient(c).SelectQuotas(ctx, q)
		},
		check: CheckQuotas,
		join: func(into, more *policyv1.SelectQuotasResponse) {
			into.Decisions = append(into.Decisions, more.GetDecisions()...)
			into.Warnings = checkWarnings(slices.Concat(into.GetWarnings(), more.GetWarnings()))
		},
	}, q)
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
