package proxy

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// Share groups (KIP-932) read at the leader only, which keeps a record of what each of them
// has been given, and a mirror partition's leader is virtual. The real replica that clients
// are shown answers NOT_LEADER_OR_FOLLOWER, after which a share consumer asks for metadata
// and tries again, for ever and without a word to its user. So it is told here.
//
// Who subscribes to a mirror topic is refused by the heartbeat that says so: of all that a
// share consumer is answered that is the one error whose message reaches the user. It is
// fatal for that consumer, which has nothing it could read; one that is made after the
// mirror has been stopped reads. Who had subscribed before the mirror was started sends the
// topic's name no more: it gets TOPIC_AUTHORIZATION_FAILED for the partitions, the one error
// of a partition that a share consumer throws and goes on after, so that it reads when the
// mirror is stopped.

// shareGroupHeartbeat refuses a subscription to a mirror topic.
func (c *conn) shareGroupHeartbeat(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrShareGroupHeartbeatRequest())
	if err != nil {
		return exchange{}, err
	}
	if req.MemberEpoch >= 0 { // one that leaves may leave
		for _, topic := range req.SubscribedTopicNames {
			mirror, ok := c.p.mirrorOf(readonly.Topic{Name: topic}, readonly.AnyPartition)
			if !ok {
				continue
			}
			resp := kmsg.NewPtrShareGroupHeartbeatResponse()
			why := noShare(topic, mirror)
			resp.ErrorCode, resp.ErrorMessage = errPolicyViolation, &why
			return c.local(r.header, resp), nil
		}
	}
	return r.forward(), nil
}

func noShare(topic, mirror string) string {
	if mirror == "" {
		return fmt.Sprintf("topic %q is a mirror topic, which share groups cannot read until it is stopped (consumer groups can): kafka-cluster-mirrors --list names the mirrors", topic)
	}
	return fmt.Sprintf("topic %q is a mirror topic of mirror %q, which share groups cannot read (consumer groups can) until it is stopped: kafka-cluster-mirrors --stop --mirror %s --topics %s",
		topic, mirror, mirror, topic)
}

// shareRewriter returns the transform of a ShareFetch response; nil if there is nothing to
// change.
func (p *Proxy) shareRewriter(version int16) func(body []byte) (kmsg.Response, error) {
	row := p.rows[int16(kmsg.ShareFetch)]
	if row.rewrite == nil && p.deps.Leaders.none() {
		return nil
	}
	return func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(row.key, version, body)
		if err != nil {
			return nil, err
		}
		if !p.rewriteShares(resp.(*kmsg.ShareFetchResponse)) {
			return nil, nil
		}
		return resp, nil
	}
}

// rewriteShares does what the table says, and tells share consumers of mirror partitions why
// they get nothing.
func (p *Proxy) rewriteShares(resp *kmsg.ShareFetchResponse) bool {
	changed := false
	if row := p.rows[resp.Key()]; row.rewrite != nil {
		changed = row.rewrite(p, resp)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			part := &t.Partitions[j]
			if part.ErrorCode != errNotLeaderOrFollower {
				continue
			}
			id := ids.UUID(t.TopicID)
			mirror, ok := p.mirrorOf(readonly.Topic{ID: id}, part.Partition)
			if !ok {
				continue
			}
			topic, _ := p.deps.View.TopicName(id)
			why := noShare(topic, mirror)
			part.ErrorCode, part.ErrorMessage = errTopicAuthorization, &why
			changed = true
		}
	}
	return changed
}
