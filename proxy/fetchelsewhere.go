package proxy

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A consumer that came around the proxy, and is too old to be sent to the replica to read from, is
// served at the virtual listener: by the home broker if that has a replica, else here, with what another
// broker has. The home broker has found the caller entitled to it when it says that it is no leader.

const (
	// elsewherePatience bounds the questions to other brokers. A consumer that gets no answer asks
	// again.
	elsewherePatience = 10 * time.Second
	// elsewhereBytes bounds what is read into memory for one request, but for the one batch that a
	// broker gives however large it is.
	elsewhereBytes = 50 << 20
)

// fetchElsewhere fetches what of a response the home broker has no replica of. The response waits as
// the request wants it to, since neither broker has waited.
func (c *conn) fetchElsewhere(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
	if c.p.deps.Brokers == nil {
		return
	}
	asks := make(map[topicPartition]kmsg.FetchRequestTopicPartition)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asks[topicPartition{t.Topic, p.Partition}] = p
		}
	}
	questions := make(map[int32]*elsewhereFetch)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			ask, ok := asks[topicPartition{t.Topic, rp.Partition}]
			if !ok || rp.ErrorCode != errNotLeaderOrFollower {
				continue
			}
			part, ok := c.p.mirrorLed(t.Topic, rp.Partition)
			if !ok || part.Leader != c.p.cfg.IDs.Of(c.p.cfg.Home) {
				continue
			}
			shown, ok := c.p.shownLeader(part)
			if !ok || shown == c.p.cfg.Home {
				continue
			}
			q := questions[shown]
			if q == nil {
				q = newElsewhereFetch(req)
				questions[shown] = q
			}
			q.add(t.Topic, part.TopicID, ask, rp)
		}
	}
	if len(questions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, elsewherePatience)
	defer cancel()
	left, brokers := min(req.MaxBytes, elsewhereBytes), int32(len(questions))
	for broker, q := range questions {
		q.req.MaxBytes = max(left/brokers, 1) // what one leaves is the others'
		brokers--
		got, err := c.p.deps.Brokers.Request(ctx, broker, q.req)
		if err != nil {
			c.log.Warn("mirror partitions cannot be read at their replica", "broker", broker, "err", err)
			continue
		}
		left -= q.take(got.(*kmsg.FetchResponse))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if len(p.RecordBatches) > 0 {
				return
			}
		}
	}
	c.pause(min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, elsewherePatience))
}

// elsewhereFetch is what one broker is asked.
type elsewhereFetch struct {
	req     *kmsg.FetchRequest
	names   map[[16]byte]string
	answers map[topicPartition]*kmsg.FetchResponseTopicPartition
}

func newElsewhereFetch(of *kmsg.FetchRequest) *elsewhereFetch {
	q := &elsewhereFetch{kmsg.NewPtrFetchRequest(), map[[16]byte]string{}, map[topicPartition]*kmsg.FetchResponseTopicPartition{}}
	q.req.SessionEpoch = -1
	q.req.IsolationLevel = of.IsolationLevel
	return q
}

func (q *elsewhereFetch) add(topic string, id [16]byte, ask kmsg.FetchRequestTopicPartition, answer *kmsg.FetchResponseTopicPartition) {
	if n := len(q.req.Topics); n == 0 || q.req.Topics[n-1].Topic != topic {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, id
		q.req.Topics = append(q.req.Topics, t)
		q.names[id] = topic
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = ask.Partition, ask.FetchOffset, ask.PartitionMaxBytes
	p.CurrentLeaderEpoch = ask.CurrentLeaderEpoch
	t := &q.req.Topics[len(q.req.Topics)-1]
	t.Partitions = append(t.Partitions, p)
	q.answers[topicPartition{topic, ask.Partition}] = answer
}

// take puts what a broker answers into the response, and returns the size of its records.
func (q *elsewhereFetch) take(resp *kmsg.FetchResponse) (size int32) {
	for _, t := range resp.Topics {
		name := t.Topic
		if name == "" {
			name = q.names[t.TopicID]
		}
		for _, p := range t.Partitions {
			size += int32(len(p.RecordBatches))
			a := q.answers[topicPartition{name, p.Partition}]
			if a == nil || p.ErrorCode == errTopicAuthorization { // the sidecar's own
				continue
			}
			if p.RecordBatches == nil {
				p.RecordBatches = []byte{}
			}
			*a = p
		}
	}
	return size
}
