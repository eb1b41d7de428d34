package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// barrier is the value of a kindBarrier record; its own value on disk is null.
type barrier struct {
	broker int32
	nonce  int64
}

// encodeRecord renders a record: the type before the key, the version before the value.
func encodeRecord(r record) (key, value []byte, err error) {
	var k protocol.Key
	var v protocol.Value
	switch r.kind {
	case kindMirror:
		k = protocol.MirrorKey{MirrorName: r.mirror}
		if m, ok := r.value.(Mirror); ok {
			out := protocol.NewMirrorValue()
			out.SourceClusterID, out.UnknownTags = m.SourceClusterID, m.tags
			for _, name := range m.Configs.Keys() {
				c := protocol.NewMirrorConfig()
				text := m.Configs[name]
				c.Name, c.Value = name, &text
				out.Configs = append(out.Configs, c)
			}
			v = &out
		}
	case kindTopic:
		k = protocol.MirrorTopicKey{MirrorName: r.topic.mirror, TopicName: r.topic.topic}
		if t, ok := r.value.(Topic); ok {
			out := protocol.NewMirrorTopicValue()
			out.TopicID, out.SourceTopicID = t.TopicID, t.SourceTopicID
			out.DesiredState, out.Since = int8(t.Desired), t.Since
			for _, name := range slices.Sorted(maps.Keys(t.Wanted)) {
				c := protocol.NewMirrorConfig()
				c.Name, c.Value = name, t.Wanted[name]
				out.WantedConfigs = append(out.WantedConfigs, c)
			}
			for _, partition := range slices.Sorted(maps.Keys(t.RealReplicas)) {
				r := protocol.NewPartitionReplicas()
				r.Partition, r.Replicas = partition, t.RealReplicas[partition]
				out.RealReplicas = append(out.RealReplicas, r)
			}
			for _, partition := range slices.Sorted(maps.Keys(t.GiveUp)) {
				g := protocol.NewPartitionSince()
				g.Partition, g.Since = partition, t.GiveUp[partition]
				out.GiveUp = append(out.GiveUp, g)
			}
			out.AllowTruncate, out.Fault, out.UnknownTags = t.AllowTruncate, nullable(t.Fault), t.tags
			out.Locked, out.RaiseRefused = t.Locked, t.RaiseRefused
			v = &out
		}
	case kindState:
		k = protocol.PartitionStateKey{MirrorName: r.partition.mirror, TopicID: r.partition.tp.TopicID, Partition: r.partition.tp.Partition}
		if s, ok := r.value.(PartitionState); ok {
			out := protocol.NewPartitionStateValue()
			out.State, out.PreviousState, out.RetryAttempt = int8(s.State), int8(s.Previous), s.RetryAttempt
			out.LeaderEpoch, out.StateEpoch = s.LeaderEpoch, s.StateEpoch
			out.Detail, out.ErrorMessage, out.UnknownTags = nullable(s.Detail), nullable(s.ErrorMessage), s.tags
			v = &out
		}
	case kindLineage:
		k = protocol.LastMirrorEpochsKey{MirrorName: r.partition.mirror, TopicID: r.partition.tp.TopicID, Partition: r.partition.tp.Partition}
		if l, ok := r.value.(lineage.Record); ok {
			out := protocol.NewLastMirrorEpochsValue()
			out.SetLineage(l)
			v = &out
		}
	case kindOwned:
		k = protocol.OwnedKey{MirrorName: r.owned.mirror, Kind: string(r.owned.kind), Bucket: r.owned.bucket}
		if o, ok := r.value.(owned); ok {
			v = encodeOwned(o)
		}
	case kindBarrier:
		b, ok := r.value.(barrier)
		if !ok {
			return nil, nil, fmt.Errorf("barrier without a writer")
		}
		k = protocol.BarrierKey{BrokerID: b.broker, Nonce: b.nonce}
	default:
		return nil, nil, fmt.Errorf("record of unknown type %d", r.kind)
	}
	if key, err = protocol.EncodeKey(k); err != nil || v == nil {
		return key, nil, err
	}
	value, err = protocol.EncodeValue(v)
	return key, value, err
}

