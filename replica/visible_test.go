package replica

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestR5RecordNotRead: a replica whose last visible record could not be read counts as not
// asked. One that has deleted it shows none.
func TestR5RecordNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		refuses       *kerr.Error // the read of the record
		start         int64       // of the log, -1: not told
		known, record bool
	}{
		"read":                                 {known: true, record: true},
		"refused":                              {refuses: kerr.NotLeaderForPartition},
		"refused, where it begins is not told": {refuses: kerr.NotLeaderForPartition, start: -1},
		"out of range, and not deleted":        {refuses: kerr.OffsetOutOfRange, start: 99},
		"deleted":                              {refuses: kerr.OffsetOutOfRange, start: 100, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWishRig(t)
			broker, err := scripted.Listen("127.0.0.1:0", nil, func(req kmsg.Request) kmsg.Response {
				switch req := req.(type) {
				case *kmsg.FetchRequest:
					resp := req.ResponseKind().(*kmsg.FetchResponse)
					rt, rp := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
					rt.Topic, rt.TopicID, rp.HighWatermark = req.Topics[0].Topic, req.Topics[0].TopicID, 100
					if req.Topics[0].Partitions[0].FetchOffset < 100 {
						rp.RecordBatches = batchtest.Plain(0, 100)
						if c.refuses != nil {
							rp.ErrorCode, rp.RecordBatches = c.refuses.Code, nil
						}
					}
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return resp
				case *kmsg.ListOffsetsRequest:
					resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
					rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
					rt.Topic, rp.Offset = req.Topics[0].Topic, c.start
					if c.start < 0 {
						rp.ErrorCode = kerr.NotLeaderForPartition.Code
					}
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return resp
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(broker.Close)
			host, port, _ := net.SplitHostPort(broker.Addr())
			n, _ := strconv.Atoi(port)
			r.m.image.Set(nil, []metadata.Broker{{ID: 2, Epoch: 12, Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: host, Port: uint16(n)}}}}, nil)
			r.m.calls = NewBrokers(r.m.image, "INTERNAL", nil)
			t.Cleanup(r.m.calls.Close)
			known, records := r.p.highWatermarks(t.Context(), leading.AskHighWatermarks{Epoch: wishEpoch, Replicas: map[int32]int64{2: 100}, Records: []int32{2}})
			if hw, ok := known[2]; ok != c.known || ok && hw != 100 {
				t.Errorf("R5 known is %v", known)
			}
			if e, ok := records[2]; ok != c.record || ok && e.Start != 99 {
				t.Errorf("R5 records are %v", records)
			}
		})
	}
}
