package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/syncs"
)

// lastRounds is a syncer that notes what was wanted of topic a when it was asked.
type lastRounds struct {
	r      *rig
	wanted []State
	err    error
	first  error // of the first round that is asked for, if it is not nil
}

func (l *lastRounds) Run(ctx context.Context, mirror string, kind policy.Kind, why policyv1.Round_Why) (syncs.Report, error) {
	end, bounded := ctx.Deadline()
	if !bounded || time.Until(end) > lastRoundTimeout || mirror != "m" || kind != policy.Groups || why != policyv1.Round_STOP {
		l.r.t.Errorf("a round of %s of mirror %s, because of %s, until %v", kind, mirror, why, end)
	}
	l.wanted = append(l.wanted, l.r.topicT("a").Desired)
	if err := l.first; err != nil {
		l.first = nil
		return syncs.Report{}, fmt.Errorf("group g: %w", errors.Join(err))
	}
	return syncs.Report{}, l.err
}

// TestStopCopiesGroupsFirst: the offsets of groups come before anything is written, and never keep
// anybody from stopping.
func TestStopCopiesGroupsFirst(t *testing.T) {
	r := newRig(t)
	source, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	r.put(record{kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "source", Configs: config.Properties{"bootstrap.servers": "127.0.0.1:1," + source.Addr().String()}}})
	l := &lastRounds{r: r, err: errors.New("the source is dead")}
	r.UseSyncs(l)
	r.mirrorTopic("a", Mirroring, Mirroring)
	r.mirrorTopic("b", Paused, Paused)
	stop := func(topic string, only bool) TopicResult {
		t.Helper()
		got, err := r.stopTopics(t.Context(), stopRequest{mirror: "m", topics: []string{topic}, validateOnly: only})
		if err != nil || len(got) != 1 || got[0].Err != nil {
			t.Fatal(got, err)
		}
		return got[0]
	}
	stop("a", true)
	stop("b", false)
	if len(l.wanted) != 0 {
		t.Errorf("%d rounds for what is not stopped, or not mirrored now", len(l.wanted))
	}
	if got := stop("a", false); !strings.Contains(got.Note, "the source is dead") || r.topicT("a").Desired != Stopped {
		t.Errorf("%+v", got)
	}
	if len(l.wanted) != 1 || l.wanted[0] != Mirroring {
		t.Errorf("rounds while wanted was %v", l.wanted)
	}
	if got := stop("a", false); got.Note != "" {
		t.Errorf("stopped again: %+v", got)
	}
	// A coordinator of groups that comes up is asked again.
	l.err, l.first, l.wanted = nil, kerr.CoordinatorNotAvailable, l.wanted[:0]
	r.mirrorTopic("d", Mirroring, Mirroring)
	if got := stop("d", false); got.Note != "" || len(l.wanted) != 2 {
		t.Errorf("%+v after %d rounds", got, len(l.wanted))
	}
	l.wanted = l.wanted[:1]
	source.Close()
	r.mirrorTopic("c", Mirroring, Mirroring)
	if got := stop("c", false); !strings.Contains(got.Note, "takes no connections") {
		t.Errorf("%+v", got)
	}
	if len(l.wanted) != 1 {
		t.Errorf("rounds while wanted was %v", l.wanted)
	}
}
