package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

const (
	// handleTimeout bounds one request to the mirror APIs, the hop to the coordinator
	// included.
	handleTimeout = 40 * time.Second
	// describeTimeout bounds how long a describe waits for another sidecar; the offsets of
	// what that one leads are then not known.
	describeTimeout = 3 * time.Second
	// maxLease is the longest window that a peer may ask for.
	maxLease = time.Minute
)

// Keys lists the APIs that Handle serves.
func (c *Coordinator) Keys() []int16 { return Keys() }

// Keys lists the API keys that coordinators serve.
func Keys() []int16 {
	return []int16{12794, 12795, 12796, 12798, 12799, 12800, 12801, 12802, 12803, 12804, 12806, 12850, 12851, 12852}
}

// NotYet answers a request with an error, for a process that has no coordinator yet.
func NotYet(key, version int16, body []byte, why error) ([]byte, error) {
	req := protocol.RequestForKey(key)
	if req == nil || version != 0 {
		return nil, fmt.Errorf("mirror API %d version %d is not served", key, version)
	}
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s: %w", protocol.Name(key), err)
	}
	return failed(req, why).AppendTo(nil), nil
}

// Handle serves one request: version 0 bodies in, the answer's body out. An error means
// that the request could not be read at all; every other failure is an answer.
func (c *Coordinator) Handle(ctx context.Context, key, version int16, clientID string, body []byte) ([]byte, error) {
	req := protocol.RequestForKey(key)
	if req == nil || !slices.Contains(c.Keys(), key) {
		return nil, fmt.Errorf("mirror API %d is not served", key)
	}
	if version != 0 {
		return nil, fmt.Errorf("%s version %d is not served", protocol.Name(key), version)
	}
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s: %w", protocol.Name(key), err)
	}
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	return c.admit(ctx, clientID, req).AppendTo(nil), nil
}

func (c *Coordinator) answer(ctx context.Context, clientID string, req kmsg.Request) kmsg.Response {
	fromPeer := strings.HasPrefix(clientID, peerClientID)
	switch r := req.(type) {
	case *protocol.ListClusterMirrorsRequest:
		if err := c.store.Unread(); err != nil {
			return failed(req, err)
		}
		return c.listAnswer(r)
	case *protocol.DescribeClusterMirrorsRequest:
		// Peers ask what is led here, which is known without the state.
		if err := c.store.Unread(); err != nil && !r.LocalOnly {
			return failed(req, err)
		}
		return c.describeAnswer(ctx, r)
	case *protocol.ReadMirrorStatesRequest:
		return c.readStatesAnswer(ctx, r)
	case *protocol.WriteMirrorStatesRequest:
		return c.writeStatesAnswer(ctx, r)
	case *protocol.UncordonVirtualBrokerRequest:
		d := min(time.Duration(r.LeaseMs)*time.Millisecond, maxLease)
		return failed(req, c.grant(ctx, clientID, d))
	case *protocol.FenceTopicWritesRequest:
		return c.fenceAnswer(ctx, fromPeer, r)
	case *protocol.CreateClusterMirrorRequest:
		// The state topic comes with the first mirror, but not with one that is refused.
		if !fromPeer && c.store.Partitions() == 0 {
			if _, err := c.validateCreate(ctx, r.MirrorName, properties(r.Configs)); err != nil || r.ValidateOnly {
				return failed(req, err)
			}
		}
		if !fromPeer && !r.ValidateOnly {
			if err := c.store.Create(ctx); err != nil {
				return failed(req, err)
			}
		}
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			return failed(req, c.createMirror(ctx, r.MirrorName, properties(r.Configs), r.ValidateOnly))
		})
	case *protocol.DeleteClusterMirrorRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			return failed(req, c.deleteMirror(ctx, r.MirrorName, r.ValidateOnly))
		})
	case *protocol.StartMirrorTopicsRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			results, err := c.startTopics(ctx, startRequest{
				mirror: r.MirrorName, topics: r.Topics, include: r.IncludePatterns, exclude: r.ExcludePatterns,
				allowTruncate: r.AllowTruncate, validateOnly: r.ValidateOnly,
			})
			return topicsAnswer(req, results, err)
		})
	case *protocol.StopMirrorTopicsRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			results, err := c.stopTopics(ctx, stopRequest{mirror: r.MirrorName, topics: r.Topics, patterns: r.Patterns, validateOnly: r.ValidateOnly})
			return topicsAnswer(req, results, err)
		})
	case *protocol.PauseMirrorTopicsRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			results, err := c.pauseTopics(ctx, verbRequest{mirror: r.MirrorName, topics: r.Topics, validateOnly: r.ValidateOnly})
			return topicsAnswer(req, results, err)
		})
	case *protocol.ResumeMirrorTopicsRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			results, err := c.resumeTopics(ctx, verbRequest{mirror: r.MirrorName, topics: r.Topics, validateOnly: r.ValidateOnly})
			return topicsAnswer(req, results, err)
		})
	case *protocol.RecoverMirrorTopicsRequest:
		return c.routed(ctx, fromPeer, r.MirrorName, req, func() kmsg.Response {
			results, err := c.recoverTopics(ctx, verbRequest{mirror: r.MirrorName, topics: r.Topics, allowTruncate: r.AllowTruncate, validateOnly: r.ValidateOnly})
			return topicsAnswer(req, results, err)
		})
	case *protocol.ExplainClusterMirrorRequest:
		return c.explainAnswer(ctx, fromPeer, r)
	}
	return failed(req, refuse(kerr.UnsupportedVersion.Code, "%s is not supported by this version of the sidecar yet", protocol.Name(req.Key())))
}