// decodeRecord reads a record. timestamp is the record's own, in milliseconds.
func decodeRecord(key, value []byte, timestamp int64) (record, error) {
	k, err := protocol.DecodeKey(key)
	if err != nil {
		return record{}, err
	}
	v, err := protocol.DecodeValue(k, value)
	if err != nil {
		return record{}, err
	}
	r := record{kind: recordKind(k.RecordType()), since: timestamp}
	switch k := k.(type) {
	case protocol.MirrorKey:
		r.mirror = k.MirrorName
		if v, ok := v.(*protocol.MirrorValue); ok {
			m := Mirror{Name: k.MirrorName, SourceClusterID: v.SourceClusterID, Configs: config.Properties{}, tags: v.UnknownTags}
			for _, c := range v.Configs {
				if c.Value != nil {
					m.Configs[c.Name] = *c.Value
				}
			}
			r.value = m
		}
	case protocol.MirrorTopicKey:
		r.topic = topicKey{k.MirrorName, k.TopicName}
		if v, ok := v.(*protocol.MirrorTopicValue); ok {
			r.value = topicOf(k, v)
		}
	case protocol.PartitionStateKey:
		r.partition = partitionKey{k.MirrorName, ids.TopicPartition{TopicID: k.TopicID, Partition: k.Partition}}
		if v, ok := v.(*protocol.PartitionStateValue); ok {
			r.value = PartitionState{
				State: State(v.State), Previous: State(v.PreviousState), RetryAttempt: v.RetryAttempt,
				LeaderEpoch: v.LeaderEpoch, StateEpoch: v.StateEpoch, Detail: text(v.Detail), ErrorMessage: text(v.ErrorMessage), Since: timestamp,
				tags: v.UnknownTags,
			}
		}
	case protocol.LastMirrorEpochsKey:
		r.partition = partitionKey{k.MirrorName, ids.TopicPartition{TopicID: k.TopicID, Partition: k.Partition}}
		if v, ok := v.(*protocol.LastMirrorEpochsValue); ok {
			r.value = v.Lineage()
		}
	case protocol.OwnedKey:
		r.owned = ownedKey{k.MirrorName, policy.Kind(k.Kind), k.Bucket}
		if v, ok := v.(*protocol.OwnedValue); ok {
			r.value = decodeOwned(v)
		}
	case protocol.SeedStateKey:
		return r, fmt.Errorf("a state record in the layout of the KIP's example is not ours")
	default: // only the position of barriers counts, and R15 replaces the last real ISR
	}
	return r, nil
}

func topicOf(k protocol.MirrorTopicKey, v *protocol.MirrorTopicValue) Topic {
	t := Topic{
		Mirror: k.MirrorName, Name: k.TopicName, TopicID: v.TopicID, SourceTopicID: v.SourceTopicID,
		Desired: State(v.DesiredState), Since: v.Since,
	}
	t.AllowTruncate, t.Fault, t.Locked, t.tags = v.AllowTruncate, text(v.Fault), v.Locked, v.UnknownTags
	t.RaiseRefused = v.RaiseRefused
	if len(v.WantedConfigs) > 0 {
		t.Wanted = make(map[string]*string, len(v.WantedConfigs))
	}
	for _, c := range v.WantedConfigs {
		t.Wanted[c.Name] = c.Value
	}
	if len(v.RealReplicas) > 0 {
		t.RealReplicas = make(map[int32][]int32, len(v.RealReplicas))
	}
	for _, r := range v.RealReplicas {
		t.RealReplicas[r.Partition] = r.Replicas
	}
	if len(v.GiveUp) > 0 {
		t.GiveUp = make(map[int32]int64, len(v.GiveUp))
	}
	for _, g := range v.GiveUp {
		t.GiveUp[g.Partition] = g.Since
	}
	return t
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
