package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The requests of each part. Most name things that are there and things that are not.

func (w *wire) metadataRequests() []kmsg.Request {
	var out []kmsg.Request
	for _, name := range []string{w.topic("main"), w.topic("unknown"), "not/valid"} {
		m := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		m.Topics = append(m.Topics, t)
		m.IncludeTopicAuthorizedOperations, m.IncludeClusterAuthorizedOperations = true, true
		d := kmsg.NewPtrDescribeTopicPartitionsRequest()
		dt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		dt.Topic = name
		d.Topics = append(d.Topics, dt)
		out = append(out, m, d)
	}
	none := kmsg.NewPtrMetadataRequest()
	none.Topics = []kmsg.MetadataRequestTopic{}
	for _, endpoint := range []int8{1, 2} {
		d := kmsg.NewPtrDescribeClusterRequest()
		d.EndpointType, d.IncludeClusterAuthorizedOperations, d.IncludeFencedBrokers = endpoint, true, true
		out = append(out, d)
	}
	for kind := range int8(5) {
		f := kmsg.NewPtrFindCoordinatorRequest()
		key := w.topic("group")
		if kind == 2 {
			key += ":AAAAAAAAAAAAAAAAAAAAAQ:0"
		}
		if kind == 3 { // a mirror's, which brokers do not know
			continue
		}
		f.CoordinatorType, f.CoordinatorKey, f.CoordinatorKeys = kind, key, []string{key}
		out = append(out, f)
	}
	return append(out, none)
}

func (w *wire) partitions() []int32 { return []int32{0, 1, 7} }

func (w *wire) fetch(at int64) *kmsg.FetchRequest {
	f := kmsg.NewPtrFetchRequest()
	f.ReplicaID, f.MinBytes, f.MaxBytes, f.SessionEpoch = -1, 1, 1<<20, -1
	f.MaxWaitMillis = 100
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = w.topic("main"), w.id
	for _, p := range w.partitions() {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = p, at, 1<<20, -1
		t.Partitions = append(t.Partitions, part)
	}
	f.Topics = append(f.Topics, t)
	return f
}

func (w *wire) produceRequests() []kmsg.Request {
	// What is produced is a batch that was fetched.
	fetch := w.fetch(0)
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	var batch []byte
	if resp, err := w.cl.Broker(1).RetriableRequest(ctx, fetch); err == nil {
		for _, t := range resp.(*kmsg.FetchResponse).Topics {
			for _, p := range t.Partitions {
				if p.Partition == 0 {
					batch = p.RecordBatches
				}
			}
		}
	}
	var out []kmsg.Request
	for _, acks := range []int16{1, -1, 7} {
		r := kmsg.NewPtrProduceRequest()
		r.Acks, r.TimeoutMillis = acks, 10000
		for _, topic := range []string{"main", "unknown"} {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = w.topic(topic)
			if topic == "main" {
				t.TopicID = w.id
			}
			for _, p := range w.partitions() {
				part := kmsg.NewProduceRequestTopicPartition()
				part.Partition, part.Records = p, firstBatch(batch)
				t.Partitions = append(t.Partitions, part)
			}
			r.Topics = append(r.Topics, t)
		}
		out = append(out, r)
	}
	broken := kmsg.NewPtrProduceRequest()
	broken.Acks, broken.TimeoutMillis = 1, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = w.topic("main"), w.id
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = append([]byte(nil), firstBatch(batch)...)
	if n := len(part.Records); n > 0 {
		part.Records[n-1] ^= 0xff
	}
	t.Partitions = append(t.Partitions, part)
	broken.Topics = append(broken.Topics, t)
	return append(out, broken)
}

// firstBatch cuts the first batch off.
func firstBatch(b []byte) []byte {
	if len(b) < 12 {
		return b
	}
	n := 12 + int(b[8])<<24 + int(b[9])<<16 + int(b[10])<<8 + int(b[11])
	return b[:min(n, len(b))]
}

