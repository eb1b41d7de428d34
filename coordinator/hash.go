package coordinator

import (
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// statePartition returns the partition of the state topic, of n, that a key's text
// belongs to. The text of a mirror's own key is its name; protocol spreads both alike.
func statePartition(key string, n int32) int32 { return protocol.MirrorPartition(key, n) }

// hashStart spreads where the partitions of different topics begin among n brokers.
func hashStart(name string, n int) int { return int(statePartition(name, int32(n))) }

// coordinatorKey is the text that decides where a record lives: composite for what
// belongs to a partition, the mirror's name for everything else.
func (r record) coordinatorKey() string {
	switch r.kind {
	case kindTopic:
		return r.topic.mirror
	case kindState, kindLineage:
		return r.partition.text()
	case kindOwned:
		return r.owned.mirror
	}
	return r.mirror
}

func (k partitionKey) text() string { return partitionText(k.mirror, k.tp) }

func partitionText(mirror string, tp ids.TopicPartition) string {
	return mirror + ":" + tp.TopicID.String() + ":" + itoa(tp.Partition)
}