// routed answers a request about a mirror where its name is coordinated. What was done
// elsewhere is read back before the answer goes out, so that a caller who asks this
// sidecar next sees what he did.
func (c *Coordinator) routed(ctx context.Context, fromPeer bool, mirror string, req kmsg.Request, local func() kmsg.Response) kmsg.Response {
	if err := checkName(mirror); err != nil {
		if _, creates := req.(*protocol.CreateClusterMirrorRequest); !creates {
			err = refuse(protocol.UnknownClusterMirror, "there is no mirror %q", mirror)
		}
		return failed(req, err)
	}
	if c.store.Partitions() == 0 {
		if fromPeer { // who has seen the state topic created asks again until it is seen here
			return failed(req, ErrNoCoordinator)
		}
		return failed(req, refuse(protocol.UnknownClusterMirror, "there is no mirror %q", mirror))
	}
	var answer kmsg.Response
	err := c.retryRouted(ctx, mirror, func(who int32) error {
		if who == c.cfg.Self {
			answer = local()
			return coordinationError(answer)
		}
		if fromPeer {
			answer = failed(req, ErrNotCoordinator)
			return nil // the peer looks again
		}
		resp, err := c.deps.Peers.Request(ctx, who, req)
		if err != nil {
			return err
		}
		answer = resp
		if err := coordinationError(resp); err != nil {
			return err
		}
		return c.barrier(ctx, mirror)
	})
	if err != nil {
		return failed(req, asError(err, kerr.CoordinatorNotAvailable.Code))
	}
	return answer
}

// coordinationError returns the error of an answer that means: ask again, perhaps
// somebody else.
func coordinationError(resp kmsg.Response) error {
	code, message := topLevel(resp)
	if code == kerr.NotCoordinator.Code || code == kerr.CoordinatorNotAvailable.Code {
		return errorOf(code, message)
	}
	return nil
}

func topLevel(resp kmsg.Response) (int16, *string) {
	switch r := resp.(type) {
	case *protocol.CreateClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.DeleteClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.StartMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.StopMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.PauseMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.ResumeMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.RecoverMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	}
	return 0, nil
}

