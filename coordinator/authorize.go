package coordinator

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// Caller asks the home broker under the identity of whoever sent a mirror request, so that
// the cluster's authorizer decides.
type Caller = rights.Asker

// needs is what a caller must be allowed to do on the cluster (contract.md §8).
func needs(req kmsg.Request) []rights.Operation {
	switch r := req.(type) {
	case *protocol.CreateClusterMirrorRequest:
		return []rights.Operation{rights.Create, rights.Alter}
	case *protocol.ExplainClusterMirrorRequest:
		if r.Kind == explainQuota { // as Kafka does of who reads quotas
			return []rights.Operation{rights.Describe, rights.DescribeConfigs}
		}
		return []rights.Operation{rights.Describe}
	case *protocol.ListClusterMirrorsRequest, *protocol.DescribeClusterMirrorsRequest:
		return []rights.Operation{rights.Describe}
	case *protocol.ReadMirrorStatesRequest, *protocol.WriteMirrorStatesRequest, *protocol.UncordonVirtualBrokerRequest:
		return []rights.Operation{rights.ClusterAction}
	}
	return []rights.Operation{rights.Alter}
}

// admit answers a request as far as its caller may have it. Topics on which the caller has no
// right are answered for here, the others go on.
func (c *Coordinator) admit(ctx context.Context, clientID string, req kmsg.Request) kmsg.Response {
	if c.deps.Caller == nil {
		return c.answer(ctx, clientID, req)
	}
	caller, ok := c.deps.Caller(ctx)
	if !ok {
		return failed(req, unauthorized(req, "nobody is known to ask"))
	}
	have, err := rights.OnCluster(ctx, caller)
	if err != nil {
		return failed(req, unasked(protocol.Name(req.Key()), err))
	}
	if strings.HasPrefix(clientID, peerClientID) {
		// Anybody can call himself a sidecar. One has the right that makes a broker; what it
		// passes on it has asked for on its own caller's behalf.
		if have.Has(rights.ClusterAction) {
			return c.answer(ctx, clientID, req)
		}
		clientID = ""
	}
	var missing []string
	for _, op := range needs(req) {
		if !have.Has(op) {
			missing = append(missing, op.String())
		}
	}
	if len(missing) > 0 {
		return failed(req, unauthorized(req, "the caller lacks %s on the cluster", strings.Join(missing, " and ")))
	}
	rest, denied, err := c.permitted(ctx, caller, clientID, req)
	if err != nil {
		return failed(req, err)
	}
	if rest == nil {
		return topicsAnswer(req, denied, nil)
	}
	resp := c.answer(ctx, clientID, rest)
	withDenied(resp, denied)
	if !have.Has(rights.DescribeConfigs) {
		withoutQuotas(resp)
	}
	if d, ok := req.(*protocol.DescribeClusterMirrorsRequest); ok && d.IncludeAuthorizedOperations {
		authorizedOperations(resp, have)
	}
	return resp
}

// withoutQuotas takes out of a description what tells the values of quotas.
func withoutQuotas(resp kmsg.Response) {
	r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
	if !ok {
		return
	}
	hidden := "the caller lacks " + rights.DescribeConfigs.String() + " on the cluster"
	for _, m := range r.Mirrors {
		for i, p := range m.Policies {
			if p.Kind != string(policy.Quotas) {
				continue
			}
			for j := range p.Skipped {
				p.Skipped[j].Reason = hidden
			}
			for j := range p.Warnings {
				p.Warnings[j] = hidden
			}
			if p.LastError != nil {
				m.Policies[i].LastError = &hidden
			}
		}
	}
}

func unauthorized(req kmsg.Request, format string, args ...any) *Error {
	return refuse(protocol.ClusterMirrorAuthorizationFailed, protocol.Name(req.Key())+": "+format, args...)
}

// unasked says that it is not known what the caller may do. That is no verdict: the cluster may
// be electing a controller.
func unasked(what string, err error) *Error {
	e := asError(err, kerr.CoordinatorNotAvailable.Code)
	return refuse(e.Code, "%s: the home broker does not say what the caller may do: %v; nothing was changed", what, err)
}

// authorizedOperations says of each mirror what the caller may do with it. Mirrors have no
// rights of their own here, so that it is the same for all.
func authorizedOperations(resp kmsg.Response, have rights.Set) {
	r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
	if !ok {
		return
	}
	var ops int32
	for _, op := range []rights.Operation{rights.Create, rights.Alter, rights.Describe, rights.DescribeConfigs, rights.AlterConfigs} {
		if have.Has(op) {
			ops |= 1 << op
		}
	}
	if have.Has(rights.Alter) { // is what deleting a mirror takes
		ops |= 1 << rights.Delete
	}
	for i := range r.Mirrors {
		r.Mirrors[i].AuthorizedOperations = ops
	}
}

