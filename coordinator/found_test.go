package coordinator

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// A state topic that somebody else has created is deleted from after days, unless it is told not to.
func TestStateTopicThatIsThereKeepsEverything(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	for _, name := range []string{"n", "o"} {
		req := protocol.NewCreateClusterMirrorRequest()
		req.MirrorName = name
		req.Configs = []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: kmsg.StringPtr("west:9092")}}
		if _, err := r.Handle(ctx, req.Key(), 0, "tester", req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.img.TopicConfig(StateTopic); got["cleanup.policy"] != "compact" || got["retention.ms"] != "-1" {
		t.Errorf("configs %v", got)
	}
	if n := r.asked(int16(kmsg.IncrementalAlterConfigs)); n != 1 {
		t.Errorf("set %d times", n)
	}
	r.mu.Lock()
	r.configs[StateTopic], r.policy = map[string]string{"cleanup.policy": "compact,delete"}, []string{"cleanup.policy"}
	r.showLocked()
	r.mu.Unlock()
	if err := r.store.Create(ctx); err == nil || !strings.Contains(err.Error(), "cleanup.policy") {
		t.Errorf("where it cannot be set: %v", err)
	}
}
