package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func TestFetchesWhatTheLogHolds(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "a", "b"))
	spy := spyOn(c)
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.Fetchers = 2 })
	type tp struct {
		topic string
		p     int32
	}
	ends, sinks := map[tp]int64{}, map[tp]*sink{}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, codec := range codecs {
		cl := newClient(t, c.ListenAddrs(), kgo.ProducerBatchCompression(codec))
		for _, topic := range []string{"a", "b"} {
			for p := range int32(4) {
				k := tp{topic, p}
				ends[k] = produce(t, cl, topic, p, 5)
				if sinks[k] == nil { // added while there is data and more comes
					sinks[k] = newSink()
					f.Add(Partition{Topic: topic, Partition: p, LastFetchedEpoch: -1, Sink: sinks[k]})
				}
			}
		}
	}
	cl := newClient(t, c.ListenAddrs())
	for k, s := range sinks {
		s.waitNext(t, ends[k])
	}
	_, all := spy.requests()
	var total int64
	for k, s := range sinks {
		want := rawLog(t, cl, k.topic, k.p, ends[k])
		if !bytes.Equal(s.bytes(), want) {
			t.Errorf("%v: not the bytes of the source's log", k)
		}
		total += int64(len(want))
		s.wait(t, "the high watermark", func() bool { return s.last.HighWatermark == ends[k] && s.last.LogStart == 0 })
		if h, ok := f.Health(k.topic, k.p); !ok || h.Err != nil || h.Leader != c.LeaderFor(k.topic, k.p) {
			t.Errorf("%v: health %+v, %v", k, h, ok)
		}
	}
	if s := f.Stats(); s.Bytes != total || s.Records != 200 || s.Batches != 200 || s.Corrupt != 0 {
		t.Errorf("stats %+v, want %d bytes, 200 records in 200 batches", s, total)
	}
	for _, a := range all {
		if a.replica != -1 || a.isolation != 0 || a.epoch < 0 || a.id == [16]byte{} {
			t.Fatalf("request %+v", a)
		}
		if (a.offset == 0) != (a.lastEpoch == -1) {
			t.Fatalf("LastFetchedEpoch is missing or made up: %+v", a)
		}
	}
}

func TestTagsAndStartsInsideABatch(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	tagger := batch.NewTagger("source", "own")
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.Tagger = tagger })
	cl := newClient(t, c.ListenAddrs())
	var rs []*kgo.Record
	for range 10 {
		rs = append(rs, &kgo.Record{Topic: "a", Value: []byte("x")})
	}
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s := newSink()
	f.Add(Partition{Topic: "a", Offset: 5, LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, 10)
	first := s.got[0]
	if first.BaseOffset() > 5 || first.LastOffset() < 5 {
		t.Errorf("first batch %d to %d does not contain 5", first.BaseOffset(), first.LastOffset())
	}
	if id := first.ProducerID(); batch.LocalRange(id) || id < 0 {
		t.Errorf("producer id %x is not tagged", id)
	}
	if err := first.Verify(); err != nil {
		t.Error(err)
	}
}

func TestLeaderMoves(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "a"))
	f := newFetcher(t, c.ListenAddrs())
	cl := newClient(t, c.ListenAddrs())
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	end := produce(t, cl, "a", 0, 3)
	s.waitNext(t, end)
	for i := range int32(6) {
		if err := c.MoveTopicPartition("a", 0, i%3); err != nil {
			t.Fatal(err)
		}
		end = produce(t, cl, "a", 0, 2)
		s.waitNext(t, end)
	}
	if want := rawLog(t, cl, "a", 0, end); !bytes.Equal(s.bytes(), want) {
		t.Error("not the bytes of the source's log")
	}
	if len(s.errs) > 0 {
		t.Error(s.errs)
	}
}

// A broker that is gone is left for the partition's new leader.
func TestBrokerGone(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "a"))
	f := newFetcher(t, c.ListenAddrs())
	cl := newClient(t, c.ListenAddrs())
	sinks := []*sink{newSink(), newSink(), newSink()}
	for p, s := range sinks {
		f.Add(Partition{Topic: "a", Partition: int32(p), LastFetchedEpoch: -1, Sink: s})
		s.waitNext(t, produce(t, cl, "a", int32(p), 2))
	}
	if err := c.RemoveNode(c.LeaderFor("a", 0)); err != nil {
		t.Fatal(err)
	}
	for p, s := range sinks {
		s.waitNext(t, produce(t, cl, "a", int32(p), 2))
		if len(s.errs) > 0 {
			t.Error(p, s.errs)
		}
	}
}

