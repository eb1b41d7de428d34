package readonly

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestWriteTxnMarkers(t *testing.T) {
	marker := func(id int64, topics ...string) kmsg.WriteTxnMarkersRequestMarker {
		m := kmsg.WriteTxnMarkersRequestMarker{ProducerID: id, ProducerEpoch: 3, CoordinatorEpoch: 4, TransactionVersion: 2}
		for _, name := range topics {
			m.Topics = append(m.Topics, kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: name, Partitions: []int32{2, 1}})
		}
		return m
	}
	for version := int16(0); version <= 2; version++ {
		if s := rules().WriteTxnMarkers(&kmsg.WriteTxnMarkersRequest{Version: version, Markers: []kmsg.WriteTxnMarkersRequestMarker{marker(1, "o")}}); s != nil {
			t.Errorf("v%d: refused %+v", version, s.Refused)
		}
		req := &kmsg.WriteTxnMarkersRequest{Version: version, Markers: []kmsg.WriteTxnMarkersRequestMarker{marker(1, "n"), marker(2, "o", "m"), marker(3, "o")}}
		s := rules().WriteTxnMarkers(req)
		if s == nil || len(s.Rest.Markers) != 2 {
			t.Fatalf("v%d: %+v", version, s)
		}
		if m := s.Rest.Markers[0]; m.ProducerEpoch != 3 || m.CoordinatorEpoch != 4 || m.TransactionVersion != 2 || len(m.Topics) != 2 || len(m.Topics[1].Partitions) != 1 {
			t.Errorf("v%d: rest %+v", version, m)
		}
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		for _, m := range s.Rest.Markers { // in another order
			rm := kmsg.NewWriteTxnMarkersResponseMarker()
			rm.ProducerID = m.ProducerID
			for _, mt := range m.Topics {
				rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
				rt.Topic = mt.Topic
				for _, p := range mt.Partitions {
					rt.Partitions = slices.Insert(rt.Partitions, 0, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: int16(m.ProducerID)})
				}
				rm.Topics = slices.Insert(rm.Topics, 0, rt)
			}
			resp.Markers = slices.Insert(resp.Markers, 0, rm)
		}
		want := "1: n-2 44 n-1 44, 2: o-2 2 o-1 2 m-2 2 m-1 44, 3: o-2 3 o-1 3"
		if got := markersText(s.Merge(resp)); got != want {
			t.Errorf("v%d: %q, want %q", version, got, want)
		}
		req.Markers = req.Markers[:1]
		if s = rules().WriteTxnMarkers(req); s.Rest != nil || markersText(s.Merge(nil)) != "1: n-2 44 n-1 44" {
			t.Errorf("v%d: rest %+v", version, s.Rest)
		}
	}
	r := rules()
	r.Pending = true
	s := r.WriteTxnMarkers(&kmsg.WriteTxnMarkersRequest{Markers: []kmsg.WriteTxnMarkersRequestMarker{marker(1, "o")}})
	if got := markersText(s.Merge(nil)); got != "1: o-2 6 o-1 6" {
		t.Errorf("while the metadata is read: %q", got)
	}
}

func markersText(r *kmsg.WriteTxnMarkersResponse) string {
	var markers []string
	for _, m := range r.Markers {
		text := fmt.Sprintf("%d:", m.ProducerID)
		for _, rt := range m.Topics {
			for _, p := range rt.Partitions {
				text += fmt.Sprintf(" %s-%d %d", rt.Topic, p.Partition, p.ErrorCode)
			}
		}
		markers = append(markers, text)
	}
	return strings.Join(markers, ", ")
}
