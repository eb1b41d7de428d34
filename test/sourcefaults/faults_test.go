package sourcefaults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestSource is what a source does, or what happens on the way to it, that costs no record.
func TestSource(t *testing.T) {
	versions := []string{harness.Version44}
	if harness.Full() {
		versions = append(versions, harness.Version39)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			harness.SkipShort(t)
			e := start(t, version)
			e.feed(t)
			for _, tc := range []struct {
				name string
				full bool // takes long
				run  func(t *testing.T, e *env)
			}{
				{"leaders move", false, leadersMove},
				{"a damaged batch", false, damagedBatch},
				{"retention overtakes the mirror", false, retentionOvertakes},
				{"half open", false, halfOpen},
				{"cut off", false, cutOff},
				{"slow and lossy", true, slowAndLossy},
				{"throttled", true, throttled},
				{"rolling restart", true, rollingRestart},
				{"full outage", true, outage},
				{"a message of long ago", true, oldMagic},
			} {
				if tc.full && !harness.Full() {
					continue
				}
				if !t.Run(tc.name, func(t *testing.T) { tc.run(t, e) }) {
					t.FailNow() // the next fault would meet a mirror that is not well
				}
			}
			e.ended(t)
		})
	}
}

// ended ends the load and looks at what consumers of the mirror see.
func (e *env) ended(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	e.settled(t, "at last", time.Now())
	e.check(t)
}

// leadersMove moves every leader of the load, by a reassignment and by an election.
func leadersMove(t *testing.T, e *env) {
	topics := e.load.TopicNames()
	d, err := e.srcAdmin.ListTopics(t.Context(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	var req kadm.AlterPartitionAssignmentsReq
	elect := kadm.TopicsSet{}
	preferred := map[string]map[int32]int32{}
	for _, name := range topics {
		preferred[name] = map[int32]int32{}
		for _, p := range d[name].Partitions {
			replicas := append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0])
			req.Assign(name, p.Partition, replicas)
			elect.Add(name, p.Partition)
			preferred[name][p.Partition] = replicas[0]
		}
	}
	if r, err := e.srcAdmin.AlterPartitionAssignments(t.Context(), req); err != nil || r.Error() != nil {
		t.Fatal(errors.Join(err, r.Error()))
	}
	began := time.Now()
	harness.AwaitT(t, patience, "the leaders moved", func(ctx context.Context) error {
		_, err := e.srcAdmin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
		if err != nil {
			return err
		}
		d, err := e.srcAdmin.ListTopics(ctx, topics...)
		if err != nil {
			return err
		}
		for name, parts := range preferred {
			for p, want := range parts {
				if got := d[name].Partitions[p].Leader; got != want {
					return fmt.Errorf("%s-%d is led by %d, not %d", name, p, got, want)
				}
			}
		}
		return nil
	})
	e.moves(t, 50)
	e.settled(t, "leaders moved", began)
}

// cutOff resets every connection of the sidecars to the source, and every new one.
func cutOff(t *testing.T, e *env) {
	before := e.toSource.Stats()
	began := time.Now()
	e.toSource.Cut()
	e.waitDetail(t, "SOURCE_UNAVAILABLE", e.load.TopicNames()...)
	t.Logf("SOURCE_UNAVAILABLE after %v", time.Since(began).Round(100*time.Millisecond))
	e.moves(t, 400) // some seconds
	after, took := e.toSource.Stats(), time.Since(began)
	tries := after.Refused - before.Refused
	t.Logf("%d connections were tried in %v", tries, took.Round(100*time.Millisecond))
	if most := int64(brokers * 10 * (took.Seconds() + 1)); tries > most {
		t.Errorf("%d connections were tried in %v by %d sidecars: that is no backoff", tries, took, brokers)
	}
	restored := time.Now()
	e.toSource.Restore()
	e.settled(t, "cut off", restored)
}

// halfOpen silences every connection for good: only timeouts can end them.
func halfOpen(t *testing.T, e *env) {
	before := e.toSource.Stats()
	e.toSource.HalfOpen()
	e.waitDetail(t, "SOURCE_UNAVAILABLE", e.load.TopicNames()...)
	e.toSource.Restore()
	restored := time.Now()
	e.settled(t, "half open", restored)
	if after := e.toSource.Stats(); after.Opened == before.Opened {
		t.Error("no new connection was made")
	}
}