func (w *wire) consumeRequests() []kmsg.Request {
	out := []kmsg.Request{w.fetch(0), w.fetch(1_000_000)}
	unknown := w.fetch(0)
	unknown.Topics[0].Topic, unknown.Topics[0].TopicID = w.topic("unknown"), [16]byte{1: 1}
	fenced := w.fetch(0)
	for i := range fenced.Topics[0].Partitions {
		fenced.Topics[0].Partitions[i].CurrentLeaderEpoch = 77
	}
	out = append(out, unknown, fenced)
	for _, at := range []int64{-1, -2, -3, -4, -5, firstTime + 5000, firstTime * 2} {
		for level := range int8(2) {
			l := kmsg.NewPtrListOffsetsRequest()
			l.ReplicaID, l.IsolationLevel, l.TimeoutMillis = -1, level, 5000
			for _, topic := range []string{"main", "unknown"} {
				t := kmsg.NewListOffsetsRequestTopic()
				t.Topic = w.topic(topic)
				for _, p := range w.partitions() {
					part := kmsg.NewListOffsetsRequestTopicPartition()
					part.Partition, part.Timestamp, part.CurrentLeaderEpoch, part.MaxNumOffsets = p, at, -1, 1
					t.Partitions = append(t.Partitions, part)
				}
				l.Topics = append(l.Topics, t)
			}
			out = append(out, l)
		}
	}
	for _, epoch := range []int32{0, 5} {
		o := kmsg.NewPtrOffsetForLeaderEpochRequest()
		o.ReplicaID = -1
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = w.topic("main")
		for _, p := range w.partitions() {
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.Partition, part.LeaderEpoch, part.CurrentLeaderEpoch = p, epoch, -1
			t.Partitions = append(t.Partitions, part)
		}
		o.Topics = append(o.Topics, t)
		out = append(out, o)
	}
	return out
}

func (w *wire) groupRequests() []kmsg.Request {
	group := w.topic("group")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation, commit.MemberID = group, -1, ""
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic, ct.TopicID = w.topic("main"), w.id
	for _, p := range w.partitions() {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = p, 3, -1, kmsg.StringPtr("by wire")
		ct.Partitions = append(ct.Partitions, part)
	}
	commit.Topics = append(commit.Topics, ct)
	bad := kmsg.NewPtrOffsetCommitRequest()
	bad.Group, bad.Generation, bad.MemberID, bad.Topics = group, 5, "nobody", commit.Topics

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = group
	ft := kmsg.NewOffsetFetchRequestTopic()
	ft.Topic, ft.Partitions = w.topic("main"), w.partitions()
	fetch.Topics = append(fetch.Topics, ft)
	fg := kmsg.NewOffsetFetchRequestGroup()
	fg.Group, fg.MemberEpoch = group, -1
	fgt := kmsg.NewOffsetFetchRequestGroupTopic()
	fgt.Topic, fgt.TopicID, fgt.Partitions = w.topic("main"), w.id, w.partitions()
	fg.Topics = append(fg.Topics, fgt)
	fetch.Groups = append(fetch.Groups, fg)

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{group, w.topic("unknown")}
	describe.IncludeAuthorizedOperations = true
	consumer := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumer.Groups = describe.Groups
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Group, heartbeat.Generation, heartbeat.MemberID = group, 1, "nobody"
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = group, "nobody"
	leaving := kmsg.NewLeaveGroupRequestMember()
	leaving.MemberID = "nobody"
	leave.Members = append(leave.Members, leaving)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, 1, "nobody"
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.MemberID, join.ProtocolType = group, 1, 1000, "", "consumer"
	jp := kmsg.NewJoinGroupRequestProtocol()
	jp.Name = "range"
	join.Protocols = append(join.Protocols, jp)
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.MemberEpoch = w.topic("unknown"), "AAAAAAAAAAAAAAAAAAAAAQ", 5
	deleted := kmsg.NewPtrDeleteGroupsRequest()
	deleted.Groups = []string{w.topic("unknown")}
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = w.topic("unknown")
	streams := kmsg.NewPtrStreamsGroupDescribeRequest()
	streams.Groups = []string{w.topic("unknown")}
	return []kmsg.Request{commit, bad, fetch, describe, consumer, heartbeat, leave, sync, join, beat, deleted, offsets, streams}
}

