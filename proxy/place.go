package proxy

import (
	"context"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// Placement chooses brokers where the controllers would choose virtual ones too, since
// they know no cordon (metadata.version below 4.3).
type Placement interface {
	// Needed tells whether that is so.
	Needed() bool
	// Place returns the replicas of a topic's partitions from the given one on, on real
	// brokers only. An error has the code that a controller answers with.
	Place(topic string, from, partitions, replicas int) ([][]int32, error)
	// Defaults are the number of partitions and of replicas of topics that name none.
	Defaults(ctx context.Context) (partitions, replicas int, err error)
}

const errInvalidReplicaAssignment int16 = 39

func (p *Proxy) places() bool { return p.deps.Placement != nil && p.deps.Placement.Needed() }

// placedTopics answers a CreateTopics request with replicas that are chosen here. merge puts
// what was refused before into the answer.
func (c *conn) placedTopics(r *request, req *kmsg.CreateTopicsRequest, merge func(*kmsg.CreateTopicsResponse) *kmsg.CreateTopicsResponse) exchange {
	ex := relayed(r.header)
	var resp *kmsg.CreateTopicsResponse
	ex.converse = func(ctx context.Context, up *conversation) (err error) {
		resp, err = c.p.createPlaced(ctx, up, req)
		return err
	}
	ex.answer = func(context.Context) (net.Buffers, error) { return responseFrame(merge(resp), r.header) }
	return ex
}

// createPlaced has the controller judge the request first, without effect: names, rights,
// configs and policies are its business, and so are the numbers that the request leaves to
// it. Then it names the replicas.
func (p *Proxy) createPlaced(ctx context.Context, up *conversation, req *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	given := func(t kmsg.CreateTopicsRequestTopic) bool { return len(t.ReplicaAssignment) > 0 }
	if !slices.ContainsFunc(req.Topics, func(t kmsg.CreateTopicsRequestTopic) bool { return !given(t) }) {
		return sendCreate(ctx, up, req)
	}
	dry := *req
	dry.ValidateOnly = true
	dry.Version = max(req.Version, 5) // the first that tells the numbers
	judged, err := sendCreate(ctx, up, &dry)
	if err != nil {
		return nil, err
	}
	answers := map[string]kmsg.CreateTopicsResponseTopic{}
	for _, a := range judged.Topics {
		answers[a.Topic] = a
	}
	do := *req
	do.Topics = nil
	placed := map[string]kmsg.CreateTopicsRequestTopic{} // as they were asked for
	for _, t := range req.Topics {
		a, ok := answers[t.Topic]
		if !ok || a.ErrorCode != errNone {
			continue
		}
		asked := t
		if !given(t) {
			if t.ReplicaAssignment, err = p.placeNew(ctx, t, a); err != nil {
				no := kmsg.NewCreateTopicsResponseTopic()
				no.Topic, no.Configs = t.Topic, []kmsg.CreateTopicsResponseTopicConfig{} // null says that the caller may not see them
				no.ErrorCode, no.ErrorMessage = protocol.CodeOf(err)
				answers[t.Topic] = no
				continue
			}
			t.NumPartitions, t.ReplicationFactor = -1, -1
			placed[t.Topic] = asked
		}
		do.Topics = append(do.Topics, t)
	}
	out := judged
	if !req.ValidateOnly && len(do.Topics) > 0 {
		if out, err = sendCreate(ctx, up, &do); err != nil {
			return nil, err
		}
		again := *req
		again.Topics = nil
		for _, a := range out.Topics {
			answers[a.Topic] = a
			if t, ok := placed[a.Topic]; ok && a.ErrorCode == errInvalidReplicaAssignment {
				again.Topics = append(again.Topics, t) // a broker has gone meanwhile; the sweeper mends what comes of it
			}
		}
		if len(again.Topics) > 0 {
			if out, err = sendCreate(ctx, up, &again); err != nil {
				return nil, err
			}
			for _, a := range out.Topics {
				answers[a.Topic] = a
			}
		}
	}
	out.Topics = nil
	for _, t := range req.Topics {
		if a, ok := answers[t.Topic]; ok {
			out.Topics = append(out.Topics, a)
			delete(answers, t.Topic) // one that is named twice has one answer
		}
	}
	return out, nil
}

// placeNew returns the replicas of a topic that the controller would create.
func (p *Proxy) placeNew(ctx context.Context, t kmsg.CreateTopicsRequestTopic, judged kmsg.CreateTopicsResponseTopic) ([]kmsg.CreateTopicsRequestTopicReplicaAssignment, error) {
	partitions, replicas := int(t.NumPartitions), int(t.ReplicationFactor)
	if partitions < 1 {
		partitions = int(judged.NumPartitions)
	}
	if replicas < 1 {
		replicas = int(judged.ReplicationFactor)
	}
	if partitions < 1 || replicas < 1 { // not told to who may not describe the topic's configs
		n, rf, err := p.deps.Placement.Defaults(ctx)
		if err != nil {
			return nil, err
		}
		if partitions < 1 {
			partitions = n
		}
		if replicas < 1 {
			replicas = rf
		}
	}
	lists, err := p.deps.Placement.Place(t.Topic, 0, partitions, replicas)
	if err != nil {
		return nil, err
	}
	out := make([]kmsg.CreateTopicsRequestTopicReplicaAssignment, 0, len(lists))
	for i, list := range lists {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), list
		out = append(out, a)
	}
	return out, nil
}

