package readonly

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// DeleteRecordsSplit is a DeleteRecords request of which some partitions are refused.
type DeleteRecordsSplit struct {
	Rest    *kmsg.DeleteRecordsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.DeleteRecordsResponseTopic // refused partitions have an error
}

// DeleteRecords splits a request; nil if nothing of it is refused.
func (r *Rules) DeleteRecords(req *kmsg.DeleteRecordsRequest) *DeleteRecordsSplit {
	s := &DeleteRecordsSplit{version: req.Version}
	rest := *req
	rest.Topics = nil
	for _, t := range req.Topics {
		kept := t
		kept.Partitions = nil
		o := kmsg.NewDeleteRecordsResponseTopic()
		o.Topic = t.Topic
		for _, p := range t.Partitions {
			op := kmsg.NewDeleteRecordsResponseTopicPartition()
			op.Partition, op.LowWatermark = p.Partition, -1
			if f, no := r.check(Topic{Name: t.Topic}, p.Partition); no {
				op.ErrorCode = r.code(f, notLeaderOrFollower)
				s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: p.Partition, Mirror: f.mirror})
			} else {
				kept.Partitions = append(kept.Partitions, p)
			}
			o.Partitions = append(o.Partitions, op)
		}
		s.order = append(s.order, o)
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

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil.
func (s *DeleteRecordsSplit) Merge(resp *kmsg.DeleteRecordsResponse) *kmsg.DeleteRecordsResponse {
	out := kmsg.NewPtrDeleteRecordsResponse()
	answered := make(queues[part, kmsg.DeleteRecordsResponseTopicPartition])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answered.put(part{Topic{Name: t.Topic}, p.Partition}, p)
			}
		}
	}
	out.Version = s.version
	out.Topics = nil
	for _, o := range s.order {
		t := o
		t.Partitions = nil
		for _, p := range o.Partitions {
			if p.ErrorCode != 0 {
				t.Partitions = append(t.Partitions, p)
			} else if a, ok := answered.get(part{Topic{Name: o.Topic}, p.Partition}); ok {
				t.Partitions = append(t.Partitions, a)
			}
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// AlterReplicaLogDirsSplit is an AlterReplicaLogDirs request of which some partitions
// are refused.
type AlterReplicaLogDirsSplit struct {
	Rest    *kmsg.AlterReplicaLogDirsRequest // nil if nothing remains
	Refused []Refused

	version int16
	refused []kmsg.AlterReplicaLogDirsResponseTopic
}

// AlterReplicaLogDirs splits a request; nil if nothing of it is refused.
func (r *Rules) AlterReplicaLogDirs(req *kmsg.AlterReplicaLogDirsRequest) *AlterReplicaLogDirsSplit {
	s := &AlterReplicaLogDirsSplit{version: req.Version}
	rest := *req
	rest.Dirs = nil
	for _, d := range req.Dirs {
		keptDir := d
		keptDir.Topics = nil
		for _, t := range d.Topics {
			kept := t
			kept.Partitions = nil
			o := kmsg.NewAlterReplicaLogDirsResponseTopic()
			o.Topic = t.Topic
			for _, p := range t.Partitions {
				f, no := r.check(Topic{Name: t.Topic}, p)
				if !no {
					kept.Partitions = append(kept.Partitions, p)
					continue
				}
				op := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				op.Partition, op.ErrorCode = p, r.code(f, notLeaderOrFollower)
				o.Partitions = append(o.Partitions, op)
				s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: p, Mirror: f.mirror})
			}
			if len(o.Partitions) > 0 {
				s.refused = append(s.refused, o)
			}
			if len(kept.Partitions) > 0 {
				keptDir.Topics = append(keptDir.Topics, kept)
			}
		}
		if len(keptDir.Topics) > 0 {
			rest.Dirs = append(rest.Dirs, keptDir)
		}
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Dirs) > 0 {
		s.Rest = &rest
	}
	return s
}

