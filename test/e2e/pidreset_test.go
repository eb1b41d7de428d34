package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestPIDReset stops topics of a mirror with mirror.stop.pid.reset: the last of what was
// mirrored is followed by the KIP's control record, of which no broker and no client has
// heard, and every client reads past it.
func TestPIDReset(t *testing.T) {
	e := start(t, destination(harness.Version44, 2))
	const mirror = "reset"
	const plain, transactional, paused, empty = "reset-plain", "reset-transactional", "reset-paused", "reset-empty"
	topics := []string{plain, transactional, paused, empty}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", mirrorConfig(t, map[string]string{
		"bootstrap.servers": strings.Join(e.src.Bootstrap(harness.ListenerInternal), ","), "mirror.stop.pid.reset": "true",
	}))
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	for _, topic := range topics {
		e.createSource(t, 1, topic, "retention.ms", "-1")
		if topic != empty {
			write(t, producer, topic, 1, 30, "mirrored")
		}
	}
	e.sourceTransactions(t, transactional)
	e.mirrorTopics(t, mirror, topics...)
	e.waitMirrored(t, topics...)
	e.pause(t, mirror, paused)
	end := map[string]int64{}
	for _, topic := range topics {
		m, err := ends(t.Context(), e.srcAdmin, topic)
		if err != nil {
			t.Fatal(err)
		}
		end[topic] = m[0]
	}
	e.stopTopics(t, mirror, topics...)
	described, err := e.describe(t.Context(), mirror)
	if err != nil {
		t.Fatal(err)
	}
	markers := map[string]int64{transactional: 1} // for the one that was open
	local := e.writer(t, e.dst.Proxies())
	for _, topic := range topics {
		p := described[topic][0]
		if p.LastMirrorOffset != end[topic] {
			t.Errorf("%s: last mirror offset %d, the source ends at %d", topic, p.LastMirrorOffset, end[topic])
		}
		e.checkReset(t, topic, end[topic], p.LastMirrorEpoch)
		after, err := ends(t.Context(), e.dstAdmin, topic)
		if err != nil {
			t.Fatal(err)
		}
		if want := end[topic] + 1 + markers[topic]; after[0] != want {
			t.Errorf("%s: ends at %d after the stop, want %d", topic, after[0], want)
		}
		write(t, local, topic, 1, 10, "local")
	}
	e.sameReplicas(t, topics...)
	for _, topic := range []string{plain, transactional} {
		for _, committed := range []bool{false, true} {
			e.readPast(t, topic, committed)
		}
	}
}

// checkReset looks for the record in the log of each real broker.
func (e *env) checkReset(t *testing.T, topic string, at int64, lastMirrorEpoch int32) {
	t.Helper()
	for _, n := range e.dst.Cluster.Brokers() {
		var found bool
		err := harness.Await(t.Context(), patience, func(context.Context) error {
			log, err := rawLog(n, topic, 0)
			if err != nil {
				return err
			}
			for _, raw := range log {
				b := batch.Batch(raw.raw)
				if b.BaseOffset() != at {
					continue
				}
				found = true
				if !b.IsControl() || b.ProducerID() != -1 || b.Count() != 1 || b.LastOffset() != at || b.Verify() != nil || b.LeaderEpoch() <= lastMirrorEpoch {
					t.Errorf("%s on %s: at %d is %x", topic, n, at, raw.raw)
				}
				if key := raw.raw[batch.HeaderSize+5 : batch.HeaderSize+9]; !slices.Equal(key, []byte{0, 0, 0, 7}) {
					t.Errorf("%s on %s: the record's key is %x", topic, n, key)
				}
				return nil
			}
			return errors.New("the record is not there")
		})
		if err != nil || !found {
			t.Errorf("%s on %s at %d: %v", topic, n, at, err)
		}
	}
}

// sourceTransactions leaves a committed, an aborted and an open transaction at the source.
func (e *env) sourceTransactions(t *testing.T, topic string) {
	t.Helper()
	for _, how := range []string{"committed", "aborted", "open"} {
		cl := e.writer(t, e.src.Bootstrap(harness.ListenerInternal), kgo.TransactionalID("reset-"+how), kgo.TransactionTimeout(10*time.Minute))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		write(t, cl, topic, 1, 5, how)
		if how == "open" {
			continue
		}
		if err := cl.EndTransaction(t.Context(), kgo.TransactionEndTry(how == "committed")); err != nil {
			t.Fatal(err)
		}
	}
}

// readPast reads a stopped topic with each client, and compares what they see with what
// the brokers' logs must show.
func (e *env) readPast(t *testing.T, topic string, committed bool) {
	isolation := "read_uncommitted"
	if committed {
		isolation = "read_committed"
	}
	var want []string
	for _, r := range e.visible(t, topic, committed) {
		want = append(want, fmt.Sprintf("%d %s", r.Offset, r.Value))
	}
	if len(want) == 0 || !strings.Contains(want[len(want)-1], "local-9") {
		t.Fatalf("%s, %s, Java: %v", topic, isolation, want)
	}
	for name, read := range map[string]func(t *testing.T) ([]string, error){
		"franz-go": func(t *testing.T) ([]string, error) {
			level := kgo.ReadUncommitted()
			if committed {
				level = kgo.ReadCommitted()
			}
			cl := e.client(t, e.dst.Proxies(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level))
			var out []string
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for len(out) < len(want) {
				fetches := cl.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					return out, err
				}
				fetches.EachRecord(func(r *kgo.Record) { out = append(out, fmt.Sprintf("%d %s", r.Offset, r.Value)) })
			}
			return out, nil
		},
		"sarama": func(t *testing.T) ([]string, error) {
			return saramaPartition(t.Context(), e.dst.Proxies(), topic, committed, len(want))
		},
		"librdkafka": func(t *testing.T) ([]string, error) { return e.librdkafka(t, topic, isolation) },
	} {
		t.Run(fmt.Sprintf("%s %s %s", topic, isolation, name), func(t *testing.T) {
			got, err := read(t)
			if err != nil {
				t.Errorf("after %d of %d records: %v", len(got), len(want), err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("read %d records %q, Java %d %q", len(got), got, len(want), want)
			}
		})
	}
}

// visible is what Kafka's own Java consumer reads.
func (e *env) visible(t *testing.T, topic string, committed bool) []harness.JavaRecord {
	t.Helper()
	records, err := e.dst.Cluster.Installation().Consume(t.Context(), harness.JavaConsume{
		Bootstrap: e.dst.Proxies(), Group: fmt.Sprintf("past-%s-%t", topic, committed), Topic: topic, ReadCommitted: committed, Idle: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func saramaPartition(ctx context.Context, seeds []string, topic string, committed bool, count int) ([]string, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.Return.Errors = true
	if committed {
		cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	c, err := sarama.NewConsumer(seeds, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out []string
	for len(out) < count {
		select {
		case m := <-p.Messages():
			out = append(out, fmt.Sprintf("%d %s", m.Offset, m.Value))
		case err := <-p.Errors():
			return out, err
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
	return out, nil
}

// librdkafka reads a topic with librdkafka. The test is skipped where it cannot be had.
func (e *env) librdkafka(t *testing.T, topic, isolation string) ([]string, error) {
	t.Helper()
	install, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	python, err := harness.Librdkafka(install)
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, filepath.Join("testdata", "consume.py"), strings.Join(e.dst.Proxies(), ","), topic, isolation).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
}
