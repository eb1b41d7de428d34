package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	rec "github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const virtual ids.Virtual = 10000

func topicID(n byte) ids.UUID { return ids.UUID{0: 0xee, 15: n} }

// encode makes a batch of records at base, as a controller in this epoch writes it.
func encode(t testing.TB, base int64, epoch int32, attributes uint16, records ...rec.Record) []byte {
	t.Helper()
	var body []byte
	for i, r := range records {
		v, err := rec.Encode(r, latest(r))
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, encodeRecord(i, v)...)
	}
	return seal(base, epoch, attributes, len(records), body)
}

func encodeRecord(delta int, value []byte) []byte {
	b := []byte{0, 0}
	b = binary.AppendVarint(b, int64(delta))
	b = binary.AppendVarint(b, -1)
	b = binary.AppendVarint(b, int64(len(value)))
	b = append(b, value...)
	b = append(b, 0)
	return append(binary.AppendVarint(nil, int64(len(b))), b...)
}

func seal(base int64, epoch int32, attributes uint16, n int, body []byte) []byte {
	b := make([]byte, batchHeader, batchHeader+len(body))
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], uint32(batchHeader-12+len(body)))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
	b[16] = 2
	binary.BigEndian.PutUint16(b[21:], attributes)
	binary.BigEndian.PutUint32(b[23:], uint32(max(0, n-1)))
	binary.BigEndian.PutUint32(b[57:], uint32(n))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// latest is the record version that a cluster at the highest level covered writes.
func latest(r rec.Record) int16 {
	switch r.(type) {
	case *rec.RegisterBrokerRecord:
		return 4
	case *rec.BrokerRegistrationChangeRecord:
		return 3
	case *rec.PartitionRecord, *rec.PartitionChangeRecord:
		return 2
	default:
		return 0
	}
}

func change(t byte, p int32, edit func(*rec.PartitionChangeRecord)) *rec.PartitionChangeRecord {
	r := rec.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = topicID(t), p
	edit(&r)
	return &r
}

func partition(t byte, p, leader int32, replicas, isr []int32) *rec.PartitionRecord {
	r := rec.NewPartitionRecord()
	r.TopicID, r.PartitionID, r.Leader, r.Replicas, r.ISR = topicID(t), p, leader, replicas, isr
	r.LeaderEpoch, r.PartitionEpoch = 0, 0
	return &r
}

func topicRecord(n byte, name string) *rec.TopicRecord {
	return &rec.TopicRecord{Name: name, TopicID: topicID(n)}
}

// quorum is a metadata log with one leader, as the observer sees it through Controllers.
type quorum struct {
	t testing.TB

	mu        sync.Mutex // guards the following
	cond      *sync.Cond
	epoch     int32
	log       [][]byte // whole batches
	start     int64    // of the log
	hw        int64
	snapshot  []byte
	snapEnd   int64
	snapEpoch int32
	down      error
	fetches   int
}

func newQuorum(t testing.TB) *quorum {
	q := &quorum{t: t, epoch: 3}
	q.cond = sync.NewCond(&q.mu)
	return q
}

func (q *quorum) end() int64 {
	if len(q.log) == 0 {
		return q.start
	}
	b, _, _ := nextBatch(q.log[len(q.log)-1], crc32.MakeTable(crc32.Castagnoli))
	return b.last + 1
}

// append adds one batch, uncommitted.
func (q *quorum) append(records ...rec.Record) int64 {
	q.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = append(q.log, encode(q.t, q.end(), q.epoch, 0, records...))
	q.cond.Broadcast()
	return q.end() - 1
}

func (q *quorum) raw(b []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = append(q.log, b)
	q.hw = q.end()
	q.cond.Broadcast()
}

func (q *quorum) set(edit func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	edit()
	q.cond.Broadcast()
}

// commit adds one batch and commits everything.
func (q *quorum) commit(records ...rec.Record) int64 {
	q.t.Helper()
	off := q.append(records...)
	q.set(func() { q.hw = q.end() })
	return off
}

func (q *quorum) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	stop := context.AfterFunc(ctx, func() { q.set(func() {}) })
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down != nil {
		return nil, q.down
	}
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		return q.fetch(ctx, r)
	case *kmsg.FetchSnapshotRequest:
		return q.fetchSnapshot(r), nil
	default:
		return nil, errors.New("unexpected request")
	}
}

