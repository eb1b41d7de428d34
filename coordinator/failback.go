package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// A source may be a cluster with sidecars, which has mirrored from here before, or still
// does. This file asks it: for the links to fail back by, and for where its topics come
// from, so that no topic is mirrored in a circle; and it answers such questions.

const (
	// linkFresh is how long an answer about links counts; linkRetry is for one that failed.
	linkFresh, linkRetry = 30 * time.Second, 2 * time.Second
	// linkTimeout bounds one question for links.
	linkTimeout = 20 * time.Second
	// originTimeout bounds how long a cluster waits for its own source when it is asked where
	// its topics come from, and originHops how far such a question goes.
	originTimeout = 5 * time.Second
	originHops    = 8
	// maxDescribed, maxOrigins and maxLookups bound the mirrors, the topics whose origin is
	// asked for, and the partitions whose link is, in one question.
	maxDescribed = 1000
	maxOrigins   = 2 * maxTopicsPerRequest
	maxLookups   = 10000
)

// errNoMirrors: the source has no sidecars, or is asked around them. Nothing is known of a
// link then, and a loop through it is not seen.
var errNoMirrors = errors.New("the source does not offer the mirror APIs")

// errAsking: the source is being asked.
var errAsking = errors.New("the source is being asked whether it has mirrored from here")

// mirrorAsker is a Source that may have mirrors of its own.
type mirrorAsker interface {
	Mirrors(ctx context.Context, req *protocol.DescribeClusterMirrorsRequest) (*protocol.DescribeClusterMirrorsResponse, error)
}

// Mirrors implements mirrorAsker. Only the addresses that the mirror was given are asked:
// they are the proxies, if there are any.
func (s *kafkaSource) Mirrors(ctx context.Context, req *protocol.DescribeClusterMirrorsRequest) (*protocol.DescribeClusterMirrorsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var errs []error
	without := 0
	for _, b := range s.cl.SeedBrokers() {
		offered, err := offers(ctx, b, req.Key())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !offered {
			without++
			continue
		}
		resp, err := b.Request(ctx, req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
		if !ok {
			return nil, fmt.Errorf("unexpected answer to %s", protocol.Name(req.Key()))
		}
		return r, errorOf(r.ErrorCode, r.ErrorMessage)
	}
	if without > 0 {
		return nil, errNoMirrors
	}
	return nil, errors.Join(errs...)
}

// offers tells whether a broker, or the proxy in front of it, lists an API.
func offers(ctx context.Context, b *kgo.Broker, key int16) (bool, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "mirror-sidecar", "1" // not accepted without
	resp, err := req.RequestWith(ctx, b)
	if err != nil {
		return false, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return false, fmt.Errorf("ask for its API versions: %w", err)
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key }), nil
}

// peerAnswer is what the sidecars of a source say about some of its topics.
type peerAnswer struct {
	origins map[string][]string                 // by topic: cluster ids, the nearest first
	links   map[ids.UUID]map[int32]lineage.Link // by this cluster's topic ids
}

// askPeer asks a source where topics come from, and for the links of topics of this
// cluster. A source without sidecars knows neither, which is no error.
func (c *Coordinator) askPeer(ctx context.Context, src Source, origins []string, lookups map[ids.UUID][]int32) (peerAnswer, error) {
	out := peerAnswer{origins: map[string][]string{}, links: map[ids.UUID]map[int32]lineage.Link{}}
	asker, ok := src.(mirrorAsker)
	if !ok || len(origins)+len(lookups) == 0 {
		return out, nil
	}
	for _, part := range lookupParts(lookups) {
		req := protocol.NewDescribeClusterMirrorsRequest()
		req.MirrorNames = []string{} // none is described
		req.ClusterID = &c.cfg.ClusterID
		req.OriginTopics, req.OriginVisited = origins, []string{c.cfg.ClusterID}
		req.LastMirrorEpochLookups = part
		origins = nil // asked once
		resp, err := asker.Mirrors(ctx, &req)
		if errors.Is(err, errNoMirrors) {
			c.log.Debug("nothing is known of what the source has mirrored from here", "err", err)
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("ask the source for its mirrors (DESCRIBE on the cluster is needed there): %w", err)
		}
		out.add(resp)
	}
	return out, nil
}

// lookupParts divides lookups into as many as one question may have. There is one part at
// least, for what else is asked.
func lookupParts(lookups map[ids.UUID][]int32) [][]protocol.LastMirrorEpochLookup {
	parts := [][]protocol.LastMirrorEpochLookup{nil}
	left := maxLookups
	for id, partitions := range lookups {
		for len(partitions) > 0 {
			if left == 0 {
				parts, left = append(parts, nil), maxLookups
			}
			n := min(left, len(partitions))
			l := protocol.NewLastMirrorEpochLookup()
			l.TopicID, l.Partitions = id, partitions[:n]
			last := len(parts) - 1
			parts[last] = append(parts[last], l)
			partitions, left = partitions[n:], left-n
		}
	}
	return parts
}

