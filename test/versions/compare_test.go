package versions

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// rawBatch is a batch with its bytes.
type rawBatch struct {
	harness.Batch
	raw []byte
}

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
		out = append(out, rawBatch{b, data[b.Position : b.Position+int64(b.Size)]})
	}
	return out, nil
}

// tagBits is where a mirrored producer id holds the tag of the cluster it comes from.
const tagBits = 48

// kept are the parts of a batch that a mirror leaves as they are: not the leader epoch, the
// checksum and the producer id.
func kept(raw []byte) [][]byte { return [][]byte{raw[:12], raw[16:17], raw[21:43], raw[51:]} }

// compareLogs says where a replica's log is not the source's. More at its end is what came after
// the stop.
func compareLogs(source, replica []rawBatch) error {
	if len(replica) < len(source) {
		return fmt.Errorf("%d batches, %d at the source", len(replica), len(source))
	}
	for i, s := range source {
		if err := compareBatches(s, replica[i]); err != nil {
			return fmt.Errorf("offset %d: %w", s.BaseOffset, err)
		}
	}
	return nil
}

func compareBatches(s, d rawBatch) error {
	switch {
	case s.BaseOffset != d.BaseOffset || s.LastOffset != d.LastOffset:
		return fmt.Errorf("offsets %d-%d at the source, %d-%d here", s.BaseOffset, s.LastOffset, d.BaseOffset, d.LastOffset)
	case !d.Valid:
		return errors.New("its checksum is wrong")
	case s.ProducerID < 0 && d.ProducerID != s.ProducerID, s.ProducerID >= 0 && (d.ProducerID>>tagBits == 0 || d.ProducerID&(1<<tagBits-1) != s.ProducerID):
		return fmt.Errorf("producer id %d at the source, %d here", s.ProducerID, d.ProducerID)
	case len(s.raw) != len(d.raw):
		return fmt.Errorf("%d bytes at the source, %d here", len(s.raw), len(d.raw))
	}
	want, got := kept(s.raw), kept(d.raw)
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			return errors.New("the bytes are different")
		}
	}
	return nil
}
