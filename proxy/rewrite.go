package proxy

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// Errors of the Kafka protocol that the proxy answers with.
const (
	errNone                         int16 = 0
	errOffsetOutOfRange             int16 = 1
	errUnknownTopicOrPartition      int16 = 3
	errLeaderNotAvailable           int16 = 5
	errNotLeaderOrFollower          int16 = 6
	errCoordinatorNotAvailable      int16 = 15
	errTopicAuthorization           int16 = 29
	errClusterAuthorization         int16 = 31
	errTransactionalIDAuthorization int16 = 53
	errUnsupportedVersion           int16 = 35
	errInvalidRequest               int16 = 42
	errPolicyViolation              int16 = 44
	errFetchSessionIDNotFound       int16 = 70
	errOffsetNotAvailable           int16 = 78
	errUnknownTopicID               int16 = 100
)

// Each function here rewrites one kind of response for the clients of a client
// listener and tells whether it changed anything: virtual brokers are hidden, brokers
// have their proxies' addresses (addresses.go), and a mirror partition is led by a real
// in-sync replica. table.go says which is for which API, fields_test.go what becomes of each field.

// controller replaces a broker that is named as the controller and is not shown. In KRaft any
// live broker may be, since brokers forward to the real one.
func (p *Proxy) controller(id *int32, missing []int32) bool {
	if !p.cfg.IDs.Is(*id) && !slices.Contains(missing, *id) {
		return false
	}
	*id = p.cfg.Home
	return true
}

// leader replaces a virtual leader by the real one that is shown. ok is false if no
// real replica is in sync, or the response does not tell of any.
func (p *Proxy) leader(topic *string, id ids.UUID, partition, epoch int32, replicas, isr []int32) (leader int32, ok bool) {
	if id.IsZero() && topic != nil {
		id, _ = p.deps.View.Topic(*topic)
	}
	tp := ids.TopicPartition{TopicID: id, Partition: partition}
	if epoch < 0 { // versions without it
		if part := p.deps.View.Partition(tp); part != nil {
			epoch = part.LeaderEpoch
		}
	}
	return p.deps.Leaders.Shown(tp, epoch, replicas, isr)
}

func rewriteMetadata(p *Proxy, resp kmsg.Response) bool {
	m := resp.(*kmsg.MetadataResponse)
	changed, missing := hideBrokers(p, &m.Brokers, func(b *kmsg.MetadataResponseBroker) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	changed = p.controller(&m.ControllerID, missing) || changed
	for i := range m.Topics {
		t := &m.Topics[i]
		if t.Topic != nil {
			changed = markInternal(*t.Topic, &t.IsInternal) || changed
		}
		for j := range t.Partitions {
			part := &t.Partitions[j]
			if p.cfg.IDs.Is(part.Leader) {
				part.Leader, part.ErrorCode = p.shownOrNone(part.ErrorCode, func() (int32, bool) {
					return p.leader(t.Topic, t.TopicID, part.Partition, part.LeaderEpoch, part.Replicas, part.ISR)
				})
				changed = true
			}
			changed = p.hide(&part.Replicas) || changed
			changed = p.hide(&part.ISR) || changed
			changed = p.hide(&part.OfflineReplicas) || changed
			if missing != nil {
				withoutMissing(part, missing)
			}
		}
	}
	return changed
}

// withoutMissing tells of a partition as a broker does whose peers are down.
func withoutMissing(part *kmsg.MetadataResponseTopicPartition, missing []int32) {
	if slices.Contains(missing, part.Leader) {
		part.Leader = -1
		if part.ErrorCode == errNone {
			part.ErrorCode = errLeaderNotAvailable
		}
	}
	for _, r := range part.Replicas {
		if slices.Contains(missing, r) && !slices.Contains(part.OfflineReplicas, r) {
			part.OfflineReplicas = append(part.OfflineReplicas, r)
		}
	}
}

// markInternal makes the state topic internal, as the KIP's is: consumers that subscribe to
// a pattern do not take it for their business, and tools leave it out.
func markInternal(topic string, internal *bool) bool {
	if topic != stateTopic || *internal {
		return false
	}
	*internal = true
	return true
}

// shownOrNone returns the leader to show and the partition's error.
func (p *Proxy) shownOrNone(code int16, shown func() (int32, bool)) (int32, int16) {
	leader, ok := shown()
	switch {
	case !ok && code == errNone:
		return -1, errLeaderNotAvailable
	case !ok:
		return -1, code
	case code == errLeaderNotAvailable:
		// That the virtual leader has no endpoint here is of no concern to clients.
		return leader, errNone
	}
	return leader, code
}

func rewriteDescribeCluster(p *Proxy, resp kmsg.Response) bool {
	d := resp.(*kmsg.DescribeClusterResponse)
	if d.EndpointType == 2 { // controllers: not proxied
		return false
	}
	changed, missing := hideBrokers(p, &d.Brokers, func(b *kmsg.DescribeClusterResponseBroker) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	return p.controller(&d.ControllerID, missing) || changed
}

func rewriteDescribeTopicPartitions(p *Proxy, resp kmsg.Response) bool {
	d := resp.(*kmsg.DescribeTopicPartitionsResponse)
	changed := false
	for i := range d.Topics {
		t := &d.Topics[i]
		if t.Topic != nil {
			changed = markInternal(*t.Topic, &t.IsInternal) || changed
		}
		for j := range t.Partitions {
			part := &t.Partitions[j]
			if p.cfg.IDs.Is(part.LeaderID) {
				part.LeaderID, part.ErrorCode = p.shownOrNone(part.ErrorCode, func() (int32, bool) {
					return p.leader(t.Topic, t.TopicID, part.Partition, part.LeaderEpoch, part.Replicas, part.ISR)
				})
				changed = true
			}
			for _, list := range []*[]int32{
				&part.Replicas, &part.ISR, &part.EligibleLeaderReplicas, &part.LastKnownELR, &part.OfflineReplicas,
			} {
				changed = p.hide(list) || changed
			}
		}
	}
	return changed
}

func rewriteFindCoordinator(p *Proxy, resp kmsg.Response) bool {
	f := resp.(*kmsg.FindCoordinatorResponse)
	changed := false
	fix := func(code *int16, node *int32, host *string, port *int32) {
		rewritten, ok := false, !p.cfg.IDs.Is(*node)
		if ok {
			rewritten, ok = p.address(*node, host, port)
		}
		if !ok {
			// Internal topics have no virtual replicas; one may be in the sweeper's way.
			*code, *node, *host, *port = errCoordinatorNotAvailable, -1, "", -1
		}
		changed = changed || rewritten || !ok
	}
	if f.Version < 4 {
		fix(&f.ErrorCode, &f.NodeID, &f.Host, &f.Port)
	}
	for i := range f.Coordinators {
		co := &f.Coordinators[i]
		fix(&co.ErrorCode, &co.NodeID, &co.Host, &co.Port)
	}
	return changed
}

// hint takes back a leader that a response names (KIP-951) if it is not shown: without
// it a client asks for metadata, and gets the leader to show.
func (p *Proxy) hint(leader, epoch *int32, missing []int32) bool {
	if !p.cfg.IDs.Is(*leader) && !slices.Contains(missing, *leader) {
		return false
	}
	*leader, *epoch = -1, -1
	return true
}

func rewriteProduce(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.ProduceResponse)
	changed, missing := hideBrokers(p, &r.Brokers, func(b *kmsg.ProduceResponseBroker) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			l := &r.Topics[i].Partitions[j].CurrentLeader
			changed = p.hint(&l.LeaderID, &l.LeaderEpoch, missing) || changed
		}
	}
	return changed
}

