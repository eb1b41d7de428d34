package consumers

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
)

// testVirtual reads at the virtual brokers' own listeners, where who comes around the proxies lands:
// consumers that can be sent to a real replica are, the others are served.
func (e *env) testVirtual(t *testing.T) {
	source := e.source(t)
	const partition = 1
	known := learn(t, source, plain, partition, 0)
	here := learn(t, e.proxies(t)[0], plain, partition, 0)
	hw := fetchOne(t, source, addFetch(fetchRequest(maxFetch, 0, -1, 0), source, plain, partition, 0)).HighWatermark
	for i, s := range e.virtuals(t) {
		for version := minFetch; version <= maxFetch; version++ {
			for isolation := range int8(2) {
				for _, offset := range []int64{0, 8, hw - 1, hw, hw + 1} {
					e.same(t, func() string {
						return virtualDiffers(t, e, source, s, i, version, isolation, offset, known, here)
					})
				}
			}
		}
	}
	e.saramaAround(t)
}

// virtualDiffers compares one Fetch, and tells of a difference.
func virtualDiffers(t *testing.T, e *env, source, s side, i int, version int16, isolation int8, offset int64, known, here producers) string {
	const partition = 1
	got := fetchOne(t, s, addFetch(fetchRequest(version, 0, -1, isolation), s, plain, partition, offset))
	leads := e.leads(t, plain, partition) == e.dst.Sidecars[i]
	switch {
	case version < 11:
		want := known.answer(t, fetchOne(t, source, addFetch(fetchRequest(version, 0, -1, isolation), source, plain, partition, offset)))
		if got := here.answer(t, got); !reflect.DeepEqual(want, got) {
			return fmt.Sprintf("%s: v%d, isolation level %d, at %d:\n%+v\nthe source:\n%+v", s.name, version, isolation, offset, got, want)
		}
	case leads && (got.ErrorCode != 0 || got.PreferredReadReplica < 1 || got.PreferredReadReplica > brokers || len(got.RecordBatches) > 0):
		return fmt.Sprintf("%s: v%d: %+v", s.name, version, got)
	case !leads && got.ErrorCode != kerr.NotLeaderForPartition.Code:
		return fmt.Sprintf("%s, which does not lead: v%d: error %d", s.name, version, got.ErrorCode)
	}
	return ""
}

// saramaAround reads with a client that is older than fetches from followers.
func (e *env) saramaAround(t *testing.T) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_1_0_0
	consumer, err := sarama.NewConsumer(e.dst.Direct(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	want := e.offsetsAt(t, []string{e.srcAddr}, plain, 1, false)
	pc, err := consumer.ConsumePartition(plain, 1, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	timeout := time.After(patience)
	var got []int64
	for len(got) < len(want) {
		select {
		case m := <-pc.Messages():
			got = append(got, m.Offset)
		case <-timeout:
			t.Fatalf("%d of %d records", len(got), len(want))
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sarama reads %v, want %v", got, want)
	}
}
