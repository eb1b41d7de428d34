package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/rights"
)

// Assignments knows which virtual replicas go with a mirror partition when a client moves
// it.
type Assignments interface {
	// Kept returns the virtual replicas that stay in front of those that a client asks for;
	// ok is false if the partition is no mirror's. An error says why it cannot be moved now.
	Kept(tp ids.TopicPartition) (virtual []int32, ok bool, err error)
	// Open lets the controller accept assignments to virtual brokers until close is called.
	Open(ctx context.Context, virtual []int32) (close func(), err error)
}

// assignment is a partition and how the broker answers for it.
type assignment struct {
	topic     string
	partition int32
}

type assignmentAnswer = kmsg.AlterPartitionAssignmentsResponseTopicPartition

// reassignment is a client's AlterPartitionReassignments as it is sent on: clients see no
// virtual replicas, and so every list of theirs would take them away.
type reassignment struct {
	asked *kmsg.AlterPartitionAssignmentsRequest
	// plain is what goes on as it is, mirrored has virtual replicas put in front and is sent
	// while those are open; nil if there is nothing.
	plain, mirrored *kmsg.AlterPartitionAssignmentsRequest
	open            []int32 // virtual brokers in mirrored
	answers         map[assignment]assignmentAnswer
}

// planReassignment splits a request; nil if nothing of it is of a mirror.
func (p *Proxy) planReassignment(req *kmsg.AlterPartitionAssignmentsRequest) *reassignment {
	plan := &reassignment{asked: req, answers: map[assignment]assignmentAnswer{}}
	plain, mirrored := *req, *req
	plain.Topics, mirrored.Topics = nil, nil
	mirrored.AllowReplicationFactorChange = true // judged here: the controller counts virtual replicas too
	mine := false
	for _, t := range req.Topics {
		rest, changed := t, t
		rest.Partitions, changed.Partitions = nil, nil
		id, known := p.deps.View.Topic(t.Topic)
		for _, a := range t.Partitions {
			part := p.deps.View.Partition(ids.TopicPartition{TopicID: id, Partition: a.Partition})
			if !known || part == nil {
				rest.Partitions = append(rest.Partitions, a)
				continue
			}
			virtual, ok, err := p.deps.Assignments.Kept(ids.TopicPartition{TopicID: id, Partition: a.Partition})
			if !ok && err == nil {
				rest.Partitions = append(rest.Partitions, a)
				continue
			}
			mine = true
			if err == nil {
				err = p.mayReassign(req, part, a.Replicas)
			}
			switch real := p.cfg.IDs.Real(a.Replicas); {
			case err != nil:
				plan.refuse(t.Topic, a.Partition, err)
			case a.Replicas == nil || len(real) == 0: // a cancellation, or what the controller refuses
				a.Replicas = nilIfNil(a.Replicas, real)
				rest.Partitions = append(rest.Partitions, a)
			default:
				plan.open = append(plan.open, virtual...)
				a.Replicas = slices.Concat(virtual, real)
				changed.Partitions = append(changed.Partitions, a)
			}
		}
		if len(rest.Partitions) > 0 {
			plain.Topics = append(plain.Topics, rest)
		}
		if len(changed.Partitions) > 0 {
			mirrored.Topics = append(mirrored.Topics, changed)
		}
	}
	if !mine {
		return nil
	}
	slices.Sort(plan.open)
	plan.open = slices.Compact(plan.open)
	if len(plain.Topics) > 0 {
		plan.plain = &plain
	}
	if len(mirrored.Topics) > 0 {
		plan.mirrored = &mirrored
	}
	return plan
}

// nilIfNil keeps the difference between no list, which cancels, and an empty one.
func nilIfNil(asked, real []int32) []int32 {
	if asked == nil {
		return nil
	}
	return append([]int32{}, real...)
}

// mayReassign refuses what the controller would judge by replicas that the client does not
// see.
func (p *Proxy) mayReassign(req *kmsg.AlterPartitionAssignmentsRequest, part *metadata.Partition, asked []int32) error {
	if asked == nil {
		if pending := len(part.Adding)+len(part.Removing) > 0; pending && len(p.cfg.IDs.Real(part.Adding))+len(p.cfg.IDs.Real(part.Removing)) == 0 {
			return protocol.Errorf(kerr.NoReassignmentInProgress.Code, "%s", kerr.NoReassignmentInProgress.Description)
		}
		return nil
	}
	if req.Version < 1 || req.AllowReplicationFactorChange {
		return nil
	}
	now := p.cfg.IDs.Real(part.Replicas)
	now = slices.DeleteFunc(now, func(b int32) bool { return slices.Contains(part.Adding, b) })
	if wanted := p.cfg.IDs.Real(asked); len(wanted) != len(now) {
		return protocol.Errorf(kerr.InvalidReplicationFactor.Code, "The replication factor is changed from %d to %d", len(now), len(wanted))
	}
	return nil
}

func (r *reassignment) refuse(topic string, partition int32, err error) {
	a := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
	a.Partition = partition
	a.ErrorCode, a.ErrorMessage = protocol.CodeOf(err)
	r.answers[assignment{topic, partition}] = a
}

// alterPartitionAssignments lets clients move the real replicas of mirror partitions. What
// the caller may do is the broker's business, who gets the request from him.
func (c *conn) alterPartitionAssignments(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrAlterPartitionAssignmentsRequest())
	if err != nil {
		return exchange{}, err
	}
	if c.p.deps.Assignments == nil || c.p.deps.Leaders.none() {
		return r.forward(), nil
	}
	plan := c.p.planReassignment(req)
	if plan == nil {
		return r.forward(), nil
	}
	ex := relayed(r.header)
	var resp *kmsg.AlterPartitionAssignmentsResponse
	ex.converse = func(ctx context.Context, up *conversation) (err error) {
		resp, err = c.reassign(ctx, up, plan)
		return err
	}
	ex.answer = func(context.Context) (net.Buffers, error) { return responseFrame(resp, r.header) }
	return ex, nil
}

