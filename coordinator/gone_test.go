package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestUnregisteredDoesNotComeBack: a virtual broker that is merely dead stays assigned where
// nobody can replace it, one that was unregistered goes once it had time to register again.
func TestUnregisteredDoesNotComeBack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brokers []metadata.Broker
		known   bool // for how long it has been away is known
		want    [][]int32
	}{
		{"dead", []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10002, Fenced: true}}, true, nil},
		{"unregistered a moment ago", []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}}, false, nil},
		{"unregistered", []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}}, true, [][]int32{{10001, 1, 2}}},
		{"unregistered a moment ago, and another one is there", []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10003}}, false, nil},
		{"unregistered, and another one is there", []metadata.Broker{{ID: 1}, {ID: 2}, {ID: 10001}, {ID: 10003}}, true, [][]int32{{10001, 10003, 1, 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			c := r.mirrorTopic("c", Mirroring, Mirroring)
			r.mu.Lock()
			r.brokers = tc.brokers
			r.configs["c"] = map[string]string{configMaxMessageBytes: "0"}
			r.showLocked()
			r.mu.Unlock()
			if tc.known {
				r.rec.mu.Lock()
				r.rec.seen[10002] = presence{epoch: -1, since: time.Now().Add(-time.Minute)}
				r.rec.mu.Unlock()
			}
			c.Wanted = map[string]*string{configMinISR: ptr("1")}
			r.put(record{kind: kindTopic, topic: topicKey{"m", "c"}, value: c})
			if _, err := r.rec.mirrorTopic(t.Context(), mirrorT(r), r.topicT("c")); err != nil {
				t.Fatal(err)
			}
			if got := r.reassigned(); !slices.EqualFunc(got, tc.want, slices.Equal) {
				t.Errorf("asked for %v, want %v", got, tc.want)
			}
		})
	}
}