func TestTransientErrors(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicID, kerr.InconsistentTopicID,
		kerr.UnknownTopicOrPartition, kerr.ReplicaNotAvailable, kerr.LeaderNotAvailable, kerr.KafkaStorageError, kerr.OffsetNotAvailable, kerr.UnknownServerError,
	} {
		t.Run(e.Message, func(t *testing.T) {
			c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
			cl := newClient(t, c.ListenAddrs())
			produce(t, cl, "a", 0, 3)
			produce(t, cl, "a", 1, 3)
			f := newFetcher(t, c.ListenAddrs())
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Partitions: []int32{0}, Err: e, Count: 3})
			s0, s1 := newSink(), newSink()
			f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: s0})
			f.Add(Partition{Topic: "a", Partition: 1, LastFetchedEpoch: -1, Sink: s1})
			s1.waitNext(t, 3)
			s0.waitNext(t, 3)
			if h.Hits() != 3 {
				t.Errorf("%d faults, want 3", h.Hits())
			}
			if len(s0.errs)+len(s1.errs) > 0 {
				t.Error(s0.errs, s1.errs)
			}
			s0.wait(t, "good health", func() bool { h, _ := f.Health("a", 0); return h.Err == nil })
		})
	}
}

// An error of one partition is its own, and final.
func TestFinalError(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: 1})
	bad, good := newSink(), newSink()
	f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: bad})
	f.Add(Partition{Topic: "a", Partition: 1, LastFetchedEpoch: -1, Sink: good})
	var serr *SourceError
	if err := bad.waitErr(t); !errors.As(err, &serr) || serr.Code != kerr.TopicAuthorizationFailed.Code || !strings.Contains(err.Error(), "topic a partition 0") {
		t.Fatal(err)
	}
	produce(t, cl, "a", 0, 2)
	good.waitNext(t, produce(t, cl, "a", 1, 2))
	if len(bad.got) > 0 || bad.answers != 1 {
		t.Errorf("%d answers after an error", bad.answers-1)
	}
	again := newSink()
	f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: again})
	again.waitNext(t, 2)
}

func TestCorruption(t *testing.T) {
	corrupt := func(times int) (*Fetcher, *sink, *sink, []byte, *kfake.Cluster) {
		c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
		cl := newClient(t, c.ListenAddrs())
		end := produce(t, cl, "a", 0, 4)
		produce(t, cl, "a", 1, 4)
		log := rawLog(t, cl, "a", 0, end)
		f := newFetcher(t, c.ListenAddrs())
		bad := bytes.Clone(log)
		bad[len(bad)-3] ^= 1 // in the fourth batch
		third := int64(3)
		answer(c, 0, 0, times, func(req *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
			rp.HighWatermark, rp.LogStartOffset = 4, 0
			rp.RecordBatches = bad
			for _, tt := range req.Topics {
				for _, p := range tt.Partitions {
					if p.Partition == 0 && p.FetchOffset == third {
						rp.RecordBatches = bad[len(bad)*3/4:]
					}
				}
			}
		})
		s0, s1 := newSink(), newSink()
		f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: s0})
		f.Add(Partition{Topic: "a", Partition: 1, LastFetchedEpoch: -1, Sink: s1})
		return f, s0, s1, log, c
	}
	t.Run("once", func(t *testing.T) {
		f, s0, s1, log, _ := corrupt(1)
		s0.waitNext(t, 4)
		s1.waitNext(t, 4)
		if !bytes.Equal(s0.bytes(), log) || len(s0.errs) > 0 {
			t.Error("not the source's bytes", s0.errs)
		}
		if n := f.Stats().Corrupt; n != 1 {
			t.Errorf("%d corrupt batches counted", n)
		}
	})
	t.Run("twice", func(t *testing.T) {
		_, s0, s1, _, _ := corrupt(2)
		err := s0.waitErr(t)
		var cerr *CorruptError
		var crc *batch.CRCError
		if !errors.As(err, &cerr) || cerr.Offset != 3 || !errors.As(err, &crc) {
			t.Error(err)
		}
		s1.waitNext(t, 4)
		if s0.next() != 3 {
			t.Errorf("the good batches end at %d, want 3", s0.next())
		}
	})
}