func sendCreate(ctx context.Context, up *conversation, req *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	resp, err := up.request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.CreateTopicsResponse), nil
}

// placedPartitions answers a CreatePartitions request with replicas that are chosen here.
func (c *conn) placedPartitions(r *request, req *kmsg.CreatePartitionsRequest, merge func(*kmsg.CreatePartitionsResponse) *kmsg.CreatePartitionsResponse) exchange {
	ex := relayed(r.header)
	var resp *kmsg.CreatePartitionsResponse
	ex.converse = func(ctx context.Context, up *conversation) (err error) {
		resp, err = c.p.growPlaced(ctx, up, req)
		return err
	}
	ex.answer = func(context.Context) (net.Buffers, error) { return responseFrame(merge(resp), r.header) }
	return ex
}

// growPlaced names the replicas of new partitions. Where what is known of a topic is not what
// the controller knows, it refuses them, and is asked without.
func (p *Proxy) growPlaced(ctx context.Context, up *conversation, req *kmsg.CreatePartitionsRequest) (*kmsg.CreatePartitionsResponse, error) {
	do := *req
	do.Topics = slices.Clone(req.Topics)
	placed := map[string]kmsg.CreatePartitionsRequestTopic{} // as they were asked for
	for i, t := range do.Topics {
		if lists := p.placeMore(t); lists != nil {
			placed[t.Topic] = t
			for _, list := range lists {
				a := kmsg.NewCreatePartitionsRequestTopicAssignment()
				a.Replicas = list
				do.Topics[i].Assignment = append(do.Topics[i].Assignment, a)
			}
		}
	}
	out, err := sendGrow(ctx, up, &do)
	if err != nil {
		return nil, err
	}
	again := *req
	again.Topics = nil
	for _, a := range out.Topics {
		if t, ok := placed[a.Topic]; ok && a.ErrorCode == errInvalidReplicaAssignment {
			again.Topics = append(again.Topics, t)
		}
	}
	if len(again.Topics) == 0 {
		return out, nil
	}
	second, err := sendGrow(ctx, up, &again)
	if err != nil {
		return nil, err
	}
	for _, a := range second.Topics {
		if i := slices.IndexFunc(out.Topics, func(t kmsg.CreatePartitionsResponseTopic) bool { return t.Topic == a.Topic }); i >= 0 {
			out.Topics[i] = a
		}
	}
	return out, nil
}

// placeMore returns the replicas of the partitions that a topic is to get, nil if they are
// not chosen here.
func (p *Proxy) placeMore(t kmsg.CreatePartitionsRequestTopic) [][]int32 {
	id, ok := p.deps.View.Topic(t.Topic)
	if !ok || len(t.Assignment) > 0 {
		return nil
	}
	parts := p.deps.View.TopicPartitions(id)
	if len(parts) == 0 || int(t.Count) <= len(parts) {
		return nil
	}
	lists, err := p.deps.Placement.Place(t.Topic, len(parts), int(t.Count)-len(parts), len(parts[0].Replicas))
	if err != nil {
		return nil // the controller says why not
	}
	return lists
}

func sendGrow(ctx context.Context, up *conversation, req *kmsg.CreatePartitionsRequest) (*kmsg.CreatePartitionsResponse, error) {
	resp, err := up.request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.CreatePartitionsResponse), nil
}
