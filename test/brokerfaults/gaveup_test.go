package brokerfaults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// markedFailed is what a broker logs when a replica fetcher gives a partition up.
const markedFailed = "marked as failed"

// gaveUp counts how often a broker's fetchers gave a partition up.
func gaveUp(t *testing.T, n *harness.Node, topic string, partition int32) int {
	t.Helper()
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, markedFailed) && strings.Contains(line, fmt.Sprintf("%s-%d", topic, partition)) {
			count++
		}
	}
	return count
}

// followerGaveUp: an answer that was damaged on its way makes a follower's replica fetcher give
// the partition up until the next leader epoch, which it gets.
func followerGaveUp(t *testing.T, e *env) {
	const id = int32(3)
	topic := e.load.TopicNames()[0]
	was, topicID, err := e.partition(t.Context(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	before, written := e.counters(t), e.load.Total()
	begun := time.Now()
	e.damage.set("3", topicID, 0, 1)
	harness.AwaitT(t, patience, "a damaged answer", func(context.Context) error {
		if e.damage.count() == 0 {
			return errNotYet
		}
		return nil
	})
	harness.AwaitT(t, patience, "the follower gives up", func(context.Context) error {
		if gaveUp(t, e.broker(id), topic, 0) == 0 {
			return errNotYet
		}
		return nil
	})
	t.Logf("the fetcher of broker %d gave up after %v", id, time.Since(begun).Round(100*time.Millisecond))
	harness.AwaitT(t, patience, "a new leader epoch", func(ctx context.Context) error {
		p, _, err := e.partition(ctx, topic, 0)
		if err == nil && p.LeaderEpoch == was.LeaderEpoch {
			err = errNotYet
		}
		return err
	})
	e.afterwards(t, "follower gave up", begun)
	after := e.counters(t)
	if n := after[cured] - before[cured]; n < 1 {
		t.Errorf("%s counts %v", cured, n)
	}
	e.readOnce(t, before, written.Acked, 0)
}

// cured counts the leader epochs that a follower was cured by.
const cured = "kafka_mirror_failed_followers_total"

// followerGivesUpForEver: what a new leader epoch does not cure is not tried for ever, and does
// not hold up the others; when the cause is gone, the operator's recover brings it back.
func followerGivesUpForEver(t *testing.T, e *env) {
	topic := e.load.TopicNames()[0]
	_, topicID, err := e.partition(t.Context(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	e.damage.set("3", topicID, 0, 1_000_000)
	harness.AwaitT(t, 4*patience, "FAILED", func(ctx context.Context) error {
		described, err := e.describe(ctx)
		if err != nil {
			return err
		}
		p := described[topic][0]
		if p.State != stateFailed || !strings.Contains(text(p.ErrorMessage), "broker 3") {
			return fmt.Errorf("%s-0 is in state %d: %s", topic, p.State, text(p.ErrorMessage))
		}
		return nil
	})
	t.Logf("FAILED after %v and %d damaged answers", time.Since(begun).Round(100*time.Millisecond), e.damage.count())
	e.moves(t)
	e.damage.set("3", topicID, 0, 0)
	e.cli(t, "--recover", "--mirror", mirror, "--topics", topic)
	e.afterwards(t, "recovered", begun)
}