func rewriteFetch(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.FetchResponse)
	changed, missing := hideBrokers(p, &r.Brokers, func(b *kmsg.FetchResponseBroker) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			part := &t.Partitions[j]
			l := &part.CurrentLeader
			changed = p.hint(&l.LeaderID, &l.LeaderEpoch, missing) || changed
			if p.cfg.IDs.Is(part.PreferredReadReplica) {
				part.PreferredReadReplica = p.preferred(t.TopicID, t.Topic, part.Partition, part.PreferredReadReplica)
				changed = true
			}
		}
	}
	return changed
}

// preferred chooses the real replica to read from where a real leader, by the consumer's rack, has
// chosen a virtual one: its home broker if that is in sync too, for it stands in the same rack, else
// another one in sync; not the leader, which would send the consumer away again. -1: none.
func (p *Proxy) preferred(id ids.UUID, topic string, partition, virtual int32) int32 {
	if id.IsZero() {
		id, _ = p.deps.View.Topic(topic)
	}
	part := p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: partition})
	if part == nil {
		return -1
	}
	chosen := int32(-1)
	for _, r := range part.ISR {
		switch {
		case p.cfg.IDs.Is(r) || r == part.Leader:
		case r == p.cfg.IDs.Home(virtual):
			return r
		case chosen < 0:
			chosen = r
		}
	}
	return chosen
}

func rewriteShareFetch(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.ShareFetchResponse)
	changed, missing := hideBrokers(p, &r.NodeEndpoints, func(b *kmsg.ShareFetchResponseNodeEndpoint) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			l := &r.Topics[i].Partitions[j].CurrentLeader
			changed = p.hint(&l.LeaderID, &l.LeaderEpoch, missing) || changed
		}
	}
	return changed
}

func rewriteShareAcknowledge(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.ShareAcknowledgeResponse)
	changed, missing := hideBrokers(p, &r.NodeEndpoints, func(b *kmsg.ShareAcknowledgeResponseNodeEndpoint) (*int32, *string, *int32) {
		return &b.NodeID, &b.Host, &b.Port
	})
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			l := &r.Topics[i].Partitions[j].CurrentLeader
			changed = p.hint(&l.LeaderID, &l.LeaderEpoch, missing) || changed
		}
	}
	return changed
}

// rewriteListConfigResources hides the virtual brokers, which a broker lists among those whose
// configuration can be asked for.
func rewriteListConfigResources(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.ListConfigResourcesResponse)
	before := len(r.ConfigResources)
	r.ConfigResources = slices.DeleteFunc(r.ConfigResources, func(res kmsg.ListConfigResourcesResponseConfigResource) bool {
		switch kmsg.ConfigResourceType(res.Type) {
		case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
			id, err := strconv.ParseInt(res.Name, 10, 32)
			return err == nil && p.cfg.IDs.Is(int32(id))
		}
		return false
	})
	return len(r.ConfigResources) != before
}
