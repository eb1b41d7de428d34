package readonly

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MetadataSplit is a Metadata request without the state topic.
type MetadataSplit struct {
	// Rest is what the broker is asked. Its version may be above the request's.
	Rest *kmsg.MetadataRequest

	version int16
	topic   string
}

// Metadata takes the state topic out of a request; nil if the request does not name it. It
// is for while there is no such topic: brokers create what a client asks for (auto.create.topics.enable), and
// this one would then keep the mirrors' state as long as other topics keep records.
func (r *Rules) Metadata(req *kmsg.MetadataRequest) *MetadataSplit {
	rest := *req
	rest.Topics = []kmsg.MetadataRequestTopic{} // null would be all
	for _, t := range req.Topics {
		if t.Topic == nil || *t.Topic != r.StateTopic {
			rest.Topics = append(rest.Topics, t)
		}
	}
	if len(rest.Topics) == len(req.Topics) {
		return nil
	}
	if req.Version == 0 && len(rest.Topics) == 0 {
		rest.Version = 1 // in version 0 no topic means all
	}
	return &MetadataSplit{Rest: &rest, version: req.Version, topic: r.StateTopic}
}

// Merge adds to the broker's response to Rest that there is no such topic. The response is
// not in the request's order in Kafka either.
func (s *MetadataSplit) Merge(resp *kmsg.MetadataResponse) *kmsg.MetadataResponse {
	out := *resp
	out.Version = s.version
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.ErrorCode, t.Partitions = &s.topic, int16(unknownTopicOrPartition), []kmsg.MetadataResponseTopicPartition{}
	out.Topics = append(out.Topics, t)
	return &out
}