// failed answers a request with an error; nil is success.
func failed(req kmsg.Request, err error) kmsg.Response {
	var code int16
	var message *string
	// A nil *Error in an error is success too.
	var own *Error
	if err != nil && (!errors.As(err, &own) || own != nil) {
		e := asError(err, kerr.UnknownServerError.Code)
		code = e.Code
		text := err.Error()
		if own != nil {
			text = strings.Replace(text, own.Error(), own.Message, 1) // the code has a field of its own
		}
		message = &text
	}
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *protocol.CreateClusterMirrorResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.DeleteClusterMirrorResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.StartMirrorTopicsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.StopMirrorTopicsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.PauseMirrorTopicsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.ResumeMirrorTopicsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.RecoverMirrorTopicsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.ListClusterMirrorsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.DescribeClusterMirrorsResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.ReadMirrorStatesResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.WriteMirrorStatesResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.UncordonVirtualBrokerResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.FenceTopicWritesResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	case *protocol.ExplainClusterMirrorResponse:
		r.ErrorCode, r.ErrorMessage = code, message
	}
	return resp
}

// topicsAnswer answers a request about topics.
func topicsAnswer(req kmsg.Request, results []TopicResult, err error) kmsg.Response {
	resp := failed(req, err)
	topics := make([]protocol.TopicResult, 0, len(results))
	for _, t := range results {
		topics = append(topics, wireResult(t))
	}
	if into := topicResults(resp); into != nil {
		*into = topics
	}
	return resp
}

func properties(configs []protocol.MirrorConfig) config.Properties {
	p := config.Properties{}
	for _, c := range configs {
		if c.Value != nil {
			p[c.Name] = *c.Value
		}
	}
	return p
}

func (c *Coordinator) listAnswer(r *protocol.ListClusterMirrorsRequest) kmsg.Response {
	resp := protocol.NewListClusterMirrorsResponse()
	for _, m := range c.view.Mirrors() {
		l := protocol.NewListedMirror()
		l.MirrorName, l.SourceBootstrap, l.SourceClusterID = m.Name, m.Configs["bootstrap.servers"], m.SourceClusterID
		for _, t := range c.view.Topics(m.Name) {
			if t.Desired == Mirroring {
				l.TopicCount++
				if r.IncludeTopicNames {
					l.TopicNames = append(l.TopicNames, t.Name)
				}
			}
		}
		resp.Mirrors = append(resp.Mirrors, l)
	}
	return &resp
}

// describeAnswer merges what the state says with what every live sidecar says of the
// partitions that it leads.
func (c *Coordinator) describeAnswer(ctx context.Context, r *protocol.DescribeClusterMirrorsRequest) kmsg.Response {
	q, err := distinctQuestion(r)
	if err != nil {
		return failed(r, err)
	}
	r = q
	resp := protocol.NewDescribeClusterMirrorsResponse()
	local := c.localStatus()
	if r.LocalOnly {
		resp.SecretKeys = c.cfg.Keys.IDs()
	}
	names := r.MirrorNames
	if names == nil {
		for _, m := range c.view.Mirrors() {
			names = append(names, m.Name)
		}
	}
	for _, name := range names {
		resp.Mirrors = append(resp.Mirrors, c.describeMirror(name, local, r.LocalOnly))
	}
	if !r.LocalOnly {
		c.mergePeers(ctx, r, resp.Mirrors)
	}
	if err := c.answerPeer(ctx, r, &resp); err != nil {
		return failed(r, err)
	}
	c.lookups(r, &resp)
	return &resp
}

func (c *Coordinator) localStatus() map[ids.TopicPartition]PartitionStatus {
	out := map[ids.TopicPartition]PartitionStatus{}
	if c.deps.Partitions == nil {
		return out
	}
	for _, s := range c.deps.Partitions.Status() {
		out[s.TopicPartition] = s
	}
	return out
}

