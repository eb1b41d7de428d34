package replica

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// The frame is written by hand; kmsg, which is generated from Kafka's own schemas, must
// read it back and write the same bytes.
func TestFetchReplyIsWhatKmsgWrites(t *testing.T) {
	reply := FetchReply{Topics: []TopicReply{
		{Name: "a", ID: ids.UUID{1, 2}, Partitions: []PartitionReply{
			{Partition: 0, HighWatermark: 12, LogStart: 3, Records: [][]byte{[]byte("first"), []byte("second")}, Size: 11},
			{Partition: 1, HighWatermark: 7, LogStart: 0, Diverging: true, DivergingEpoch: 4, DivergingEnd: 70},
		}},
		{Name: "bb", ID: ids.UUID{3}, Partitions: []PartitionReply{{Partition: 9, ErrorCode: 75, HighWatermark: -1, LogStart: -1}}},
	}}
	for version := int16(12); version <= 18; version++ {
		var frame []byte
		for _, b := range reply.AppendFrame(77, version) {
			frame = append(frame, b...)
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(version)
		if err := resp.ReadFrom(frame[9:]); err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		if got := resp.AppendTo(nil); !bytes.Equal(got, frame[9:]) {
			t.Fatalf("v%d:\n%x\nkmsg writes\n%x", version, frame[9:], got)
		}
		p := resp.Topics[0].Partitions
		if string(p[0].RecordBatches) != "firstsecond" || p[0].HighWatermark != 12 || p[1].DivergingEpoch.EndOffset != 70 ||
			resp.Topics[1].Partitions[0].ErrorCode != 75 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		if size := int(frame[2])<<8 | int(frame[3]); size != len(frame)-4 || frame[7] != 77 {
			t.Fatalf("v%d: header %x of %d bytes", version, frame[:9], len(frame))
		}
	}
}