// add takes over what a source has answered.
func (a peerAnswer) add(resp *protocol.DescribeClusterMirrorsResponse) {
	for _, o := range resp.Origins {
		a.origins[o.TopicName] = o.ClusterIDs
	}
	for _, r := range resp.LookupResults {
		for _, p := range r.Partitions {
			if p.LastMirrorOffset < 0 {
				continue // no link
			}
			if a.links[r.TopicID] == nil {
				a.links[r.TopicID] = map[int32]lineage.Link{}
			}
			a.links[r.TopicID][p.PartitionIndex] = protocol.Link(p)
		}
	}
}

// loop returns the error of a topic that would be mirrored in a circle.
func (c *Coordinator) loop(a peerAnswer, source, topic string) error {
	origins := a.origins[topic]
	n := slices.Index(origins, c.cfg.ClusterID)
	if n < 0 {
		return nil
	}
	return refuse(kerr.InvalidRequest.Code, "mirror loop: topic %s of cluster %s is itself mirrored from this cluster (%s); stop it there first",
		topic, source, strings.Join(append([]string{source}, origins[:n+1]...), " from "))
}

// askBefore completes what a source has said about topics that shall start: those that
// would be mirrored in a circle get an error, those that the source has mirrored from here
// are marked as linked.
func (c *Coordinator) askBefore(ctx context.Context, src Source, m Mirror, found map[string]SourceTopic) error {
	lookups := map[ids.UUID][]int32{}
	for n := range found {
		if id, exists := c.img.Topic(n); exists {
			for _, p := range c.img.TopicPartitions(id) {
				lookups[id] = append(lookups[id], p.Partition)
			}
		}
	}
	a, err := c.askPeer(ctx, src, slices.Sorted(maps.Keys(found)), lookups)
	if err != nil {
		return refuse(codeOf(err), "mirror %s: %v; nothing was changed", m.Name, err)
	}
	for n, t := range found {
		if loop := c.loop(a, m.SourceClusterID, n); loop != nil && t.Err == nil {
			t.Err = loop
		}
		id, _ := c.img.Topic(n)
		t.linked = len(a.links[id]) > 0
		found[n] = t
	}
	return nil
}

// links are the answers of sources to the leaders that are about to seed a lineage. Nobody
// waits for one: whoever follows a real leader does so for many partitions in turn.
type links struct {
	mu   sync.Mutex // guards the following
	asks map[topicKey]*linkAsk
	ctx  context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
}

type linkAsk struct {
	since  int64 // of the topic's record: an answer is for one start
	done   bool
	at     time.Time
	answer peerAnswer
	err    error
}

func (l *links) close() {
	l.mu.Lock()
	if l.end == nil {
		l.ctx, l.end = context.WithCancel(context.Background())
	}
	l.end()
	l.mu.Unlock()
	l.wg.Wait()
}

// get returns the answer to a question that f asks, or errAsking.
func (l *links) get(key topicKey, since int64, f func(ctx context.Context) (peerAnswer, error)) (peerAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil {
		l.ctx, l.end = context.WithCancel(context.Background())
		l.asks = map[topicKey]*linkAsk{}
	}
	a := l.asks[key]
	if a != nil && a.since == since {
		fresh := linkFresh
		if a.err != nil {
			fresh = linkRetry
		}
		switch {
		case !a.done:
			return peerAnswer{}, errAsking
		case time.Since(a.at) < fresh:
			return a.answer, a.err
		}
	}
	if l.ctx.Err() != nil {
		return peerAnswer{}, l.ctx.Err()
	}
	a = &linkAsk{since: since}
	l.asks[key] = a
	l.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, linkTimeout)
		defer cancel()
		answer, err := f(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		a.done, a.at, a.answer, a.err = true, time.Now(), answer, err
	})
	return peerAnswer{}, errAsking
}

