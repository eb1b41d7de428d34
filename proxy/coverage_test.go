package proxy

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusing are the APIs that could change a mirror topic or the sidecars' own state, with how
// they are kept from it: the table has a handler for each, at both kinds of listener.
func refusing() map[kmsg.Key]string {
	return map[kmsg.Key]string{
		kmsg.Produce:                   "refused by partition",
		kmsg.AddPartitionsToTxn:        "refused by transaction",
		kmsg.WriteTxnMarkers:           "refused by partition; the virtual broker answers at its own listener",
		kmsg.DeleteRecords:             "refused by partition",
		kmsg.CreatePartitions:          "refused by topic",
		kmsg.DeleteTopics:              "refused by topic, named or by id",
		kmsg.CreateTopics:              "the state topic, and mirror.name, are refused",
		kmsg.Metadata:                  "does not create the state topic by asking for it",
		kmsg.AlterConfigs:              "refused by topic",
		kmsg.IncrementalAlterConfigs:   "configs of the write lock and mirror.name are refused",
		kmsg.AlterPartitionAssignments: "rewritten: the virtual replicas stay",
		kmsg.AlterReplicaLogDirs:       "refused by partition",
		kmsg.ElectLeaders:              "unclean elections are refused by partition",
		kmsg.InitProducerID:            "the state topic's transactional ids are refused",
		kmsg.AddOffsetsToTxn:           "the state topic's transactional ids are refused",
		kmsg.TxnOffsetCommit:           "the state topic's transactional ids are refused",
		kmsg.EndTxn:                    "the state topic's transactional ids are refused",
	}
}

// harmless are the other APIs, with why they change nothing of what a topic holds.
func harmless() map[kmsg.Key]string {
	const (
		reads     = "reads"
		connects  = "is about the connection or the client itself"
		groups    = "changes what groups keep: readers of a mirror topic commit their positions as everywhere"
		principal = "changes who may do what, which the cluster's administrators say"
		inside    = "brokers do not serve it at listeners for clients: controllers do, or it is gone since Kafka 4.0"
		quorum    = "changes the controllers"
	)
	return map[kmsg.Key]string{
		kmsg.Fetch: reads, kmsg.ListOffsets: reads, kmsg.OffsetForLeaderEpoch: reads, kmsg.ShareFetch: reads,
		kmsg.OffsetFetch: reads, kmsg.FindCoordinator: reads, kmsg.DescribeGroups: reads, kmsg.ListGroups: reads,
		kmsg.DescribeACLs: reads, kmsg.DescribeConfigs: reads, kmsg.DescribeLogDirs: reads, kmsg.DescribeDelegationToken: reads,
		kmsg.ListPartitionReassignments: reads, kmsg.DescribeClientQuotas: reads, kmsg.DescribeUserSCRAMCredentials: reads,
		kmsg.DescribeQuorum: reads, kmsg.DescribeCluster: reads, kmsg.DescribeProducers: reads, kmsg.DescribeTransactions: reads,
		kmsg.ListTransactions: reads, kmsg.ConsumerGroupDescribe: reads, kmsg.ListConfigResources: reads,
		kmsg.DescribeTopicPartitions: reads, kmsg.ShareGroupDescribe: reads, kmsg.StreamsGroupDescribe: reads,
		kmsg.DescribeShareGroupOffsets: reads, kmsg.ReadShareGroupState: reads, kmsg.ReadShareGroupStateSummary: reads,

		kmsg.SASLHandshake: connects, kmsg.SASLAuthenticate: connects, kmsg.ApiVersions: connects,
		kmsg.GetTelemetrySubscriptions: connects, kmsg.PushTelemetry: connects,

		kmsg.OffsetCommit: groups, kmsg.OffsetDelete: groups, kmsg.JoinGroup: groups, kmsg.Heartbeat: groups, kmsg.LeaveGroup: groups,
		kmsg.SyncGroup: groups, kmsg.DeleteGroups: groups, kmsg.ConsumerGroupHeartbeat: groups, kmsg.ShareGroupHeartbeat: groups,
		kmsg.ShareAcknowledge: groups, kmsg.AlterShareGroupOffsets: groups, kmsg.DeleteShareGroupOffsets: groups,
		kmsg.InitializeShareGroupState: groups, kmsg.WriteShareGroupState: groups, kmsg.DeleteShareGroupState: groups,
		kmsg.StreamsGroupHeartbeat:                 "changes what groups keep, and may create topics of the application that are missing",
		kmsg.StreamsGroupTopologyDescriptionUpdate: groups,

		kmsg.CreateACLs: principal, kmsg.DeleteACLs: principal, kmsg.CreateDelegationToken: principal, kmsg.RenewDelegationToken: principal,
		kmsg.ExpireDelegationToken: principal, kmsg.AlterUserSCRAMCredentials: principal, kmsg.AlterClientQuotas: principal,

		kmsg.LeaderAndISR: inside, kmsg.StopReplica: inside, kmsg.UpdateMetadata: inside, kmsg.ControlledShutdown: inside,
		kmsg.Vote: inside, kmsg.BeginQuorumEpoch: inside, kmsg.EndQuorumEpoch: inside, kmsg.FetchSnapshot: inside,
		kmsg.AlterPartition: inside, kmsg.Envelope: inside, kmsg.BrokerRegistration: inside, kmsg.BrokerHeartbeat: inside,
		kmsg.AllocateProducerIDs: inside, kmsg.ControllerRegistration: inside, kmsg.AssignReplicasToDirs: inside,

		kmsg.AddRaftVoter: quorum, kmsg.RemoveRaftVoter: quorum, kmsg.UpdateRaftVoter: quorum, kmsg.UnregisterController: quorum,
		kmsg.UpdateFeatures:   "the controllers refuse a level that a virtual broker has not registered for",
		kmsg.UnregisterBroker: "takes an id off that nobody has any more; a sidecar that lives registers its own again, and the virtual broker of one that is gone must go",
	}
}

// Each API that is known is either kept from mirror topics or is said to be harmless, so that
// one that comes with the next Kafka is thought about.
func TestEveryAPIIsThoughtAbout(t *testing.T) {
	no, yes := refusing(), harmless()
	rows := map[at]map[int16]*row{
		atClient:  rowsFor(Config{}, Deps{}),
		atVirtual: rowsFor(Config{Virtual: true}, Deps{}),
	}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		k, name := kmsg.Key(key), kmsg.NameForKey(key)
		_, refused := no[k]
		if _, other := yes[k]; refused == other {
			t.Errorf("%s (%d): in refusing: %t, in harmless: %t; can it change a mirror topic?", name, key, refused, other)
		}
		for where, here := range rows {
			r := here[key]
			if refused && (r == nil || r.handle == nil) {
				t.Errorf("%s is not intercepted at listeners of kind %d", name, where)
			}
			if r != nil && r.max < req.MaxVersion() {
				t.Errorf("%s: versions up to %d are read, there are %d: look at what is new in them", name, r.max, req.MaxVersion())
			}
		}
		delete(no, k)
		delete(yes, k)
	}
	if len(no)+len(yes) > 0 {
		t.Errorf("not known: %v %v", no, yes)
	}
}