func (q *quorum) fetch(ctx context.Context, r *kmsg.FetchRequest) (kmsg.Response, error) {
	q.fetches++
	in := r.Topics[0].Partitions[0]
	out := kmsg.NewFetchResponseTopicPartition()
	deadline := time.Now().Add(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	timer := time.AfterFunc(time.Until(deadline), func() { q.set(func() {}) })
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = 1, q.epoch
		out.HighWatermark = q.hw
		if in.LastFetchedEpoch > in.CurrentLeaderEpoch {
			out.ErrorCode = kerr.InvalidRequest.Code
			break
		}
		if in.CurrentLeaderEpoch < q.epoch {
			out.ErrorCode = kerr.FencedLeaderEpoch.Code
			break
		}
		if in.FetchOffset < q.start {
			out.SnapshotID.EndOffset, out.SnapshotID.Epoch = q.snapEnd, q.snapEpoch
			break
		}
		if e, end, ok := q.endOf(in.LastFetchedEpoch); in.FetchOffset > 0 && (!ok || e != in.LastFetchedEpoch || end < in.FetchOffset) {
			out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = e, end
			break
		}
		for _, b := range q.log {
			x, _, _ := nextBatchRaw(b)
			if x >= in.FetchOffset {
				out.RecordBatches = append(out.RecordBatches, b...)
			}
		}
		if len(out.RecordBatches) > 0 || q.hw > in.HighWatermark || !time.Now().Before(deadline) {
			break
		}
		q.cond.Wait()
	}
	resp := kmsg.NewPtrFetchResponse()
	t := kmsg.NewFetchResponseTopic()
	t.Partitions = append(t.Partitions, out)
	resp.Topics = append(resp.Topics, t)
	return resp, nil
}

// nextBatchRaw returns the last offset and the epoch of a batch without decoding it.
func nextBatchRaw(b []byte) (last int64, epoch int32, size int) {
	return int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[atLastDelta:])), int32(binary.BigEndian.Uint32(b[atLeaderEpoch:])), len(b)
}

// endOf returns the largest epoch up to e and where it ends.
func (q *quorum) endOf(e int32) (int32, int64, bool) {
	found, end, ok := q.snapEpoch, q.snapEnd, q.snapEnd > 0 && q.snapEpoch <= e
	for _, b := range q.log {
		last, epoch, _ := nextBatchRaw(b)
		if epoch <= e {
			found, end, ok = epoch, last+1, true
		}
	}
	return found, end, ok
}

func (q *quorum) fetchSnapshot(r *kmsg.FetchSnapshotRequest) kmsg.Response {
	in := r.Topics[0].Partitions[0]
	out := kmsg.NewFetchSnapshotResponseTopicPartition()
	out.SnapshotID.EndOffset, out.SnapshotID.Epoch = in.SnapshotID.EndOffset, in.SnapshotID.Epoch
	if in.SnapshotID.EndOffset != q.snapEnd || in.SnapshotID.Epoch != q.snapEpoch {
		out.ErrorCode = kerr.SnapshotNotFound.Code
	} else {
		out.Size, out.Position = int64(len(q.snapshot)), in.Position
		out.Bytes = q.snapshot[in.Position:min(int64(len(q.snapshot)), in.Position+int64(r.MaxBytes))]
	}
	resp := kmsg.NewPtrFetchSnapshotResponse()
	t := kmsg.NewFetchSnapshotResponseTopic()
	t.Partitions = append(t.Partitions, out)
	resp.Topics = append(resp.Topics, t)
	return resp
}