func TestOldFormatAndBadOrder(t *testing.T) {
	old := batchtest.Plain(0, 2)
	old[16] = 1
	for name, c := range map[string]struct {
		data []byte
		want any
	}{
		"magic 1":   {old, new(*batch.MagicError)},
		"bad order": {batchtest.Join(batchtest.Plain(5, 2), batchtest.Plain(0, 2)), new(*OrderError)},
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
			f := newFetcher(t, src.ListenAddrs())
			answer(src, 0, 0, 0, func(req *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
				rp.RecordBatches = c.data
			})
			s := newSink()
			f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
			var cerr *CorruptError
			if err := s.waitErr(t); !errors.As(err, &cerr) || !errors.As(err, c.want) {
				t.Error(err)
			}
		})
	}
}

// A broker that cuts batches by size is asked for more until one is whole.
func TestPartialBatch(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	big := batchtest.Sized(0, 5000, nil)
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.MaxBytes = 100 })
	answer(c, 0, 0, 0, func(req *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
		p := req.Topics[0].Partitions[0]
		if p.FetchOffset == 0 {
			rp.RecordBatches = big[:min(int(p.PartitionMaxBytes), len(big))]
		}
	})
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, 1)
}

func TestDiverging(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	answer(c, 0, 10, 1, func(req *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
		for _, p := range req.Topics[0].Partitions {
			if p.Partition == 0 && p.LastFetchedEpoch != 4 {
				t.Errorf("LastFetchedEpoch is %d, want 4", p.LastFetchedEpoch)
			}
		}
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 3, 7
	})
	s, other := newSink(), newSink()
	f.Add(Partition{Topic: "a", Partition: 1, LastFetchedEpoch: -1, Sink: other})
	f.Add(Partition{Topic: "a", Offset: 10, LastFetchedEpoch: 4, Sink: s})
	var d *DivergingError
	if err := s.waitErr(t); !errors.As(err, &d) || d.Epoch != 3 || d.EndOffset != 7 {
		t.Error(err)
	}
	other.waitNext(t, produce(t, cl, "a", 1, 1))
}

func TestOutOfRange(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	produce(t, cl, "a", 0, 10)
	if err := c.DeleteRecords("a", 0, 4); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t, c.ListenAddrs())
	for _, at := range []int64{2, 99} {
		s := newSink()
		f.Add(Partition{Topic: "a", Offset: at, LastFetchedEpoch: 0, Sink: s})
		var serr *SourceError
		if err := s.waitErr(t); !errors.As(err, &serr) || serr.Code != kerr.OffsetOutOfRange.Code || serr.LogStart != 4 || serr.LogEnd != 10 {
			t.Error(at, err)
		}
		res, err := f.Probe(t.Context(), "a", 0, at, 0)
		if err != nil || res.ErrorCode != kerr.OffsetOutOfRange.Code || res.LogStart != 4 || res.LogEnd != 10 {
			t.Errorf("probe at %d: %+v, %v", at, res, err)
		}
	}
	// In range by the look-up, so tried once more and then an error all the same.
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Err: kerr.OffsetOutOfRange, Count: 1})
	s := newSink()
	f.Add(Partition{Topic: "a", Offset: 5, LastFetchedEpoch: 0, Sink: s})
	s.waitNext(t, 10)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Err: kerr.OffsetOutOfRange, Count: -1})
	s = newSink()
	f.Add(Partition{Topic: "a", Offset: 5, LastFetchedEpoch: 0, Sink: s})
	var serr *SourceError
	if err := s.waitErr(t); !errors.As(err, &serr) || serr.LogStart != 4 || serr.LogEnd != 10 {
		t.Error(err)
	}
}

