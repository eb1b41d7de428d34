package coordinator

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

func lookupOf(topic ids.UUID, partitions ...int32) protocol.LastMirrorEpochLookup {
	l := protocol.NewLastMirrorEpochLookup()
	l.TopicID, l.Partitions = topic, partitions
	return l
}

func upTo(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

func names(n int) []string {
	var out []string
	for _, i := range upTo(n) {
		out = append(out, fmt.Sprint("n", i))
	}
	return out
}

func TestDescribeIsBounded(t *testing.T) {
	r := newRig(t)
	here := "source"
	for name, c := range map[string]struct {
		edit    func(q *protocol.DescribeClusterMirrorsRequest)
		refused bool
	}{
		"as many mirrors as can be": {func(q *protocol.DescribeClusterMirrorsRequest) { q.MirrorNames = names(maxDescribed) }, false},
		"one mirror too many":       {func(q *protocol.DescribeClusterMirrorsRequest) { q.MirrorNames = names(maxDescribed + 1) }, true},
		"one many times":            {func(q *protocol.DescribeClusterMirrorsRequest) { q.MirrorNames = slices.Repeat([]string{"m"}, 100000) }, false},
		"as many partitions as can be": {func(q *protocol.DescribeClusterMirrorsRequest) {
			q.LastMirrorEpochLookups = []protocol.LastMirrorEpochLookup{lookupOf(ids.UUID{1}, upTo(maxLookups)...), lookupOf(ids.UUID{1}, upTo(maxLookups)...)}
		}, false},
		"one partition too many": {func(q *protocol.DescribeClusterMirrorsRequest) {
			q.LastMirrorEpochLookups = []protocol.LastMirrorEpochLookup{lookupOf(ids.UUID{1}, upTo(maxLookups)...), lookupOf(ids.UUID{2}, 0)}
		}, true},
		"too many topics": {func(q *protocol.DescribeClusterMirrorsRequest) { q.OriginTopics = names(maxOrigins + 1) }, true},
		"too many topics of no partitions": {func(q *protocol.DescribeClusterMirrorsRequest) {
			for i := range maxLookups + 1 {
				q.LastMirrorEpochLookups = append(q.LastMirrorEpochLookups, lookupOf(idOf(fmt.Sprint(i))))
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			q := protocol.NewDescribeClusterMirrorsRequest()
			q.MirrorNames, q.ClusterID = []string{}, &here
			c.edit(&q)
			resp := r.answer(t.Context(), "", &q).(*protocol.DescribeClusterMirrorsResponse)
			if got := resp.ErrorCode == kerr.InvalidRequest.Code; got != c.refused || !got && resp.ErrorCode != 0 {
				t.Fatalf("code %d %s", resp.ErrorCode, text(resp.ErrorMessage))
			}
			if name == "one many times" && len(resp.Mirrors) != 1 {
				t.Errorf("%d mirrors", len(resp.Mirrors))
			}
		})
	}
	all := protocol.NewDescribeClusterMirrorsRequest()
	all.MirrorNames = nil
	if resp := r.answer(t.Context(), "", &all).(*protocol.DescribeClusterMirrorsResponse); len(resp.Mirrors) != 1 {
		t.Errorf("all: %d mirrors", len(resp.Mirrors))
	}
}

// What is asked of a source is divided into as much as a source answers at once.
func TestLookupsAreDivided(t *testing.T) {
	for _, lookups := range []map[ids.UUID][]int32{
		{}, {ids.UUID{1}: upTo(5)}, {ids.UUID{1}: upTo(maxLookups), ids.UUID{2}: upTo(1)}, {ids.UUID{1}: upTo(2*maxLookups + 1), ids.UUID{2}: upTo(7)},
	} {
		total, got := 0, map[ids.UUID][]int32{}
		for _, p := range lookups {
			total += len(p)
		}
		parts := lookupParts(lookups)
		if want := max((total+maxLookups-1)/maxLookups, 1); len(parts) != want {
			t.Errorf("%d partitions in %d parts, want %d", total, len(parts), want)
		}
		for _, part := range parts {
			n := 0
			for _, l := range part {
				n += len(l.Partitions)
				got[l.TopicID] = append(got[l.TopicID], l.Partitions...)
			}
			if n > maxLookups {
				t.Errorf("%d in one part", n)
			}
		}
		for id, p := range lookups {
			if !slices.Equal(got[id], p) {
				t.Errorf("%d of %d partitions", len(got[id]), len(p))
			}
		}
	}
}

// A question is about the state partitions that hold what it asks for.
func TestPartitionsAsked(t *testing.T) {
	r := newRig(t)
	r.mirrorTopic("t", Mirroring, Mirroring)
	here, other := "source", "other"
	r.topic(StateTopic, ids.UUID{255}, slices.Repeat([][]int32{{1}}, 49)...)
	n := int(r.store.Partitions())
	t1 := r.topicT("t")
	for name, c := range map[string]struct {
		cluster *string
		origins []string
		lookups []protocol.LastMirrorEpochLookup
		want    int
	}{
		"nothing":                 {&here, nil, nil, 0},
		"a topic that is not":     {&here, []string{"nonsense"}, nil, 0},
		"where a topic is from":   {&here, []string{"nonsense", "t"}, nil, n},
		"another cluster's links": {&other, nil, []protocol.LastMirrorEpochLookup{lookupOf(t1.SourceTopicID, 0)}, 0},
		"links of another topic":  {&here, nil, []protocol.LastMirrorEpochLookup{lookupOf(ids.UUID{9}, 0, 1, 2)}, 1},
		"a link":                  {&here, nil, []protocol.LastMirrorEpochLookup{lookupOf(t1.SourceTopicID, 0)}, 2},
	} {
		q := protocol.NewDescribeClusterMirrorsRequest()
		q.ClusterID, q.OriginTopics, q.LastMirrorEpochLookups = c.cluster, c.origins, c.lookups
		got := r.partitionsAsked(&q)
		if len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
		if name == "a link" && !slices.Contains(got, statePartition(partitionText("m", ids.TopicPartition{TopicID: t1.TopicID}), int32(n))) {
			t.Errorf("%v is without the partition's", got)
		}
	}
}
