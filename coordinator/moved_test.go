package coordinator

import (
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// TestMovedTopic: the virtual replicas of a topic that another mirror has started are not
// taken away by the mirror in which it is STOPPED, nor while the other one stops it.
func TestMovedTopic(t *testing.T) {
	r := newRig(t)
	topic := r.mirrorTopic("t", Stopped, Stopped)
	r.change(topic, func(p *metadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{10001, 1, 2}, []int32{1, 2}, 2 })
	r.put(record{kind: kindState, partition: partitionKey{"m", ids.TopicPartition{TopicID: topic.TopicID}}, value: PartitionState{State: Stopped, LeaderEpoch: 3}})
	if r.rec.idle(r.topicT("t")) {
		t.Error("nothing is to be done about virtual replicas of a STOPPED topic")
	}
	other := Topic{Mirror: "other", Name: "t", TopicID: topic.TopicID, Desired: Mirroring, Since: topic.Since + 1}
	for _, desired := range []State{Mirroring, Paused, Stopped} {
		other.Desired = desired
		r.put(
			record{kind: kindMirror, mirror: "other", value: Mirror{Name: "other", SourceClusterID: "third", Configs: config.Properties{"bootstrap.servers": "x:1"}}},
			record{kind: kindTopic, topic: topicKey{"other", "t"}, value: other},
		)
		if !r.rec.idle(r.topicT("t")) {
			t.Errorf("the former mirror acts on a topic that is wanted %s in another one", desired)
		}
	}
}