func TestTopicDeletedAndRecreated(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "b"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	a, b := newSink(), newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: a})
	f.Add(Partition{Topic: "b", LastFetchedEpoch: -1, Sink: b})
	a.waitNext(t, produce(t, cl, "a", 0, 2))
	b.waitNext(t, produce(t, cl, "b", 0, 2))
	if err := c.DeleteTopic("a"); err != nil {
		t.Fatal(err)
	}
	var serr *SourceError
	if err := a.waitErr(t); !errors.As(err, &serr) || serr.Code != kerr.UnknownTopicOrPartition.Code {
		t.Error(err)
	}
	if err := c.DeleteTopic("b"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic("b", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.waitErr(t); !errors.As(err, &serr) || (serr.Code != kerr.InconsistentTopicID.Code && serr.Code != kerr.UnknownTopicOrPartition.Code) {
		t.Error(err)
	}
	// A topic that is another one from the start.
	other := newSink()
	f.Add(Partition{Topic: "b", TopicID: ids.UUID{1}, LastFetchedEpoch: -1, Sink: other})
	if err := other.waitErr(t); !errors.As(err, &serr) || serr.Code != kerr.InconsistentTopicID.Code {
		t.Error(err)
	}
	never := newSink()
	f.Add(Partition{Topic: "nowhere", LastFetchedEpoch: -1, Sink: never})
	if err := never.waitErr(t); !errors.As(err, &serr) || serr.Code != kerr.UnknownTopicOrPartition.Code {
		t.Error(err)
	}
}

func TestRoomPausesAndWakes(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	cl := newClient(t, c.ListenAddrs())
	spy := spyOn(c)
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.MaxWait = 5 * time.Second })
	s, other := newSink(), newSink()
	s.setRoom(0)
	f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: s})
	f.Add(Partition{Topic: "a", Partition: 1, LastFetchedEpoch: -1, Sink: other})
	end := produce(t, cl, "a", 0, 3)
	other.waitNext(t, produce(t, cl, "a", 1, 3))
	_, all := spy.requests()
	for _, a := range all {
		if a.partition == 0 {
			t.Fatalf("asked without room: %+v", a)
		}
	}
	s.setRoom(500)
	begin := time.Now()
	f.Wake("a", 0) // while partition 1's poll of five seconds is under way
	s.waitNext(t, end)
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("a partition with room waited %v for an idle one's poll", took)
	} else {
		t.Logf("fetched %v after Wake", took)
	}
	_, all = spy.requests()
	for _, a := range all {
		if a.partition == 0 && a.maxBytes > 500 {
			t.Errorf("asked for %d bytes with room for 500", a.maxBytes)
		}
	}
	f.Wake("nowhere", 7)
}

// New partitions are fetched at once although the poll of idle ones lasts long; in the
// end all share one poll.
func TestNewPartitionIsNotStalled(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(6, "a"))
	cl := newClient(t, c.ListenAddrs())
	spy := spyOn(c)
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.MaxWait = 2 * time.Second })
	idle := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: idle})
	idle.waitNext(t, produce(t, cl, "a", 0, 1))
	var worst time.Duration
	for p := int32(1); p < 6; p++ {
		end := produce(t, cl, "a", p, 1)
		s := newSink()
		begin := time.Now()
		f.Add(Partition{Topic: "a", Partition: p, LastFetchedEpoch: -1, Sink: s})
		s.waitNext(t, end)
		worst = max(worst, time.Since(begin))
	}
	t.Logf("worst time to the first batch of a new partition: %v", worst)
	if worst > time.Second {
		t.Errorf("a new partition waited %v", worst)
	}
	// When nothing happens they all come together in one poll.
	idle.wait(t, "a common poll", func() bool {
		n := 0
		spy.mu.Lock()
		defer spy.mu.Unlock()
		last := map[int32]bool{}
		for i := len(spy.all) - 1; i >= 0 && n < 6; i, n = i-1, n+1 {
			if spy.all[i].maxWait == 2000 {
				last[spy.all[i].partition] = true
			}
		}
		return len(last) == 6
	})
}