// Merge adds the refusals to the broker's response to Rest, or to a new response if
// resp is nil. The response is not in the request's order in Kafka either: it groups
// by topic what the request groups by directory.
func (s *AlterReplicaLogDirsSplit) Merge(resp *kmsg.AlterReplicaLogDirsResponse) *kmsg.AlterReplicaLogDirsResponse {
	out := kmsg.NewPtrAlterReplicaLogDirsResponse()
	if resp != nil {
		*out = *resp
	}
	out.Version = s.version
	at := make(map[string]int, len(out.Topics))
	for i, t := range out.Topics {
		at[t.Topic] = i
	}
	for _, t := range s.refused {
		if i, ok := at[t.Topic]; ok {
			out.Topics[i].Partitions = append(out.Topics[i].Partitions, t.Partitions...)
			continue
		}
		at[t.Topic] = len(out.Topics)
		out.Topics = append(out.Topics, t)
	}
	return out
}

// CreatePartitionsSplit is a CreatePartitions request of which some topics are refused.
type CreatePartitionsSplit struct {
	Rest    *kmsg.CreatePartitionsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.CreatePartitionsResponseTopic // refused topics have an error
}

// CreatePartitions splits a request; nil if nothing of it is refused. A mirror topic
// grows when its source does.
func (r *Rules) CreatePartitions(req *kmsg.CreatePartitionsRequest) *CreatePartitionsSplit {
	s := &CreatePartitionsSplit{version: req.Version}
	rest := *req
	rest.Topics = nil
	for _, t := range req.Topics {
		o := kmsg.NewCreatePartitionsResponseTopic()
		o.Topic = t.Topic
		if f, no := r.check(Topic{Name: t.Topic}, AnyPartition); no {
			o.ErrorCode, o.ErrorMessage = r.code(f, notController), f.message()
			s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: AnyPartition, Mirror: f.mirror})
		} else {
			rest.Topics = append(rest.Topics, t)
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

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil.
func (s *CreatePartitionsSplit) Merge(resp *kmsg.CreatePartitionsResponse) *kmsg.CreatePartitionsResponse {
	out := kmsg.NewPtrCreatePartitionsResponse()
	answered := make(queues[string, kmsg.CreatePartitionsResponseTopic])
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

// DeleteTopicsSplit is a DeleteTopics request of which some topics are refused.
type DeleteTopicsSplit struct {
	Rest    *kmsg.DeleteTopicsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.DeleteTopicsResponseTopic // refused topics have an error
}

// DeleteTopics splits a request; nil if nothing of it is refused. A mirror topic must
// be stopped before it is deleted, or its mirror would not know what became of it.
func (r *Rules) DeleteTopics(req *kmsg.DeleteTopicsRequest) *DeleteTopicsSplit {
	s := &DeleteTopicsSplit{version: req.Version}
	rest := *req
	rest.TopicNames, rest.Topics = nil, nil
	refuse := func(topic Topic, name *string) bool {
		o := kmsg.NewDeleteTopicsResponseTopic()
		o.Topic, o.TopicID = name, topic.ID
		f, no := r.check(topic, AnyPartition)
		if no {
			o.ErrorCode, o.ErrorMessage = r.code(f, notController), f.message()
			s.Refused = append(s.Refused, Refused{Topic: f.topic, Partition: AnyPartition, Mirror: f.mirror})
		}
		s.order = append(s.order, o)
		return no
	}
	for _, name := range req.TopicNames {
		if !refuse(Topic{Name: name}, &name) {
			rest.TopicNames = append(rest.TopicNames, name)
		}
	}
	for _, t := range req.Topics {
		topic := Topic{ID: t.TopicID}
		if t.Topic != nil {
			topic.Name = *t.Topic
		}
		if !refuse(topic, t.Topic) {
			rest.Topics = append(rest.Topics, t)
		}
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.TopicNames)+len(rest.Topics) > 0 {
		s.Rest = &rest
	}
	return s
}

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil. The broker answers with both name and id whichever was asked for.
func (s *DeleteTopicsSplit) Merge(resp *kmsg.DeleteTopicsResponse) *kmsg.DeleteTopicsResponse {
	out := kmsg.NewPtrDeleteTopicsResponse()
	byName := make(queues[string, kmsg.DeleteTopicsResponseTopic])
	byID := make(queues[ids.UUID, kmsg.DeleteTopicsResponseTopic])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Topics {
			if t.Topic != nil {
				byName.put(*t.Topic, t)
			}
			if t.TopicID != (ids.UUID{}) {
				byID.put(t.TopicID, t)
			}
		}
	}
	out.Version = s.version
	out.Topics = nil
	for _, o := range s.order {
		if o.ErrorCode != 0 {
			out.Topics = append(out.Topics, o)
			continue
		}
		var t kmsg.DeleteTopicsResponseTopic
		var ok bool
		if o.Topic != nil {
			t, ok = byName.get(*o.Topic)
		} else {
			t, ok = byID.get(o.TopicID)
		}
		if ok {
			out.Topics = append(out.Topics, t)
		}
	}
	return out
}

// AlterConfigsSplit is an AlterConfigs request of which some resources are refused.
type AlterConfigsSplit struct {
	Rest    *kmsg.AlterConfigsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.AlterConfigsResponseResource // refused ones have an error
}

// AlterConfigs splits a request; nil if nothing of it is refused. This API replaces
// all of a topic's configs, the locked ones too if it does not name them, so that it
// is refused for mirror topics whatever it names.
func (r *Rules) AlterConfigs(req *kmsg.AlterConfigsRequest) *AlterConfigsSplit {
	s := &AlterConfigsSplit{version: req.Version}
	rest := *req
	rest.Resources = nil
	for _, res := range req.Resources {
		o := kmsg.NewAlterConfigsResponseResource()
		o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
		named := slices.ContainsFunc(res.Configs, func(c kmsg.AlterConfigsRequestResourceConfig) bool { return c.Name == nameConfig })
		if why, no := refusedConfig(res.ResourceType, res.ResourceName, named, true); no {
			o.ErrorCode, o.ErrorMessage = int16(invalidRequest), &why
			s.Refused = append(s.Refused, Refused{Topic: res.ResourceName, Partition: AnyPartition})
		} else if f, no := r.checkConfig(res.ResourceType, res.ResourceName); no {
			o.ErrorCode = r.code(f, notController)
			o.ErrorMessage = f.because("AlterConfigs replaces all configs of a topic, those that keep a mirror topic read only too; use IncrementalAlterConfigs for the others")
			s.Refused = append(s.Refused, Refused{Topic: f.topic, Partition: AnyPartition, Mirror: f.mirror})
		} else {
			rest.Resources = append(rest.Resources, res)
		}
		s.order = append(s.order, o)
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Resources) > 0 {
		s.Rest = &rest
	}
	return s
}

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil.
func (s *AlterConfigsSplit) Merge(resp *kmsg.AlterConfigsResponse) *kmsg.AlterConfigsResponse {
	out := kmsg.NewPtrAlterConfigsResponse()
	answered := make(queues[resource, kmsg.AlterConfigsResponseResource])
	if resp != nil {
		*out = *resp
		for _, a := range resp.Resources {
			answered.put(resource{a.ResourceType, a.ResourceName}, a)
		}
	}
	out.Version = s.version
	out.Resources = nil
	for _, o := range s.order {
		if o.ErrorCode != 0 {
			out.Resources = append(out.Resources, o)
		} else if a, ok := answered.get(resource{o.ResourceType, o.ResourceName}); ok {
			out.Resources = append(out.Resources, a)
		}
	}
	return out
}

// IncrementalAlterConfigsSplit is an IncrementalAlterConfigs request of which some
// resources are refused.
type IncrementalAlterConfigsSplit struct {
	Rest    *kmsg.IncrementalAlterConfigsRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.IncrementalAlterConfigsResponseResource // refused ones have an error
}

// IncrementalAlterConfigs splits a request; nil if nothing of it is refused. A
// resource is taken or refused whole, as by a broker.
func (r *Rules) IncrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) *IncrementalAlterConfigsSplit {
	s := &IncrementalAlterConfigsSplit{version: req.Version}
	rest := *req
	rest.Resources = nil
	for _, res := range req.Resources {
		o := kmsg.NewIncrementalAlterConfigsResponseResource()
		o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
		locked, named := "", false
		for _, cfg := range res.Configs {
			if lockedConfigs[cfg.Name] && locked == "" {
				locked = cfg.Name
			}
			named = named || cfg.Name == nameConfig
		}
		f, no := refusal{}, false
		if state := res.ResourceType == kmsg.ConfigResourceTypeTopic && res.ResourceName == r.StateTopic; locked != "" || state {
			f, no = r.checkConfig(res.ResourceType, res.ResourceName)
		}
		if why, never := refusedConfig(res.ResourceType, res.ResourceName, named, false); never {
			o.ErrorCode, o.ErrorMessage = int16(invalidRequest), &why
			s.Refused = append(s.Refused, Refused{Topic: res.ResourceName, Partition: AnyPartition})
		} else if no {
			o.ErrorCode = r.code(f, notController)
			o.ErrorMessage = f.because(fmt.Sprintf("%s keeps a mirror topic read only and cannot be changed", locked))
			s.Refused = append(s.Refused, Refused{Topic: f.topic, Partition: AnyPartition, Mirror: f.mirror})
		} else {
			rest.Resources = append(rest.Resources, res)
		}
		s.order = append(s.order, o)
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Resources) > 0 {
		s.Rest = &rest
	}
	return s
}

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil.
func (s *IncrementalAlterConfigsSplit) Merge(resp *kmsg.IncrementalAlterConfigsResponse) *kmsg.IncrementalAlterConfigsResponse {
	out := kmsg.NewPtrIncrementalAlterConfigsResponse()
	answered := make(queues[resource, kmsg.IncrementalAlterConfigsResponseResource])
	if resp != nil {
		*out = *resp
		for _, a := range resp.Resources {
			answered.put(resource{a.ResourceType, a.ResourceName}, a)
		}
	}
	out.Version = s.version
	out.Resources = nil
	for _, o := range s.order {
		if o.ErrorCode != 0 {
			out.Resources = append(out.Resources, o)
		} else if a, ok := answered.get(resource{o.ResourceType, o.ResourceName}); ok {
			out.Resources = append(out.Resources, a)
		}
	}
	return out
}

type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// refusedConfig refuses what no topic's state permits: a change of mirror.name, and with
// the API that replaces all configs, a change of a mirror.
func refusedConfig(kind kmsg.ConfigResourceType, name string, named, replaces bool) (why string, refused bool) {
	switch {
	case kind == kmsg.ConfigResourceTypeTopic && named:
		return fmt.Sprintf("%s of topic %q cannot be set: it shows the topic's mirror, which kafka-cluster-mirrors --start, --stop, --pause and --resume change", nameConfig, name), true
	case kind == MirrorResource && replaces:
		return fmt.Sprintf("AlterConfigs replaces a whole configuration, which for mirror %q would lose its secrets; use IncrementalAlterConfigs or kafka-cluster-mirrors --alter", name), true
	}
	return "", false
}

func (r *Rules) checkConfig(kind kmsg.ConfigResourceType, name string) (refusal, bool) {
	if kind != kmsg.ConfigResourceTypeTopic {
		return refusal{}, false
	}
	return r.check(Topic{Name: name}, AnyPartition)
}

// because puts the reason that is particular to what was asked before a mirror topic's message.
func (f refusal) because(why string) *string {
	m := f.message()
	if f.kind != byMirror {
		return m
	}
	s := why + "; " + *m
	return &s
}
