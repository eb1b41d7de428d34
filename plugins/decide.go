package plugins

import (
	"context"
	"unicode/utf8"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// Accept is the decision to mirror. rule is the policy's own name of what decided, reason a sentence
// for whoever asks why; what is too long is cut.
func Accept(rule, reason string) *policyv1.Decision {
	return &policyv1.Decision{Verdict: policyv1.Decision_ACCEPT, Rule: cut(rule, policyv1.MaxRule), Reason: cut(reason, policyv1.MaxReason)}
}

// Refuse is the decision to leave out.
func Refuse(rule, reason string) *policyv1.Decision {
	return &policyv1.Decision{Verdict: policyv1.Decision_REFUSE, Rule: cut(rule, policyv1.MaxRule), Reason: cut(reason, policyv1.MaxReason)}
}

// cut shortens a text at a whole character: names of groups and principals have no bound that a reason
// could rely on.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// TopicFunc is a TopicPolicy that decides on one topic at a time.
type TopicFunc func(ctx context.Context, round *policyv1.Round, topic *policyv1.TopicFacts) (*policyv1.Decision, error)

// SelectTopics implements TopicPolicy.
func (f TopicFunc) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	out := &policyv1.SelectTopicsResponse{}
	for _, t := range r.GetTopics() {
		d, err := f(ctx, r.GetRound(), t)
		if err = orDone(ctx, err); err != nil {
			return nil, err
		}
		out.Decisions = append(out.Decisions, &policyv1.TopicDecision{Name: t.GetName(), Decision: d})
	}
	return out, nil
}

// ConfigFunc is a ConfigPolicy that decides on one config of a topic at a time: what it is given has
// no value yet, and may be given one to set instead of the source's.
type ConfigFunc func(ctx context.Context, round *policyv1.Round, topic string, config *policyv1.ConfigFacts) (*policyv1.Decision, *string, error)

// SelectConfigs implements ConfigPolicy.
func (f ConfigFunc) SelectConfigs(ctx context.Context, r *policyv1.SelectConfigsRequest) (*policyv1.SelectConfigsResponse, error) {
	out := &policyv1.SelectConfigsResponse{}
	for _, t := range r.GetTopics() {
		of := &policyv1.TopicConfigDecisions{Topic: t.GetTopic()}
		for _, c := range t.GetConfigs() {
			d, value, err := f(ctx, r.GetRound(), t.GetTopic(), c)
			if err = orDone(ctx, err); err != nil {
				return nil, err
			}
			of.Decisions = append(of.Decisions, &policyv1.ConfigDecision{Name: c.GetName(), Decision: d, Value: value})
		}
		out.Topics = append(out.Topics, of)
	}
	return out, nil
}

// ACLFunc is an ACLPolicy that decides on one ACL at a time, and may return another one to create
// instead.
type ACLFunc func(ctx context.Context, round *policyv1.Round, acl *policyv1.AclFacts) (*policyv1.Decision, *policyv1.AclBinding, error)

// SelectAcls implements ACLPolicy.
func (f ACLFunc) SelectAcls(ctx context.Context, r *policyv1.SelectAclsRequest) (*policyv1.SelectAclsResponse, error) {
	out := &policyv1.SelectAclsResponse{}
	for _, a := range r.GetAcls() {
		d, as, err := f(ctx, r.GetRound(), a)
		if err = orDone(ctx, err); err != nil {
			return nil, err
		}
		out.Decisions = append(out.Decisions, &policyv1.AclDecision{Decision: d, As: as})
	}
	return out, nil
}

// GroupFunc is a GroupPolicy that decides on one group at a time.
type GroupFunc func(ctx context.Context, round *policyv1.Round, group *policyv1.GroupFacts) (*policyv1.Decision, error)

// SelectGroups implements GroupPolicy.
func (f GroupFunc) SelectGroups(ctx context.Context, r *policyv1.SelectGroupsRequest) (*policyv1.SelectGroupsResponse, error) {
	out := &policyv1.SelectGroupsResponse{}
	for _, g := range r.GetGroups() {
		d, err := f(ctx, r.GetRound(), g)
		if err = orDone(ctx, err); err != nil {
			return nil, err
		}
		out.Decisions = append(out.Decisions, &policyv1.GroupDecision{Group: g.GetGroup(), Decision: d})
	}
	return out, nil
}

// QuotaFunc is a QuotaPolicy that decides on one quota at a time, and may return another value to set
// instead of the source's.
type QuotaFunc func(ctx context.Context, round *policyv1.Round, quota *policyv1.QuotaFacts) (*policyv1.Decision, *float64, error)

// SelectQuotas implements QuotaPolicy.
func (f QuotaFunc) SelectQuotas(ctx context.Context, r *policyv1.SelectQuotasRequest) (*policyv1.SelectQuotasResponse, error) {
	out := &policyv1.SelectQuotasResponse{}
	for _, q := range r.GetQuotas() {
		d, value, err := f(ctx, r.GetRound(), q)
		if err = orDone(ctx, err); err != nil {
			return nil, err
		}
		out.Decisions = append(out.Decisions, &policyv1.QuotaDecision{Decision: d, Value: value})
	}
	return out, nil
}

// EventFunc is an EventSink that takes one event at a time.
type EventFunc func(ctx context.Context, round *policyv1.Round, event *policyv1.Event) error

// Notify implements EventSink.
func (f EventFunc) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	for _, e := range r.GetEvents() {
		if err := orDone(ctx, f(ctx, r.GetRound(), e)); err != nil {
			return nil, err
		}
	}
	return &policyv1.NotifyResponse{}, nil
}

// orDone: nobody waits for the rest of a page whose time is up.
func orDone(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}