func TestProbe(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs(), func(c *Config) { c.MaxWait = 10 * time.Second })
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	end := produce(t, cl, "a", 0, 5)
	s.waitNext(t, end)
	begin := time.Now()
	res, err := f.Probe(t.Context(), "a", 0, 3, 0) // while a poll of ten seconds is under way
	if err != nil || res != (ProbeResult{HighWatermark: 5, LogStart: 0, LogEnd: 5, TopicID: res.TopicID}) || res.TopicID.IsZero() {
		t.Errorf("%+v, %v", res, err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the probe took %v", took)
	}
	if err := c.MoveTopicPartition("a", 0, 1-c.LeaderFor("a", 0)); err != nil {
		t.Fatal(err)
	}
	if res, err = f.Probe(t.Context(), "a", 0, 5, 0); err != nil || res.HighWatermark != 5 {
		t.Errorf("after a leader change: %+v, %v", res, err)
	}
	f.Remove("a", 0)
	answer(c, 0, 4, 1, func(_ *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 0, 2
	})
	if res, err = f.Probe(t.Context(), "a", 0, 4, 9); err != nil || res.Diverging == nil || *res.Diverging != (Diverging{0, 2}) {
		t.Errorf("diverging: %+v, %v", res, err)
	}
	if res, err = f.Probe(t.Context(), "nowhere", 0, 4, 9); err != nil || res.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("no topic: %+v, %v", res, err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
	// On a loaded machine the time may be over before there is an answer.
	for wait := time.Second; ; wait *= 3 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err = f.Probe(ctx, "a", 0, 4, 9)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "NOT_LEADER") {
			break
		}
		if err == nil || wait > 20*time.Second {
			t.Fatalf("a probe that never succeeds: %v", err)
		}
	}
}

func TestBatchAt(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	produce(t, cl, "a", 0, 5)
	f := newFetcher(t, c.ListenAddrs(), func(cfg *Config) { cfg.Tagger = batch.NewTagger("there", "here") })
	got, err := f.BatchAt(t.Context(), "a", 0, 3)
	if err != nil || got == nil || !got.Anchor().Covers(3) {
		t.Fatal(got, err)
	}
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, 5)
	// What is fetched is tagged, and so is this.
	if fetched := s.got[3]; fetched.Anchor() != got.Anchor() || got.ProducerID() != fetched.ProducerID() || got.ProducerID() < 1<<48 {
		t.Errorf("%+v, fetched %+v", got.Anchor(), fetched.Anchor())
	}
	if got, err := f.BatchAt(t.Context(), "a", 0, 5); got != nil || err != nil {
		t.Errorf("at the end: %v, %v", got, err)
	}
	if got, err := f.BatchAt(t.Context(), "a", 0, 9); got != nil || err != nil {
		t.Errorf("behind the end: %v, %v", got, err)
	}
	answer(c, 0, 3, 1, func(_ *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
		rp.ErrorCode, rp.RecordBatches = kerr.OffsetOutOfRange.Code, nil
	})
	if got, err := f.BatchAt(t.Context(), "a", 0, 3); got != nil || err != nil {
		t.Errorf("deleted: %v, %v", got, err)
	}
	if err := c.MoveTopicPartition("a", 0, 1-c.LeaderFor("a", 0)); err != nil {
		t.Fatal(err)
	}
	// It asks once; the next time it asks the new leader.
	if got, err = f.BatchAt(t.Context(), "a", 0, 3); err != nil {
		got, err = f.BatchAt(t.Context(), "a", 0, 3)
	}
	if err != nil || got == nil {
		t.Errorf("after a leader change: %v, %v", got, err)
	}
}

// A leader may send its readers to a replica, as a mirror's does.
func TestPreferredReplica(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	lead := c.LeaderFor("a", 0)
	c.SetFollowers("a", 0, []int32{1 - lead})
	end := produce(t, cl, "a", 0, 3)
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if c.CurrentNode() != lead {
			return nil, nil, false
		}
		c.KeepControl()
		req := r.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.TopicID = req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.PreferredReadReplica = 1 - lead
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	f := newFetcher(t, c.ListenAddrs())
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, end)
	if h, _ := f.Health("a", 0); h.Leader != 1-lead {
		t.Errorf("read from %d, want %d", h.Leader, 1-lead)
	}
	if res, err := f.Probe(t.Context(), "a", 0, end, 0); err != nil || res.HighWatermark != end {
		t.Errorf("probe: %+v, %v", res, err)
	}
}

