package offsets

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestMissingRight: a commit that is refused says which of its two rights is missing.
func TestMissingRight(t *testing.T) {
	for want, err := range map[string]error{
		"lacks READ on group g":      kerr.GroupAuthorizationFailed,
		"lacks READ on topic orders": kerr.TopicAuthorizationFailed,
	} {
		if got := lacking(err, "g", "orders").Error(); !strings.Contains(got, want) || !strings.Contains(got, "--operation Read") {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := lacking(kerr.UnknownMemberID, "g", "orders"); !errors.Is(got, kerr.UnknownMemberID) || strings.Contains(got.Error(), "lacks") {
		t.Errorf("another error: %v", got)
	}
}