func (c *Coordinator) describeMirror(name string, local map[ids.TopicPartition]PartitionStatus, localOnly bool) protocol.DescribedMirror {
	d := protocol.NewDescribedMirror()
	d.MirrorName = name
	m, ok := c.view.Mirror(name)
	if !ok {
		d.ErrorCode = protocol.UnknownClusterMirror
		text := fmt.Sprintf("there is no mirror %q", name)
		d.ErrorMessage = &text
		return d
	}
	d.SourceBootstrap, d.SourceClusterID = m.Configs["bootstrap.servers"], m.SourceClusterID
	d.Policies = c.policies(name)
	unwritable := sync.OnceValue(c.store.unwritable)
	unreadable := sync.OnceValue(func() *string { return c.unreadable(m) })
	for _, t := range c.view.Topics(name) {
		dt := protocol.NewDescribedTopic()
		dt.TopicName, dt.TopicID, dt.SourceTopicID = t.Name, t.TopicID, t.SourceTopicID
		dt.BeingStopped = t.Desired == Stopped && !c.stopped(t)
		for _, p := range c.img.TopicPartitions(t.TopicID) {
			tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
			status, led := local[tp]
			if localOnly && !led {
				continue
			}
			dp := protocol.NewDescribedPartition()
			dp.PartitionIndex, dp.LeaderID, dp.PendingReassignment = p.Partition, p.Leader, reassigning(p)
			if s, ok := c.view.State(name, tp); ok {
				dp.State, dp.StateSince, dp.RetryAttempt = int8(s.State), s.Since, s.RetryAttempt
				dp.Detail, dp.ErrorMessage = nullable(s.Detail), nullable(s.ErrorMessage)
			}
			if l, ok := c.view.Lineage(name, tp); ok {
				dp.LastMirrorEpoch, dp.LastMirrorOffset = l.LastMirrorEpoch, l.LastMirrorOffset
			}
			if led && p.LeaderEpoch == status.LeaderEpoch {
				dp.SourceOffset, dp.DestinationOffset, dp.SourceLogStart = status.SourceOffset, status.DestinationOffset, status.SourceLogStart
				dp.LagMs = status.LagMs
				if status.Detail != "" {
					dp.Detail = &status.Detail
				}
				if status.ErrorMessage != "" {
					dp.ErrorMessage = &status.ErrorMessage
				}
			}
			if dp.ErrorMessage == nil {
				s, _ := c.view.State(name, tp)
				dp.ErrorMessage = nullable(c.waitsFor(t, p, s, unwritable))
			}
			if dp.ErrorMessage == nil && t.Desired == Mirroring && (p.Leader == c.cfg.Self || !c.cfg.Virtual.Is(p.Leader)) {
				dp.ErrorMessage = unreadable()
			}
			dt.Partitions = append(dt.Partitions, dp)
		}
		if !localOnly || len(dt.Partitions) > 0 {
			d.Topics = append(d.Topics, dt)
		}
	}
	return d
}

// mergePeers fills in what other sidecars know of the partitions that they lead.
func (c *Coordinator) mergePeers(ctx context.Context, r *protocol.DescribeClusterMirrorsRequest, mirrors []protocol.DescribedMirror) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	var mu sync.Mutex
	var ask errgroup.Group
	for _, id := range liveVirtual(c.img, c.cfg.Virtual) {
		if id == c.cfg.Self {
			continue
		}
		ask.Go(func() error {
			req := protocol.NewDescribeClusterMirrorsRequest()
			req.MirrorNames, req.LocalOnly = r.MirrorNames, true
			resp, err := c.deps.Peers.Request(ctx, id, &req)
			if err != nil {
				c.log.Debug("describe: a sidecar does not answer", "virtual_broker", id, "err", err)
				return nil
			}
			if theirs, ok := resp.(*protocol.DescribeClusterMirrorsResponse); ok {
				mu.Lock()
				defer mu.Unlock()
				mergeDescribed(mirrors, theirs.Mirrors)
			}
			return nil
		})
	}
	_ = ask.Wait()
}

