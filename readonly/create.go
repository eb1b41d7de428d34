package readonly

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopicsSplit is a CreateTopics request of which some topics are refused.
type CreateTopicsSplit struct {
	Rest    *kmsg.CreateTopicsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.CreateTopicsResponseTopic // refused topics have an error
}

// CreateTopics splits a request; nil if nothing of it is refused. The sidecars alone create
// the state topic, or it would have its creator's idea of replication and retention.
// Nothing else depends on what is a mirror topic.
func (r *Rules) CreateTopics(req *kmsg.CreateTopicsRequest) *CreateTopicsSplit {
	s := &CreateTopicsSplit{version: req.Version}
	rest := *req
	rest.Topics = nil
	for _, t := range req.Topics {
		o := kmsg.NewCreateTopicsResponseTopic()
		o.Topic, o.Configs = t.Topic, []kmsg.CreateTopicsResponseTopicConfig{} // null says that the caller may not see them
		named := slices.ContainsFunc(t.Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == nameConfig })
		if r.StateTopic != "" && t.Topic == r.StateTopic {
			f := refusal{kind: byState, topic: t.Topic}
			o.ErrorCode, o.ErrorMessage = r.code(f, notController), f.message()
		} else if why, no := refusedConfig(kmsg.ConfigResourceTypeTopic, t.Topic, named, false); no {
			o.ErrorCode, o.ErrorMessage = int16(invalidRequest), &why
		} else {
			rest.Topics = append(rest.Topics, t)
		}
		if o.ErrorCode != 0 {
			s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: AnyPartition})
		}
		s.order = append(s.order, o)
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Topics) > 0 {
		s.Rest = &rest
	}
	return s
}

// Merge puts the refusals into the broker's response to Rest, or into a new response if
// resp is nil.
func (s *CreateTopicsSplit) Merge(resp *kmsg.CreateTopicsResponse) *kmsg.CreateTopicsResponse {
	out := kmsg.NewPtrCreateTopicsResponse()
	answered := make(queues[string, kmsg.CreateTopicsResponseTopic])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Topics {
			answered.put(t.Topic, t)
		}
	}
	out.Version = s.version
	out.Topics = nil
	for _, o := range s.order {
		if o.ErrorCode != 0 {
			out.Topics = append(out.Topics, o)
		} else if t, ok := answered.get(o.Topic); ok {
			out.Topics = append(out.Topics, t)
		}
	}
	return out
}
