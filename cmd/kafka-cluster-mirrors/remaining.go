package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// remaining is what a switchover still waits for.
type remaining struct {
	ends map[topicPartition]int64 // of the source
	lag  int64
	// behind and open name partitions that are not all here, or have an open transaction.
	behind, open []string
}

// stateError is a partition that has left the state in which a switchover can go on.
type stateError struct{ text string }

func (e *stateError) Error() string { return e.text }

// left compares the source, as it says itself, with the mirror.
func (s *switchover) left(ctx context.Context, m protocol.DescribedMirror) (*remaining, error) {
	ends, err := offsetsOf(s.srcAdmin.ListEndOffsets(ctx, s.moving...))
	if err != nil {
		return nil, fmt.Errorf("ends of the source: %w", err)
	}
	stable, err := offsetsOf(s.srcAdmin.ListCommittedOffsets(ctx, s.moving...))
	if err != nil {
		return nil, fmt.Errorf("stable ends of the source: %w", err)
	}
	return compareEnds(m, s.moving, ends, stable)
}

func offsetsOf(l kadm.ListedOffsets, err error) (map[topicPartition]int64, error) {
	if err == nil {
		err = l.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[topicPartition]int64{}
	l.Each(func(o kadm.ListedOffset) { out[topicPartition{o.Topic, o.Partition}] = o.Offset })
	return out, nil
}

// compareEnds decides what is left of topics, given the ends at the source and where
// its oldest open transactions begin.
func compareEnds(m protocol.DescribedMirror, topics []string, ends, stable map[topicPartition]int64) (*remaining, error) {
	r := &remaining{ends: ends}
	seen := map[topicPartition]bool{}
	for _, t := range m.Topics {
		if !slices.Contains(topics, t.TopicName) {
			continue
		}
		for _, p := range t.Partitions {
			tp := topicPartition{t.TopicName, p.PartitionIndex}
			seen[tp] = true
			if state := coordinator.State(p.State); state != coordinator.Mirroring {
				return nil, &stateError{fmt.Sprintf("%s-%d is %s", t.TopicName, p.PartitionIndex, stateText(p))}
			}
			end, ok := ends[tp]
			switch {
			case !ok:
				return nil, &stateError{fmt.Sprintf("%s-%d does not exist at the source", t.TopicName, p.PartitionIndex)}
			case p.DestinationOffset < 0:
				r.behind = append(r.behind, fmt.Sprintf("%s-%d (its end here is not known)", t.TopicName, p.PartitionIndex))
			case p.DestinationOffset < end:
				r.lag += end - p.DestinationOffset
				r.behind = append(r.behind, fmt.Sprintf("%s-%d", t.TopicName, p.PartitionIndex))
			}
		}
	}
	for tp, end := range ends {
		if !seen[tp] {
			r.behind = append(r.behind, fmt.Sprintf("%s-%d (not created here yet)", tp.topic, tp.partition))
		}
		if stable[tp] < end {
			r.open = append(r.open, fmt.Sprintf("%s-%d (from offset %d)", tp.topic, tp.partition, stable[tp]))
		}
	}
	slices.Sort(r.behind)
	slices.Sort(r.open)
	return r, nil
}

func (r *remaining) none() bool { return len(r.behind) == 0 && len(r.open) == 0 }

func (r *remaining) sameEnds(o *remaining) bool {
	if len(r.ends) != len(o.ends) {
		return false
	}
	for tp, end := range r.ends {
		if old, ok := o.ends[tp]; !ok || old != end {
			return false
		}
	}
	return true
}

func (r *remaining) text() string {
	var parts []string
	if len(r.behind) > 0 {
		parts = append(parts, fmt.Sprintf("lag %d in %s", r.lag, some(r.behind)))
	}
	if len(r.open) > 0 {
		parts = append(parts, "transactions are open at the source in "+some(r.open))
	}
	if len(parts) == 0 {
		return "lag 0, no transaction is open at the source"
	}
	return strings.Join(parts, "; ")
}

// some lists the first few.
func some(list []string) string {
	const shown = 3
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}
