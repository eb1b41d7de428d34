package readonly

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteTxnMarkersSplit is a WriteTxnMarkers request of which some partitions are refused.
type WriteTxnMarkersSplit struct {
	Rest    *kmsg.WriteTxnMarkersRequest // nil if nothing remains
	Refused []Refused

	version int16
	order   []kmsg.WriteTxnMarkersResponseMarker // refused partitions have an error
}

// WriteTxnMarkers splits a client's request; nil if nothing of it is refused. A tool that ends
// a transaction which hangs (kafka-transactions.sh --abort) writes its marker to the leader
// itself. In a mirror topic markers are the source's, or the mirror's when it is stopped. The
// broker would say that it does not lead, which tools take for a reason to ask for ever.
func (r *Rules) WriteTxnMarkers(req *kmsg.WriteTxnMarkersRequest) *WriteTxnMarkersSplit {
	s := &WriteTxnMarkersSplit{version: req.Version}
	rest := *req
	rest.Markers = nil
	for _, m := range req.Markers {
		keptMarker := m
		keptMarker.Topics = nil
		om := kmsg.NewWriteTxnMarkersResponseMarker()
		om.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			kept := t
			kept.Partitions = nil
			o := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			o.Topic = t.Topic
			for _, p := range t.Partitions {
				op := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				op.Partition = p
				if f, no := r.check(Topic{Name: t.Topic}, p); no {
					op.ErrorCode = r.code(f, notLeaderOrFollower)
					s.Refused = append(s.Refused, Refused{Topic: t.Topic, Partition: p, Mirror: f.mirror})
				} else {
					kept.Partitions = append(kept.Partitions, p)
				}
				o.Partitions = append(o.Partitions, op)
			}
			om.Topics = append(om.Topics, o)
			if len(kept.Partitions) > 0 {
				keptMarker.Topics = append(keptMarker.Topics, kept)
			}
		}
		s.order = append(s.order, om)
		if len(keptMarker.Topics) > 0 {
			rest.Markers = append(rest.Markers, keptMarker)
		}
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Markers) > 0 {
		s.Rest = &rest
	}
	return s
}

// marked identifies a partition of a marker.
type marked struct {
	producerID int64
	topic      string
	partition  int32
}

// Merge puts the refusals into the broker's response to Rest, or into a new response if
// resp is nil.
func (s *WriteTxnMarkersSplit) Merge(resp *kmsg.WriteTxnMarkersResponse) *kmsg.WriteTxnMarkersResponse {
	out := kmsg.NewPtrWriteTxnMarkersResponse()
	answered := make(queues[marked, kmsg.WriteTxnMarkersResponseMarkerTopicPartition])
	if resp != nil {
		*out = *resp
		for _, m := range resp.Markers {
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					answered.put(marked{m.ProducerID, t.Topic, p.Partition}, p)
				}
			}
		}
	}
	out.Version = s.version
	out.Markers = nil
	for _, om := range s.order {
		m := om
		m.Topics = nil
		for _, o := range om.Topics {
			t := o
			t.Partitions = nil
			for _, p := range o.Partitions {
				if p.ErrorCode != 0 {
					t.Partitions = append(t.Partitions, p)
				} else if a, ok := answered.get(marked{om.ProducerID, o.Topic, p.Partition}); ok {
					t.Partitions = append(t.Partitions, a)
				}
			}
			m.Topics = append(m.Topics, t)
		}
		out.Markers = append(out.Markers, m)
	}
	return out
}
