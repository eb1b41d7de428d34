package consumers

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// listOffset gives the latest offset of a partition as one address tells it.
func listOffset(addr, topic string, partition int32, isolation int8) (int64, error) {
	w, err := connect(addr)
	if err != nil {
		return -1, err
	}
	defer w.Close()
	resp, err := w.request(offsetsRequest(7, topic, partition, isolation, -1))
	if err != nil {
		return -1, err
	}
	p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

func offsetsRequest(version int16, topic string, partition int32, isolation int8, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = version, -1, isolation, 5000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// testOffsets compares each version with each kind of timestamp.
func (e *env) testOffsets(t *testing.T) {
	source := e.source(t)
	for partition := range int32(2) {
		w := source.wire
		times := []int64{-1, -2, -3, -4, -5, -6, -7, 0, 1 << 50}
		req := addFetch(fetchRequest(maxFetch, 0, -1, 0), source, plain, partition, 7)
		all, err := batches(fetchOne(t, source, req).RecordBatches)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range all {
			if harness.Full() || i%4 == 0 || i > len(all)-3 {
				times = append(times, b.FirstTimestamp, b.MaxTimestamp+1)
			}
		}
		versions := []int16{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
		if !harness.Full() {
			versions = []int16{1, 2, 4, 7, 9, 11} // what comes with 5, 8 and 10 comes with the next one too
		}
		for _, s := range append(e.proxies(t), e.virtuals(t)...) {
			here := s.wire
			for _, version := range versions {
				for isolation := range int8(2) {
					for _, ts := range times {
						if version < 2 && isolation > 0 {
							continue
						}
						ask := func(w *wire) kmsg.ListOffsetsResponseTopicPartition {
							resp := w.ask(t, offsetsRequest(version, plain, partition, isolation, ts)).(*kmsg.ListOffsetsResponse)
							return resp.Topics[0].Partitions[0]
						}
						e.same(t, func() string {
							want, got := ask(w), ask(here)
							// Epochs are each cluster's own; there is one, or there is none.
							epoch := (want.LeaderEpoch < 0) == (got.LeaderEpoch < 0)
							if epoch {
								want.LeaderEpoch, got.LeaderEpoch = 0, 0
							}
							if fmt.Sprint(want) == fmt.Sprint(got) {
								return ""
							}
							return fmt.Sprintf("%s: v%d, isolation level %d, partition %d at time %d:\n%+v\nthe source:\n%+v", s.name, version, isolation, partition, ts, got, want)
						})
					}
				}
			}
		}
	}
}

func epochRequest(version int16, topic string, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = version, -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// testEpochs asks every sidecar, the one that leads and the one that does not, as the source is
// asked: epochs differ by what the mirror's first one is.
func (e *env) testEpochs(t *testing.T) {
	first := func(s side, partition int32) int32 {
		req := addFetch(fetchRequest(maxFetch, 0, -1, 0), s, plain, partition, 7)
		all, err := batches(fetchOne(t, s, req).RecordBatches)
		if err != nil || len(all) == 0 {
			t.Fatalf("%s: no records: %v", s.name, err)
		}
		return all[0].PartitionLeaderEpoch
	}
	current := func(s side, partition int32) int32 {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(plain)
		req.Topics = append(req.Topics, rt)
		resp := s.ask(t, req).(*kmsg.MetadataResponse)
		for _, p := range resp.Topics[0].Partitions {
			if p.Partition == partition {
				return p.LeaderEpoch
			}
		}
		t.Fatalf("%s: no partition %d", s.name, partition)
		return -1
	}
	for partition := range int32(2) {
		source := e.source(t)
		w := source.wire
		srcEpoch, srcNow := first(source, partition), current(source, partition)
		if srcEpoch != srcNow {
			t.Fatalf("the source has changed its leader: epochs %d, %d", srcEpoch, srcNow)
		}
		for _, s := range append(e.proxies(t), e.virtuals(t)...) {
			here := s.wire
			proxy := e.proxies(t)[0]
			for version := int16(2); version <= 4; version++ {
				for _, tc := range []struct{ current, epoch int32 }{
					{-1, 0}, {0, 0}, {0, 1}, {-1, 5}, {1, 0}, {-1, -1},
				} {
					ask := func(w *wire, now int32) string {
						cur, epoch := tc.current, tc.epoch
						if cur >= 0 {
							cur += now
						}
						if epoch >= 0 {
							epoch += now
						}
						p := w.ask(t, epochRequest(version, plain, partition, cur, epoch)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
						found := "none"
						if p.LeaderEpoch >= 0 {
							found = fmt.Sprint(p.LeaderEpoch - now)
						}
						return fmt.Sprintf("error %d, epoch %s, end %d", p.ErrorCode, found, p.EndOffset)
					}
					e.same(t, func() string {
						want, got := ask(w, srcNow), ask(here, current(proxy, partition))
						if want == got {
							return ""
						}
						return fmt.Sprintf("%s: v%d, partition %d, current epoch %+d, epoch %+d: %s; the source: %s", s.name, version, partition, tc.current, tc.epoch, got, want)
					})
				}
			}
			e.same(t, func() string {
				now := current(proxy, partition)
				p := here.ask(t, epochRequest(4, plain, partition, now-1, 0)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
				if now == 0 || p.ErrorCode == kerr.FencedLeaderEpoch.Code {
					return ""
				}
				return fmt.Sprintf("%s: an old epoch gets error %d", s.name, p.ErrorCode)
			})
		}
	}
}

// testProducers compares DescribeProducers.
func (e *env) testProducers(t *testing.T) {
	source := e.source(t)
	for partition := range int32(2) {
		ask := func(s side, known producers) map[string]string {
			req := kmsg.NewPtrDescribeProducersRequest()
			rt := kmsg.NewDescribeProducersRequestTopic()
			rt.Topic, rt.Partitions = plain, []int32{partition}
			req.Topics = append(req.Topics, rt)
			got := s.ask(t, req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 {
				t.Errorf("%s: error %d", s.name, got.ErrorCode)
			}
			out := map[string]string{}
			for _, p := range got.ActiveProducers {
				if _, ok := known[p.ProducerID]; !ok {
					continue // its records were deleted before the mirror began
				}
				out[known.name(p.ProducerID)] = fmt.Sprintf("epoch %d, sequence %d, at %d, coordinator epoch %d, transaction at %d",
					p.ProducerEpoch, p.LastSequence, p.LastTimestamp, p.CoordinatorEpoch, p.CurrentTxnStartOffset)
			}
			return out
		}
		from := int64(7)
		if partition == 1 {
			from = 0
		}
		want := ask(source, learn(t, source, plain, partition, from))
		if len(want) == 0 {
			t.Fatal("the source knows no producers")
		}
		known := learn(t, e.proxies(t)[0], plain, partition, from)
		for _, s := range append(e.proxies(t), e.virtuals(t)...) {
			if got := ask(s, known); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, partition %d:\n%v\nthe source:\n%v", s.name, partition, got, want)
			}
		}
	}
}

// testDescribed pages through DescribeTopicPartitions, one partition at a time.
func (e *env) testDescribed(t *testing.T) {
	pages := func(s side) []string {
		var out []string
		var cursor *kmsg.DescribeTopicPartitionsRequestCursor
		for range 20 {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			for _, topic := range []string{growing, plain} {
				rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
				rt.Topic = topic
				req.Topics = append(req.Topics, rt)
			}
			req.ResponsePartitionLimit, req.Cursor = 1, cursor
			resp := s.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse)
			for _, rt := range resp.Topics {
				for _, p := range rt.Partitions {
					out = append(out, fmt.Sprintf("%s-%d error %d %d", *rt.Topic, p.Partition, rt.ErrorCode, p.ErrorCode))
					if s.name == "source" {
						continue
					}
					for _, id := range append(append([]int32{p.LeaderID}, p.Replicas...), p.ISR...) {
						if id < 1 || id > brokers {
							t.Errorf("%s: %s-%d has broker %d: %+v", s.name, *rt.Topic, p.Partition, id, p)
						}
					}
					if len(p.Replicas) != brokers || len(p.ISR) != brokers || len(p.OfflineReplicas) != 0 {
						t.Errorf("%s: %+v", s.name, p)
					}
				}
			}
			if resp.NextCursor == nil {
				return out
			}
			next := kmsg.NewDescribeTopicPartitionsRequestCursor()
			next.Topic, next.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
			cursor = &next
		}
		t.Fatalf("%s: no end: %v", s.name, out)
		return nil
	}
	want := pages(e.source(t))
	if len(want) != 3 {
		t.Fatalf("the source has %v", want)
	}
	for _, s := range e.proxies(t) {
		if got := pages(s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, the source %v", s.name, got, want)
		}
	}
}
