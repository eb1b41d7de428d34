package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// awaitPoll is the time between two looks of [Await].
const awaitPoll = 100 * time.Millisecond

// Await looks until cond gives no error, and returns the last one with the context's when limit
// has passed.
func Await(ctx context.Context, limit time.Duration, cond func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	var last error
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		// Why it is not so yet says more than that time was up in the middle of a question.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// AwaitT is [Await] for a test, which fails when time is up; what says what was waited for.
func AwaitT(tb testing.TB, limit time.Duration, what string, cond func(ctx context.Context) error) {
	tb.Helper()
	if err := Await(tb.Context(), limit, cond); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

// Full tells whether tests shall run in their long form: all orders, all versions, large amounts
// (MIRROR_FULL=1, as the make targets set it). Without it they take what CI has time for.
func Full() bool { return os.Getenv("MIRROR_FULL") == "1" }

// topicLimit is what a new topic takes at most to be known everywhere, on a loaded machine.
const topicLimit = time.Minute

// AwaitTopic returns when every live broker knows the topic and a leader of each of its partitions.
// The controller answers CreateTopics before any broker has heard of the topic, and whoever is asked
// next may be the last to hear of it.
func AwaitTopic(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	return Await(ctx, topicLimit, func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, b := range resp.Brokers {
			r, err := cl.Broker(int(b.NodeID)).RetriableRequest(ctx, req)
			if err != nil {
				return fmt.Errorf("ask broker %d for topic %s: %w", b.NodeID, topic, err)
			}
			if err := topicKnown(r.(*kmsg.MetadataResponse)); err != nil {
				return fmt.Errorf("broker %d, topic %s: %w", b.NodeID, topic, err)
			}
		}
		// The client itself may remember for a while that there is no such topic.
		known, err := kadm.NewClient(cl).ListTopics(ctx, topic)
		if err == nil {
			err = known[topic].Err
		}
		return err
	})
}

func topicKnown(r *kmsg.MetadataResponse) error {
	for _, t := range r.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			if p.Leader < 0 {
				return fmt.Errorf("partition %d is led by nobody", p.Partition)
			}
		}
	}
	return nil
}
