package offsets

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// epochSteps bounds how far back in a log the epoch of an offset is looked for.
const epochSteps = 200

// Epochs fills in the leader epochs of moves: that of the batch before the offset in the log here,
// which is what a consumer commits that has read up to there. A consumer that finds an epoch in
// front of an offset asks whether the log still has that offset of that epoch: with the source's
// epoch it would be told of a truncation that never was, and with none it would not notice one.
//
// Where it cannot be found out it stays -1, which says nothing; the error says why.
func Epochs(ctx context.Context, cl *kgo.Client, ranges map[Partition]Range, moves []*Move) error {
	walks := map[Partition]*walk{}
	for _, m := range moves {
		m.LeaderEpoch = -1
		if r, ok := ranges[m.Partition]; ok && m.To > r.Start {
			w := walks[m.Partition]
			if w == nil {
				w = &walk{lowest: m.To}
				walks[m.Partition] = w
			}
			w.lowest = min(w.lowest, m.To)
		}
	}
	if len(walks) == 0 {
		return nil
	}
	err := walkBack(ctx, cl, walks)
	for _, m := range moves {
		if w := walks[m.Partition]; w != nil {
			m.LeaderEpoch = w.at(m.To)
		}
	}
	return err
}

// stretch is a part of a log of one epoch, from start to before the next one's.
type stretch struct {
	epoch int32
	start int64
}

// walk is what is known of the epochs of a log, newest first. It ends where the lowest offset
// that is asked for is known.
type walk struct {
	lowest int64
	asked  int32
	found  []stretch // the last one without its start
	below  int       // answers that may be to epochs below all that the log has
	done   bool
}

// answer takes what the leader said: the newest epoch up to the one asked for, and where the next
// one begins.
func (w *walk) answer(epoch int32, end int64) {
	n := len(w.found)
	if n > 0 {
		w.found[n-1].start = end
	}
	// Below all that it knows a leader answers with what it was asked for, and with where its log
	// begins: those are no epochs of the log, and have no records.
	if n > 1 && epoch == w.asked && w.found[n-2].start == end {
		w.below++
	} else {
		w.below = 0
	}
	if epoch < 0 || end < 0 || w.below > 1 || n > 0 && end < w.lowest {
		w.done = true
		return
	}
	w.found = append(w.found, stretch{epoch, -1})
	w.asked = epoch - 1
	if w.asked < 0 { // there is none before
		w.done = true
		if w.below == 0 {
			w.found[n].start = 0
		}
	}
}

// at is the epoch of the batch before an offset, -1 if it is not known.
func (w *walk) at(offset int64) int32 {
	for _, s := range w.found {
		if s.start >= 0 && s.start < offset {
			return s.epoch
		}
	}
	return -1
}

func walkBack(ctx context.Context, cl *kgo.Client, walks map[Partition]*walk) error {
	var topics []string
	seen := map[string]bool{}
	for p := range walks {
		if !seen[p.Topic] {
			seen[p.Topic] = true
			topics = append(topics, p.Topic)
		}
	}
	details, err := kadm.NewClient(cl).ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("who leads: %w", err)
	}
	var errs []error
	for p, w := range walks {
		d, ok := details[p.Topic].Partitions[p.Partition]
		if !ok || d.LeaderEpoch < 0 {
			w.done = true
			continue
		}
		w.asked = d.LeaderEpoch
	}
	for range epochSteps {
		ask := map[string]map[int32]int32{}
		for p, w := range walks {
			if w.done {
				continue
			}
			if ask[p.Topic] == nil {
				ask[p.Topic] = map[int32]int32{}
			}
			ask[p.Topic][p.Partition] = w.asked
		}
		if len(ask) == 0 {
			return bounded(errs)
		}
		errs = append(errs, askEpochs(ctx, cl, ask, walks)...)
	}
	return bounded(append(errs, fmt.Errorf("a log of more than %d epochs was not looked through", epochSteps)))
}

func askEpochs(ctx context.Context, cl *kgo.Client, ask map[string]map[int32]int32, walks map[Partition]*walk) (errs []error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1 // a consumer; the default is a debugging replica, which proxies answer differently
	for topic, partitions := range ask {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		for partition, epoch := range partitions {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.LeaderEpoch = partition, epoch
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	answered := map[Partition]bool{}
	for _, shard := range cl.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.OffsetForLeaderEpochResponse)
		if shard.Err != nil || !ok {
			errs = append(errs, fmt.Errorf("ask for epochs: %w", cmpErr(shard.Err, "unexpected answer")))
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				tp := Partition{t.Topic, p.Partition}
				w := walks[tp]
				if w == nil || answered[tp] {
					continue
				}
				answered[tp] = true
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					errs = append(errs, fmt.Errorf("epochs of %s-%d: %w", t.Topic, p.Partition, err))
					w.done = true
					continue
				}
				w.answer(p.LeaderEpoch, p.EndOffset)
			}
		}
	}
	for topic, partitions := range ask {
		for partition := range partitions {
			if tp := (Partition{topic, partition}); !answered[tp] {
				walks[tp].done = true
			}
		}
	}
	return errs
}
