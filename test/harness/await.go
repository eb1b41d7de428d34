package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
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