func (c *conn) reassign(ctx context.Context, up *conversation, plan *reassignment) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	have, err := rights.OnCluster(ctx, &caller{up: up})
	if code := (*kerr.Error)(nil); errors.As(err, &code) {
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		text := fmt.Sprintf("nothing was reassigned: %v", err)
		resp.ErrorCode, resp.ErrorMessage = code.Code, &text
		return resp, nil
	}
	if err != nil {
		return nil, err
	}
	if !have.Has(rights.Alter) {
		// No virtual broker is opened for who may not do this. The broker says so.
		return c.sendClosed(ctx, up, plan)
	}
	out := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	out.AllowReplicationFactorChange = plan.asked.AllowReplicationFactorChange
	if plan.plain != nil {
		resp, err := c.sendReassignment(ctx, up, plan.plain)
		if err != nil || resp.ErrorCode != errNone {
			return resp, err
		}
		out = resp
		plan.answered(resp)
	}
	if plan.mirrored != nil {
		resp, err := c.sendMirrored(ctx, up, plan)
		if err != nil {
			return nil, err
		}
		if resp.ErrorCode != errNone && plan.plain == nil && len(plan.answers) == 0 {
			return resp, nil
		}
		out.ThrottleMillis = max(out.ThrottleMillis, resp.ThrottleMillis)
		plan.answered(resp)
	}
	plan.merge(out)
	return out, nil
}

// sendClosed sends what there is to send in one request, with virtual replicas where they
// belong, but opens nothing.
func (c *conn) sendClosed(ctx context.Context, up *conversation, plan *reassignment) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	all := *plan.asked
	all.Topics = nil
	for _, part := range []*kmsg.AlterPartitionAssignmentsRequest{plan.plain, plan.mirrored} {
		if part != nil {
			all.Topics = append(all.Topics, part.Topics...)
		}
	}
	if len(all.Topics) == 0 {
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.ErrorCode = errClusterAuthorization
		return resp, nil
	}
	resp, err := c.sendReassignment(ctx, up, &all)
	if err != nil || resp.ErrorCode != errNone {
		return resp, err
	}
	plan.answered(resp) // he has been allowed to since
	plan.merge(resp)
	return resp, nil
}

// sendMirrored sends the part that names virtual brokers, while those accept assignments.
func (c *conn) sendMirrored(ctx context.Context, up *conversation, plan *reassignment) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	closeWindows, err := c.p.deps.Assignments.Open(ctx, plan.open)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.ErrorCode = kerr.BrokerNotAvailable.Code
		text := fmt.Sprintf("the virtual replicas of a mirror topic cannot be kept now, ask again: %v", err)
		resp.ErrorMessage = &text
		return resp, nil
	}
	defer closeWindows()
	c.log.Info("client reassigns mirror partitions", "topics", len(plan.mirrored.Topics), "virtual_brokers", plan.open)
	return c.sendReassignment(ctx, up, plan.mirrored)
}

func (c *conn) sendReassignment(ctx context.Context, up *conversation, req *kmsg.AlterPartitionAssignmentsRequest) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	resp, err := up.request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.AlterPartitionAssignmentsResponse), nil
}

// answered takes note of an answer. One for all of a request is one for each of the
// partitions it has no answer for.
func (r *reassignment) answered(resp *kmsg.AlterPartitionAssignmentsResponse) {
	for _, t := range resp.Topics {
		for _, a := range t.Partitions {
			r.answers[assignment{t.Topic, a.Partition}] = a
		}
	}
	if resp.ErrorCode == errNone {
		return
	}
	for _, t := range r.mirrored.Topics {
		for _, p := range t.Partitions {
			a := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			a.Partition, a.ErrorCode, a.ErrorMessage = p.Partition, resp.ErrorCode, resp.ErrorMessage
			r.answers[assignment{t.Topic, p.Partition}] = a
		}
	}
}

// merge puts the answers into a response in the order they were asked for.
func (r *reassignment) merge(out *kmsg.AlterPartitionAssignmentsResponse) {
	out.Topics = nil
	for _, t := range r.asked.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			if a, ok := r.answers[assignment{t.Topic, p.Partition}]; ok {
				rt.Partitions = append(rt.Partitions, a)
			}
		}
		out.Topics = append(out.Topics, rt)
	}
}

// rewriteListReassignments hides the virtual replicas of what is being moved, and what moves
// nothing else.
func rewriteListReassignments(p *Proxy, resp kmsg.Response) bool {
	r := resp.(*kmsg.ListPartitionReassignmentsResponse)
	changed := false
	for i := range r.Topics {
		t := &r.Topics[i]
		t.Partitions = slices.DeleteFunc(t.Partitions, func(part kmsg.ListPartitionReassignmentsResponseTopicPartition) bool {
			only := len(p.cfg.IDs.Real(part.AddingReplicas))+len(p.cfg.IDs.Real(part.RemovingReplicas)) == 0
			changed = changed || only
			return only
		})
		for j := range t.Partitions {
			part := &t.Partitions[j]
			for _, list := range []*[]int32{&part.Replicas, &part.AddingReplicas, &part.RemovingReplicas} {
				changed = p.hide(list) || changed
			}
		}
	}
	before := len(r.Topics)
	r.Topics = slices.DeleteFunc(r.Topics, func(t kmsg.ListPartitionReassignmentsResponseTopic) bool { return len(t.Partitions) == 0 })
	return changed || len(r.Topics) != before
}
