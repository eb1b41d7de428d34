package availability

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// part names a partition.
type part struct {
	topic     string
	partition int32
}

// sight is what was seen of a partition at a time.
type sight struct {
	at     time.Time
	leader int32
	end    int64 // of the log of a real replica
}

// watchEvery is the time between two looks.
const watchEvery = 40 * time.Millisecond

// watch looks at all partitions, at one real broker, and remembers what changed.
type watch struct {
	cl     *kgo.Client
	broker int
	topics []string

	mu   sync.Mutex // guards the following
	seen map[part][]sight
}

// watch begins to look and ends with the test.
func (e *env) watch(t *testing.T, topics []string) *watch {
	w := &watch{cl: e.dst.Cluster.ClientT(t), broker: int(e.dst.Cluster.Brokers()[0].ID()), topics: topics, seen: map[part][]sight{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			w.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// look takes one look; what cannot be asked now is asked next time.
func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leaders, err := w.leaders(ctx)
	if err != nil {
		return
	}
	ends, err := w.ends(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, end := range ends {
		s := sight{at: now, leader: leaders[p], end: end}
		if all := w.seen[p]; len(all) == 0 || all[len(all)-1].leader != s.leader || all[len(all)-1].end != s.end {
			w.seen[p] = append(all, s)
		}
	}
}

func (w *watch) leaders(ctx context.Context) (map[part]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range w.topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	resp, err := w.cl.Broker(w.broker).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	out := map[part]int32{}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			out[part{*t.Topic, p.Partition}] = p.Leader
		}
	}
	return out, nil
}

// ends asks the broker's own replicas for their log ends: a debugging replica id is answered
// whoever leads.
func (w *watch) ends(ctx context.Context) (map[part]int64, error) {
	leaders, err := w.leaders(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -2
	for _, topic := range w.topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for q := range leaders {
			if q.topic == topic {
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Partition, p.Timestamp, p.CurrentLeaderEpoch = q.partition, -1, -1
				t.Partitions = append(t.Partitions, p)
			}
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := w.cl.Broker(w.broker).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	out := map[part]int64{}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err)
			}
			out[part{t.Topic, p.Partition}] = p.Offset
		}
	}
	return out, nil
}

// failover is how long partitions took to go on after their leader was lost.
type failover struct {
	partitions int
	led        time.Duration // until another one led the last of them
	moved      time.Duration // until the last of them had new records
}

func (f failover) String() string {
	return fmt.Sprintf("%d partitions: led by others after %s, new records in all after %s", f.partitions, f.led.Round(10*time.Millisecond), f.moved.Round(10*time.Millisecond))
}

// ledBy returns the partitions that a broker led last.
func (w *watch) ledBy(leader int32) []part {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []part
	for p, all := range w.seen {
		if len(all) > 0 && all[len(all)-1].leader == leader {
			out = append(out, p)
		}
	}
	return out
}

// since tells how far the fail-over of partitions has come that a broker led until begin.
func (w *watch) since(begin time.Time, leader int32, parts []part) (failover, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := failover{partitions: len(parts)}
	for _, p := range parts {
		var led, moved time.Time
		end := int64(-1)
		for _, s := range w.seen[p] {
			switch {
			case s.at.Before(begin) || s.leader == leader || s.leader < 0:
			case led.IsZero():
				led, end = s.at, s.end
			case s.end > end && moved.IsZero():
				moved = s.at
			}
		}
		if led.IsZero() || moved.IsZero() {
			return f, fmt.Errorf("%s-%d: led by another one since %v, new records since %v", p.topic, p.partition, led, moved)
		}
		f.led, f.moved = max(f.led, led.Sub(begin)), max(f.moved, moved.Sub(begin))
	}
	return f, nil
}