// slowAndLossy delays everything, cuts it into pieces and resets connections again and again.
func slowAndLossy(t *testing.T, e *env) {
	before := e.toSource.Stats()
	if err := e.toSource.Latency(100*time.Millisecond, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := e.toSource.Slice(2000, 100*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	e.toSource.ResetAfter(50 << 10)
	e.moves(t, 300)
	harness.AwaitT(t, patience, "connections were reset", func(context.Context) error {
		if n := e.toSource.Stats().Reset - before.Reset; n < 3 {
			return fmt.Errorf("%d resets", n)
		}
		return nil
	})
	e.settled(t, "slow and lossy, still", time.Now())
	t.Logf("%d connections were reset", e.toSource.Stats().Reset-before.Reset)
	e.toSource.Restore()
	e.settled(t, "slow and lossy", time.Now())
}

// throttled is a quota of the source on the mirror's client ids.
func throttled(t *testing.T, e *env) {
	const topic = "throttled"
	quota := func(remove bool) {
		t.Helper()
		var entries []kadm.AlterClientQuotaEntry
		for _, c := range e.dst.Sidecars {
			name := fmt.Sprintf("mirror-%s-broker-%d-fetcher-0", mirror, c.Broker)
			entries = append(entries, kadm.AlterClientQuotaEntry{
				Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
				// Less than is written however slowly a busy machine does it.
				Ops: []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: 50_000, Remove: remove}},
			})
		}
		r, err := e.srcAdmin.AlterClientQuotas(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r {
			if x.Err != nil {
				t.Fatalf("quota of %v: %v %s", x.Entity, x.Err, x.ErrMessage)
			}
		}
	}
	e.create(t, 1, 1, topic)
	e.mirror(t, topic)
	quota(false)
	slowed, requests, began := e.counter(t, "kafka_mirror_source_throttle_seconds_total"), e.counter(t, "kafka_mirror_fetch_requests_total"), time.Now()
	e.write(t, topic, 1, 15, 100_000)
	e.waitDetail(t, "THROTTLED", topic)
	harness.AwaitT(t, patience, "throttling is counted", func(context.Context) error {
		if now := e.counter(t, "kafka_mirror_source_throttle_seconds_total"); now < slowed+2 {
			return fmt.Errorf("%v seconds, %v before", now, slowed)
		}
		return nil
	})
	asked, took := e.counter(t, "kafka_mirror_fetch_requests_total")-requests, time.Since(began)
	t.Logf("%v requests in %v while throttled", asked, took.Round(100*time.Millisecond))
	if asked > brokers*brokers*50*(took.Seconds()+1) {
		t.Errorf("%v requests in %v: a busy loop", asked, took)
	}
	quota(true)
	e.settled(t, "throttled", time.Now())
}

// retentionOvertakes deletes records at the source that the mirror, cut off, has not read.
func retentionOvertakes(t *testing.T, e *env) {
	const topic = "retained"
	e.create(t, 1, brokers, topic, "segment.bytes", "1048576")
	e.write(t, topic, 1, 10, 100)
	e.mirror(t, topic)
	e.settled(t, "before", time.Now())
	e.toSource.Blackhole()
	defer e.toSource.Restore()
	e.write(t, topic, 1, 40, 100_000)
	e.alter(t, topic, "retention.bytes", "1500000")
	var first int64
	harness.AwaitT(t, patience, "retention deletes at the source", func(ctx context.Context) error {
		l, err := e.srcAdmin.ListStartOffsets(ctx, topic)
		if err != nil {
			return err
		}
		o, _ := l.Lookup(topic, 0)
		if first = o.Offset; first <= 20 {
			return errors.Join(o.Err, fmt.Errorf("it starts at %d", first))
		}
		return nil
	})
	e.alter(t, topic, "retention.bytes", "-1")
	restored := time.Now()
	e.toSource.Restore()
	harness.AwaitT(t, patience, "the hole is described", func(ctx context.Context) error {
		return e.every(ctx, func(p protocol.DescribedPartition) bool {
			// An answer that the silent link held back comes first, when it is restored.
			for at := int64(10); at < first-1; at++ {
				if strings.Contains(text(p.ErrorMessage), fmt.Sprintf("%d records (offsets %d to %d)", first-at, at, first-1)) {
					return p.State == stateMirroring && text(p.Detail) == "RECORDS_LOST"
				}
			}
			return false
		}, topic)
	})
	e.settled(t, "retention overtook the mirror", restored)
}

func (e *env) alter(t *testing.T, topic, key, value string) {
	t.Helper()
	r, err := e.srcAdmin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	for _, x := range r {
		err = errors.Join(err, x.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rollingRestart restarts the source's brokers one by one.
func rollingRestart(t *testing.T, e *env) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := e.src.RollingRestart(ctx, func(*harness.Node) error { e.moves(t, 50); return nil }); err != nil {
		t.Fatal(err)
	}
	e.settled(t, "rolling restart", time.Now())
}

// outage kills the whole source for minutes.
func outage(t *testing.T, e *env) {
	began := time.Now()
	e.killSource(t)
	e.waitDetail(t, "SOURCE_UNAVAILABLE", e.load.TopicNames()...)
	t.Logf("SOURCE_UNAVAILABLE after %v", time.Since(began).Round(100*time.Millisecond))
	before := e.toSource.Stats()
	time.Sleep(2 * time.Minute) // the fault itself
	tries, took := e.toSource.Stats().Opened-before.Opened, time.Since(began)
	t.Logf("%d connections were tried in %v", tries, took.Round(time.Second))
	if most := int64(brokers * 10 * took.Seconds()); tries > most {
		t.Errorf("%d connections were tried in %v by %d sidecars: that is no backoff", tries, took, brokers)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, n := range e.src.Nodes() {
		if err := n.Launch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.src.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	e.moves(t, 50)
	e.settled(t, "full outage", back)
}
