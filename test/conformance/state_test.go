package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// stateEntry is one live record of the state topic.
type stateEntry struct {
	partition int32
	key       protocol.Key
	value     protocol.Value
	record    *kgo.Record
}

// state reads the state topic to its present end, around the proxies, and returns what
// compaction would leave of the committed records.
func (e *env) state(t *testing.T) []stateEntry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ends := endsT(t, e.dstAdmin, protocol.StateTopic)
	offsets := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			offsets[p] = kgo.NewOffset().AtStart()
		} else {
			delete(ends, p)
		}
	}
	cl := newClient(t, e.dst.Direct(), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{protocol.StateTopic: offsets}))
	last := map[string]stateEntry{}
	for len(ends) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read the state topic: %v", err)
		}
		for _, r := range fetches.Records() {
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
			if r.Attrs.IsControl() {
				continue
			}
			key, err := protocol.DecodeKey(r.Key)
			if err != nil {
				t.Errorf("state record at %d-%d: %v", r.Partition, r.Offset, err)
				continue
			}
			value, err := protocol.DecodeValue(key, r.Value)
			if err != nil {
				t.Errorf("state record at %d-%d: %v", r.Partition, r.Offset, err)
				continue
			}
			if r.Value == nil {
				delete(last, string(r.Key))
				continue
			}
			last[string(r.Key)] = stateEntry{r.Partition, key, value, r}
		}
	}
	out := make([]stateEntry, 0, len(last))
	for _, s := range last {
		out = append(out, s)
	}
	return out
}

func mirrorOf(k protocol.Key) string {
	switch k := k.(type) {
	case protocol.MirrorKey:
		return k.MirrorName
	case protocol.MirrorTopicKey:
		return k.MirrorName
	case protocol.PartitionStateKey:
		return k.MirrorName
	case protocol.LastMirrorEpochsKey:
		return k.MirrorName
	case protocol.OwnedKey:
		return k.MirrorName
	}
	return ""
}

// recordsOf lists the types of a mirror's live records.
func (e *env) recordsOf(t *testing.T, mirror string) []int16 {
	t.Helper()
	var out []int16
	for _, s := range e.state(t) {
		if mirrorOf(s.key) == mirror {
			out = append(out, s.key.RecordType())
		}
	}
	slices.Sort(out)
	return out
}

func (e *env) stateRecord(t *testing.T, mirror, topic string, partition int32) protocol.PartitionStateValue {
	t.Helper()
	id := e.describe(t, mirror).topic(topic).TopicID
	for _, s := range e.state(t) {
		if k, ok := s.key.(protocol.PartitionStateKey); ok && k.MirrorName == mirror && k.TopicID == id && k.Partition == partition {
			return *s.value.(*protocol.PartitionStateValue)
		}
	}
	t.Fatalf("no state of %s-%d is on record", topic, partition)
	return protocol.PartitionStateValue{}
}

func (e *env) lineageRecord(t *testing.T, mirror, topic string, partition int32) protocol.LastMirrorEpochsValue {
	t.Helper()
	id := e.describe(t, mirror).topic(topic).TopicID
	for _, s := range e.state(t) {
		if k, ok := s.key.(protocol.LastMirrorEpochsKey); ok && k.MirrorName == mirror && k.TopicID == id && k.Partition == partition {
			return *s.value.(*protocol.LastMirrorEpochsValue)
		}
	}
	t.Fatalf("no lineage of %s-%d is on record", topic, partition)
	return protocol.LastMirrorEpochsValue{}
}
