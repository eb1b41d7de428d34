package readonly

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of elections, as in ElectLeaders.
const uncleanElection int8 = 1

// ElectLeadersSplit is an ElectLeaders request of which some partitions are refused.
type ElectLeadersSplit struct {
	Rest    *kmsg.ElectLeadersRequest // nil if nothing remains
	Refused []Refused

	version int16
	code    ErrorCode                        // of all of it
	order   []kmsg.ElectLeadersResponseTopic // refused partitions have an error; nil: the broker's
}

// ElectLeaders splits a request; nil if nothing of it is refused. An unclean election makes
// a replica lead that lacks records, which a mirror topic has unclean.leader.election.enable
// locked against: what would be lost there is for the mirror to say, and to ask consent for.
// Preferred leaders may be elected, as the controller does by itself.
//
// The topic of the sidecars' own state has no mirror to copy it again from. Whoever names it gives up its
// last broker, which nobody else could, and has no other way: a tool that is given the brokers'
// own addresses still asks any broker that is listed, a virtual one too.
//
// A request for all partitions means those without a leader, which leaderless returns: it
// becomes one for those of them that are not refused, and answers, as a broker does, only
// for those. It never stays one for all, not even if nothing is refused: the controller would
// elect what has lost its leader since. While leaderless does not know them, it is to be asked
// again.
func (r *Rules) ElectLeaders(req *kmsg.ElectLeadersRequest, leaderless func() (topics []kmsg.ElectLeadersRequestTopic, known bool)) *ElectLeadersSplit {
	if req.Version < 1 || req.ElectionType != uncleanElection {
		return nil
	}
	s := &ElectLeadersSplit{version: req.Version}
	rest := *req
	rest.Topics = []kmsg.ElectLeadersRequestTopic{} // null would be all
	asked, all := req.Topics, req.Topics == nil
	if all {
		var known bool
		if asked, known = leaderless(); !known {
			s.code = notController
			return s
		}
	}
	for _, t := range asked {
		kept := t
		kept.Partitions = nil
		o := kmsg.NewElectLeadersResponseTopic()
		o.Topic = t.Topic
		named := !all && t.Topic == r.StateTopic
		for _, p := range t.Partitions {
			op := kmsg.NewElectLeadersResponseTopicPartition()
			op.Partition = p
			if f, no := r.check(Topic{Name: t.Topic}, p); no && !named {
				op.ErrorCode, op.ErrorMessage = r.code(f, notController), f.electMessage()
				s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: p, Mirror: f.mirror})
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
	if len(s.Refused) == 0 && !all {
		return nil
	}
	if all {
		s.order = nil
	}
	if all || len(rest.Topics) > 0 {
		s.Rest = &rest // for all, even if none is left: whether the caller may is the broker's business
	}
	return s
}

func (f refusal) electMessage() *string {
	return f.because("an unclean election would lose records of a mirror topic without its mirror's knowledge; where replicas are missing, kafka-cluster-mirrors --describe --failed says which, and --recover --allow-truncate gives them up")
}

// Merge puts the refusals into the broker's response to Rest, or into a new response if
// resp is nil.
func (s *ElectLeadersSplit) Merge(resp *kmsg.ElectLeadersResponse) *kmsg.ElectLeadersResponse {
	out := kmsg.NewPtrElectLeadersResponse()
	answered := make(queues[part, kmsg.ElectLeadersResponseTopicPartition])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answered.put(part{Topic{Name: t.Topic}, p.Partition}, p)
			}
		}
	}
	out.Version = s.version
	if s.code != 0 {
		out.ErrorCode = int16(s.code)
	}
	if s.order == nil {
		return out
	}
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
		if len(t.Partitions) > 0 {
			out.Topics = append(out.Topics, t)
		}
	}
	return out
}
