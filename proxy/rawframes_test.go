package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// exchangeRaw sends a frame and returns the answer, nil if the connection was closed.
func exchangeRaw(t *testing.T, addr string, frame []byte) []byte {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	out, err := readFrame(c)
	if err != nil {
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			t.Fatalf("%s neither answers nor closes", addr)
		}
		if len(out) > 0 && !errors.Is(err, io.EOF) && !isReset(err) {
			t.Logf("%s: %v", addr, err)
		}
		return nil
	}
	return out
}

// testRaw sends the same bytes to the broker and to its proxy: what comes back are the same bytes.
func (s *realSetup) testRaw(t *testing.T) {
	const topic = "raw"
	s.createTopic(t, topic, 2)
	cl := s.cluster.ClientT(t, kgo.DefaultProduceTopic(topic))
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("one"), kgo.StringRecord("two")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for i, addr := range s.advertised {
		direct := s.cluster.Node(int32(i + 1)).Addr(harness.ListenerClient)
		harness.AwaitT(t, time.Minute, "both brokers know the topic", func(ctx context.Context) error {
			known, err := kgo.NewClient(kgo.SeedBrokers(direct))
			if err != nil {
				return err
			}
			defer known.Close()
			return harness.AwaitTopic(ctx, known, topic)
		})
		t.Run(fmt.Sprintf("broker %d", i+1), func(t *testing.T) {
			both := func(t *testing.T, name string, frame []byte) []byte {
				t.Helper()
				// Brokers name any of themselves as the controller, by chance; the epoch of the features
				// is where the metadata log ends at the moment.
				tries := 1
				if strings.HasPrefix(name, "Metadata") || strings.HasPrefix(name, "DescribeCluster") || strings.HasPrefix(name, "ApiVersions") {
					tries = 100
				}
				var want, got []byte
				for range tries {
					want, got = exchangeRaw(t, direct, frame), exchangeRaw(t, addr, frame)
					if bytes.Equal(got, want) {
						return want
					}
				}
				t.Errorf("%s: broker and proxy differ\n%x\n%x", name, want, got)
				return want
			}
			s.rawAPIVersions(t, both)
			s.rawUnknown(t, both)
			s.rawAnswers(t, direct, both)
		})
	}
}

type bothFunc func(t *testing.T, name string, frame []byte) (brokers []byte)

// rawAPIVersions is KIP-511 and KIP-1242.
func (s *realSetup) rawAPIVersions(t *testing.T, both bothFunc) {
	for version := int16(0); version <= 5; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = version
		req.ClientSoftwareName, req.ClientSoftwareVersion = "raw", "1"
		both(t, fmt.Sprintf("ApiVersions v%d", version), encodeRequest(req, 1, nil))
	}
	for _, version := range []int16{6, 99, -1} {
		frame := frameOf(append(binary.BigEndian.AppendUint16([]byte{0, 18}, uint16(version)), 0, 0, 0, 7, 0xff, 0xff, 0, 0xde, 0xad))
		answer := both(t, fmt.Sprintf("ApiVersions v%d", version), frame)
		if len(answer) < 6 || int16(binary.BigEndian.Uint16(answer[4:])) != errUnsupportedVersion {
			t.Errorf("v%d: the broker answers %x", version, answer)
		}
	}
	cluster, other := s.cluster.ID(), "another"
	for name, asked := range map[string]struct {
		cluster *string
		node    int32
	}{"right": {&cluster, 1}, "another node": {&cluster, 2}, "no such node": {&cluster, 77}, "another cluster": {&other, 1}, "cluster only": {&cluster, -1}, "node only": {nil, 1}} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = 5
		req.ClientSoftwareName, req.ClientSoftwareVersion = "raw", "1"
		req.ClusterID, req.NodeID = asked.cluster, asked.node
		both(t, "ApiVersions of "+name, encodeRequest(req, 1, nil))
	}
}

// rawUnknown is what nobody knows, or only one of both.
func (s *realSetup) rawUnknown(t *testing.T, both bothFunc) {
	head := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0, 0)
	}
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.Fetch, kmsg.Produce, kmsg.FindCoordinator, kmsg.CreateTopics, kmsg.OffsetCommit, kmsg.ListGroups} {
		for _, version := range []int16{99, -1} {
			if answer := both(t, fmt.Sprintf("%s v%d", key.Name(), version), frameOf(head(int16(key), version))); answer != nil {
				t.Errorf("%s v%d: the broker answers %x", key.Name(), version, answer)
			}
		}
	}
	for _, key := range []int16{95, 999, 32767, -1, int16(kmsg.LeaderAndISR)} {
		both(t, fmt.Sprintf("API %d", key), frameOf(head(key, 0)))
	}
}

// rawAnswers are requests that only read, in every version that the broker has.
func (s *realSetup) rawAnswers(t *testing.T, direct string, both bothFunc) {
	const topic = "raw"
	listed, err := kadm.NewClient(s.cluster.ClientT(t)).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	id := [16]byte(listed[topic].ID)
	ranges := kmsg.NewPtrApiVersionsResponse()
	if err := ranges.ReadFrom(exchangeRaw(t, direct, encodeRequest(kmsg.NewPtrApiVersionsRequest(), 1, nil))[4:]); err != nil {
		t.Fatal(err)
	}
	fetch := fetchOf(0, -1, topic)
	fetch.Topics[0].TopicID = id
	fetch.MaxWaitMillis, fetch.SessionEpoch = 1, -1
	fetch.ReplicaState = kmsg.NewFetchRequestReplicaState()
	fetch.Topics[0].Partitions[0].PartitionMaxBytes, fetch.MaxBytes = 1<<20, 1<<20
	for _, req := range []kmsg.Request{
		kmsg.NewPtrMetadataRequest(),
		&kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(topic)}, {Topic: kmsg.StringPtr("none")}}},
		kmsg.NewPtrDescribeClusterRequest(),
		&kmsg.DescribeClusterRequest{EndpointType: 2},
		&kmsg.FindCoordinatorRequest{CoordinatorKey: "g-franz-advertised", CoordinatorKeys: []string{"g-franz-advertised", "another"}},
		&kmsg.DescribeTopicPartitionsRequest{Topics: []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: topic}, {Topic: "none"}}, ResponsePartitionLimit: 100},
		&kmsg.ListOffsetsRequest{ReplicaID: -1, Topics: []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: 0, CurrentLeaderEpoch: -1, Timestamp: -1}}}}},
		&kmsg.OffsetForLeaderEpochRequest{ReplicaID: -1, Topics: []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: 0, CurrentLeaderEpoch: -1}}}}},
		&kmsg.DescribeConfigsRequest{Resources: []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic}}},
		&kmsg.ListConfigResourcesRequest{ResourceTypes: []int8{2, 4, 8}},
		&kmsg.ListPartitionReassignmentsRequest{},
		fetch,
	} {
		for _, k := range ranges.ApiKeys {
			if k.ApiKey != req.Key() {
				continue
			}
			for version := k.MinVersion; version <= min(k.MaxVersion, maxVersion(k.ApiKey)); version++ {
				req.SetVersion(version)
				if both(t, fmt.Sprintf("%s v%d", kmsg.NameForKey(k.ApiKey), version), encodeRequest(req, 9, &testClientID)) == nil {
					t.Errorf("%s v%d: not answered", kmsg.NameForKey(k.ApiKey), version)
				}
			}
		}
	}
}
