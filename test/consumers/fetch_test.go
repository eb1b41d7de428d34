package consumers

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of Fetch that brokers since 4.0 take.
const minFetch, maxFetch int16 = 4, 18

func fetchRequest(version int16, session, epoch int32, isolation int8) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.IsolationLevel = version, -1, isolation
	req.SessionID, req.SessionEpoch = session, epoch
	req.MaxBytes = 10 << 20
	return req
}

func addFetch(req *kmsg.FetchRequest, s side, topic string, partition int32, offset int64) *kmsg.FetchRequest {
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, s.ids[topic]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 10<<20
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// answer is what of a partition's answer can be equal at a source and at a mirror: not the producer
// ids, which are marked with the cluster they come from, nor the leader epochs, which are each
// cluster's own.
type answer struct {
	Code           int16
	HW, LSO, Start int64
	Preferred      int32
	Aborted        []aborted
	Batches        []batch
}

type aborted struct {
	Producer string
	First    int64
}

type batch struct {
	First                int64
	Length               int32
	Magic                int8
	Attributes           int16
	LastDelta            int32
	FirstTime, MaxTime   int64
	Producer             string
	ProducerEpoch        int16
	Sequence, NumRecords int32
	Records              string
}

// producers names producer ids by the offset at which each is seen first in a whole partition.
type producers map[int64]string

func (p producers) name(id int64) string {
	if id < 0 {
		return ""
	}
	if name, ok := p[id]; ok {
		return name
	}
	return fmt.Sprintf("unknown (%d)", id)
}

func batches(b []byte) ([]kmsg.RecordBatch, error) {
	var out []kmsg.RecordBatch
	for len(b) > 0 {
		if len(b) < 12 {
			return out, fmt.Errorf("%d bytes are left", len(b))
		}
		n := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if n > len(b) {
			return out, fmt.Errorf("a batch of %d bytes ends after %d", n, len(b))
		}
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(b[:n]); err != nil {
			return out, err
		}
		out = append(out, rb)
		b = b[n:]
	}
	return out, nil
}

func (p producers) answer(t *testing.T, got *kmsg.FetchResponseTopicPartition) answer {
	t.Helper()
	a := answer{
		Code: got.ErrorCode, HW: got.HighWatermark, LSO: got.LastStableOffset, Start: got.LogStartOffset,
		Preferred: got.PreferredReadReplica,
	}
	for _, x := range got.AbortedTransactions {
		a.Aborted = append(a.Aborted, aborted{p.name(x.ProducerID), x.FirstOffset})
	}
	all, err := batches(got.RecordBatches)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		a.Batches = append(a.Batches, batch{
			b.FirstOffset, b.Length, b.Magic, b.Attributes, b.LastOffsetDelta, b.FirstTimestamp, b.MaxTimestamp,
			p.name(b.ProducerID), b.ProducerEpoch, b.FirstSequence, b.NumRecords, string(b.Records),
		})
	}
	return a
}

// learn reads a partition from its start.
func learn(t *testing.T, s side, topic string, partition int32, from int64) producers {
	t.Helper()
	p := producers{}
	req := addFetch(fetchRequest(maxFetch, 0, -1, 0), s, topic, partition, from)
	got := fetchOne(t, s, req)
	all, err := batches(got.RecordBatches)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d batches, error %d: %v", s.name, len(all), got.ErrorCode, err)
	}
	for _, b := range all {
		if _, ok := p[b.ProducerID]; !ok && b.ProducerID >= 0 {
			p[b.ProducerID] = fmt.Sprintf("who wrote at %d", b.FirstOffset)
		}
	}
	return p
}

func fetchOne(t *testing.T, s side, req *kmsg.FetchRequest) *kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := s.ask(t, req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("%s: Fetch v%d: error %d, %d topics", s.name, req.Version, resp.ErrorCode, len(resp.Topics))
	}
	return &resp.Topics[0].Partitions[0]
}

// testFetch compares each version, at each kind of offset.
func (e *env) testFetch(t *testing.T) {
	source := e.source(t)
	for partition := range int32(2) {
		starts := map[int32]int64{0: 7, 1: 0}
		start := starts[partition]
		known := learn(t, source, plain, partition, start)
		end := fetchOne(t, source, addFetch(fetchRequest(maxFetch, 0, -1, 0), source, plain, partition, start))
		hw, lso := end.HighWatermark, end.LastStableOffset
		if partition == 0 && lso >= hw {
			t.Fatalf("no transaction is open: last stable offset %d, high watermark %d", lso, hw)
		}
		for _, s := range e.proxies(t) {
			here := learn(t, s, plain, partition, start)
			if len(here) != len(known) {
				t.Fatalf("%s: %d producers, at the source %d", s.name, len(here), len(known))
			}
			for version := minFetch; version <= maxFetch; version++ {
				for isolation := range int8(2) {
					for _, offset := range []int64{start, start - 1, start + 8, lso - 1, lso, hw - 1, hw, hw + 1, 1 << 40} {
						ask := func(s side, p producers) answer {
							return p.answer(t, fetchOne(t, s, addFetch(fetchRequest(version, 0, -1, isolation), s, plain, partition, offset)))
						}
						e.same(t, func() string {
							want, got := ask(source, known), ask(s, here)
							if reflect.DeepEqual(want, got) {
								return ""
							}
							return fmt.Sprintf("%s: v%d, isolation level %d, partition %d at %d:\n%+v\nthe source:\n%+v", s.name, version, isolation, partition, offset, got, want)
						})
					}
				}
			}
		}
	}
}
