package metadata

import (
	"fmt"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol/metadatarecords"
)

// Resource types of config records.
const (
	resourceTopic  int8 = 2
	resourceBroker int8 = 4
)

// apply changes the state by one record.
func (s *state) apply(rec metadatarecords.Record, c *changes) error {
	switch r := rec.(type) {
	case *metadatarecords.TopicRecord:
		s.addTopic(r.TopicID, r.Name)
	case *metadatarecords.RemoveTopicRecord:
		s.removeTopic(r.TopicID, c)
	case *metadatarecords.PartitionRecord:
		return s.addPartition(&Partition{
			TopicID:        r.TopicID,
			Partition:      r.PartitionID,
			Replicas:       r.Replicas,
			ISR:            r.ISR,
			Adding:         r.AddingReplicas,
			Removing:       r.RemovingReplicas,
			Directories:    r.Directories,
			ELR:            r.EligibleLeaderReplicas,
			LastKnownELR:   r.LastKnownELR,
			Leader:         r.Leader,
			LeaderEpoch:    r.LeaderEpoch,
			PartitionEpoch: r.PartitionEpoch,
			RecoveryState:  r.LeaderRecoveryState,
		}, c)
	case *metadatarecords.PartitionChangeRecord:
		return s.changePartition(partitionChange{
			topicID:       r.TopicID,
			partition:     r.PartitionID,
			isr:           r.ISR,
			replicas:      r.Replicas,
			removing:      r.RemovingReplicas,
			adding:        r.AddingReplicas,
			elr:           r.EligibleLeaderReplicas,
			lastKnownELRs: r.LastKnownELR,
			directories:   r.Directories,
			leader:        r.Leader,
			recovery:      r.LeaderRecoveryState,
		}, c)
	case *metadatarecords.ClearELRRecord:
		return s.clearELR(r.TopicName, c)
	case *metadatarecords.RegisterBrokerRecord:
		b := Broker{
			ID:           r.BrokerID,
			Epoch:        r.BrokerEpoch,
			Incarnation:  r.IncarnationID,
			Fenced:       r.Fenced,
			ShuttingDown: r.InControlledShutdown,
			LogDirs:      r.LogDirs,
			CordonedDirs: r.CordonedLogDirs,
		}
		if r.Rack != nil {
			b.Rack = *r.Rack
		}
		for _, e := range r.EndPoints {
			b.Endpoints = append(b.Endpoints, Endpoint{Name: e.Name, Host: e.Host, Port: e.Port, SecurityProtocol: e.SecurityProtocol})
		}
		s.registerBroker(b, c)
	case *metadatarecords.UnregisterBrokerRecord:
		s.unregisterBroker(r.BrokerID, c)
	case *metadatarecords.FenceBrokerRecord:
		s.changeBroker(r.ID, r.Epoch, c, func(b *Broker) { b.Fenced = true })
	case *metadatarecords.UnfenceBrokerRecord:
		s.changeBroker(r.ID, r.Epoch, c, func(b *Broker) { b.Fenced = false })
	case *metadatarecords.BrokerRegistrationChangeRecord:
		s.changeBroker(r.BrokerID, r.BrokerEpoch, c, func(b *Broker) {
			switch r.Fenced { // 0: as it was
			case 1:
				b.Fenced = true
			case -1:
				b.Fenced = false
			}
			if r.InControlledShutdown == 1 {
				b.ShuttingDown = true
			}
			if r.LogDirs != nil {
				b.LogDirs = r.LogDirs
			}
			if r.CordonedLogDirs != nil {
				b.CordonedDirs = r.CordonedLogDirs
			}
		})
	case *metadatarecords.ConfigRecord:
		switch {
		case r.ResourceType == resourceTopic:
			s.setTopicConfig(r.ResourceName, r.Name, r.Value, c)
		case r.ResourceType == resourceBroker && r.ResourceName == "":
			s.setBrokerDefault(r.Name, r.Value, c)
		}
	case *metadatarecords.FeatureLevelRecord:
		s.setFeature(r.Name, r.FeatureLevel, c)
	default:
		return fmt.Errorf("record type %d (%T) is decoded but not applied", rec.APIKey(), rec)
	}
	return nil
}

// clearELR empties ELR and last known ELR of a topic's partitions, or of all for an
// empty name. It is a change of those partitions that have either, so their partition
// epochs move. Controllers write it when min.insync.replicas changes.
func (s *state) clearELR(name string, c *changes) error {
	var topics []ids.UUID
	if name == "" {
		for id := range s.topics {
			topics = append(topics, id)
		}
	} else {
		id, ok := s.names[name]
		if !ok {
			return fmt.Errorf("clear ELR of topic %q, which no record has announced", name)
		}
		topics = append(topics, id)
	}
	for _, id := range topics {
		for _, p := range slices.Clone(s.topics[id].partitions) {
			if len(p.ELR) == 0 && len(p.LastKnownELR) == 0 {
				continue
			}
			err := s.changePartition(partitionChange{
				topicID: id, partition: p.Partition, elr: []int32{}, lastKnownELRs: []int32{},
				leader: noLeaderChange, recovery: -1,
			}, c)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// follower applies batches to a state and knows metadata transactions: the records
// between the begin and the end of one count from its end on, or not at all.
type follower struct {
	st   *state
	held []metadatarecords.Record // of the open transaction
	open bool
}

// apply applies the records of b at or after the offset from.
func (f *follower) apply(b batch, from int64, c *changes) error {
	for _, r := range b.records {
		if r.offset < from {
			continue
		}
		if err := f.record(r, c); err != nil {
			return err
		}
	}
	if !f.open {
		// While a transaction is open its records are not applied; the offset then
		// stays where the image stands.
		f.st.offset = b.last
	}
	return nil
}

func (f *follower) record(r record, c *changes) error {
	switch r.value.(type) {
	case *metadatarecords.BeginTransactionRecord:
		f.open, f.held = true, nil
		return nil
	case *metadatarecords.AbortTransactionRecord:
		f.open, f.held = false, nil
		return nil
	case *metadatarecords.EndTransactionRecord:
		for _, held := range f.held {
			if err := f.st.apply(held, c); err != nil {
				return fmt.Errorf("offset %d, transaction that ends there: %w", r.offset, err)
			}
		}
		f.open, f.held = false, nil
		return nil
	}
	if f.open {
		f.held = append(f.held, r.value)
		return nil
	}
	if err := f.st.apply(r.value, c); err != nil {
		return fmt.Errorf("offset %d: %w", r.offset, err)
	}
	return nil
}
