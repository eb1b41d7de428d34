package sourcefaults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// TestSourceLoses is a source that loses records which the mirror has.
func TestSourceLoses(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("takes minutes: MIRROR_FULL=1")
	}
	e := start(t, harness.Version44)
	e.feed(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	e.settled(t, "before", time.Now())
	e.check(t)
	e.load = nil // it has ended
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, e *env)
	}{
		{"restored from a backup", restored},
		{"unclean election", uncleanElection},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.run(t, e) }) {
			t.FailNow()
		}
	}
}

// uncleanElection elects a source broker that lacks records: the mirror follows, and says so.
func uncleanElection(t *testing.T, e *env) {
	const topic = "unclean"
	e.create(t, 1, 2, topic, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	e.write(t, topic, 1, 20, 100)
	e.mirror(t, topic)
	e.settled(t, "before", time.Now())
	d, err := e.srcAdmin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	p := d[topic].Partitions[0]
	ahead, stale := e.src.Node(p.Leader), e.src.Node(p.Replicas[0])
	if stale == ahead {
		stale = e.src.Node(p.Replicas[1])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	if err := stale.Kill(); err != nil {
		t.Fatal(err)
	}
	e.write(t, topic, 1, 15, 100)
	e.settled(t, "one replica has more", time.Now())
	// The quorum of the controllers needs two of three: the stale one is back before the other goes,
	// and does not get what it lacks.
	if err := ahead.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := errors.Join(stale.Launch(ctx), ahead.Kill()); err != nil {
		t.Fatal(err)
	}
	elect := kadm.TopicsSet{}
	elect.Add(topic, 0)
	harness.AwaitT(t, 2*patience, "the stale broker leads", func(ctx context.Context) error {
		d, err := e.srcAdmin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if got := d[topic].Partitions[0].Leader; got != stale.ID() {
			_, err := e.srcAdmin.ElectLeaders(ctx, kadm.ElectLiveReplica, elect)
			return errors.Join(fmt.Errorf("led by %d", got), err)
		}
		return nil
	})
	e.write(t, topic, 1, 5, 90)
	if err := ahead.Start(ctx); err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, "the truncation is described", func(ctx context.Context) error {
		return e.every(ctx, func(p protocol.DescribedPartition) bool {
			return p.State == stateMirroring && text(p.Detail) == "TRUNCATED" && strings.Contains(text(p.ErrorMessage), "15 records (offsets 20 to 34)")
		}, topic)
	})
	e.settled(t, "unclean election", began)
}

// restored puts the source back to an older copy of all its data. Of one topic the mirror alone has
// the newest records then; another one is written to before the mirror looks, under an epoch that was
// used before, and is as long as the mirror.
func restored(t *testing.T, e *env) {
	const shorter, anew = "shorter", "anew"
	for _, topic := range []string{shorter, anew} {
		e.create(t, 2, brokers, topic)
		e.write(t, topic, 2, 20, 100)
	}
	e.mirror(t, shorter, anew)
	e.settled(t, "before the backup", time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	backup := t.TempDir()
	e.killSource(t)
	e.eachData(t, backup, func(data, kept string) error { return copyAll(data, kept) })
	e.launchSource(ctx, t)
	e.write(t, shorter, 2, 30, 100)
	e.write(t, anew, 2, 30, 100)
	e.settled(t, "after the backup", time.Now())

	e.restore(ctx, t, backup)
	e.write(t, anew, 2, 60, 90)
	back := time.Now()
	e.toSource.Restore()
	failed := e.waitJudged(t, 50, shorter, anew)
	t.Logf("judged after %v; FAILED: %v", time.Since(back).Round(100*time.Millisecond), failed)
	for _, topic := range failed {
		e.cli(t, "--recover", "--mirror", mirror, "--topics", topic, "--allow-truncate")
	}
	e.settled(t, "restored, allowed to truncate", back)
}

// restore kills the source, puts the backup in place and starts it, cut off from the mirror.
func (e *env) restore(ctx context.Context, t *testing.T, backup string) {
	t.Helper()
	e.toSource.Cut()
	e.killSource(t)
	e.eachData(t, backup, func(data, kept string) error { return errors.Join(os.RemoveAll(data), copyAll(kept, data)) })
	e.launchSource(ctx, t)
}

// killSource ends all nodes. In an orderly way the last ones would wait for a quorum that is gone.
func (e *env) killSource(t *testing.T) {
	t.Helper()
	for _, n := range e.src.Nodes() {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *env) eachData(t *testing.T, backup string, do func(data, kept string) error) {
	t.Helper()
	for _, n := range e.src.Nodes() {
		for i, dir := range n.DataDirs() {
			if err := do(dir, filepath.Join(backup, fmt.Sprintf("%d-%d", n.ID(), i))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func copyAll(from, to string) error {
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

func (e *env) launchSource(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, n := range e.src.Nodes() {
		if err := n.Launch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.src.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for _, topic := range e.topics {
		if err := harness.AwaitTopic(ctx, e.srcClient, topic); err != nil {
			t.Fatal(err)
		}
	}
}

// waitJudged waits until each partition of the topics is FAILED, with all its records up to end on every
// replica, or follows the source; it gives the topics with a partition that is FAILED. A source whose
// epochs have got above the mirror's cannot be told from one that elected a broker that lacked
// records, which is followed.
func (e *env) waitJudged(t *testing.T, end int64, topics ...string) (failed []string) {
	t.Helper()
	harness.AwaitT(t, patience, "FAILED with nothing dropped, or as the source is", func(ctx context.Context) error {
		failed = nil
		described, err := e.describe(ctx)
		if err != nil {
			return err
		}
		want, err := ends(ctx, e.srcAdmin, topics...)
		if err != nil {
			return err
		}
		got, err := ends(ctx, e.dstAdmin, topics...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			for _, p := range described[topic] {
				tp := verify.TopicPartition{Topic: topic, Partition: p.PartitionIndex}
				m := text(p.ErrorMessage)
				switch {
				case p.State == stateFailed && strings.Contains(m, "restored from a backup") && strings.Contains(m, "nothing is dropped here"):
					if err := e.holds(topic, p.PartitionIndex, end); err != nil {
						return err
					}
					if !slices.Contains(failed, topic) {
						failed = append(failed, topic)
					}
				case p.State != stateMirroring || got[tp] != want[tp]:
					return errors.Join(said(topic, p), fmt.Errorf("it ends at %d, at the source at %d", got[tp], want[tp]))
				}
			}
		}
		return nil
	})
	return failed
}

// holds gives an error unless every replica's log ends there.
func (e *env) holds(topic string, partition int32, end int64) error {
	for _, n := range e.dst.Cluster.Brokers() {
		log, err := n.ReadLog(topic, partition)
		if err != nil {
			return err
		}
		if log.EndOffset() != end {
			return fmt.Errorf("%s-%d on %s ends at %d, want %d", topic, partition, n, log.EndOffset(), end)
		}
	}
	return nil
}