// topicRights are the topics of a request on which the caller needs ALTER_CONFIGS: the
// names, and what else to do with the request once they are known.
type topicRights struct {
	names []string
	// open says that the request means more topics than it names.
	open bool
	// start is what a start asks for, if that is open.
	start *startRequest
	// dry is another request, to be answered without effect; only if open.
	dry kmsg.Request
	// without returns the request for the permitted topics only; nil if nothing of it is
	// left. It is asked only if some are denied.
	without func(permitted, denied []string) kmsg.Request
}

func rightsOnTopics(req kmsg.Request) (topicRights, bool) {
	switch r := req.(type) {
	case *protocol.StartMirrorTopicsRequest:
		return topicRights{
			names: r.Topics, open: len(r.IncludePatterns) > 0,
			start: &startRequest{mirror: r.MirrorName, topics: r.Topics, include: r.IncludePatterns, exclude: r.ExcludePatterns},
			without: func(permitted, denied []string) kmsg.Request {
				rest := *r
				rest.Topics, rest.IncludePatterns = permitted, withoutDenied(r.IncludePatterns, denied)
				return unlessEmpty(&rest, rest.Topics, rest.IncludePatterns)
			},
		}, true
	case *protocol.StopMirrorTopicsRequest:
		dry := *r
		dry.ValidateOnly = true
		return topicRights{
			names: r.Topics, open: len(r.Patterns) > 0, dry: &dry,
			without: func(permitted, _ []string) kmsg.Request {
				// A stop with any pattern is also one of topics that match what was excluded before,
				// denied ones among them: none is left.
				rest := *r
				rest.Topics, rest.Patterns = permitted, nil
				return unlessEmpty(&rest, rest.Topics)
			},
		}, true
	case *protocol.PauseMirrorTopicsRequest:
		dry := *r
		dry.ValidateOnly = true
		return topicRights{names: r.Topics, open: patterned(r.Topics), dry: &dry, without: func(permitted, _ []string) kmsg.Request {
			rest := *r
			rest.Topics = permitted
			return unlessEmpty(&rest, permitted)
		}}, true
	case *protocol.ResumeMirrorTopicsRequest:
		dry := *r
		dry.ValidateOnly = true
		return topicRights{names: r.Topics, open: patterned(r.Topics), dry: &dry, without: func(permitted, _ []string) kmsg.Request {
			rest := *r
			rest.Topics = permitted
			return unlessEmpty(&rest, permitted)
		}}, true
	case *protocol.RecoverMirrorTopicsRequest:
		dry := *r
		dry.ValidateOnly = true
		return topicRights{names: r.Topics, open: patterned(r.Topics), dry: &dry, without: func(permitted, _ []string) kmsg.Request {
			rest := *r
			rest.Topics = permitted
			return unlessEmpty(&rest, permitted)
		}}, true
	case *protocol.FenceTopicWritesRequest:
		return topicRights{names: r.Topics, without: func(permitted, _ []string) kmsg.Request {
			rest := *r
			rest.Topics = permitted
			return unlessEmpty(&rest, permitted)
		}}, true
	}
	return topicRights{}, false
}

func unlessEmpty(req kmsg.Request, lists ...[]string) kmsg.Request {
	for _, l := range lists {
		if len(l) > 0 {
			return req
		}
	}
	return nil
}

// patterned tells whether any of what was given as topics can mean others than its own
// name.
func patterned(topics []string) bool {
	return slices.ContainsFunc(topics, func(t string) bool {
		return strings.ContainsFunc(t, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
		})
	})
}

// distinct returns a list without repetitions, in its order.
func distinct(list []string) []string {
	seen := make(map[string]bool, len(list))
	out := make([]string, 0, len(list))
	for _, item := range list {
		if !seen[item] {
			seen[item] = true
			out = append(out, item)
		}
	}
	return out
}

// withoutDenied leaves out the patterns that match a denied topic: they would be kept, and
// speak for that topic too.
func withoutDenied(patterns, denied []string) []string {
	return slices.DeleteFunc(slices.Clone(patterns), func(text string) bool {
		p, err := config.ParsePattern(text)
		return err != nil || slices.ContainsFunc(denied, p.Match)
	})
}

