package brokerfaults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// rereadLimit is what may be read from the source a second time: after a takeover the batches
// between the high watermark and the agreed end.
const rereadLimit = 4 << 20

// sizeEnv is the size of bulk in MB, if not what CI or the long form takes.
const sizeEnv = "MIRROR_BROKERFAULTS_MB"

// TestBrokerFaults lets the real brokers of one destination suffer one fault after the other.
func TestBrokerFaults(t *testing.T) {
	bytes := 96 << 20
	if harness.Full() {
		bytes = 2 << 30
	}
	if mb, err := strconv.Atoi(os.Getenv(sizeEnv)); err == nil {
		bytes = mb << 20
	}
	e := start(t, bytes)
	faults := []struct {
		name  string
		short bool // in CI too
		run   func(t *testing.T, e *env)
	}{
		{"disk wiped", true, func(t *testing.T, e *env) { wiped(t, e, true, bytes) }},
		{"log directory fails", true, logDirFails},
		{"follower gave up", true, followerGaveUp},
		{"killed", false, killed},
		{"lags beyond the buffer", false, lags},
		{"throttled", false, throttled},
		{"new follower", false, func(t *testing.T, e *env) { newFollower(t, e, bytes) }},
		{"new disk", false, func(t *testing.T, e *env) { wiped(t, e, false, bytes) }},
		{"rolling restart", false, rollingRestart},
		{"follower gives up for ever", false, followerGivesUpForEver},
	}
	for _, f := range faults {
		if !f.short && !harness.Full() {
			continue
		}
		// What one has left broken says nothing of the next.
		if !t.Run(f.name, func(t *testing.T) { f.run(t, e) }) {
			return
		}
	}
	e.finish(t)
}

// finish ends the load and compares everything.
func (e *env) finish(t *testing.T) {
	if err := e.load.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("written meanwhile: %+v", e.load.Total())
	e.same(t, e.topics)
	e.healthy(t, "in the end", time.Now())
}

// afterwards is what must be so after each fault. bulk is large, and is compared after faults
// that are about it and in the end.
func (e *env) afterwards(t *testing.T, what string, since time.Time, more ...string) {
	t.Helper()
	e.healthy(t, what, since)
	e.moves(t)
	e.same(t, append(e.load.TopicNames(), more...))
}

// wiped: a broker loses its disk and copies everything anew, from a broker that has it.
func wiped(t *testing.T, e *env, keepIDs bool, bytes int) {
	before := e.counters(t)
	written := e.load.Total()
	victim := e.broker(1)
	begun := time.Now()
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Wipe(t.Context(), keepIDs); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the broker was back after %v", time.Since(begun).Round(100*time.Millisecond))
	e.afterwards(t, "disk wiped", begun, bulk)
	e.readOnce(t, before, written.Acked, float64(bytes)*0.8)
}

// readOnce checks that the source was read once, and that at least helped bytes came from
// in-sync real replicas since before.
func (e *env) readOnce(t *testing.T, before map[string]float64, acked int64, helped float64) {
	t.Helper()
	after := e.counters(t)
	fetched := after["kafka_mirror_fetched_bytes_total"] - before["kafka_mirror_fetched_bytes_total"]
	served := after[`kafka_mirror_served_bytes_total{from="replica"}`] - before[`kafka_mirror_served_bytes_total{from="replica"}`]
	// The load wrote meanwhile: a record takes less than this on the wire.
	const record = 1000
	news := float64(e.load.Total().Acked-acked) * record
	t.Logf("read from the source %.1f MB (at most %.1f MB of it new), from in-sync real replicas %.1f MB", fetched/1e6, news/1e6, served/1e6)
	if fetched > news+rereadLimit {
		t.Errorf("%.0f bytes were read from the source for %.0f that are new", fetched, news)
	}
	if served < helped {
		t.Errorf("only %.0f bytes came from in-sync real replicas, not %.0f", served, helped)
	}
}

// logDirFails: one of two log directories of a running broker is gone. The partitions in the
// other go on; those in it come back when the disk was replaced.
func logDirFails(t *testing.T, e *env) {
	victim := e.broker(2)
	dir, err := victim.PartitionDir(bulk, 0)
	if err != nil {
		t.Fatal(err)
	}
	failing := 0
	for i, d := range victim.DataDirs() {
		if strings.HasPrefix(dir, d+string(os.PathSeparator)) {
			failing = i
		}
	}
	begun := time.Now()
	if err := victim.FailDir(failing); err != nil {
		t.Fatal(err)
	}
	e.inISR(t, victim.ID(), bulk, 0, false)
	t.Logf("out of the ISR after %v", time.Since(begun).Round(100*time.Millisecond))
	if !victim.Running() {
		t.Fatalf("%s ended: %s", victim, victim.LogTail())
	}
	e.moves(t)
	e.stops(t, victim)
	if err := victim.ReplaceDir(t.Context(), failing); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.afterwards(t, "log directory failed", begun)
}

// shutdownLimit is well below controlled shutdown's own limit: a broker that was held up would
// wait for longer.
const shutdownLimit = 30 * time.Second

// stops ends a broker in an orderly way, which the virtual brokers must not hold up.
func (e *env) stops(t *testing.T, n *harness.Node) {
	t.Helper()
	begun := time.Now()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	t.Logf("controlled shutdown of broker %d took %v", n.ID(), took.Round(100*time.Millisecond))
	if took > shutdownLimit {
		t.Errorf("controlled shutdown of broker %d took %v", n.ID(), took)
	}
}

