package coordinator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// A sidecar that was started while the state topic has no leader knows of no mirror. It must not
// say that there is none, and can tell which broker has to come back.
func TestUnreadStateIsNoAnswer(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	img := metadata.NewImage(virtual)
	store, err := NewStore(StoreConfig{Partitions: 1, ReplicationFactor: 1, Virtual: virtual, Self: 10001, Opts: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}}, img, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, store.Stop) })
	c, err := New(Config{Self: 10001, Virtual: virtual, VirtualReplicas: 2, ClusterID: "here"}, Deps{Image: img, Store: store, Peers: windowPeers{}}, log)
	if err != nil {
		t.Fatal(err)
	}
	list, describe, local := protocol.NewListClusterMirrorsRequest(), protocol.NewDescribeClusterMirrorsRequest(), protocol.NewDescribeClusterMirrorsRequest()
	describe.MirrorNames = []string{"m"}
	local.MirrorNames, local.LocalOnly = []string{"m"}, true

	check := func(words string) {
		t.Helper()
		code, message := int16(0), (*string)(nil)
		switch r := c.answer(t.Context(), "", &list).(type) {
		case *protocol.ListClusterMirrorsResponse:
			code, message = r.ErrorCode, r.ErrorMessage
		}
		if code != kerr.CoordinatorLoadInProgress.Code || message == nil || !strings.Contains(*message, words) {
			t.Errorf("list: code %d, message %v, not %q", code, message, words)
		}
		r := c.answer(t.Context(), "", &describe).(*protocol.DescribeClusterMirrorsResponse)
		if r.ErrorCode != code || r.ErrorMessage == nil || *r.ErrorMessage != *message {
			t.Errorf("describe: code %d, message %v", r.ErrorCode, r.ErrorMessage)
		}
		// What is led here is known all the same.
		if r := c.answer(t.Context(), peerClientID, &local).(*protocol.DescribeClusterMirrorsResponse); r.ErrorCode != 0 {
			t.Errorf("describe, asked by a peer: code %d", r.ErrorCode)
		}
	}
	check("is being read")
	img.Set([]*metadata.Partition{{
		Topic: StateTopic, TopicID: ids.UUID{255}, Replicas: []int32{1, 2, 3}, ELR: []int32{3}, Leader: -1, LeaderEpoch: 7,
	}}, []metadata.Broker{{ID: 1}, {ID: 10001}}, nil)
	check("__cluster_mirror_state-0 has no leader; bring back broker 3, which has all data")
	img.Set([]*metadata.Partition{{
		Topic: StateTopic, TopicID: ids.UUID{255}, Replicas: []int32{1, 2, 3}, ISR: []int32{3}, Leader: 3, LeaderEpoch: 8,
	}}, []metadata.Broker{{ID: 1}, {ID: 3}, {ID: 10001}}, nil)
	check("of __cluster_mirror_state-0, on brokers [1 2 3], only [3] are in sync")
}
