package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section5 reads the state topic.
func section5() []row {
	return []row{
		{proves: "C5.1 the state topic", run: stateTopic},
		{proves: "C5.2 C5.3 C5.4 C5.6 C5.7 C5.8 C5.9 records", run: stateRecords},
		{proves: "C5.5 C5.10 C7.19 the KIP's example", run: stateSeed},
	}
}

func stateTopic(t *testing.T, e *env) {
	e.mirror(t, "c5-1")
	d := e.here(t, protocol.StateTopic)
	if len(d.Partitions) != statePartitions {
		t.Errorf("%d partitions, want %d", len(d.Partitions), statePartitions)
	}
	c := e.configs(t, protocol.StateTopic)
	if c["cleanup.policy"] != "compact" || c["retention.ms"] != "-1" {
		t.Errorf("configs %v", c)
	}
	for _, p := range d.Partitions {
		if virtual(p.Leader) || slices.ContainsFunc(p.Replicas, virtual) {
			t.Errorf("partition %d is on virtual brokers: %v", p.Partition, p.Replicas)
		}
	}
}

// uuid is a topic id as Kafka writes it.
func uuid(id ids.UUID) string { return id.String() }

func stateRecords(t *testing.T, e *env) {
	m := e.mirror(t, "c5-3", "mirror.fetch.max.bytes", "65536")
	topic := e.topic(t, "c5-3.t", 2, 8)
	e.started(t, m, topic)
	e.copied(t, topic)
	running := e.lineageRecord(t, m, topic, 0)
	if running.LastMirrorOffset != -1 || running.LastMirrorEpoch != -1 {
		t.Errorf("last mirror epoch %d and offset %d while it mirrors, want none", running.LastMirrorEpoch, running.LastMirrorOffset)
	}
	e.ended(t, m, topic)
	dt := e.describe(t, m).topic(topic)
	found := map[int16]int{}
	for _, s := range e.state(t) {
		if s.key.RecordType() == 5 {
			t.Error("there is a record of type 5")
		}
		if mirrorOf(s.key) != m {
			continue
		}
		found[s.key.RecordType()]++
		raw := s.record
		if got := int16(binary.BigEndian.Uint16(raw.Key)); got != s.key.RecordType() {
			t.Errorf("the key begins with %d, its type is %d", got, s.key.RecordType())
		}
		if n := binary.BigEndian.Uint16(raw.Key[2:]); string(raw.Key[4:4+n]) != m {
			t.Errorf("after its type the key has %q, want the mirror's name as a classic string", raw.Key[2:])
		}
		version := int16(binary.BigEndian.Uint16(raw.Value))
		coordinated := m
		switch k := s.key.(type) {
		case protocol.MirrorKey:
			v := s.value.(*protocol.MirrorValue)
			got := map[string]string{}
			for _, c := range v.Configs {
				got[c.Name] = text(c.Value)
			}
			if version != 0 || v.SourceClusterID != e.src.ID() || got["mirror.fetch.max.bytes"] != "65536" {
				t.Errorf("mirror: version %d, %+v", version, v)
			}
		case protocol.MirrorTopicKey:
			v := s.value.(*protocol.MirrorTopicValue)
			if version != 0 || k.TopicName != topic || v.TopicID != dt.TopicID || v.SourceTopicID != dt.SourceTopicID || v.DesiredState != stopped ||
				time.Since(time.UnixMilli(v.Since)).Abs() > time.Hour {
				t.Errorf("topic: version %d, %+v %+v", version, k, v)
			}
		case protocol.PartitionStateKey:
			v := s.value.(*protocol.PartitionStateValue)
			if version != 1 || k.TopicID != dt.TopicID || v.State != stopped || v.PreviousState != stopping || v.LeaderEpoch < 0 || v.StateEpoch <= 0 {
				t.Errorf("state: version %d, %+v %+v", version, k, v)
			}
			coordinated = fmt.Sprintf("%s:%s:%d", m, uuid(k.TopicID), k.Partition)
		case protocol.LastMirrorEpochsKey:
			v := s.value.(*protocol.LastMirrorEpochsValue)
			if version != 0 || k.TopicID != dt.TopicID || v.LastMirrorOffset != 4 || v.LastMirrorEpoch < 0 || len(v.History) == 0 || v.History[0].StartOffset != 0 {
				t.Errorf("lineage: version %d, %+v %+v", version, k, v)
			}
			coordinated = fmt.Sprintf("%s:%s:%d", m, uuid(k.TopicID), k.Partition)
		}
		if want := javaPartition(coordinated, statePartitions); s.partition != want {
			t.Errorf("record %T is in partition %d, want %d for %q", s.key, s.partition, want, coordinated)
		}
	}
	if want := map[int16]int{1: 2, 2: 2, 3: 1, 4: 1}; fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("records by type %v, want %v", found, want)
	}
}

// stateSeed writes the two records of the KIP's example to a real topic, as the KIP's
// broker did, and decodes the broker's segment file.
func stateSeed(t *testing.T, e *env) {
	const topic = "c5-10"
	createTopic(t, e.dstClient, 1, 1, topic, "retention.ms", "-1")
	for i, ts := range []int64{1771239071191, 1771239071219} {
		key, err := protocol.EncodeKey(protocol.SeedStateKey{MirrorName: "my-mirror"})
		if err != nil {
			t.Fatal(err)
		}
		value, err := protocol.EncodeValue(&protocol.SeedStateValue{TopicName: "my-topic", State: int8(i)})
		if err != nil {
			t.Fatal(err)
		}
		d := e.here(t, topic)
		req := produceRequest(-1, nil, d)
		req.Topics[0].Partitions[0].Records = batchOf(ts, key, value)
		r := askAt[*kmsg.ProduceResponse](t, e.dst.Cluster.Node(d.Partitions[0].Leader).Addr(harness.ListenerInternal), req)
		if p := r.Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Fatal(p.ErrorCode, text(p.ErrorMessage))
		}
	}
	node := e.dst.Cluster.Node(e.realLeader(t, topic, 0))
	l, err := node.ReadLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, crc := range []uint32{3314855113, 3968746657} {
		if b := l.Batches[i]; b.Size != 98 || b.CRC != crc || b.BaseOffset != int64(i) {
			t.Errorf("batch %d: offset %d, %d bytes, CRC %d; want 98 and %d", i, b.BaseOffset, b.Size, b.CRC, crc)
		}
	}
	const want = `| offset: 0 CreateTime: 1771239071191 keySize: 13 valueSize: 17 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":0}}
| offset: 1 CreateTime: 1771239071219 keySize: 13 valueSize: 17 sequence: -1 headerKeys: [] key: {"type":"2","data":{"mirrorName":"my-mirror"}} payload: {"version":"0","data":{"topicName":"my-topic","partition":0,"state":1}}
`
	got := line(t, "--decode-log", mustDir(t, node, topic)+"/00000000000000000000.log")
	if lines := onlyRecords(got); lines != want {
		t.Errorf("decoded:\n%swant:\n%s", lines, want)
	}
}
