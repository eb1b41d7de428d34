package replica

import (
	"testing"
	"time"
)

func TestRetries(t *testing.T) {
	r := retries{initial: time.Second, max: 10 * time.Second, attempts: 40}
	for _, c := range []struct {
		n      int
		spread float64
		want   time.Duration
		ok     bool
	}{
		{1, 0.5, time.Second, true},
		{2, 0.5, 2 * time.Second, true},
		{3, 0.5, 4 * time.Second, true},
		{4, 0.5, 8 * time.Second, true},
		{5, 0.5, 10 * time.Second, true},
		{40, 0.5, 10 * time.Second, true}, // no overflow
		{41, 0.5, 0, false},
		{1, 0, 800 * time.Millisecond, true},
		{5, 0, 8 * time.Second, true},
	} {
		if got, ok := r.after(c.n, c.spread); got != c.want || ok != c.ok {
			t.Errorf("after(%d, %v) = %v, %v; want %v, %v", c.n, c.spread, got, ok, c.want, c.ok)
		}
	}
	if got, ok := r.after(5, 0.999); !ok || got <= 11*time.Second || got >= 12*time.Second {
		t.Errorf("the spread reaches %v", got)
	}
	if _, ok := (retries{initial: time.Second, max: time.Minute}).after(1, 0); ok {
		t.Error("with 0 attempts nothing is tried again")
	}
}
