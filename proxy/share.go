package proxy

import (
	"fmt"
	"time"

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
// mirror is stopped. A broker tells errors at once, the consumer asks at once again, hundreds
// of times a second, and keeps each answer until its user polls, who gets one with each poll:
// so such an answer takes as long as one that has nothing to tell.

// shareWait is for how long a share consumer's Fetch waits for records by default.
const shareWait = 500 * time.Millisecond

// shareGroupHeartbeat refuses a subscription to a mirror topic.
func (c *conn) shareGroupHeartbeat(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrShareGroupHeartbeatRequest())
	if err != nil {
		return exchange{}, err
	}
	if req.MemberEpoch >= 0 { // one that leaves may leave
		for _, topic := range req.SubscribedTopicNames {
			mirror, ok := c.p.sureMirrorOf(readonly.Topic{Name: topic}, readonly.AnyPartition)
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

// sureMirrorOf is mirrorOf, but for what may be an ordinary topic's: a share consumer would end, or
// throw, where a moment later it could read. Of a mirror topic it is told then, in place of records.
func (p *Proxy) sureMirrorOf(t readonly.Topic, partition int32) (string, bool) {
	mirror, ok := p.mirrorOf(t, partition)
	if mirror == "" && (p.pending() || p.unsure(t, partition)) {
		return "", false
	}
	return mirror, ok
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
func (c *conn) shareRewriter(version int16) func(body []byte) (kmsg.Response, error) {
	row := c.p.rows[int16(kmsg.ShareFetch)]
	if row.rewrite == nil && c.p.deps.Leaders.none() {
		return nil
	}
	return func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(row.key, version, body)
		if err != nil {
			return nil, err
		}
		if !c.rewriteShares(resp.(*kmsg.ShareFetchResponse)) {
			return nil, nil
		}
		return resp, nil
	}
}

// rewriteShares does what the table says, and tells share consumers of mirror partitions why
// they get nothing. The writer runs it, so that nothing else is answered while it waits, as by
// a broker.
func (c *conn) rewriteShares(resp *kmsg.ShareFetchResponse) bool {
	changed := false
	if row := c.p.rows[resp.Key()]; row.rewrite != nil {
		changed = row.rewrite(c.p, resp)
	}
	refused, records := c.p.refuseShares(resp)
	if refused && !records {
		c.pause(shareWait)
	}
	return changed || refused
}

// pause waits, as a broker does before it answers that there is nothing.
func (c *conn) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// refuseShares tells whether it has refused any partition, and whether others have records.
func (p *Proxy) refuseShares(resp *kmsg.ShareFetchResponse) (refused, records bool) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			part := &t.Partitions[j]
			records = records || len(part.Records) > 0
			if part.ErrorCode != errNotLeaderOrFollower {
				continue
			}
			id := ids.UUID(t.TopicID)
			mirror, ok := p.sureMirrorOf(readonly.Topic{ID: id}, part.Partition)
			if !ok {
				continue
			}
			topic, _ := p.deps.View.TopicName(id)
			why := noShare(topic, mirror)
			part.ErrorCode, part.ErrorMessage = errTopicAuthorization, &why
			refused = true
		}
	}
	return refused, records
}
