package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Gaps is what the log cleaner has left in one partition.
type Gaps struct {
	Topic     string
	Partition int32
	// Removed offsets below the high watermark, wherever they are; Inside of them are in
	// batches that keep other records, Between of them in no batch at all.
	Removed, Inside, Between int64
	// Empty is the number of batches without any record.
	Empty int64
	// Records that are left, and the high watermark.
	Records, HighWatermark int64
}

// Gaps reads the raw batches of the compacted topics at the load's cluster.
func (l *Load) Gaps(ctx context.Context) ([]Gaps, error) {
	cl, err := l.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r := newReader(cl, readUncommitted)
	var all []Gaps
	for _, t := range l.topics {
		if !t.kind.compacted() {
			continue
		}
		for partition := range l.cfg.Partitions {
			g := Gaps{Topic: t.name, Partition: partition}
			next := int64(0)
			e, err := r.read(ctx, t.name, partition, func(c chunk) error {
				for _, b := range c.batches {
					g.Between += b.base - next
					g.Inside += b.last - b.base + 1 - int64(b.records)
					g.Records += int64(b.records)
					if b.records == 0 {
						g.Empty++
					}
					next = b.last + 1
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			g.Removed, g.HighWatermark = g.Between+g.Inside, e.highWatermark
			all = append(all, g)
		}
	}
	return all, nil
}

// WaitForGaps returns when the cleaner has made gaps between and inside of batches and has
// left empty batches in the compacted topics. Producers must run: the cleaner only takes
// segments that new records have closed.
func (l *Load) WaitForGaps(ctx context.Context) ([]Gaps, error) {
	var gaps []Gaps
	err := poll(ctx, 250*time.Millisecond, func() (bool, error) {
		now, err := l.Gaps(ctx)
		if err != nil {
			return false, err
		}
		gaps = now
		l.log.Debug("gaps", "gaps", gaps)
		// Which partition keeps an empty batch is the cleaner's business: one of a topic is enough.
		empty := make(map[string]int64)
		for _, g := range gaps {
			empty[g.Topic] += g.Empty
		}
		for _, g := range gaps {
			if g.Between == 0 || g.Inside == 0 || empty[g.Topic] == 0 {
				return false, l.Err()
			}
		}
		return true, nil
	})
	if err != nil {
		return gaps, fmt.Errorf("%w; gaps so far: %+v", err, gaps)
	}
	return gaps, nil
}

// FreezeCompaction stops cleaning of what is in the compacted topics and waits until the
// cleaner has put down what it was at. A mirror has its own cleaner, which cleans at other
// times: only frozen topics can be compared batch by batch. Topics mirrored after this
// are frozen at the destination too, since the setting is mirrored.
func (l *Load) FreezeCompaction(ctx context.Context) error {
	cl, err := l.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	var names []string
	for _, t := range l.topics {
		if t.kind.compacted() {
			names = append(names, t.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	year := "31536000000"
	alters := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: &year}}
	resp, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, alters, names...)
	if err != nil {
		return fmt.Errorf("workload: freeze compaction: %w", err)
	}
	for _, r := range resp {
		if r.Err != nil {
			return fmt.Errorf("workload: freeze compaction of %s: %w", r.Name, r.Err)
		}
	}
	// A pass in progress ends within moments on logs of this size: unchanged counts of removed
	// offsets for longer than the cleaner's backoff show it.
	var before []Gaps
	same := 0
	return poll(ctx, 400*time.Millisecond, func() (bool, error) {
		now, err := l.Gaps(ctx)
		if err != nil {
			return false, err
		}
		unchanged := len(before) == len(now)
		for i := 0; unchanged && i < len(now); i++ {
			unchanged = before[i].Removed == now[i].Removed && before[i].Empty == now[i].Empty
		}
		before = now
		if same++; !unchanged {
			same = 0
		}
		return same >= 3, nil
	})
}
