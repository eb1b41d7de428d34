package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
)

// This file holds what happens when the state topic loses records that were read from it: its last
// replica was given up by an unclean election, or brokers were restored from a backup. A view that
// kept them would differ from that of a sidecar that starts now; and a barrier would be over before
// it is read, as long as the log is shorter than what was read of it. So everything is forgotten
// that the topic does not have any more. The old view stands until the new one is complete: what it
// says too much is on its way out, but an empty one would say that nothing is mirrored.

const (
	// anewPatience is how long records are waited for that have to be there.
	anewPatience = 10 * time.Second
	// anewAtOnce is how many partitions are read anew at the same time.
	anewAtOnce = 8
)

// errCut is the answer to whoever finds out by a write.
var errCut = errors.New("the log has lost records that were read from it, and is being read anew; try again")

// cut takes note that a partition has lost records. Whoever reads begins anew, with all partitions:
// what has happened to one may have happened to others, whose logs are long again by now.
func (s *Store) cut(partition int32, how string) {
	s.lostMu.Lock()
	known := s.lost[partition] > 0
	if !known {
		s.cuts++
		for p := range s.Partitions() {
			s.lost[p] = s.cuts
		}
		s.lost[partition] = s.cuts
	}
	s.lostMu.Unlock()
	if known {
		return
	}
	s.log.Error("state topic: records that were read are lost, as after an unclean election; the topic is read anew, and what it does not have is forgotten",
		"topic", StateTopic, "partition", partition, "found", how)
	select {
	case s.anew <- struct{}{}:
	default: // who reads has not begun again yet
	}
}

// lostBy returns which cut has lost a partition's records, 0 if they are not lost.
func (s *Store) lostBy(partition int32) int {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	return s.lost[partition]
}

// found takes note that a partition was read anew, unless it was cut once more meanwhile.
func (s *Store) found(partition int32, lostBy int) bool {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	if s.lost[partition] != lostBy {
		return false
	}
	delete(s.lost, partition)
	return true
}

// noneLost forgets what was lost with a topic that is another one now.
func (s *Store) noneLost() {
	s.lostMu.Lock()
	defer s.lostMu.Unlock()
	clear(s.lost)
}

// lostData tells whether a reader was told that its position lies behind the end of the log.
func lostData(err error) bool {
	var lost *kgo.ErrDataLoss
	return errors.As(err, &lost)
}

// findAgain reads partitions, of n, that have lost records anew, each however often that takes, and has
// each read on by cl at once: one that nobody leads holds up no other. It returns when all are done, or
// ctx ends.
func (s *Store) findAgain(ctx context.Context, cl *kgo.Client, id ids.UUID, lost []int32, n int32) {
	var work sync.WaitGroup
	reading := make(chan struct{}, anewAtOnce)
	for _, p := range lost {
		work.Go(func() {
			for ctx.Err() == nil {
				which := s.lostBy(p)
				err := s.readAnew(ctx, reading, id, p, n)
				switch {
				case err == nil && s.found(p, which):
					cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{StateTopic: {p: kgo.NewOffset().At(s.view.position(p))}})
					return
				case err != nil && ctx.Err() == nil:
					s.log.Error("state topic: a partition cannot be read anew, trying again", "topic", StateTopic, "partition", p, "err", err)
				}
				pause(ctx, time.Second)
			}
		})
	}
	work.Wait()
}

// readAnew reads a partition, of n, from its beginning to its present end, and lets the view say
// that of it and nothing else. It takes a place in reading only once its leader has answered.
func (s *Store) readAnew(ctx context.Context, reading chan struct{}, id ids.UUID, partition, n int32) error {
	end, err := s.end(ctx, s.barriers, partition)
	if err != nil {
		return err
	}
	select {
	case reading <- struct{}{}:
		defer func() { <-reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	fresh, misread := NewView(), &misread{}
	cl, err := s.reader(map[int32]int64{partition: 0})
	if err != nil {
		return err
	}
	defer cl.Close()
	for fresh.position(partition) < end {
		if now, known := s.img.Topic(StateTopic); !known || now != id {
			return errors.New("it was deleted meanwhile")
		}
		soon, cancel := context.WithTimeout(ctx, anewPatience)
		fetches := cl.PollFetches(soon)
		cancel()
		records, next := s.decoded(fetches, misread)
		if len(next) == 0 { // its end may be another one by now
			return fmt.Errorf("it does not go on at offset %d of %d: %w", fresh.position(partition), end, fetches.Err())
		}
		fresh.apply(records, next)
	}
	if ctx.Err() != nil {
		return ctx.Err() // the topic may be another one
	}
	s.misread.replace(partition, misread)
	s.view.replace(partition, n, fresh)
	return nil
}

// end returns how far a partition is committed, whatever becomes of the others.
func (s *Store) end(ctx context.Context, cl *kgo.Client, partition int32) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, anewPatience)
	defer cancel()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = StateTopic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel, req.Topics = 1, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, fmt.Errorf("ask for its end: %w", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("ask for its end: no answer")
	}
	answer := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, fmt.Errorf("ask for its end: %w", err)
	}
	return answer.Offset, nil
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

// replace takes the place of what was read of a partition, of n, by what another view has read of it.
func (v *View) replace(partition, n int32, by *View) {
	there := func(r record) bool { return statePartition(r.coordinatorKey(), n) == partition }
	v.mu.Lock()
	maps.DeleteFunc(v.mirrors, func(k string, _ Mirror) bool { return there(record{kind: kindMirror, mirror: k}) })
	maps.DeleteFunc(v.topics, func(k topicKey, _ Topic) bool { return there(record{kind: kindTopic, topic: k}) })
	maps.DeleteFunc(v.states, func(k partitionKey, _ PartitionState) bool { return there(record{kind: kindState, partition: k}) })
	maps.DeleteFunc(v.lineages, func(k partitionKey, _ lineage.Record) bool { return there(record{kind: kindLineage, partition: k}) })
	maps.DeleteFunc(v.owned, func(k ownedKey, _ owned) bool { return there(record{kind: kindOwned, owned: k}) })
	for id, keys := range v.byID {
		if v.byID[id] = slices.DeleteFunc(keys, func(k topicKey) bool { return there(record{kind: kindTopic, topic: k}) }); len(v.byID[id]) == 0 {
			delete(v.byID, id)
		}
	}
	maps.Copy(v.mirrors, by.mirrors)
	maps.Copy(v.topics, by.topics)
	maps.Copy(v.states, by.states)
	maps.Copy(v.lineages, by.lineages)
	maps.Copy(v.owned, by.owned)
	for id, keys := range by.byID {
		v.byID[id] = append(v.byID[id], keys...)
	}
	v.next[partition] = by.next[partition]
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
