package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// seen is a record as a consumer sees it, in a form that can be compared.
type seen struct {
	partition int32
	offset    int64
	text      string
}

func sortSeen(s []seen) []seen {
	slices.SortStableFunc(s, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return s
}

func fromJava(records []harness.JavaRecord) []seen {
	var out []seen
	for _, r := range records {
		s := seen{r.Partition, r.Offset, fmt.Sprintf("%d %q %q", r.Timestamp, r.Key, r.Value)}
		for _, h := range r.Headers {
			s.text += fmt.Sprintf(" %q=%q", h.Key, h.Value)
		}
		out = append(out, s)
	}
	return sortSeen(out)
}

func fromFranz(r *kgo.Record) seen {
	s := seen{r.Partition, r.Offset, fmt.Sprintf("%d %q %q", r.Timestamp.UnixMilli(), r.Key, r.Value)}
	for _, h := range r.Headers {
		s.text += fmt.Sprintf(" %q=%q", h.Key, h.Value)
	}
	return s
}

func sameSeen(t *testing.T, who string, want, got []seen) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("%s: record %d is %+v, want %+v", who, i, got[i], want[i])
			return
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s: %d records, want %d", who, len(got), len(want))
	}
}

// testReadCommitted reads with Java and with franz-go at both sides, while a transaction
// is open.
func (e *env) testReadCommitted(t *testing.T, topics ...string) {
	sides := []struct {
		name      string
		bootstrap []string
	}{
		{"source", e.src.Bootstrap(harness.ListenerInternal)},
		{"proxies", e.dst.Proxies()},
		{"around the proxies", e.dst.Direct()},
	}
	for _, topic := range topics {
		java := make([][]seen, len(sides))
		var group errgroup.Group
		for i, side := range sides {
			group.Go(func() error {
				records, err := e.dst.Cluster.Installation().Consume(t.Context(), harness.JavaConsume{
					Bootstrap: side.bootstrap, Group: fmt.Sprintf("committed-%s-%d", topic, i), Topic: topic, ReadCommitted: true, Idle: patience,
				})
				java[i] = fromJava(records)
				if err != nil {
					return fmt.Errorf("%s: %w", side.name, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
			continue
		}
		if len(java[0]) == 0 {
			t.Errorf("%s: Java reads nothing at the source", topic)
			continue
		}
		for i, side := range sides {
			sameSeen(t, fmt.Sprintf("%s, Java at the %s", topic, side.name), java[0], java[i])
			got, err := e.readCommitted(t, side.bootstrap, topic, len(java[0]))
			if err != nil {
				t.Errorf("%s, franz-go at the %s: %v", topic, side.name, err)
			}
			sameSeen(t, fmt.Sprintf("%s, franz-go at the %s", topic, side.name), java[0], got)
		}
	}
}

// readCommitted reads a topic from its start until so many records have come, and a moment
// longer.
func (e *env) readCommitted(t *testing.T, bootstrap []string, topic string, count int) ([]seen, error) {
	cl := e.client(t, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200*time.Millisecond))
	defer cl.Close()
	var out []seen
	for len(out) < count {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			return sortSeen(out), fmt.Errorf("after %d of %d records: %w", len(out), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, fromFranz(r)) })
	}
	// Anything more would be what must not be seen.
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { out = append(out, fromFranz(r)) })
	return sortSeen(out), nil
}

// testGroups reads a quiet mirror topic with stock consumer groups in two runs: the second
// one goes on where the first has committed.
func (e *env) testGroups(t *testing.T, topic string) {
	want := e.allRecords(t, topic)
	for _, way := range []struct {
		name  string
		seeds []string
		read  func(ctx context.Context, seeds []string, group, topic string, count int) ([]seen, error)
	}{
		{"java-proxy", e.dst.Proxies(), e.readJava},
		{"java-around", e.dst.Direct(), e.readJava},
		{"franz-proxy", e.dst.Proxies(), readFranz},
		{"franz-around", e.dst.Direct(), readFranz},
		{"sarama-proxy", e.dst.Proxies(), readSarama},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			first, err := way.read(ctx, way.seeds, "group-"+way.name, topic, len(want)/3)
			if err != nil {
				t.Fatalf("first run: %v", err)
			}
			second, err := way.read(ctx, way.seeds, "group-"+way.name, topic, len(want)-len(first))
			if err != nil {
				t.Fatalf("second run: %v", err)
			}
			if len(first) == 0 || len(second) == 0 {
				t.Errorf("%d records in the first run, %d in the second", len(first), len(second))
			}
			sameSeen(t, way.name, want, sortSeen(append(first, second...)))
		})
	}
}

// allRecords reads a quiet topic at the source.
func (e *env) allRecords(t *testing.T, topic string) []seen {
	t.Helper()
	records, err := e.dst.Cluster.Installation().Consume(t.Context(), harness.JavaConsume{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Group: "all-" + topic, Topic: topic, Idle: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	return fromJava(records)
}

func (e *env) readJava(ctx context.Context, seeds []string, group, topic string, count int) ([]seen, error) {
	records, err := e.dst.Cluster.Installation().Consume(ctx, harness.JavaConsume{
		Bootstrap: seeds, Group: group, Topic: topic, Count: count, Idle: patience,
	})
	return fromJava(records), err
}

func readFranz(ctx context.Context, seeds []string, group, topic string, count int) ([]seen, error) {
	cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close() // leaves the group
	var out []seen
	for len(out) < count {
		fetches := cl.PollRecords(ctx, count-len(out))
		if err := fetches.Err(); err != nil {
			return out, fmt.Errorf("after %d of %d records: %w", len(out), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, fromFranz(r)) })
	}
	return out, cl.CommitUncommittedOffsets(ctx)
}

// readSarama speaks the protocol of Kafka 2.1, whose Fetch is older than KIP-392.
func readSarama(ctx context.Context, seeds []string, group, topic string, count int) ([]seen, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_1_0_0
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cg, err := sarama.NewConsumerGroup(seeds, group, cfg)
	if err != nil {
		return nil, err
	}
	defer cg.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &saramaHandler{count: count, done: cancel}
	for ctx.Err() == nil {
		if err := cg.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.out) < count {
		return h.out, fmt.Errorf("%d of %d records: %w", len(h.out), count, ctx.Err())
	}
	return h.out, nil
}

type saramaHandler struct {
	count int
	done  func()

	mu  sync.Mutex
	out []seen
}

func (h *saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}

func (h *saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			if !h.take(m) {
				return nil
			}
			s.MarkMessage(m, "")
		}
	}
}

func (h *saramaHandler) take(m *sarama.ConsumerMessage) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.out) >= h.count {
		return false
	}
	s := seen{m.Partition, m.Offset, fmt.Sprintf("%d %q %q", m.Timestamp.UnixMilli(), m.Key, m.Value)}
	for _, hd := range m.Headers {
		s.text += fmt.Sprintf(" %q=%q", hd.Key, hd.Value)
	}
	if h.out = append(h.out, s); len(h.out) == h.count {
		h.done()
	}
	return true
}