// Link implements replica.State. Only a start asks: a mirror that runs has a lineage of its
// own, and must be led on while its source is away.
func (l Leaders) Link(ctx context.Context, mirror string, tp ids.TopicPartition) (lineage.Link, bool, error) {
	t, m, ok := l.c.MirrorTopic(tp.TopicID)
	if !ok || m.Name != mirror {
		return lineage.Link{}, false, fmt.Errorf("mirror %s, partition %s: the topic is not in the mirror any more", mirror, tp)
	}
	s, _ := l.c.view.State(mirror, tp)
	state := s.State
	if state == Failed {
		state = s.Previous
	}
	if state != Unknown && state != Stopped && state != LogTruncation {
		return lineage.Link{}, false, nil
	}
	answer, err := l.c.links.get(topicKey{mirror, t.Name}, t.Since, func(ctx context.Context) (peerAnswer, error) {
		src, _, err := l.c.source(m)
		if err != nil {
			return peerAnswer{}, err
		}
		defer src.Close()
		var partitions []int32
		for _, p := range l.c.img.TopicPartitions(tp.TopicID) {
			partitions = append(partitions, p.Partition)
		}
		return l.c.askPeer(ctx, src, []string{t.Name}, map[ids.UUID][]int32{tp.TopicID: partitions})
	})
	if err != nil {
		return lineage.Link{}, false, fmt.Errorf("mirror %s, topic %s: %w", mirror, t.Name, err)
	}
	if err := l.c.loop(answer, m.SourceClusterID, t.Name); err != nil {
		// Both ends were started at the same time. Neither is led.
		own := asError(err, kerr.InvalidRequest.Code)
		if s.State != Failed || s.ErrorMessage != own.Message {
			failed := PartitionState{State: Failed, StateEpoch: -1, ErrorMessage: own.Message}
			if err := l.c.WriteState(ctx, mirror, tp, s.LeaderEpoch, failed); err != nil {
				return lineage.Link{}, false, err
			}
		}
		return lineage.Link{}, false, err
	}
	link, ok := answer.links[tp.TopicID][tp.Partition]
	return link, ok, nil
}

// answerPeer answers what a cluster asks that is about to mirror from this one. It returns
// an error when this sidecar cannot know yet.
func (c *Coordinator) answerPeer(ctx context.Context, r *protocol.DescribeClusterMirrorsRequest, resp *protocol.DescribeClusterMirrorsResponse) error {
	if r.ClusterID == nil {
		return nil
	}
	if err := c.store.Unread(); err != nil {
		return err
	}
	// Whoever has just seen a stop at another sidecar must see it here.
	if err := c.readAsked(ctx, r); err != nil {
		return err
	}
	resp.Origins = c.originsOf(ctx, r.OriginTopics, r.OriginVisited)
	return nil
}

// readAll returns when everything is read that was written before about any mirror.
func (c *Coordinator) readAll(ctx context.Context) error {
	var all []int32
	for p := range c.store.Partitions() {
		all = append(all, p)
	}
	return readEach(ctx, all, c.store.Barrier)
}

// readAsked returns when everything is read that was written before about what is asked.
// Who only asks does so together with others.
func (c *Coordinator) readAsked(ctx context.Context, r *protocol.DescribeClusterMirrorsRequest) error {
	return readEach(ctx, c.partitionsAsked(r), func(ctx context.Context, partition int32) error {
		return c.rounds.join(ctx, partition, func(ctx context.Context) error { return c.store.Barrier(ctx, partition) })
	})
}

func readEach(ctx context.Context, partitions []int32, barrier func(ctx context.Context, partition int32) error) error {
	var read errgroup.Group // no more than there are state partitions
	for _, p := range partitions {
		read.Go(func() error { return barrier(ctx, p) })
	}
	if err := read.Wait(); err != nil {
		return refuse(kerr.CoordinatorNotAvailable.Code, "the state of the mirrors: %v", err)
	}
	return nil
}

