package replica

import "time"

// retries says when a failed partition is tried again: mirror.failed.retry.* of the
// sidecar's configuration.
type retries struct {
	initial, max time.Duration
	attempts     int // 0: never
}

// after returns the wait before the next try when the partition has failed n times in a
// row, and false when it is not tried again. The wait doubles; spread, in [0, 1), is what
// moves it by up to a fifth either way, so that partitions that failed together do not come
// back together.
func (r retries) after(n int, spread float64) (time.Duration, bool) {
	if n > r.attempts {
		return 0, false
	}
	wait := r.max
	if doublings := n - 1; doublings < 30 && r.initial<<doublings < r.max {
		wait = r.initial << doublings
	}
	return time.Duration(float64(wait) * (0.8 + 0.4*spread)), true
}
