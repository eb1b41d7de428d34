package fetcher

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestMissingRight: who may not read at the source is told what is missing, and how it is granted.
func TestMissingRight(t *testing.T) {
	err := &SourceError{Topic: "orders", Partition: 3, Code: kerr.TopicAuthorizationFailed.Code}
	for _, want := range []string{"partition 3", "TOPIC_AUTHORIZATION_FAILED", "the mirror's user at the source lacks READ on topic orders", "--operation Read --topic orders"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}