func (w *wire) transactionRequests() []kmsg.Request {
	id := w.topic("txn")
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = &id, 1_000_000_000, -1, -1
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, 999999, 3
	at := kmsg.NewAddPartitionsToTxnRequestTopic()
	at.Topic, at.Partitions = w.topic("tx"), []int32{0, 1}
	add.Topics = append(add.Topics, at)
	tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
	tx.TransactionalID, tx.ProducerID, tx.ProducerEpoch = id, 999999, 3
	tt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	tt.Topic, tt.Partitions = at.Topic, at.Partitions
	tx.Topics = append(tx.Topics, tt)
	add.Transactions = append(add.Transactions, tx)
	offsets := kmsg.NewPtrAddOffsetsToTxnRequest()
	offsets.TransactionalID, offsets.ProducerID, offsets.ProducerEpoch, offsets.Group = id, 999999, 3, w.topic("group")
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, 999999, 3, true
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = id, w.topic("group"), 999999, 3, -1
	ct := kmsg.NewTxnOffsetCommitRequestTopic()
	ct.Topic = w.topic("main")
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset = 3
	ct.Partitions = append(ct.Partitions, part)
	commit.Topics = append(commit.Topics, ct)
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{id}
	list := kmsg.NewPtrListTransactionsRequest()
	list.ProducerIDFilters = []int64{999999}
	producers := kmsg.NewPtrDescribeProducersRequest()
	dt := kmsg.NewDescribeProducersRequestTopic()
	dt.Topic, dt.Partitions = w.topic("tx"), w.partitions()
	producers.Topics = append(producers.Topics, dt)
	return []kmsg.Request{init, add, offsets, end, commit, describe, list, producers}
}

func (w *wire) shareRequests() []kmsg.Request {
	group, member := w.topic("share"), "AAAAAAAAAAAAAAAAAAAAAQ"
	describe := kmsg.NewPtrShareGroupDescribeRequest()
	describe.GroupIDs = []string{group}
	beat := kmsg.NewPtrShareGroupHeartbeatRequest()
	beat.GroupID, beat.MemberID, beat.MemberEpoch = group, member, 5
	fetch := kmsg.NewPtrShareFetchRequest()
	fetch.GroupID, fetch.MemberID, fetch.ShareSessionEpoch, fetch.MaxBytes, fetch.MaxRecords, fetch.BatchSize = &group, &member, 5, 1<<20, 10, 10
	ack := kmsg.NewPtrShareAcknowledgeRequest()
	ack.GroupID, ack.MemberID, ack.ShareSessionEpoch = &group, &member, 5
	offsets := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	og := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	og.GroupID = group
	offsets.Groups = append(offsets.Groups, og)
	return []kmsg.Request{describe, beat, fetch, ack, offsets}
}

func (w *wire) topicRequests() []kmsg.Request {
	var out []kmsg.Request
	for _, name := range []string{w.topic("new"), w.topic("main"), "not/valid"} {
		c := kmsg.NewPtrCreateTopicsRequest()
		c.ValidateOnly, c.TimeoutMillis = true, 10000
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 3, 2
		c.Topics = append(c.Topics, t)
		out = append(out, c)
	}
	for _, count := range []int32{4, 1} {
		c := kmsg.NewPtrCreatePartitionsRequest()
		c.ValidateOnly, c.TimeoutMillis = true, 10000
		for _, name := range []string{"main", "unknown"} {
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = w.topic(name), count
			c.Topics = append(c.Topics, t)
		}
		out = append(out, c)
	}
	d := kmsg.NewPtrDeleteTopicsRequest()
	d.TimeoutMillis = 10000
	d.TopicNames = []string{w.topic("unknown")}
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr(w.topic("unknown"))
	d.Topics = append(d.Topics, dt)
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.TimeoutMillis = 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = w.topic("main")
	for _, p := range w.partitions() {
		part := kmsg.NewDeleteRecordsRequestTopicPartition()
		part.Partition, part.Offset = p, 1_000_000
		rt.Partitions = append(rt.Partitions, part)
	}
	r.Topics = append(r.Topics, rt)
	return append(out, d, r)
}

