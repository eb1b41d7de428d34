package replica

import (
	"encoding/binary"
	"net"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// FetchReply is the answer to a follower's Fetch. It writes itself, so that the records
// go from the source's bytes to the socket without being copied. Whoever gets one releases
// it once it was written, or will not be.
type FetchReply struct {
	ErrorCode int16
	Topics    []TopicReply

	sent func()
}

// Release gives up the records, and lets reading go on that waited for the reply to be
// written. Calling it again does nothing.
func (r *FetchReply) Release() {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			r.Topics[i].Partitions[j].drop()
		}
	}
	if r.sent != nil {
		r.sent()
		r.sent = nil
	}
}

// TopicReply is one topic of a FetchReply. Name is used below v13, ID from there on.
type TopicReply struct {
	Name       string
	ID         ids.UUID
	Partitions []PartitionReply
}

// PartitionReply is one partition of a FetchReply.
type PartitionReply struct {
	Partition      int32
	ErrorCode      int16
	HighWatermark  int64
	LogStart       int64
	Diverging      bool
	DivergingEpoch int32
	DivergingEnd   int64
	Records        [][]byte
	Size           int // of Records

	hold []*pool.Buffer // what Records lie in
}

// drop gives up the records.
func (r *PartitionReply) drop() {
	for _, b := range r.hold {
		b.Release()
	}
	r.Records, r.hold, r.Size = nil, nil, 0
}

// AppendFrame returns the whole response frame, size and header included, for Fetch v12
// to v18: the versions that brokers of 4.3 and later send to a leader. Sessions are not
// used (session id 0 makes the follower send full requests).
func (r *FetchReply) AppendFrame(correlationID int32, version int16) net.Buffers {
	var out net.Buffers
	var total int
	b := make([]byte, 4, 256)
	flush := func() {
		if len(b) > 0 {
			out = append(out, b)
			total += len(b)
			b = make([]byte, 0, 64)
		}
	}
	b = binary.BigEndian.AppendUint32(b, uint32(correlationID))
	b = append(b, 0) // header tags
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode))
	b = binary.BigEndian.AppendUint32(b, 0) // session id
	b = binary.AppendUvarint(b, uint64(len(r.Topics)+1))
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			b = append(b, t.ID[:]...)
		} else {
			b = binary.AppendUvarint(b, uint64(len(t.Name)+1))
			b = append(b, t.Name...)
		}
		b = binary.AppendUvarint(b, uint64(len(t.Partitions)+1))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			b = binary.BigEndian.AppendUint32(b, uint32(p.Partition))
			b = binary.BigEndian.AppendUint16(b, uint16(p.ErrorCode))
			b = binary.BigEndian.AppendUint64(b, uint64(p.HighWatermark))
			b = binary.BigEndian.AppendUint64(b, ^uint64(0)) // last stable offset: followers keep their own
			b = binary.BigEndian.AppendUint64(b, uint64(p.LogStart))
			b = append(b, 0)                                 // aborted transactions: null
			b = binary.BigEndian.AppendUint32(b, ^uint32(0)) // preferred read replica: none
			b = binary.AppendUvarint(b, uint64(p.Size+1))
			if p.Size > 0 {
				flush()
				out = append(out, p.Records...)
				total += p.Size
			}
			if p.Diverging {
				b = append(b, 1, 0, 13) // one tag, number 0, 13 bytes
				b = binary.BigEndian.AppendUint32(b, uint32(p.DivergingEpoch))
				b = binary.BigEndian.AppendUint64(b, uint64(p.DivergingEnd))
				b = append(b, 0)
			} else {
				b = append(b, 0)
			}
		}
		b = append(b, 0)
	}
	b = append(b, 0)
	flush()
	binary.BigEndian.PutUint32(out[0], uint32(total-4))
	return out
}