// killed: a broker dies and comes back.
func killed(t *testing.T, e *env) {
	before, written := e.counters(t), e.load.Total()
	for id := int32(1); id <= brokers; id++ {
		begun := time.Now()
		victim := e.broker(id)
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
		e.inISR(t, id, bulk, 0, false)
		e.moves(t)
		if err := victim.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.afterwards(t, fmt.Sprintf("broker %d killed", id), begun)
	}
	e.readOnce(t, before, written.Acked, 0)
}

// rollingRestart: each broker in turn ends in an orderly way and comes back.
func rollingRestart(t *testing.T, e *env) {
	before, written := e.counters(t), e.load.Total()
	begun := time.Now()
	for _, n := range e.dst.Cluster.Brokers() {
		last := time.Now()
		e.stops(t, n)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.healthy(t, fmt.Sprintf("broker %d restarted", n.ID()), last)
	}
	e.afterwards(t, "rolling restart", begun)
	e.readOnce(t, before, written.Acked, 0)
}

// lags: a broker stands still for longer than the controllers' session while more than a
// sidecar keeps is written.
func lags(t *testing.T, e *env) {
	before, written := e.counters(t), e.load.Total()
	victim := e.broker(3)
	begun := time.Now()
	if err := victim.Pause(); err != nil {
		t.Fatal(err)
	}
	const more = 4 * bufferBytes
	e.fill(t, more)
	e.inISR(t, victim.ID(), bulk, 0, false)
	// While it was in sync the sidecar kept what it lacks, and read no more.
	e.mirrored(t)
	if err := victim.Resume(); err != nil {
		t.Fatal(err)
	}
	e.afterwards(t, "lagged", begun, bulk)
	e.readOnceMore(t, before, written.Acked, more)
}

// readOnceMore is readOnce when more bytes were written to bulk, most of which a follower got
// from an in-sync replica.
func (e *env) readOnceMore(t *testing.T, before map[string]float64, acked int64, more float64) {
	t.Helper()
	before["kafka_mirror_fetched_bytes_total"] += more * 1.01
	e.readOnce(t, before, acked, more/2)
}

// newFollower: bulk leaves a broker, and comes back to it.
func newFollower(t *testing.T, e *env, bytes int) {
	const id = int32(3)
	before, written := e.counters(t), e.load.Total()
	for _, replicas := range [][]int32{{1, 2}, {1, 2, id}} {
		begun := time.Now()
		e.reassign(t, bulk, 0, replicas)
		want := len(replicas) + 2
		harness.AwaitT(t, 4*patience, fmt.Sprintf("%s on brokers %v", bulk, replicas), func(ctx context.Context) error {
			p, _, err := e.partition(ctx, bulk, 0)
			if err == nil && (len(p.Replicas) != want || len(p.ISR) != want || slices.Contains(p.Replicas, id) != slices.Contains(replicas, id)) {
				err = fmt.Errorf("replicas %v, ISR %v", p.Replicas, p.ISR)
			}
			return err
		})
		t.Logf("reassigned to %v after %v", replicas, time.Since(begun).Round(100*time.Millisecond))
	}
	e.afterwards(t, "a new follower", time.Now(), bulk)
	e.readOnce(t, before, written.Acked, float64(bytes)*0.8)
}

// reassign asks for other real replicas through the proxies, as an operator's tool does.
func (e *env) reassign(t *testing.T, topic string, partition int32, replicas []int32) {
	t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, replicas)
	admin := kadm.NewClient(newClient(t, kgo.SeedBrokers(e.dst.Proxies()...)))
	harness.AwaitT(t, patience, "reassign", func(ctx context.Context) error {
		r, err := admin.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = r.Error()
		}
		return err
	})
}

// throttled: a follower that is behind what a sidecar keeps, and is told to copy slowly, has not
// given up.
func throttled(t *testing.T, e *env) {
	const id = int32(3)
	was, _, err := e.partition(t.Context(), bulk, 0)
	if err != nil {
		t.Fatal(err)
	}
	before, written := e.counters(t), e.load.Total()
	begun := time.Now()
	limit := func(op kadm.IncrementalOp) {
		rate, replicas := "100000", fmt.Sprintf("0:%d", id)
		broker := kadm.AlterConfig{Op: op, Name: "follower.replication.throttled.rate", Value: &rate}
		topic := kadm.AlterConfig{Op: op, Name: "follower.replication.throttled.replicas", Value: &replicas}
		harness.AwaitT(t, patience, "the throttle", func(ctx context.Context) error {
			b, err := e.dstAdmin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{broker}) // of all
			if err == nil {
				err = b[0].Err
			}
			if err != nil {
				return err
			}
			r, err := e.dstAdmin.AlterTopicConfigs(ctx, []kadm.AlterConfig{topic}, bulk)
			if err == nil {
				err = r[0].Err
			}
			return err
		})
	}
	victim := e.broker(id)
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	const more = 4 * bufferBytes
	e.fill(t, more)
	e.inISR(t, id, bulk, 0, false)
	limit(kadm.SetConfig)
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// An answer of 1 MiB keeps it silent for ten seconds. Nothing is to happen meanwhile.
	select {
	case <-time.After(3 * lagMax):
	case <-t.Context().Done():
	}
	if p, _, err := e.partition(t.Context(), bulk, 0); err != nil || slices.Contains(p.ISR, id) {
		t.Fatalf("broker %d is not throttled: ISR %v, %v", id, p.ISR, err)
	}
	e.moves(t)
	limit(kadm.DeleteConfig)
	e.afterwards(t, "throttled", begun, bulk)
	if now, _, err := e.partition(t.Context(), bulk, 0); err != nil || now.LeaderEpoch != was.LeaderEpoch {
		t.Errorf("leader epoch %d, %v; it was %d", now.LeaderEpoch, err, was.LeaderEpoch)
	}
	e.readOnceMore(t, before, written.Acked, more)
}
