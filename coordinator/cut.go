package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// This file holds what happens when the state topic loses records that were read from it: its last
// replica was given up by an unclean election, or brokers were restored from a backup. A view that
// kept them would differ from that of a sidecar that starts now; and a barrier would be over before
// it is read, as long as the log is shorter than what was read of it. So everything is forgotten
// that the topic does not have any more. The old view stands until the new one is complete: what it
// says too much is on its way out, but an empty one would say that nothing is mirrored.

// anewPatience is how long records are waited for that have to be there.
const anewPatience = 10 * time.Second

// errCut is the answer to whoever finds out by a write.
var errCut = errors.New("the log has lost records that were read from it, and is being read anew; try again")

// cut takes note that the topic has lost records. Whoever reads it begins anew.
func (s *Store) cut(partition int32, how string) {
	select {
	case s.anew <- struct{}{}:
		s.log.Error("state topic: records that were read are lost, as after an unclean election; the topic is read anew, and what it does not have is forgotten",
			"topic", StateTopic, "partition", partition, "found", how)
	default: // known
	}
}

// lostData tells whether a reader was told that its position lies behind the end of the log.
func lostData(err error) bool {
	var lost *kgo.ErrDataLoss
	return errors.As(err, &lost)
}

// readAnew reads the topic from its beginning to its present end, and lets the view say that and nothing
// else.
func (s *Store) readAnew(ctx context.Context, id ids.UUID) error {
	n := int32(len(s.img.TopicPartitions(id)))
	fresh, misread := NewView(), &misread{}
	cl, err := s.reader(make(map[int32]int64), n)
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := s.ends(ctx, cl, n)
	if err != nil {
		return err
	}
	for p, end := range ends {
		for fresh.position(p) < end {
			if now, known := s.img.Topic(StateTopic); !known || now != id {
				return errors.New("it was deleted meanwhile")
			}
			soon, cancel := context.WithTimeout(ctx, anewPatience)
			fetches := cl.PollFetches(soon)
			cancel()
			records, next := s.decoded(fetches, misread)
			if len(next) == 0 { // its end may be another one by now
				return fmt.Errorf("partition %d does not go on at offset %d of %d: %w", p, fresh.position(p), end, fetches.Err())
			}
			fresh.apply(records, next)
		}
	}
	s.misread.replace(misread)
	s.view.replace(fresh)
	return nil
}

// ends returns how far each partition is committed.
func (s *Store) ends(ctx context.Context, cl *kgo.Client, n int32) (map[int32]int64, error) {
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, StateTopic)
	if err == nil {
		err = ends.Error()
	}
	if err == nil && len(ends[StateTopic]) != int(n) {
		err = fmt.Errorf("%d of %d partitions answered", len(ends[StateTopic]), n)
	}
	if err != nil {
		return nil, err
	}
	out := make(map[int32]int64, n)
	for p, o := range ends[StateTopic] {
		out[p] = o.Offset
	}
	return out, nil
}

// position is the offset of the next record to read.
func (v *View) position(partition int32) int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.next[partition]
}

// replace takes the place of what was read by what another view has read, which is used no more.
func (v *View) replace(by *View) {
	v.mu.Lock()
	v.mirrors, v.topics, v.states, v.lineages, v.owned, v.byID, v.next = by.mirrors, by.topics, by.states, by.lineages, by.owned, by.byID, by.next
	close(v.moved)
	v.moved = make(chan struct{})
	v.mu.Unlock()
	v.publish(Change{Reset: true})
}

// behind finds out whether what was just written stands where records were read before: the log was
// cut. at are the positions of before the write.
func (s *Store) behind(written []*kgo.Record, at map[int32]int64) bool {
	i := slices.IndexFunc(written, func(r *kgo.Record) bool { return r.Offset < at[r.Partition] })
	if i < 0 {
		return false
	}
	s.cut(written[i].Partition, fmt.Sprintf("offset %d is written, up to %d were read", written[i].Offset, at[written[i].Partition]-1))
	return true
}

// positions are those of the partitions that records are written to.
func (s *Store) positions(records []*kgo.Record) map[int32]int64 {
	at := make(map[int32]int64, 1)
	for _, r := range records {
		at[r.Partition] = s.view.position(r.Partition)
	}
	return at
}
