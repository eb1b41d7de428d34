package fetcher

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
)

// After a failure the source has to show what was read last, and reading goes on behind it.
func TestWhatWasReadLastIsShownAgain(t *testing.T) {
	c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := newClient(t, c.ListenAddrs())
	f := newFetcher(t, c.ListenAddrs())
	s := newSink()
	f.Add(Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s})
	s.waitNext(t, produce(t, cl, "a", 0, 3))
	asked := spyOn(c)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: 1})
	end := produce(t, cl, "a", 0, 2)
	s.waitNext(t, end)
	end = produce(t, cl, "a", 0, 1)
	s.waitNext(t, end)
	if want := rawLog(t, cl, "a", 0, end); !bytes.Equal(s.bytes(), want) {
		t.Error("not the bytes of the source's log")
	}
	_, all := asked.requests()
	again := 0
	for _, a := range all {
		if a.partition == 0 && a.offset < 3 {
			again++
		}
	}
	if again == 0 || len(s.errs) > 0 {
		t.Errorf("%d fetches of what was read last; errors %v", again, s.errs)
	}
	if st := f.Stats(); st.Batches != end || st.Records != end {
		t.Errorf("what was read twice was counted twice: %+v", st)
	}
}

// A source that has something else there is another log, whatever its epochs are.
func TestAnotherLogUnderTheSameEpoch(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  bool // the anchor is given, else it was read
	}{{"while reading", false}, {"at the start", true}} {
		t.Run(tc.name, func(t *testing.T) {
			c := newSource(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
			cl := newClient(t, c.ListenAddrs())
			produce(t, cl, "a", 0, 3)
			other := batch.Batch(rawLog(t, cl, "a", 0, 3))
			log := map[int64]batch.Batch{}
			for b, err := range batch.Iterate(other) {
				if err != nil {
					t.Fatal(err)
				}
				log[b.BaseOffset()] = bytes.Clone(b)
			}
			f := newFetcher(t, c.ListenAddrs())
			s := newSink()
			p := Partition{Topic: "a", LastFetchedEpoch: -1, Sink: s}
			if tc.add {
				foreign := bytes.Clone(log[2])
				batch.Batch(foreign).SetProducerID(77)
				a := batch.Batch(foreign).Anchor()
				p.Offset, p.LastFetchedEpoch, p.Before = 3, log[2].LeaderEpoch(), &a
				f.Add(p)
			} else {
				f.Add(p)
				s.waitNext(t, 3)
				// The same log but for its last batch.
				answer(c, 0, 0, 0, func(req *kmsg.FetchRequest, _ *kmsg.FetchResponse, rp *kmsg.FetchResponseTopicPartition) {
					if rp.ErrorCode = kerr.NotLeaderForPartition.Code; req.Topics[0].Partitions[0].FetchOffset > 2 {
						return
					}
					rp.ErrorCode = 0
					foreign := bytes.Clone(log[2])
					batch.Batch(foreign).SetProducerID(77)
					rp.HighWatermark, rp.LogStartOffset, rp.RecordBatches = 3, 0, foreign
				})
			}
			var d *DivergingError
			if err := s.waitErr(t); !errors.As(err, &d) || !d.Anew || d.EndOffset != 2 {
				t.Errorf("%v", err)
			}
			if s.next() > 3 {
				t.Errorf("delivered up to %d", s.next())
			}
		})
	}
}

func TestAnchorLook(t *testing.T) {
	b := func(base int64, producer int64) batch.Batch {
		x := batch.PIDReset(base, 1, 1, "c")
		x.SetProducerID(producer)
		return x
	}
	got := func(bs ...batch.Batch) *ingested {
		in := &ingested{}
		for _, x := range bs {
			in.batches, in.records, in.size = append(in.batches, x), in.records+int64(x.Count()), in.size+len(x)
		}
		return in
	}
	for _, tc := range []struct {
		name     string
		asks     bool
		in       *ingested
		want     verdict
		left     int
		due, ask bool
	}{
		{"shown", true, got(b(5, 1), b(6, 1)), asUsual, 1, false, false},
		{"shown alone", true, got(b(5, 1)), asUsual, 0, false, false},
		{"another", true, got(b(5, 2), b(6, 1)), another, 2, true, true},
		{"cleaned away", true, got(b(6, 1)), asUsual, 1, false, false},
		{"a part of it", true, &ingested{size: 0, partial: 100}, incomplete, 0, true, true},
		{"nothing there", true, got(), asUsual, 0, true, false},
		{"nothing behind it", false, got(), asUsual, 0, true, true},
		{"something behind it", false, got(b(6, 1)), discard, 1, true, true},
	} {
		var a anchor
		a.set(b(5, 1))
		a.arm()
		a.ask = tc.asks
		size := tc.in.size
		if tc.want == incomplete {
			size = 50
		}
		if v := a.look(tc.in, size); v != tc.want || len(tc.in.batches) != tc.left || a.due != tc.due || a.ask != tc.ask {
			t.Errorf("%s: %d, %d batches left, due %t, ask %t", tc.name, v, len(tc.in.batches), a.due, a.ask)
		}
	}
	var none anchor
	none.arm()
	if in := got(b(6, 1)); none.look(in, in.size) != asUsual || len(in.batches) != 1 {
		t.Error("nothing was read, nothing is to be shown")
	}
}