func TestRemove(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	end := produce(t, cl, "a", 0, 20)
	for range 15 { // races with answers on their way
		s := newSink()
		f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
		s.waitNext(t, 1)
		f.Remove("a", 0)
		s.mu.Lock()
		before := s.answers
		s.mu.Unlock()
		if _, ok := f.Health("a", 0); ok {
			t.Fatal("a removed partition has health")
		}
		next := newSink()
		f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: next})
		next.waitNext(t, end)
		f.Remove("a", 0)
		s.mu.Lock()
		if s.answers != before {
			t.Fatal("the sink was called after Remove")
		}
		s.mu.Unlock()
	}
	f.Remove("a", 0) // nothing to remove
}

func TestTopicsAndClusterID(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.ClusterID("the-source"), kfake.SeedTopics(3, "a"))
	if err := c.CreateTopic("b", 2, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t, c.ListenAddrs())
	if id, err := f.ClusterID(t.Context()); err != nil || id != "the-source" {
		t.Errorf("cluster id %q, %v", id, err)
	}
	got, err := f.Topics(t.Context(), []string{"a", "b", "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := got["a"], got["b"]
	if a.Partitions != 3 || a.ID != ids.UUID(c.TopicInfo("a").TopicID) || a.Err != nil || len(a.Configs) != 0 {
		t.Errorf("a: %+v", a)
	}
	if b.Partitions != 2 || fmt.Sprint(b.Configs) != "map[cleanup.policy:compact]" {
		t.Errorf("b: %+v", b)
	}
	var serr *SourceError
	if !errors.As(got["nowhere"].Err, &serr) || serr.Code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("nowhere: %+v", got["nowhere"])
	}
	if all, err := f.Topics(t.Context(), nil); err != nil || len(all) != 2 {
		t.Errorf("all topics: %v, %v", all, err)
	}
}

// A source that cannot be reached is waited for.
func TestUnreachableSource(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	addrs := c.ListenAddrs()
	c.Close()
	f := newFetcher(t, addrs)
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	deadline := time.Now().Add(patience)
	for {
		if h, ok := f.Health("a", 0); ok && h.Err != nil && h.Attempts > 0 && !h.Since.IsZero() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the failure does not show")
		}
		time.Sleep(time.Millisecond) // nothing to wait on: health is polled by its users too
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.ClusterID(ctx); err == nil {
		t.Error("a cluster id from nowhere")
	}
	if _, err := f.Probe(ctx, "a", 0, 0, -1); err == nil {
		t.Error("a probe of nothing")
	}
}

func TestBadOptions(t *testing.T) {
	f := New(Config{Mirror: "m", Opts: []kgo.Opt{kgo.RequestTimeoutOverhead(time.Hour)}})
	defer f.Close()
	if err := f.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "mirror m") {
		t.Errorf("start: %v", err)
	}
	if _, err := f.Topics(t.Context(), nil); err == nil {
		t.Error("topics without a client")
	}
	if _, err := f.ClusterID(t.Context()); err == nil {
		t.Error("cluster id without a client")
	}
	if _, err := f.Probe(t.Context(), "a", 0, 0, -1); err == nil {
		t.Error("probe without a client")
	}
}

func TestStartTwiceAndAfterStop(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	f := newFetcher(t, c.ListenAddrs())
	if err := f.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	f.Close()
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s}) // too late, and harmless
	if err := f.Start(t.Context()); err == nil {
		t.Error("started after Stop")
	}
}

// A quota of the source is seen while it slows the reading down, and costs few requests.
func TestThrottledIsSeen(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	answer(c, 0, 0, 3, func(_ *kmsg.FetchRequest, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
		r.ThrottleMillis = 300
	})
	s := newSink()
	f.Add(Partition{Topic: "a", Partition: 0, LastFetchedEpoch: -1, Sink: s})
	var seen Health
	s.wait(t, "a throttled partition", func() bool { seen, _ = f.Health("a", 0); return !seen.Throttled.IsZero() })
	if seen.Throttle != 300*time.Millisecond || seen.Err != nil {
		t.Errorf("%+v", seen)
	}
	s.waitNext(t, produce(t, cl, "a", 0, 2))
	if st := f.Stats(); st.Throttled != 900*time.Millisecond || st.Requests > 20 {
		t.Errorf("%+v", st)
	}
	if h, _ := f.Health("a", 0); !h.Throttled.Equal(seen.Throttled) {
		t.Errorf("three throttled answers in a row count as separate ones: %v and %v", seen.Throttled, h.Throttled)
	}
}
