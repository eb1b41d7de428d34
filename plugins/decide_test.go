package plugins

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// A long name in a reason must not make nonsense of a decision: the host takes no more than the
// protocol says.
func TestDecisionsAreCut(t *testing.T) {
	for _, name := range []string{"x", strings.Repeat("x", policyv1.MaxReason), strings.Repeat("x", 5000), "a" + strings.Repeat("ä", 5000), strings.Repeat("\xff", 5000)} {
		d := Accept(name, name)
		if len(d.Rule) > policyv1.MaxRule || len(d.Reason) > policyv1.MaxReason {
			t.Errorf("%d and %d bytes of %d", len(d.Rule), len(d.Reason), len(name))
		}
		if utf8.ValidString(name) && !utf8.ValidString(d.Reason+d.Rule) {
			t.Errorf("not cut at a character: %q", d.Reason)
		}
		if len(name) <= policyv1.MaxReason && d.Reason != name {
			t.Errorf("cut without need: %q", d.Reason)
		}
	}
	if d := Refuse("rule", "reason"); d.Rule != "rule" || d.Reason != "reason" {
		t.Errorf("%v", d)
	}
}