// observe runs an observer until the test's end.
func observe(t *testing.T, q *quorum, edit ...func(*ObserverConfig)) (*Image, *Observer, <-chan error) {
	t.Helper()
	img := NewImage(virtual)
	cfg := ObserverConfig{ReplicaID: 10001, MaxWait: 20 * time.Millisecond}
	for _, e := range edit {
		e(&cfg)
	}
	o := NewObserver(cfg, img, q, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- o.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return img, o, done
}

func wait(t *testing.T, img *Image, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := img.Wait(ctx, cond); err != nil {
		t.Fatalf("waiting for %s: %v (image at offset %d)", what, err, img.Offset())
	}
}

func tp(n byte, p int32) ids.TopicPartition {
	return ids.TopicPartition{TopicID: topicID(n), Partition: p}
}

func TestImageFollowsTheLog(t *testing.T) {
	t.Parallel()
	str := func(s string) *string { return &s }
	reg := rec.NewRegisterBrokerRecord()
	reg.BrokerID, reg.BrokerEpoch, reg.Fenced, reg.Rack = 10001, 7, true, str("a")
	reg.EndPoints = []rec.BrokerEndpoint{{Name: "INTERNAL", Host: "h", Port: 9, SecurityProtocol: 2}}
	reg.LogDirs = []ids.UUID{topicID(99)}
	brokerChange := func(edit func(*rec.BrokerRegistrationChangeRecord)) rec.Record {
		r := rec.NewBrokerRegistrationChangeRecord()
		r.BrokerID, r.BrokerEpoch = 10001, 7
		edit(&r)
		return &r
	}
	base := []rec.Record{
		topicRecord(1, "a"),
		partition(1, 0, 1, []int32{10001, 1, 2}, []int32{10001, 1, 2}),
		partition(1, 1, 2, []int32{1, 2}, []int32{2}),
		&reg,
	}
	is := func(name string, got, want any) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
	for _, tt := range []struct {
		name    string
		records []rec.Record
		check   func(img *Image) []func(*testing.T)
	}{
		{"a new partition", nil, func(img *Image) []func(*testing.T) {
			p := img.Partition(tp(1, 0))
			return []func(*testing.T){
				is("topic", p.Topic, "a"), is("leader", p.Leader, int32(1)), is("epochs", []int32{p.LeaderEpoch, p.PartitionEpoch}, []int32{0, 0}),
				is("last real ISR", p.LastRealISR, []int32{1, 2}), is("unknown", img.Partition(tp(1, 2)), (*Partition)(nil)),
				is("both partitions", len(img.TopicPartitions(topicID(1))), 2), is("all", len(img.AllPartitions()), 2),
			}
		}},
		{"ISR without a leader: only the partition epoch", []rec.Record{
			change(1, 0, func(r *rec.PartitionChangeRecord) { r.ISR = []int32{10001} }),
		}, func(img *Image) []func(*testing.T) {
			p := img.Partition(tp(1, 0))
			return []func(*testing.T){
				is("epochs", []int32{p.LeaderEpoch, p.PartitionEpoch}, []int32{0, 1}), is("ISR", p.ISR, []int32{10001}),
				is("last real ISR", p.LastRealISR, []int32{1, 2}), is("leader", p.Leader, int32(1)),
			}
		}},
		{"a change to the same leader, and to none, is an epoch", []rec.Record{
			change(1, 0, func(r *rec.PartitionChangeRecord) { r.Leader = 1 }),
			change(1, 0, func(r *rec.PartitionChangeRecord) { r.Leader = -1; r.ISR = []int32{2} }),
		}, func(img *Image) []func(*testing.T) {
			p := img.Partition(tp(1, 0))
			return []func(*testing.T){
				is("epochs", []int32{p.LeaderEpoch, p.PartitionEpoch}, []int32{2, 2}), is("leader", p.Leader, NoLeader),
				is("last real ISR", p.LastRealISR, []int32{2}),
			}
		}},
		{"the other fields of a change", []rec.Record{
			change(1, 0, func(r *rec.PartitionChangeRecord) {
				r.Replicas, r.AddingReplicas, r.RemovingReplicas = []int32{1, 2}, []int32{2}, []int32{10001}
				r.LeaderRecoveryState, r.EligibleLeaderReplicas, r.LastKnownELR = 1, []int32{2}, []int32{1}
			}),
			change(1, 0, func(r *rec.PartitionChangeRecord) { r.AddingReplicas = []int32{} }),
		}, func(img *Image) []func(*testing.T) {
			p := img.Partition(tp(1, 0))
			return []func(*testing.T){
				is("replicas", p.Replicas, []int32{1, 2}), is("adding", p.Adding, []int32{}), is("removing", p.Removing, []int32{10001}),
				is("recovery", p.RecoveryState, int8(1)), is("ELR", p.ELR, []int32{2}), is("last known ELR", p.LastKnownELR, []int32{1}),
			}
		}},
		{"clearing the ELR of a topic moves epochs of partitions that had one", []rec.Record{
			change(1, 0, func(r *rec.PartitionChangeRecord) { r.EligibleLeaderReplicas = []int32{2} }),
			&rec.ClearELRRecord{TopicName: "a"},
		}, func(img *Image) []func(*testing.T) {
			p, q := img.Partition(tp(1, 0)), img.Partition(tp(1, 1))
			return []func(*testing.T){
				is("ELR", p.ELR, []int32{}), is("partition epochs", []int32{p.PartitionEpoch, q.PartitionEpoch}, []int32{2, 0}),
			}
		}},
		{"configs come and go", []rec.Record{
			&rec.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "x", Value: str("1")},
			&rec.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "y", Value: str("2")},
			&rec.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "x"},
			&rec.ConfigRecord{ResourceType: 4, Name: "d", Value: str("3")},
			&rec.ConfigRecord{ResourceType: 4, ResourceName: "1", Name: "e", Value: str("4")},
		}, func(img *Image) []func(*testing.T) {
			return []func(*testing.T){
				is("topic", img.TopicConfig("a"), map[string]string{"y": "2"}),
				is("broker defaults", img.BrokerDefaultConfig(), map[string]string{"d": "3"}),
			}
		}},
		{"a topic goes with its configs", []rec.Record{
			&rec.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "x", Value: str("1")},
			&rec.RemoveTopicRecord{TopicID: topicID(1)},
		}, func(img *Image) []func(*testing.T) {
			_, byName := img.Topic("a")
			_, byID := img.TopicName(topicID(1))
			return []func(*testing.T){
				is("by name", byName, false), is("by id", byID, false), is("partitions", len(img.AllPartitions()), 0),
				is("configs", img.TopicConfig("a"), map[string]string{}),
			}
		}},
		{"a registration and its changes", []rec.Record{
			&rec.UnfenceBrokerRecord{ID: 10001, Epoch: 7},
			brokerChange(func(r *rec.BrokerRegistrationChangeRecord) {
				r.InControlledShutdown = 1
				r.CordonedLogDirs = []ids.UUID{topicID(99)}
			}),
		}, func(img *Image) []func(*testing.T) {
			b, ok := img.Broker(10001)
			return []func(*testing.T){is("registered", ok, true), is("broker", b, Broker{
				ID: 10001, Epoch: 7, ShuttingDown: true, Rack: "a", LogDirs: []ids.UUID{topicID(99)}, CordonedDirs: []ids.UUID{topicID(99)},
				Endpoints: []Endpoint{{Name: "INTERNAL", Host: "h", Port: 9, SecurityProtocol: 2}},
			})}
		}},
		{"uncordoned, fenced by a change, and a change of an older epoch", []rec.Record{
			brokerChange(func(r *rec.BrokerRegistrationChangeRecord) {
				r.Fenced, r.CordonedLogDirs = -1, []ids.UUID{topicID(99)}
			}),
			brokerChange(func(r *rec.BrokerRegistrationChangeRecord) { r.CordonedLogDirs = []ids.UUID{} }),
			&rec.FenceBrokerRecord{ID: 10001, Epoch: 6},
		}, func(img *Image) []func(*testing.T) {
			b, _ := img.Broker(10001)
			return []func(*testing.T){is("fenced", b.Fenced, false), is("cordoned", b.CordonedDirs, []ids.UUID{})}
		}},
		{"unregistered", []rec.Record{&rec.UnregisterBrokerRecord{BrokerID: 10001, BrokerEpoch: 7}}, func(img *Image) []func(*testing.T) {
			return []func(*testing.T){is("brokers", len(img.Brokers()), 0)}
		}},
		{"features", []rec.Record{
			&rec.FeatureLevelRecord{Name: "metadata.version", FeatureLevel: 33},
			&rec.FeatureLevelRecord{Name: "gone", FeatureLevel: 1}, &rec.FeatureLevelRecord{Name: "gone"},
		}, func(img *Image) []func(*testing.T) {
			l, _ := img.FeatureLevel("metadata.version")
			_, gone := img.FeatureLevel("gone")
			return []func(*testing.T){is("level", l, int16(33)), is("gone", gone, false)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t)
			q.commit(base...)
			last := q.end() - 1
			for _, r := range tt.records {
				last = q.commit(r)
			}
			img, _, _ := observe(t, q)
			wait(t, img, "the last record", func() bool { return img.Offset() == last })
			for _, check := range tt.check(img) {
				check(t)
			}
		})
	}
}

