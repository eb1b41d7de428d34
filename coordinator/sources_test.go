package coordinator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/fetcher"
)

func TestSourceDetail(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		h       fetcher.Health
		detail  string
		message string
	}{
		"all is well":           {fetcher.Health{}, "", ""},
		"a leader moves":        {fetcher.Health{Err: errors.New("gone"), Since: now.Add(-time.Second)}, "", ""},
		"no answer":             {fetcher.Health{Err: errors.New("gone"), Since: now.Add(-time.Minute)}, DetailSourceUnavailable, "gone"},
		"throttled for a blink": {fetcher.Health{Throttled: now.Add(-time.Second), Throttle: time.Second}, "", ""},
		"throttled":             {fetcher.Health{Throttled: now.Add(-time.Minute), Throttle: 3 * time.Second}, DetailThrottled, "3s"},
		"throttled, then gone": {
			fetcher.Health{Throttled: now.Add(-time.Minute), Err: errors.New("gone"), Since: now.Add(-time.Minute)},
			DetailSourceUnavailable, "gone",
		},
	} {
		if detail, message := sourceDetail(tc.h, now); detail != tc.detail || !strings.Contains(message, tc.message) {
			t.Errorf("%s: %q, %q", name, detail, message)
		}
	}
}
