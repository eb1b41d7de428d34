package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Destination is what a sidecar does there.
type Destination struct {
	// Broker is the id of the home broker, which is asked.
	Broker int32
	// State is the state topic, Transactions a transactional id that it is written under.
	State, Transactions string
	// Topics are those that are mirrored and exist.
	Topics []string
	// Group stands for the groups whose offsets are copied; empty: none are.
	Group string
	// Quotas says that client quotas are mirrored.
	Quotas bool
}

// needsOnCluster are a sidecar's rights on the cluster. docs/security.md has the same table.
func (d *Destination) needsOnCluster() []Need {
	needs := []Need{
		OfCluster(Describe, "finding out what is allowed, and what is being reassigned"),
		OfCluster(ClusterAction, "being a broker, and talking to the other sidecars"),
		OfCluster(Alter, "assigning virtual replicas, electing leaders, un-registering the own virtual broker, mirroring ACLs"),
		OfCluster(DescribeConfigs, "reading the brokers' defaults, and rules by the address of clients"),
	}
	if d.Quotas {
		needs = append(needs, OfCluster(AlterConfigs, "mirroring client quotas"))
	}
	return needs
}

// needsOnTopic are its rights on a mirror topic.
func needsOnTopic(topic string) []Need {
	return []Need{
		OfTopic(Describe, topic, "finding its offsets"),
		OfTopic(Read, topic, "serving followers that lag behind, and consumers' offsets"),
		OfTopic(Alter, topic, "adding partitions with its source"),
		OfTopic(DescribeConfigs, topic, "comparing its configs with the source's"),
		OfTopic(AlterConfigs, topic, "the write lock, and configs that change at the source"),
	}
}

// Missing asks under the sidecar's identity which of the rights that it needs are missing. Nothing is
// changed. An error says what could not be asked; what is known to be missing is returned all the same.
func (d *Destination) Missing(ctx context.Context, a Asker) ([]Need, error) {
	var missing []Need
	var errs []error
	for _, ask := range []func(context.Context, Asker) ([]Need, error){d.onCluster, d.onState, d.onTopics, d.onTransactions, d.onGroups} {
		some, err := ask(ctx, a)
		missing, errs = append(missing, some...), append(errs, err)
	}
	return missing, errors.Join(errs...)
}

func (d *Destination) onCluster(ctx context.Context, a Asker) (missing []Need, err error) {
	have, err := OnCluster(ctx, a)
	if err != nil {
		return nil, err
	}
	// Who lacks DESCRIBE is told of none: each is asked for by itself then.
	told := have.Has(Describe)
	for _, n := range d.needsOnCluster() {
		ok := have.Has(n.Operation)
		switch {
		case told:
		case n.Operation == ClusterAction:
			ok, err = Follows(ctx, a, d.Broker)
		case n.Operation == DescribeConfigs:
			ok, err = DescribesClusterConfigs(ctx, a)
		case n.Operation == AlterConfigs:
			ok, err = AltersClusterConfigs(ctx, a)
		}
		if err != nil {
			return missing, err
		}
		if !ok {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

// noSuchTopic is an id no topic has: topic ids are random UUIDs of version 4, this is not.
var noSuchTopic = [16]byte{0: 'm', 1: 'i', 2: 'r', 3: 'r', 4: 'o', 5: 'r', 15: 1}

// Follows asks whether CLUSTER_ACTION is allowed, which lets one fetch as a broker: a Fetch of a topic
// that does not exist says so.
func Follows(ctx context.Context, a Asker, broker int32) (bool, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 13
	req.ReplicaID, req.ReplicaState.ID = broker, broker
	req.MaxBytes, req.SessionEpoch = 1, -1
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	t.TopicID, p.PartitionMaxBytes = noSuchTopic, 1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := a.Request(ctx, req)
	if err != nil {
		return false, fmt.Errorf("ask whether CLUSTER_ACTION is allowed on the cluster: %w", err)
	}
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return false, errUnexpected
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
				return true, nil
			case Denied(err):
				return false, nil
			default:
				return false, fmt.Errorf("ask whether CLUSTER_ACTION is allowed on the cluster: %w", err)
			}
		}
	}
	return false, errUnexpected
}

