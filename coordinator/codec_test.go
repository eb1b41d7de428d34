package coordinator

import (
	"reflect"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/wire"
)

// TestRecordsKeepWhatTheyHold writes each kind of record and reads it back, a newer sidecar's
// fields included: an older one that rewrites a record must not drop them.
func TestRecordsKeepWhatTheyHold(t *testing.T) {
	text := "1000012"
	newer := []wire.Tag{{Tag: 9000, Value: []byte{1, 2}}}
	tp := partitionKey{"m", ids.TopicPartition{TopicID: ids.UUID{1}, Partition: 3}}
	for name, r := range map[string]record{
		"mirror": {kind: kindMirror, mirror: "m", value: Mirror{Name: "m", SourceClusterID: "c", Configs: config.Properties{"bootstrap.servers": "h:1"}, tags: newer}},
		"topic": {kind: kindTopic, topic: topicKey{"m", "t"}, value: Topic{
			Mirror: "m", Name: "t", TopicID: ids.UUID{1}, SourceTopicID: ids.UUID{2}, Desired: Paused, Since: 5, AllowTruncate: true,
			Wanted: map[string]*string{"max.message.bytes": &text, "min.insync.replicas": nil}, RealReplicas: map[int32][]int32{0: {1, 2, 3}, 4: {3, 1}},
			Fault: "the topic was deleted at the source", GiveUp: map[int32]int64{3: 1000012, 0: 7}, Locked: true, RaiseRefused: true, tags: newer,
		}},
		"bare topic": {kind: kindTopic, topic: topicKey{"m", "t"}, value: Topic{Mirror: "m", Name: "t", Desired: Mirroring, Since: 5}},
		"state": {kind: kindState, partition: tp, value: PartitionState{
			State: Failed, Previous: Mirroring, RetryAttempt: 2, LeaderEpoch: 7, StateEpoch: 9, Detail: "D", ErrorMessage: "e", tags: newer,
		}},
		"owned": {kind: kindOwned, owned: ownedKey{"m", policy.ACLs, 17}, value: owned{
			items: map[string]ownedItem{"a": {since: 5}, "b": {since: 7, tags: newer}}, tags: newer,
		}},
		"owned no more": {kind: kindOwned, owned: ownedKey{"m", policy.ACLs, 17}},
		"deleted":       {kind: kindTopic, topic: topicKey{"m", "t"}},
	} {
		t.Run(name, func(t *testing.T) {
			k, v, err := encodeRecord(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeRecord(k, v, 0)
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("%+v %v, want %+v", got, err, r)
			}
		})
	}
}

// TestTopicRecordInTheContractsLayout reads a value without tagged fields, as contract.md §5
// lists it.
func TestTopicRecordInTheContractsLayout(t *testing.T) {
	v := protocol.NewMirrorTopicValue()
	v.DesiredState, v.Since = int8(Mirroring), 7
	raw, err := protocol.EncodeValue(&v)
	if err != nil {
		t.Fatal(err)
	}
	if last := raw[len(raw)-1]; last != 0 {
		t.Errorf("%x: defaults are not written as tags", raw)
	}
	k, err := protocol.EncodeKey(protocol.MirrorTopicKey{MirrorName: "m", TopicName: "t"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(k, raw, 0)
	if topic, ok := got.value.(Topic); err != nil || !ok || topic.AllowTruncate || topic.Fault != "" || topic.RealReplicas != nil || topic.GiveUp != nil {
		t.Errorf("%+v %v", got, err)
	}
}
