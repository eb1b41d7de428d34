package coordinator

import (
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// While the first round of groups is under way their policy has been asked, and nothing is told yet of
// what was deleted here; nor after a round in which no topic was mirrored.
func TestGroupsHaveRunOnceTheirRoundIsThrough(t *testing.T) {
	asked := policy.Run{Plugin: policy.BuiltIn, At: time.UnixMilli(5)}
	through, idle := policy.Run{At: time.UnixMilli(7)}, policy.Run{At: time.UnixMilli(7), Idle: true}
	for name, tc := range map[string]struct {
		kind policy.Kind
		runs []policy.Run
		want int64
	}{
		"groups, asked":        {policy.Groups, []policy.Run{asked}, -1},
		"groups, through":      {policy.Groups, []policy.Run{asked, through}, 7},
		"groups, not mirrored": {policy.Groups, []policy.Run{asked, idle}, -1},
		"other kinds, idle":    {policy.ACLs, []policy.Run{idle}, 7},
		"other kinds, asked":   {policy.ACLs, []policy.Run{asked}, 5},
		"other kinds, not yet": {policy.ACLs, nil, -1},
	} {
		if got := describeRuns(tc.kind, []string{policy.BuiltIn}, tc.runs); len(got) != 1 || got[0].LastRunMs != tc.want {
			t.Errorf("%s: %+v, want %d", name, got, tc.want)
		}
	}
}
