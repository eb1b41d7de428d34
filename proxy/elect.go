package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// electLeaders keeps unclean elections away from mirror partitions.
func (c *conn) electLeaders(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrElectLeadersRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.ElectLeaders(req, c.p.leaderless)
	if s != nil && req.Topics != nil { // of a request for all, what is refused is not in the answer
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.ElectLeaders(req, c.p.leaderless)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}

// leaderless returns the partitions that nobody leads, if the view is up to date: one that was
// saved knows of virtual replicas only.
func (p *Proxy) leaderless() (topics []kmsg.ElectLeadersRequestTopic, known bool) {
	if !p.caughtUp() {
		return nil, false
	}
	var out []kmsg.ElectLeadersRequestTopic
	at := make(map[ids.UUID]int)
	for _, part := range p.deps.View.AllPartitions() {
		if part.Leader >= 0 {
			continue
		}
		i, ok := at[part.TopicID]
		if !ok {
			i = len(out)
			at[part.TopicID] = i
			t := kmsg.NewElectLeadersRequestTopic()
			t.Topic = part.Topic
			out = append(out, t)
		}
		out[i].Partitions = append(out[i].Partitions, part.Partition)
	}
	return out, true
}

// clientTxnMarkers refuses markers that a client writes into mirror partitions. Those of
// transaction coordinators go to the virtual listener.
func (c *conn) clientTxnMarkers(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrWriteTxnMarkersRequest())
	if err != nil {
		return exchange{}, err
	}
	rules := c.p.readRules()
	s := rules.WriteTxnMarkers(req)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.WriteTxnMarkers(req)
		}
	}
	if s == nil {
		return r.forward(), nil
	}
	return c.split(r, s.Refused, orNil(s.Rest), merger(s.Merge)), nil
}