// mergeDescribed takes the offsets of led partitions from what a peer has answered.
func mergeDescribed(into, from []protocol.DescribedMirror) {
	type key struct {
		mirror string
		topic  ids.UUID
		index  int32
	}
	theirs := map[key]*protocol.DescribedPartition{}
	for i := range from {
		for j := range from[i].Topics {
			t := &from[i].Topics[j]
			for k := range t.Partitions {
				theirs[key{from[i].MirrorName, t.TopicID, t.Partitions[k].PartitionIndex}] = &t.Partitions[k]
			}
		}
	}
	for i := range into {
		for _, f := range from {
			if f.MirrorName == into[i].MirrorName && len(into[i].Policies) == 0 {
				into[i].Policies = f.Policies // only the mirror's coordinator has any
			}
		}
		for j := range into[i].Topics {
			t := &into[i].Topics[j]
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if s := theirs[key{into[i].MirrorName, t.TopicID, p.PartitionIndex}]; s != nil && s.LeaderID == p.LeaderID {
					p.SourceOffset, p.DestinationOffset, p.SourceLogStart, p.LagMs = s.SourceOffset, s.DestinationOffset, s.SourceLogStart, s.LagMs
					if s.Detail != nil {
						p.Detail = s.Detail
					}
					if s.ErrorMessage != nil {
						p.ErrorMessage = s.ErrorMessage
					}
				}
			}
		}
	}
}

// lookups answers where a cluster that fails back to us stands: the last mirror epochs of
// the topics it names by its own ids, of mirrors that read from it.
func (c *Coordinator) lookups(r *protocol.DescribeClusterMirrorsRequest, resp *protocol.DescribeClusterMirrorsResponse) {
	if r.ClusterID == nil {
		return
	}
	for _, l := range r.LastMirrorEpochLookups {
		out := protocol.NewLookupResult()
		out.TopicID = l.TopicID
		for _, p := range l.Partitions {
			out.Partitions = append(out.Partitions, c.lookup(*r.ClusterID, l.TopicID, p))
		}
		resp.LookupResults = append(resp.LookupResults, out)
	}
}

func (c *Coordinator) lookup(cluster string, sourceTopic ids.UUID, partition int32) protocol.LookupPartition {
	out := protocol.NewLookupPartition()
	out.PartitionIndex = partition
	latest := int64(-1)
	for _, m := range c.view.Mirrors() {
		if m.SourceClusterID != cluster {
			continue
		}
		for _, t := range c.view.Topics(m.Name) {
			if t.SourceTopicID != sourceTopic || t.TopicID.IsZero() || t.Since <= latest {
				continue
			}
			tp := ids.TopicPartition{TopicID: t.TopicID, Partition: partition}
			l, _ := c.view.Lineage(m.Name, tp)
			if s, _ := c.view.State(m.Name, tp); !linked(s, l) {
				continue
			}
			latest = t.Since
			out.LastMirrorEpoch, out.LastMirrorOffset = l.LastMirrorEpoch, l.LastMirrorOffset
			out.DestinationEpoch, _ = l.Newest()
			out.History, _ = protocol.LineageFields(l)
		}
	}
	return out
}