func (w *wire) configRequests() []kmsg.Request {
	var out []kmsg.Request
	for _, name := range []string{w.topic("main"), w.topic("unknown")} {
		d := kmsg.NewPtrDescribeConfigsRequest()
		d.IncludeSynonyms, d.IncludeDocumentation = true, true
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"retention.ms", "cleanup.policy"}
		d.Resources = append(d.Resources, res)
		i := kmsg.NewPtrIncrementalAlterConfigsRequest()
		i.ValidateOnly = true
		ir := kmsg.NewIncrementalAlterConfigsRequestResource()
		ir.ResourceType, ir.ResourceName = kmsg.ConfigResourceTypeTopic, name
		for _, value := range []string{"1234"} {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = "retention.ms", &value
			ir.Configs = append(ir.Configs, c)
		}
		i.Resources = append(i.Resources, ir)
		a := kmsg.NewPtrAlterConfigsRequest()
		a.ValidateOnly = true
		ar := kmsg.NewAlterConfigsRequestResource()
		ar.ResourceType, ar.ResourceName = kmsg.ConfigResourceTypeTopic, name
		ac := kmsg.NewAlterConfigsRequestResourceConfig()
		ac.Name, ac.Value = "retention.ms", kmsg.StringPtr("long")
		ar.Configs = append(ar.Configs, ac)
		a.Resources = append(a.Resources, ar)
		out = append(out, d, i, a)
	}
	list := kmsg.NewPtrListConfigResourcesRequest()
	list.ResourceTypes = []int8{int8(kmsg.ConfigResourceTypeBroker)}
	return append(out, list)
}

func (w *wire) securityRequests() []kmsg.Request {
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType, acls.ResourcePatternType, acls.Principal = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.StringPtr("User:"+w.prefix)
	acls.Operation, acls.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	create := kmsg.NewPtrCreateACLsRequest()
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourceName, c.Principal, c.Host = kmsg.ACLResourceTypeTopic, w.topic("main"), "nobody", "*"
	c.ResourcePatternType, c.Operation, c.PermissionType = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	create.Creations = append(create.Creations, c)
	quotas := kmsg.NewPtrDescribeClientQuotasRequest()
	q := kmsg.NewDescribeClientQuotasRequestComponent()
	q.EntityType, q.Match = "user", &w.prefix
	quotas.Components = append(quotas.Components, q)
	scram := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
	u.Name = w.prefix
	scram.Users = append(scram.Users, u)
	token := kmsg.NewPtrDescribeDelegationTokenRequest()
	makeToken := kmsg.NewPtrCreateDelegationTokenRequest()
	sasl := kmsg.NewPtrSASLHandshakeRequest()
	sasl.Mechanism = "PLAIN"
	return []kmsg.Request{acls, create, quotas, scram, token, makeToken, sasl}
}

func (w *wire) clusterRequests() []kmsg.Request {
	move := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	mt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	mt.Topic = w.topic("main")
	for _, p := range w.partitions() {
		part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		part.Partition, part.Replicas = p, []int32{7}
		mt.Partitions = append(mt.Partitions, part)
	}
	move.Topics = append(move.Topics, mt)
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	lt := kmsg.NewListPartitionReassignmentsRequestTopic()
	lt.Topic, lt.Partitions = w.topic("main"), w.partitions()
	list.Topics = append(list.Topics, lt)
	elect := kmsg.NewPtrElectLeadersRequest()
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic, et.Partitions = w.topic("main"), w.partitions()
	elect.Topics = append(elect.Topics, et)
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dt := kmsg.NewDescribeLogDirsRequestTopic()
	dt.Topic, dt.Partitions = w.topic("tx"), []int32{0, 1}
	dirs.Topics = append(dirs.Topics, dt)
	alter := kmsg.NewPtrAlterReplicaLogDirsRequest()
	ad := kmsg.NewAlterReplicaLogDirsRequestDir()
	ad.Dir = "/no/such/folder"
	adt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	adt.Topic, adt.Partitions = w.topic("main"), w.partitions()
	ad.Topics = append(ad.Topics, adt)
	alter.Dirs = append(alter.Dirs, ad)
	features := kmsg.NewPtrUpdateFeaturesRequest()
	features.ValidateOnly, features.TimeoutMillis = true, 10000
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType = "share.version", 99, 1
	features.FeatureUpdates = append(features.FeatureUpdates, f)
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = 77
	return []kmsg.Request{move, list, elect, dirs, alter, features, unregister}
}