// means returns the topics that an open request means.
func (c *Coordinator) means(ctx context.Context, clientID string, t topicRights) ([]string, error) {
	if t.start != nil {
		return c.startMeans(ctx, *t.start)
	}
	resp := c.answer(ctx, clientID, t.dry)
	if code, message := topLevel(resp); code != 0 {
		return nil, errorOf(code, message)
	}
	var names []string
	for _, r := range *topicResults(resp) {
		if !r.Skipped { // nothing is done with it, so nobody needs rights
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// permitted asks for ALTER_CONFIGS on each topic of a request, also those that its patterns
// mean. It returns what is left of the request, nil if nothing is, and the answers for the
// denied topics.
func (c *Coordinator) permitted(ctx context.Context, caller Caller, clientID string, req kmsg.Request) (kmsg.Request, []TopicResult, error) {
	t, ok := rightsOnTopics(req)
	if !ok {
		return req, nil, nil
	}
	names := t.names
	if t.open {
		var err error
		if names, err = c.means(ctx, clientID, t); err != nil {
			return nil, nil, err
		}
	}
	names = distinct(names)
	denied, err := rights.DeniedTopics(ctx, caller, names)
	if err != nil {
		return nil, nil, unasked(protocol.Name(req.Key()), err)
	}
	if len(denied) == 0 {
		return req, nil, nil
	}
	why := "the caller lacks ALTER_CONFIGS on topic %s"
	if _, stops := req.(*protocol.StopMirrorTopicsRequest); stops && t.open {
		why += "; no pattern was kept, other topics were taken by name"
	} else if t.open {
		why += "; patterns that match it were not kept, other topics were taken by name"
	}
	results := make([]TopicResult, 0, len(denied))
	for _, n := range denied {
		results = append(results, TopicResult{Name: n, Err: refuse(kerr.TopicAuthorizationFailed.Code, why, n)})
	}
	rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(denied, n) })
	return t.without(rest, denied), results, nil
}

// withDenied adds the answers for denied topics to a response, in the order of names. Each of
// them is in it once.
func withDenied(resp kmsg.Response, denied []TopicResult) {
	topics := topicResults(resp)
	if topics == nil || len(denied) == 0 {
		return
	}
	for _, d := range denied {
		*topics = append(*topics, wireResult(d))
	}
	slices.SortStableFunc(*topics, func(a, b protocol.TopicResult) int { return strings.Compare(a.Name, b.Name) })
}

// topicResults are the answers by topic of a response; nil if it has none.
func topicResults(resp kmsg.Response) *[]protocol.TopicResult {
	switch r := resp.(type) {
	case *protocol.StartMirrorTopicsResponse:
		return &r.Topics
	case *protocol.StopMirrorTopicsResponse:
		return &r.Topics
	case *protocol.PauseMirrorTopicsResponse:
		return &r.Topics
	case *protocol.ResumeMirrorTopicsResponse:
		return &r.Topics
	case *protocol.RecoverMirrorTopicsResponse:
		return &r.Topics
	case *protocol.FenceTopicWritesResponse:
		return &r.Topics
	}
	return nil
}

func wireResult(t TopicResult) protocol.TopicResult {
	r := protocol.NewTopicResult()
	r.Name = t.Name
	if t.Err != nil {
		r.ErrorCode, r.ErrorMessage = t.Err.Code, &t.Err.Message
	} else {
		r.ErrorMessage, r.Skipped = nullable(t.Note), t.Skipped
	}
	return r
}

// AuthorizeConfigs asks whether the caller may describe the configuration of mirrors, or
// change it, and returns the client id to act under: a sidecar's own only for who is one.
func (c *Coordinator) AuthorizeConfigs(ctx context.Context, caller Caller, clientID string, alter bool) (string, error) {
	what, right := "DescribeConfigs", rights.DescribeConfigs
	ask := rights.DescribesClusterConfigs
	if alter {
		what, right = "IncrementalAlterConfigs", rights.AlterConfigs
		ask = rights.AltersClusterConfigs
	}
	if strings.HasPrefix(clientID, peerClientID) {
		have, err := rights.OnCluster(ctx, caller)
		if err != nil {
			return "", unasked(what, err)
		}
		if have.Has(rights.ClusterAction) {
			return clientID, nil
		}
		clientID = ""
	}
	ok, err := ask(ctx, caller)
	if err != nil {
		return "", unasked(what, err)
	}
	if !ok {
		return "", refuse(protocol.ClusterMirrorAuthorizationFailed, "%s of a mirror: the caller lacks %s on the cluster", what, right)
	}
	return clientID, nil
}
