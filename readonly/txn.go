package readonly

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitionsSplit is an AddPartitionsToTxn request that is refused, whole up to
// version 3, and by transaction in the batched form since.
type AddPartitionsSplit struct {
	// Rest is what the broker may have; nil if nothing remains.
	Rest    *kmsg.AddPartitionsToTxnRequest
	Refused []Refused

	version int16
	topics  []kmsg.AddPartitionsToTxnResponseTopic // up to version 3
	order   []addTxn                               // since version 4
}

type addTxn struct {
	id      string
	refused *kmsg.AddPartitionsToTxnResponseTransaction
}

// AddPartitionsToTxn splits a request; nil if nothing of it is refused. A transaction
// gets all its partitions or none, as with a broker: beside a refused one the others
// are not attempted.
func (r *Rules) AddPartitionsToTxn(req *kmsg.AddPartitionsToTxnRequest) *AddPartitionsSplit {
	s := &AddPartitionsSplit{version: req.Version}
	if req.Version < 4 {
		topics := make([]kmsg.AddPartitionsToTxnRequestTransactionTopic, len(req.Topics))
		for i, t := range req.Topics {
			topics[i].Topic, topics[i].Partitions = t.Topic, t.Partitions
		}
		for _, t := range r.addTransaction(topics, &s.Refused) {
			o := kmsg.NewAddPartitionsToTxnResponseTopic()
			o.Topic = t.Topic
			for _, p := range t.Partitions {
				op := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				op.Partition, op.ErrorCode = p.Partition, p.ErrorCode
				o.Partitions = append(o.Partitions, op)
			}
			s.topics = append(s.topics, o)
		}
		if len(s.Refused) == 0 {
			return nil
		}
		return s
	}
	rest := *req
	rest.Transactions = nil
	for _, t := range req.Transactions {
		before := len(s.Refused)
		topics := r.addTransaction(t.Topics, &s.Refused)
		o := addTxn{id: t.TransactionalID}
		if len(s.Refused) > before {
			o.refused = new(kmsg.AddPartitionsToTxnResponseTransaction)
			o.refused.Default()
			o.refused.TransactionalID = t.TransactionalID
			o.refused.Topics = topics
		} else {
			rest.Transactions = append(rest.Transactions, t)
		}
		s.order = append(s.order, o)
	}
	if len(s.Refused) == 0 {
		return nil
	}
	if len(rest.Transactions) > 0 {
		s.Rest = &rest
	}
	return s
}

// addTransaction returns the answer to a transaction of which something is refused,
// and appends what is to refused.
func (r *Rules) addTransaction(topics []kmsg.AddPartitionsToTxnRequestTransactionTopic, refused *[]Refused) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	out := make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, 0, len(topics))
	for _, t := range topics {
		o := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		o.Topic = t.Topic
		for _, p := range t.Partitions {
			op := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			op.Partition = p
			op.ErrorCode = int16(operationNotAttempted)
			if f, no := r.checkWrite(Topic{Name: t.Topic}, p); no {
				op.ErrorCode = r.txnCode(f)
				*refused = append(*refused, Refused{Topic: t.Topic, Partition: p, Mirror: f.mirror})
			}
			o.Partitions = append(o.Partitions, op)
		}
		out = append(out, o)
	}
	return out
}

// txnCode is an error that lets the producer abort the transaction and go on: there is
// no message in this response, and POLICY_VIOLATION would be fatal to the producer.
func (r *Rules) txnCode(f refusal) int16 {
	switch {
	case f.kind == byPending, f.kind == byFence:
		return int16(concurrentTransactions)
	case f.kind == byMirror && r.Code == ReadOnlyTopic:
		return int16(ReadOnlyTopic)
	}
	return int16(topicAuthorizationFailed)
}

// Merge puts the refusals into the broker's response to Rest, or into a new response
// if resp is nil.
func (s *AddPartitionsSplit) Merge(resp *kmsg.AddPartitionsToTxnResponse) *kmsg.AddPartitionsToTxnResponse {
	out := kmsg.NewPtrAddPartitionsToTxnResponse()
	answered := make(queues[string, kmsg.AddPartitionsToTxnResponseTransaction])
	if resp != nil {
		*out = *resp
		for _, t := range resp.Transactions {
			answered.put(t.TransactionalID, t)
		}
	}
	out.Version = s.version
	out.Topics = s.topics
	out.Transactions = nil
	for _, o := range s.order {
		if o.refused != nil {
			out.Transactions = append(out.Transactions, *o.refused)
		} else if t, ok := answered.get(o.id); ok {
			out.Transactions = append(out.Transactions, t)
		}
	}
	return out
}
