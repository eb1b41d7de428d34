package hostrules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requester sends a request to the home broker; a *kgo.Broker is one.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Find lists the rules that there are, in an order that does not change. An error says what could
// not be asked; what the others found is returned all the same.
func Find(ctx context.Context, home requester, broker int32, listeners []string) ([]string, error) {
	all := find(ctx, home, broker, listeners)
	return all.rules(), all.failed()
}

// answer is what one question found, or why it could not be asked.
type answer struct {
	rules []string
	err   error
}

// answers are those to all questions: ACLs, quotas and limits.
type answers [3]answer

func find(ctx context.Context, home requester, broker int32, listeners []string) (all answers) {
	all[0].rules, all[0].err = findACLs(ctx, home)
	all[1].rules, all[1].err = findQuotas(ctx, home)
	all[2].rules, all[2].err = findLimits(ctx, home, broker, listeners)
	return all
}

func (a *answers) rules() []string {
	found := slices.Concat(a[0].rules, a[1].rules, a[2].rules)
	slices.Sort(found)
	return found
}

func (a *answers) failed() error { return errors.Join(a[0].err, a[1].err, a[2].err) }

// keep takes over what former found where the same question could not be asked: a rule is not
// gone because nobody answers. What the others say is true all the same.
func (a *answers) keep(former *answers) {
	for i := range a {
		if a[i].err != nil {
			a[i].rules = former[i].rules
		}
	}
}

func findACLs(ctx context.Context, home requester) ([]string, error) {
	const what = "look for ACLs of single hosts (needs DESCRIBE on the cluster): %w"
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType = kmsg.ACLResourceTypeAny
	req.ResourcePatternType = kmsg.ACLResourcePatternTypeAny
	req.Operation = kmsg.ACLOperationAny
	req.PermissionType = kmsg.ACLPermissionTypeAny
	got, err := home.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf(what, err)
	}
	resp := got.(*kmsg.DescribeACLsResponse)
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.SecurityDisabled):
		return nil, nil // there is no authorizer
	case err != nil:
		return nil, fmt.Errorf(what, err)
	}
	var found []string
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			if a.Host != "*" {
				found = append(found, fmt.Sprintf("ACL: %s %s %s on %s %s from host %s",
					a.PermissionType, a.Principal, a.Operation, strings.ToLower(r.ResourceType.String()), r.ResourceName, a.Host))
			}
		}
	}
	return found, nil
}

func findQuotas(ctx context.Context, home requester) ([]string, error) {
	const what = "look for quotas of ip addresses (needs DESCRIBE_CONFIGS on the cluster): %w"
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.MatchType = "ip", kmsg.QuotasMatchTypeAny
	req.Components = append(req.Components, c)
	got, err := home.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf(what, err)
	}
	resp := got.(*kmsg.DescribeClientQuotasResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf(what, err)
	}
	var found []string
	for _, e := range resp.Entries {
		for _, entity := range e.Entity {
			name := "the default ip"
			if entity.Name != nil {
				name = "ip " + *entity.Name
			}
			for _, v := range e.Values {
				found = append(found, fmt.Sprintf("quota: %s of %s is %v", v.Key, name, v.Value))
			}
		}
	}
	return found, nil
}

// The keys of brokers that count connections by address. They hold for all listeners, or with
// listener.name.<name>. in front for one.
const (
	keyPerIP     = "max.connections.per.ip"
	keyOverrides = "max.connections.per.ip.overrides"
	noLimit      = 1<<31 - 1
)

func findLimits(ctx context.Context, home requester, broker int32, listeners []string) ([]string, error) {
	const what = "look for limits of connections per address (needs DESCRIBE_CONFIGS on the cluster): %w"
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker))
	res.ConfigNames = nil // all: a listener's own are told only so
	req.Resources = append(req.Resources, res)
	got, err := home.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf(what, err)
	}
	var found []string
	for _, r := range got.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, fmt.Errorf(what, err)
		}
		for _, c := range r.Configs {
			if c.Value != nil && limits(c.Name, *c.Value, listeners) {
				found = append(found, fmt.Sprintf("broker %d: %s=%s", broker, c.Name, *c.Value))
			}
		}
	}
	return found, nil
}

// limits tells whether a config limits the connections of addresses at one of the listeners.
func limits(name, value string, listeners []string) bool {
	if rest, ok := strings.CutPrefix(strings.ToLower(name), "listener.name."); ok {
		listener, key, _ := strings.Cut(rest, ".")
		if !slices.ContainsFunc(listeners, func(l string) bool { return strings.EqualFold(l, listener) }) {
			return false
		}
		name = key
	}
	switch name {
	case keyPerIP:
		n, err := strconv.Atoi(strings.TrimSpace(value))
		return err != nil || n < noLimit
	case keyOverrides:
		return strings.TrimSpace(value) != ""
	}
	return false
}