// partitionsAsked returns the state partitions with what such a question is about. Which
// mirror feeds a topic is what is asked, so that it may be in any of them.
func (c *Coordinator) partitionsAsked(r *protocol.DescribeClusterMirrorsRequest) []int32 {
	n := c.store.Partitions()
	here := func(topic string) bool { _, ok := c.img.Topic(topic); return ok }
	want := map[int32]bool{}
	if n > 0 && slices.ContainsFunc(r.OriginTopics, here) {
		for p := range n {
			want[p] = true
		}
	}
	if n == 0 || len(want) == int(n) || len(r.LastMirrorEpochLookups) == 0 {
		return slices.Sorted(maps.Keys(want))
	}
	lookups := map[ids.UUID][]int32{}
	for _, l := range r.LastMirrorEpochLookups {
		lookups[l.TopicID] = l.Partitions
	}
	for _, m := range c.view.Mirrors() {
		if m.SourceClusterID != *r.ClusterID {
			continue
		}
		want[statePartition(m.Name, n)] = true
		for _, t := range c.view.Topics(m.Name) {
			for _, p := range lookups[t.SourceTopicID] {
				want[statePartition(partitionText(m.Name, ids.TopicPartition{TopicID: t.TopicID, Partition: p}), n)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(want))
}

// distinctQuestion returns a question without repetitions, or an error if it asks for too
// much: it needs no more right than DESCRIBE.
func distinctQuestion(r *protocol.DescribeClusterMirrorsRequest) (*protocol.DescribeClusterMirrorsRequest, error) {
	out := *r
	if r.MirrorNames != nil { // nil is all
		out.MirrorNames = distinct(r.MirrorNames)
	}
	out.OriginTopics = distinct(r.OriginTopics)
	out.LastMirrorEpochLookups = nil
	at, seen := map[ids.UUID]int{}, map[ids.TopicPartition]bool{}
	for _, l := range r.LastMirrorEpochLookups {
		i, ok := at[l.TopicID]
		if !ok {
			i = len(out.LastMirrorEpochLookups)
			at[l.TopicID] = i
			one := protocol.NewLastMirrorEpochLookup()
			one.TopicID = l.TopicID
			out.LastMirrorEpochLookups = append(out.LastMirrorEpochLookups, one)
		}
		for _, p := range l.Partitions {
			if tp := (ids.TopicPartition{TopicID: l.TopicID, Partition: p}); !seen[tp] {
				seen[tp] = true
				out.LastMirrorEpochLookups[i].Partitions = append(out.LastMirrorEpochLookups[i].Partitions, p)
			}
		}
	}
	for _, b := range []struct {
		what   string
		n, max int
	}{
		{"mirrors", len(out.MirrorNames), maxDescribed},
		{"topics whose origin is asked for", len(out.OriginTopics), maxOrigins},
		{"partitions to look up", max(len(seen), len(out.LastMirrorEpochLookups)), maxLookups},
	} {
		if b.n > b.max {
			return nil, refuse(kerr.InvalidRequest.Code, "%d %s in one request, at most %d", b.n, b.what, b.max)
		}
	}
	return &out, nil
}

// originsOf tells where topics of this cluster come from: what feeds them, what feeds
// that, and so on. Each cluster asks its own source, by the mirror's own connection.
func (c *Coordinator) originsOf(ctx context.Context, topics, visited []string) []protocol.TopicOrigin {
	feeds := map[string][]string{} // topics by the mirror that feeds them
	for _, n := range topics {
		if t, ok := c.view.TopicByName(n); ok && !c.stopped(t) {
			feeds[t.Mirror] = append(feeds[t.Mirror], n)
		}
	}
	var mu sync.Mutex
	var out []protocol.TopicOrigin
	var ask errgroup.Group
	ask.SetLimit(topicsAtOnce)
	for name, fed := range feeds {
		m, ok := c.view.Mirror(name)
		if !ok {
			continue
		}
		ask.Go(func() error {
			further := c.originsAt(ctx, m, fed, visited)
			mu.Lock()
			defer mu.Unlock()
			for _, n := range fed {
				o := protocol.NewTopicOrigin()
				o.TopicName, o.ClusterIDs = n, append([]string{m.SourceClusterID}, further[n]...)
				out = append(out, o)
			}
			return nil
		})
	}
	_ = ask.Wait()
	return out
}

// originsAt asks the source of a mirror; nothing is known of one that does not answer.
func (c *Coordinator) originsAt(ctx context.Context, m Mirror, topics, visited []string) map[string][]string {
	if slices.Contains(visited, m.SourceClusterID) || slices.Contains(visited, c.cfg.ClusterID) || len(visited) >= originHops {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, originTimeout)
	defer cancel()
	src, _, err := c.source(m)
	if err != nil {
		return nil
	}
	defer src.Close()
	asker, ok := src.(mirrorAsker)
	if !ok {
		return nil
	}
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames, req.ClusterID = []string{}, &c.cfg.ClusterID
	req.OriginTopics, req.OriginVisited = topics, append(slices.Clone(visited), c.cfg.ClusterID)
	resp, err := asker.Mirrors(ctx, &req)
	if err != nil {
		if !errors.Is(err, errNoMirrors) {
			c.log.Info("the source was asked where its topics come from", "mirror", m.Name, "err", err)
		}
		return nil
	}
	out := map[string][]string{}
	for _, o := range resp.Origins {
		out[o.TopicName] = o.ClusterIDs
	}
	return out
}

// linked tells whether a lineage is a link to fail back by: the mirror has stopped, or was
// stopped and could not start again.
func linked(s PartitionState, l lineage.Record) bool {
	return l.LastMirrorOffset >= 0 && (s.State == Stopped || s.State == Failed && s.Detail == DetailConsentNeeded)
}