func TestOnlyCommittedRecordsAreApplied(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.commit(topicRecord(1, "a"))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	q.append(topicRecord(2, "b"))
	q.set(func() { q.fetches = 0 })
	// Three more fetches come after the uncommitted record was shown.
	waitFetches(t, q, 4)
	if _, ok := img.Topic("b"); ok || img.Offset() != 0 {
		t.Fatalf("an uncommitted record was applied, offset %d", img.Offset())
	}
	q.set(func() { q.hw = q.end() })
	wait(t, img, "topic b", func() bool { _, ok := img.Topic("b"); return ok })
}

func waitFetches(t *testing.T, q *quorum, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.fetches < n {
		if time.Now().After(deadline) {
			t.Fatal("no fetch")
		}
		timer := time.AfterFunc(10*time.Millisecond, func() { q.set(func() {}) })
		q.cond.Wait()
		timer.Stop()
	}
}

func TestUncommittedRecordsLostInAnElection(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.commit(topicRecord(1, "a"))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	q.append(topicRecord(2, "lost"))
	q.set(func() { q.fetches = 0 })
	waitFetches(t, q, 3)
	q.set(func() { q.log, q.epoch = q.log[:1], q.epoch+1 })
	q.commit(topicRecord(3, "kept"))
	wait(t, img, "the new leader's record", func() bool { _, ok := img.Topic("kept"); return ok })
	if _, ok := img.Topic("lost"); ok {
		t.Error("a record that no leader has was applied")
	}
	if _, ok := img.Topic("a"); !ok {
		t.Error("a committed record was lost")
	}
}

