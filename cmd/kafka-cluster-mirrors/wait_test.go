package main

import (
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// A topic that is stopped while it is on its way here has no partitions yet, and will have some.
func TestStopWaitsForATopicOnItsWay(t *testing.T) {
	w := waiter{action: "stop", topics: []string{"orders"}}
	m := protocol.DescribedMirror{Topics: []protocol.DescribedTopic{{TopicName: "orders", BeingStopped: true}}}
	if line, done, err := w.look(m); done || err != nil || !strings.Contains(line, "topic orders is being stopped") {
		t.Errorf("on its way: %q, %t, %v", line, done, err)
	}
	p := protocol.NewDescribedPartition()
	p.State = int8(coordinator.Stopping)
	m.Topics[0].Partitions = []protocol.DescribedPartition{p}
	if line, done, err := w.look(m); done || err != nil {
		t.Errorf("here: %q, %t, %v", line, done, err)
	}
	m.Topics[0].Partitions[0].State = int8(coordinator.Stopped)
	if line, done, err := w.look(m); !done || err != nil {
		t.Errorf("stopped: %q, %t, %v", line, done, err)
	}
	// One that never came, and one that is gone.
	m.Topics[0] = protocol.DescribedTopic{TopicName: "orders"}
	if line, done, err := w.look(m); !done || err != nil {
		t.Errorf("gone: %q, %t, %v", line, done, err)
	}
}