func (c *Coordinator) readStatesAnswer(ctx context.Context, r *protocol.ReadMirrorStatesRequest) kmsg.Response {
	resp := protocol.NewReadMirrorStatesResponse()
	for _, t := range r.Topics {
		out := protocol.NewReadStateTopicResult()
		out.TopicID = t.TopicID
		for _, p := range t.Partitions {
			key := partitionKey{r.MirrorName, ids.TopicPartition{TopicID: t.TopicID, Partition: p}}
			rp := protocol.NewReadStatePartition()
			rp.PartitionIndex = p
			if err := c.act(ctx, key.text(), func() error { return nil }); err != nil {
				rp.ErrorCode, rp.Reason = codeOf(err), nullable(err.Error())
				out.Partitions = append(out.Partitions, rp)
				continue
			}
			if s, ok := c.view.State(key.mirror, key.tp); ok {
				rp.State, rp.PreviousState, rp.RetryAttempt = int8(s.State), int8(s.Previous), s.RetryAttempt
				rp.LeaderEpoch, rp.StateEpoch = s.LeaderEpoch, s.StateEpoch
				rp.Detail, rp.ErrorMessage = nullable(s.Detail), nullable(s.ErrorMessage)
			}
			if l, ok := c.view.Lineage(key.mirror, key.tp); ok {
				rp.HasLineage, rp.LastMirrorEpoch, rp.LastMirrorOffset = true, l.LastMirrorEpoch, l.LastMirrorOffset
				rp.History, rp.Chains = protocol.LineageFields(l)
			}
			out.Partitions = append(out.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return &resp
}

func (c *Coordinator) writeStatesAnswer(ctx context.Context, r *protocol.WriteMirrorStatesRequest) kmsg.Response {
	resp := protocol.NewWriteMirrorStatesResponse()
	for _, t := range r.Topics {
		out := protocol.NewWriteStateTopicResult()
		out.TopicID = t.TopicID
		for _, p := range t.Partitions {
			key := partitionKey{r.MirrorName, ids.TopicPartition{TopicID: t.TopicID, Partition: p.PartitionIndex}}
			w := stateWrite{key: key, leaderEpoch: p.LeaderEpoch}
			if State(p.State) != Unknown {
				w.state = &PartitionState{
					State: State(p.State), RetryAttempt: p.RetryAttempt, LeaderEpoch: p.LeaderEpoch, StateEpoch: p.StateEpoch,
					Detail: text(p.Detail), ErrorMessage: text(p.ErrorMessage),
				}
			}
			if p.HasLineage {
				l := protocol.Lineage(p.LastMirrorEpoch, p.LastMirrorOffset, p.History, p.Chains)
				w.lineage = &l
			}
			result := protocol.NewWriteStatePartitionResult()
			result.PartitionIndex = p.PartitionIndex
			if err := c.writeLocal(ctx, w); err != nil {
				result.ErrorCode, result.ErrorMessage = codeOf(err), nullable(err.Error())
			}
			s, _ := c.view.State(key.mirror, key.tp)
			result.StateEpoch = s.StateEpoch
			out.Partitions = append(out.Partitions, result)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return &resp
}

// writeAtPeer asks another sidecar to do a write.
func (c *Coordinator) writeAtPeer(ctx context.Context, who int32, w stateWrite) error {
	req := protocol.NewWriteMirrorStatesRequest()
	req.MirrorName = w.key.mirror
	t := protocol.NewWriteStateTopic()
	t.TopicID = w.key.tp.TopicID
	p := protocol.NewWriteStatePartition()
	p.PartitionIndex, p.LeaderEpoch, p.StateEpoch = w.key.tp.Partition, w.leaderEpoch, -1
	if s := w.state; s != nil {
		p.State, p.RetryAttempt, p.StateEpoch = int8(s.State), s.RetryAttempt, s.StateEpoch
		p.Detail, p.ErrorMessage = nullable(s.Detail), nullable(s.ErrorMessage)
	}
	if w.lineage != nil {
		p.HasLineage, p.LastMirrorEpoch, p.LastMirrorOffset = true, w.lineage.LastMirrorEpoch, w.lineage.LastMirrorOffset
		p.History, p.Chains = protocol.LineageFields(*w.lineage)
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.deps.Peers.Request(ctx, who, &req)
	if err != nil {
		return err
	}
	r, ok := resp.(*protocol.WriteMirrorStatesResponse)
	if !ok {
		return fmt.Errorf("%w: unexpected answer", errPeer)
	}
	if err := errorOf(r.ErrorCode, r.ErrorMessage); err != nil {
		return err
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return fmt.Errorf("%w: unexpected answer", errPeer)
	}
	return errorOf(r.Topics[0].Partitions[0].ErrorCode, r.Topics[0].Partitions[0].ErrorMessage)
}