// Committed records are not lost by a healthy quorum. After an operator's restore from
// a backup they are, and the image must follow all the same.
func TestCommittedRecordsLost(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.commit(topicRecord(1, "a"), partition(1, 0, 1, []int32{1}, []int32{1}))
	q.commit(topicRecord(2, "lost"), partition(2, 0, 1, []int32{1}, []int32{1}))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	removed := make(chan ids.UUID, 10)
	defer img.Subscribe(func(d Delta) {
		for _, id := range d.RemovedTopics {
			removed <- id
		}
	})()
	q.set(func() { q.log, q.epoch = q.log[:1], q.epoch+1 })
	q.commit(topicRecord(3, "c"))
	wait(t, img, "topic c", func() bool { _, ok := img.Topic("c"); return ok })
	if _, ok := img.Topic("lost"); ok {
		t.Error("the lost topic is still there")
	}
	select {
	case id := <-removed:
		if id != topicID(2) {
			t.Errorf("removed topic published: %v", id)
		}
	case <-time.After(10 * time.Second):
		t.Error("no removed topic published")
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	before := q.commit(topicRecord(1, "a"))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	begin, end, abort := rec.NewBeginTransactionRecord(), rec.NewEndTransactionRecord(), rec.NewAbortTransactionRecord()
	q.commit(&begin, topicRecord(2, "b"))
	q.commit(topicRecord(3, "c"))
	q.set(func() { q.fetches = 0 })
	waitFetches(t, q, 3)
	if _, ok := img.Topic("b"); ok || img.Offset() != before {
		t.Fatalf("a record of an open transaction was applied, offset %d", img.Offset())
	}
	last := q.commit(&end, topicRecord(4, "d"))
	wait(t, img, "the end of the transaction", func() bool { return img.Offset() == last })
	for _, name := range []string{"b", "c", "d"} {
		if _, ok := img.Topic(name); !ok {
			t.Errorf("topic %s is missing", name)
		}
	}
	q.commit(&begin, topicRecord(5, "e"))
	last = q.commit(&abort, topicRecord(6, "f"))
	wait(t, img, "the aborted transaction", func() bool { return img.Offset() == last })
	if _, ok := img.Topic("e"); ok {
		t.Error("a record of an aborted transaction was applied")
	}
	if _, ok := img.Topic("f"); !ok {
		t.Error("topic f is missing")
	}
}

func TestSnapshotAtTheStartAndWhenFallenBehind(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	// Two batches and the control batches that frame a snapshot; the first record of
	// the log after it is at 100.
	snapshot := func(records ...rec.Record) []byte {
		b := seal(0, 2, controlBit, 1, encodeRecord(0, []byte{0, 0}))
		b = append(b, encode(t, 1, 2, 0, records...)...)
		return append(b, seal(1+int64(len(records)), 2, controlBit, 1, encodeRecord(0, []byte{0, 0}))...)
	}
	stuck := partition(1, 0, 10001, []int32{10001, 1}, []int32{10001})
	stuck.PartitionEpoch, stuck.LeaderEpoch = 9, 5
	q.set(func() {
		q.start, q.hw, q.snapEnd, q.snapEpoch = 100, 100, 100, 2
		q.snapshot = snapshot(topicRecord(1, "a"), stuck, topicRecord(2, "b"), partition(2, 0, 1, []int32{10001, 1}, []int32{1}))
	})
	img, o, _ := observe(t, q, func(c *ObserverConfig) { c.MaxBytes = 50 })
	<-o.CaughtUp()
	if img.Offset() != 99 {
		t.Fatalf("offset %d after the snapshot, want 99", img.Offset())
	}
	p := img.Partition(tp(1, 0))
	if p == nil || p.PartitionEpoch != 9 || p.LastRealISR != nil {
		t.Fatalf("partition of the snapshot: %+v", p)
	}
	q.commit(change(2, 0, func(r *rec.PartitionChangeRecord) { r.Leader, r.ISR = 10001, []int32{10001} }))
	wait(t, img, "the change", func() bool { return img.Offset() == 100 })
	first := img.Partition(tp(2, 0))

	// Now the observer is cut off, and the log goes on and is cut at a new snapshot.
	var mu sync.Mutex
	var deltas []Delta
	defer img.Subscribe(func(d Delta) { mu.Lock(); deltas = append(deltas, d); mu.Unlock() })()
	same := partition(2, 0, 10001, []int32{10001, 1}, []int32{10001})
	same.PartitionEpoch, same.LeaderEpoch = first.PartitionEpoch, first.LeaderEpoch
	q.set(func() {
		q.log, q.start, q.hw, q.snapEnd, q.snapEpoch = nil, 200, 200, 200, 3
		q.snapshot = snapshot(topicRecord(2, "b"), same, topicRecord(3, "c"), partition(3, 0, 1, []int32{1}, []int32{1}))
	})
	wait(t, img, "the second snapshot", func() bool { return img.Offset() == 199 })
	if _, ok := img.Topic("a"); ok {
		t.Error("a topic that the snapshot does not have is still there")
	}
	if got := img.Partition(tp(2, 0)).LastRealISR; !slices.Equal(got, []int32{1}) {
		t.Errorf("last real ISR of an unchanged partition: %v, want it kept", got)
	}
	q.commit(topicRecord(4, "d"))
	// Subscribers are told one after the other: when the next batch can be seen, all have
	// been told of the snapshot.
	wait(t, img, "the log after the snapshot", func() bool { return img.Offset() == 200 })
	mu.Lock()
	defer mu.Unlock()
	// The batch before the subscription may have been reported as well.
	n := slices.IndexFunc(deltas, func(d Delta) bool { return len(d.RemovedTopics) > 0 })
	if n < 0 || !slices.Equal(deltas[n].RemovedTopics, []ids.UUID{topicID(1)}) ||
		!slices.Equal(deltas[n].Partitions, []ids.TopicPartition{tp(3, 0)}) {
		t.Errorf("published: %+v", deltas)
	}
}

func TestWhatCannotBeReadStopsTheObserver(t *testing.T) {
	t.Parallel()
	unknown := seal(0, 3, 0, 1, encodeRecord(0, []byte{1, 5, 9})) // partition change, version 9
	compressed := seal(0, 3, 1, 1, []byte{1, 2, 3})
	corrupt := encode(t, 0, 3, 0, topicRecord(1, "a"))
	corrupt[len(corrupt)-3] ^= 1
	for _, tt := range []struct {
		name  string
		batch []byte
		is    func(error) bool
	}{
		{"an unknown version of a record relied on", unknown, func(err error) bool {
			var u *rec.UnknownVersionError
			return errors.As(err, &u)
		}},
		{"a compressed batch", compressed, func(error) bool { return true }},
		{"a log with a hole", encode(t, 5, 3, 0, topicRecord(1, "a")), func(error) bool { return true }},
		{"a corrupt batch", corrupt, func(error) bool { return true }},
		{"a change of a partition that was never announced", encode(t, 0, 3, 0, change(1, 0, func(*rec.PartitionChangeRecord) {})), func(error) bool { return true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t)
			q.set(func() { q.log, q.hw = [][]byte{tt.batch}, 1 })
			_, o, done := observe(t, q)
			select {
			case err := <-done:
				if err == nil || !tt.is(err) {
					t.Fatalf("error %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the observer goes on")
			}
			if o.Lag() < time.Hour {
				t.Errorf("lag %v after the failure, want it endless", o.Lag())
			}
			select {
			case <-o.CaughtUp():
				t.Error("said to have caught up")
			default:
			}
		})
	}
}

// A record type that nothing here relies on may be of any version.
func TestUnknownRecordTypesAreSkipped(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.raw(seal(0, 3, 0, 1, encodeRecord(0, []byte{1, 200, 1, 77, 1, 2, 3})))
	q.commit(topicRecord(1, "a"))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	if _, ok := img.Topic("a"); !ok || img.Offset() != 1 {
		t.Fatalf("offset %d", img.Offset())
	}
}

func TestLagGrowsWithoutAController(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.commit(topicRecord(1, "a"))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	q.set(func() { q.down = errors.New("no controller") })
	deadline := time.Now().Add(10 * time.Second)
	for o.Lag() < 200*time.Millisecond {
		if time.Now().After(deadline) {
			t.Fatal("lag does not grow")
		}
		time.Sleep(10 * time.Millisecond) // polls a clock
	}
	q.set(func() { q.down = nil })
	last := q.commit(topicRecord(2, "b"))
	wait(t, img, "the next record", func() bool { return img.Offset() == last })
	for o.Lag() > 150*time.Millisecond {
		if time.Now().After(deadline) {
			t.Fatal("lag does not shrink")
		}
		time.Sleep(10 * time.Millisecond) // polls a clock
	}
}

// For the race detector: many readers while the log moves and is replaced.
func TestReadersWhileTheLogMoves(t *testing.T) {
	t.Parallel()
	q := newQuorum(t)
	q.commit(topicRecord(1, "a"), partition(1, 0, 1, []int32{10001, 1}, []int32{1}))
	img, o, _ := observe(t, q)
	<-o.CaughtUp()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for epoch := int32(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				p := img.Partition(tp(1, 0))
				if p.PartitionEpoch < epoch {
					t.Errorf("partition epoch went from %d to %d", epoch, p.PartitionEpoch)
					return
				}
				epoch = p.PartitionEpoch
				for _, p := range img.AllPartitions() {
					_ = len(p.ISR) + len(p.Replicas)
				}
				img.TopicPartitions(topicID(1))
				img.Brokers()
				img.TopicConfig("a")
			}
		})
	}
	cancel := img.Subscribe(func(Delta) { img.Offset() })
	var last int64
	for n := range 200 {
		last = q.commit(change(1, 0, func(r *rec.PartitionChangeRecord) { r.ISR = []int32{int32(1 + n%2)} }))
	}
	wait(t, img, "all changes", func() bool { return img.Offset() == last })
	cancel()
	close(stop)
	wg.Wait()
	if got := img.Partition(tp(1, 0)).PartitionEpoch; got != 200 {
		t.Errorf("partition epoch %d, want 200", got)
	}
}

func FuzzNextBatch(f *testing.F) {
	f.Add(encode(f, 3, 1, 0, topicRecord(1, "a"), partition(1, 0, 1, []int32{1}, []int32{1})))
	f.Add(encode(f, 0, 1, controlBit))
	table := crc32.MakeTable(crc32.Castagnoli)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= batchHeader { // let it get past the CRC
			b = slices.Clone(b)
			binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], table))
		}
		bt, size, err := nextBatch(b, table)
		if size < 0 || size > len(b) || err == nil && size > 0 && bt.last < bt.base {
			t.Fatalf("size %d of %d, offsets %d to %d", size, len(b), bt.base, bt.last)
		}
	})
}
