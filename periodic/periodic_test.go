package periodic

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLoop: it is done at once, again, and not any more once Stop has returned; what starts it ends
// nothing.
func TestLoop(t *testing.T) {
	did := make(chan struct{})
	l := New(time.Millisecond, func(ctx context.Context) {
		select {
		case did <- struct{}{}:
		case <-ctx.Done():
		}
	})
	starting, started := context.WithCancel(t.Context())
	if err := l.Start(starting); err != nil {
		t.Fatal(err)
	}
	started()
	for range 3 {
		select {
		case <-did:
		case <-time.After(30 * time.Second):
			t.Fatal("it is not done")
		}
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
