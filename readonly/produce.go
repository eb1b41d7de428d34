package readonly

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ProduceSplit is a Produce request of which some partitions are refused.
type ProduceSplit struct {
	// Rest is what the broker may have; nil if nothing remains.
	Rest *kmsg.ProduceRequest
	// Refused lists what is refused.
	Refused []Refused

	version int16
	// order is the request's own: a nil refusal is answered by the broker.
	order []produceTopic
}

type produceTopic struct {
	topic      Topic
	partitions []producePartition
}

type producePartition struct {
	partition int32
	refused   *kmsg.ProduceResponseTopicPartition
}

// Produce splits a request; nil if nothing of it is refused.
func (r *Rules) Produce(req *kmsg.ProduceRequest) *ProduceSplit {
	s := &ProduceSplit{version: req.Version}
	rest := *req
	rest.Topics = nil
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := Topic{Name: t.Topic, ID: t.TopicID}
		kept := *t
		kept.Partitions = nil
		order := produceTopic{topic: topic}
		for _, p := range t.Partitions {
			o := producePartition{partition: p.Partition}
			if f, no := r.checkWrite(topic, p.Partition); no {
				o.refused = r.refusedProduce(p.Partition, f)
				s.Refused = append(s.Refused, Refused{Topic: f.topic, Partition: p.Partition, Mirror: f.mirror})
			} else {
				kept.Partitions = append(kept.Partitions, p)
			}
			order.partitions = append(order.partitions, o)
		}
		s.order = append(s.order, order)
		if len(kept.Partitions) > 0 {
			rest.Topics = append(rest.Topics, kept)
		}
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Topics) > 0 {
		s.Rest = &rest
	}
	return s
}

// Refuses tells whether Produce would refuse a partition, without a decoded request.
func (r *Rules) Refuses(t Topic, partition int32) bool {
	_, no := r.checkWrite(t, partition)
	return no
}

func (r *Rules) refusedProduce(partition int32, f refusal) *kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition = partition
	p.ErrorCode = r.code(f, notLeaderOrFollower)
	p.BaseOffset = -1
	p.LogAppendTime = -1
	p.LogStartOffset = -1
	// The partition's message is what clients show. The list of single records at
	// fault stays empty: with entries in it the Java producer takes every other record
	// for a victim of the named ones and hides the message.
	p.ErrorMessage = f.message()
	return &p
}

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil. A partition that the broker left out is left out.
func (s *ProduceSplit) Merge(resp *kmsg.ProduceResponse) *kmsg.ProduceResponse {
	out := kmsg.NewPtrProduceResponse()
	answered := make(queues[part, kmsg.ProduceResponseTopicPartition])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answered.put(part{Topic{Name: t.Topic, ID: t.TopicID}, p.Partition}, p)
			}
		}
	}
	out.Version = s.version
	out.Topics = nil
	for _, o := range s.order {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = o.topic.Name, o.topic.ID
		for _, p := range o.partitions {
			if p.refused != nil {
				t.Partitions = append(t.Partitions, *p.refused)
			} else if a, ok := answered.get(part{o.topic, p.partition}); ok {
				t.Partitions = append(t.Partitions, a)
			}
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}
