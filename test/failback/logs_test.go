package failback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// rawBatch is a batch with its bytes.
type rawBatch struct {
	harness.Batch
	raw []byte
}

// Where a batch's header holds what a mirror changes.
const (
	epochFrom, epochTo = 12, 16
	crcFrom, crcTo     = 17, 21
	idFrom, idTo       = 43, 51
	idBits             = 48
)

// rawLog reads a partition's log on a broker. Only whole batches are given: it runs.
func rawLog(n *harness.Node, topic string, partition int32) ([]rawBatch, error) {
	dir, err := n.PartitionDir(topic, partition)
	if err != nil {
		return nil, err
	}
	log, err := n.ReadLog(topic, partition)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	out := make([]rawBatch, 0, len(log.Batches))
	for _, b := range log.Batches {
		data, ok := files[b.Segment]
		if !ok {
			if data, err = os.ReadFile(filepath.Join(dir, b.Segment)); err != nil {
				return nil, err
			}
			files[b.Segment] = data
		}
		end := b.Position + int64(b.Size)
		if end > int64(len(data)) {
			return nil, fmt.Errorf("%s-%d on %s changes while it is read", topic, partition, n)
		}
		out = append(out, rawBatch{b, data[b.Position:end]})
	}
	return out, nil
}

// origin is a producer id with the tag of the cluster that handed it out.
func (b rawBatch) origin(cluster string) int64 {
	if id := b.ProducerID; id < 0 || id>>idBits != 0 {
		return id
	}
	return int64(batch.Tag(cluster))<<idBits | b.ProducerID
}

// diff says how two clusters' batches differ where they must not.
func (b rawBatch) diff(cluster string, o rawBatch, other string) error {
	switch {
	case b.BaseOffset != o.BaseOffset || b.LastOffset != o.LastOffset:
		return fmt.Errorf("offsets %d–%d and %d–%d", b.BaseOffset, b.LastOffset, o.BaseOffset, o.LastOffset)
	case !b.Valid || !o.Valid:
		return errors.New("a checksum is wrong")
	case b.origin(cluster) != o.origin(other):
		return fmt.Errorf("producer ids %d and %d", b.ProducerID, o.ProducerID)
	case len(b.raw) != len(o.raw):
		return fmt.Errorf("%d and %d bytes", len(b.raw), len(o.raw))
	}
	for _, part := range [][2]int{{0, epochFrom}, {epochTo, crcFrom}, {crcTo, idFrom}, {idTo, len(b.raw)}} {
		if !bytes.Equal(b.raw[part[0]:part[1]], o.raw[part[0]:part[1]]) {
			return fmt.Errorf("bytes %d to %d are different", part[0], part[1])
		}
	}
	return nil
}

func sameLog(x []rawBatch, cluster string, y []rawBatch, other string) error {
	for i := range min(len(x), len(y)) {
		if err := x[i].diff(cluster, y[i], other); err != nil {
			return fmt.Errorf("offset %d: %w", x[i].BaseOffset, err)
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("%d and %d batches", len(x), len(y))
	}
	return nil
}

// waitEqual waits until every replica of a topic in all the clusters holds the same. None
// of them may be written to meanwhile.
func waitEqual(t *testing.T, topic string, sides ...*side) {
	t.Helper()
	eventually(t, "all replicas of "+topic+" are equal", func(ctx context.Context) error {
		first := sides[0]
		d, err := first.details(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			want, err := rawLog(first.Cluster.Brokers()[0], topic, p.Partition)
			if err != nil {
				return err
			}
			if len(want) == 0 {
				return fmt.Errorf("%s-%d at %s: empty", topic, p.Partition, first.name)
			}
			for _, s := range sides {
				for _, n := range s.Cluster.Brokers() {
					got, err := rawLog(n, topic, p.Partition)
					if err != nil {
						return err
					}
					if err := sameLog(want, first.Cluster.ID(), got, s.Cluster.ID()); err != nil {
						return fmt.Errorf("%s-%d at %s and on broker %d of %s: %w", topic, p.Partition, first.name, n.ID(), s.name, err)
					}
				}
			}
		}
		return nil
	})
}

// bytesOf gives the logs of a topic on every broker, for a look at whether they were touched.
func (s *side) bytesOf(t *testing.T, topic string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	d, err := s.details(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Partitions.Sorted() {
		for _, n := range s.Cluster.Brokers() {
			log, err := rawLog(n, topic, p.Partition)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range log {
				key := fmt.Sprintf("%s-%d on %d", topic, p.Partition, n.ID())
				out[key] = append(out[key], b.raw...)
			}
		}
	}
	return out
}

// untouched fails the test if the logs of a topic are not what they were.
func (s *side) untouched(t *testing.T, topic string, before map[string][]byte) {
	t.Helper()
	for where, now := range s.bytesOf(t, topic) {
		if !bytes.Equal(now, before[where]) {
			t.Errorf("%s is not what it was: %d bytes, before %d", where, len(now), len(before[where]))
		}
	}
}

// replicasAgree waits until the replicas within a cluster hold the same.
func (s *side) replicasAgree(t *testing.T, topic string) {
	t.Helper()
	waitEqual(t, topic, s)
}

// holds tells on which replicas a record's value is still found.
func (s *side) holds(t *testing.T, topic, value string) []string {
	t.Helper()
	var out []string
	for where, log := range s.bytesOf(t, topic) {
		if bytes.Contains(log, []byte(value)) {
			out = append(out, where)
		}
	}
	slices.Sort(out)
	return out
}
