package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// Sidecars write to the state topic in transactions, and whoever initialises one of their
// transactional ids makes the writer give the partition up (package coordinator). For a client
// that would be a way to keep mirrors from being coordinated at all, so that these ids are for
// callers who have CLUSTER_ACTION, as brokers have and sidecars. The sidecars themselves reach
// the brokers around the proxies.

// isStateTransaction tells whether a transactional id is one of the state topic's writers'.
func isStateTransaction(id string) bool {
	n, ok := strings.CutPrefix(id, protocol.StateTransactions)
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// lightTransaction streams a request whose body begins with a transactional id that is not
// the sidecars'.
func (c *conn) lightTransaction(h header, size int) (exchange, bool, error) {
	head, err := c.peekAll(size)
	if err != nil {
		return exchange{}, false, err
	}
	full, err := parseHeader(head, c.p.flex.flexible)
	if err == nil {
		body := cursor{b: head[full.size:]}
		id := body.string(c.p.flex.flexible(h.key, h.version))
		if err = body.err; err == nil {
			return relayed(h), !isStateTransaction(string(id)), nil
		}
	}
	if errors.Is(err, errShort) && len(head) < size {
		return exchange{}, false, nil // longer names than the read buffer: read it whole
	}
	return exchange{}, false, err
}

// mayTransact tells whether the caller may use transactional ids: those that are the state
// topic's writers' are not for everybody.
func (c *conn) mayTransact(r *request, ids ...string) (bool, error) {
	if !slices.ContainsFunc(ids, isStateTransaction) || c.isFollower() {
		return true, nil
	}
	var may bool
	err := c.consult(r, func(ctx context.Context, who Caller) (err error) {
		may, err = c.askFollower(ctx, who.(*caller).up)
		return err
	})
	if err == nil && !may {
		c.log.Warn("a transactional id of the mirror sidecars is refused to a client", "api", c.p.apiName(r.key), "transactional_ids", ids)
	}
	return may && err == nil, err
}

func (c *conn) initProducerID(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrInitProducerIDRequest())
	if err != nil {
		return exchange{}, err
	}
	id := ""
	if req.TransactionalID != nil {
		id = *req.TransactionalID
	}
	if may, err := c.mayTransact(r, id); err != nil || may {
		return r.forward(), err
	}
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = errTransactionalIDAuthorization, -1, -1
	return c.local(r.header, resp), nil
}

func (c *conn) addOffsetsToTxn(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrAddOffsetsToTxnRequest())
	if err != nil {
		return exchange{}, err
	}
	if may, err := c.mayTransact(r, req.TransactionalID); err != nil || may {
		return r.forward(), err
	}
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	resp.ErrorCode = errTransactionalIDAuthorization
	return c.local(r.header, resp), nil
}

func (c *conn) endTxn(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrEndTxnRequest())
	if err != nil {
		return exchange{}, err
	}
	if may, err := c.mayTransact(r, req.TransactionalID); err != nil || may {
		return c.aborted(r.forward(), req), err
	}
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = errTransactionalIDAuthorization, -1, -1
	return c.local(r.header, resp), nil
}

func (c *conn) txnOffsetCommit(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrTxnOffsetCommitRequest())
	if err != nil {
		return exchange{}, err
	}
	if may, err := c.mayTransact(r, req.TransactionalID); err != nil || may {
		return r.forward(), err
	}
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, errTransactionalIDAuthorization
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return c.local(r.header, resp), nil
}

// refusedTransaction answers an AddPartitionsToTxn of somebody who may not use a
// transactional id in it. Since version 4 only brokers send it, whose right is on the cluster.
func refusedTransaction(req *kmsg.AddPartitionsToTxnRequest) *kmsg.AddPartitionsToTxnResponse {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	if req.Version >= 4 {
		resp.ErrorCode = errClusterAuthorization
		return resp
	}
	for _, t := range req.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p, errTransactionalIDAuthorization
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// transactionsOf are the transactional ids of a request.
func transactionsOf(req *kmsg.AddPartitionsToTxnRequest) []string {
	if req.Version < 4 {
		return []string{req.TransactionalID}
	}
	var out []string
	for _, t := range req.Transactions {
		out = append(out, t.TransactionalID)
	}
	return out
}
