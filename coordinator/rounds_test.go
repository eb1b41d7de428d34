package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counted returns a reading that takes some time, and the times at which it was begun.
func counted(takes time.Duration) (read func(ctx context.Context) error, at func() []time.Duration) {
	start := time.Now()
	var mu sync.Mutex
	var began []time.Duration
	read = func(ctx context.Context) error {
		mu.Lock()
		began = append(began, time.Since(start))
		mu.Unlock()
		pause(ctx, takes)
		return ctx.Err()
	}
	at = func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(began)
	}
	return read, at
}

func TestRoundsAreASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rounds
		read, at := counted(time.Millisecond)
		for range 3 {
			if err := r.join(t.Context(), 0, read); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.join(t.Context(), 1, read); err != nil { // has nothing to wait for
			t.Fatal(err)
		}
		if got, want := at(), []time.Duration{0, time.Second, 2 * time.Second, 2*time.Second + time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("rounds at %v, want %v", got, want)
		}
	})
}

func TestARoundIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rounds
		read, at := counted(time.Millisecond)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := r.join(t.Context(), 0, read); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := at(); len(got) > 2 { // the first may have begun before the others came
			t.Errorf("rounds at %v", got)
		}
	})
}

// What was written before somebody asks is not missed: a round under way does not count.
func TestARoundUnderWayIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rounds
		read, at := counted(5 * time.Second)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := r.join(t.Context(), 0, read); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		both.Wait()
		if got, want := at(), []time.Duration{0, time.Second}; !slices.Equal(got, want) {
			t.Errorf("rounds at %v, want %v", got, want)
		}
	})
}

func TestARoundOutlivesWhoHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rounds
		read, at := counted(3 * time.Second)
		gone, leave := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() {
			if err := r.join(t.Context(), 0, read); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		both.Go(func() {
			if err := r.join(gone, 0, read); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		both.Go(func() {
			if err := r.join(t.Context(), 0, read); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		leave() // before its round begins
		both.Wait()
		if got, want := at(), []time.Duration{0, time.Second}; !slices.Equal(got, want) {
			t.Errorf("rounds at %v, want %v", got, want)
		}
	})
}

// A round that fails is everybody's who was in it, and not another round.
func TestARoundThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rounds
		broken := errors.New("no broker")
		n := 0
		if err := r.join(t.Context(), 0, func(context.Context) error { n++; return broken }); !errors.Is(err, broken) || n != 1 {
			t.Errorf("%v after %d", err, n)
		}
	})
}