// operationsOn asks what is allowed on topics that may exist. Those that do not are not in the answer;
// those that may not be described have no operations.
func operationsOn(ctx context.Context, a Asker, topics []string) (map[string]Set, error) {
	out := map[string]Set{}
	for part := range slices.Chunk(topics, chunk) {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12 // what all destinations have, and the last that is asked by name only
		req.IncludeTopicAuthorizedOperations = true
		for _, name := range part {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
		resp, err := a.Request(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("ask what is allowed on topics: %w", err)
		}
		m, ok := resp.(*kmsg.MetadataResponse)
		if !ok {
			return nil, errUnexpected
		}
		for _, t := range m.Topics {
			switch err := kerr.ErrorForCode(t.ErrorCode); {
			case t.Topic == nil || errors.Is(err, kerr.UnknownTopicOrPartition):
			case Denied(err):
				out[*t.Topic] = 0
			default:
				out[*t.Topic] = Set(t.AuthorizedOperations)
			}
		}
	}
	return out, nil
}

// onState asks about the state topic, which comes with the first mirror.
func (d *Destination) onState(ctx context.Context, a Asker) ([]Need, error) {
	have, err := operationsOn(ctx, a, []string{d.State})
	if err != nil {
		return nil, err
	}
	set, exists := have[d.State]
	create := OfTopic(Create, d.State, "creating it with the first mirror")
	if !exists {
		ok, err := creates(ctx, a, d.State)
		if err != nil || ok {
			return nil, err
		}
		return []Need{create}, nil
	}
	return lacks(set, []Need{
		OfTopic(Describe, d.State, "the mirrors' state"), OfTopic(Read, d.State, "reading the mirrors' state"), OfTopic(Write, d.State, "writing the mirrors' state"),
	}), nil
}

// creates asks whether a topic may be created that does not exist.
func creates(ctx context.Context, a Asker, topic string) (bool, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly, req.TimeoutMillis = true, 10000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, -1
	req.Topics = append(req.Topics, t)
	resp, err := a.Request(ctx, req)
	if err != nil {
		return false, fmt.Errorf("ask whether topic %s may be created: %w", topic, err)
	}
	r, ok := resp.(*kmsg.CreateTopicsResponse)
	if !ok || len(r.Topics) != 1 {
		return false, errUnexpected
	}
	return !Denied(kerr.ErrorForCode(r.Topics[0].ErrorCode)), nil
}

// lacks returns the needs that a set does not have.
func lacks(have Set, needs []Need) []Need {
	return slices.DeleteFunc(needs, func(n Need) bool { return have.Has(n.Operation) })
}

func (d *Destination) onTopics(ctx context.Context, a Asker) (missing []Need, err error) {
	have, err := operationsOn(ctx, a, d.Topics)
	for _, topic := range d.Topics {
		if set, exists := have[topic]; exists {
			missing = append(missing, lacks(set, needsOnTopic(topic))...)
		}
	}
	return missing, err
}

// onTransactions asks by requests about a producer that there is not. Not by FindCoordinator, which would
// create __transaction_state in a cluster that has none yet.
func (d *Destination) onTransactions(ctx context.Context, a Asker) (missing []Need, err error) {
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{d.Transactions}
	resp, err := a.Request(ctx, describe)
	if err != nil {
		return nil, fmt.Errorf("ask whether DESCRIBE is allowed on transactional id %s: %w", d.Transactions, err)
	}
	f, ok := resp.(*kmsg.DescribeTransactionsResponse)
	if !ok || len(f.TransactionStates) != 1 {
		return nil, errUnexpected
	}
	if Denied(kerr.ErrorForCode(f.TransactionStates[0].ErrorCode)) {
		missing = append(missing, OfTransaction(Describe, d.Transactions, "writing the mirrors' state"))
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID = d.Transactions, noProducer
	if resp, err = a.Request(ctx, end); err != nil {
		return missing, fmt.Errorf("ask whether WRITE is allowed on transactional id %s: %w", d.Transactions, err)
	}
	e, ok := resp.(*kmsg.EndTxnResponse)
	if !ok {
		return missing, errUnexpected
	}
	if Denied(kerr.ErrorForCode(e.ErrorCode)) {
		missing = append(missing, OfTransaction(Write, d.Transactions, "writing the mirrors' state"))
	}
	return missing, nil
}

// noProducer is a producer's id that no cluster hands out for long: they are handed out from 0.
const noProducer int64 = 1<<63 - 2

// onGroups asks by a heartbeat of a member that there is not.
func (d *Destination) onGroups(ctx context.Context, a Asker) ([]Need, error) {
	if d.Group == "" {
		return nil, nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = d.Group, 0, "nobody"
	resp, err := a.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask whether READ is allowed on groups: %w", err)
	}
	h, ok := resp.(*kmsg.HeartbeatResponse)
	if !ok {
		return nil, errUnexpected
	}
	if Denied(kerr.ErrorForCode(h.ErrorCode)) {
		return []Need{OfGroup(Read, "*", "copying group offsets")}, nil
	}
	return nil, nil
}
