package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func TestIsStateTransaction(t *testing.T) {
	for id, want := range map[string]bool{
		"mirror-state-0": true, "mirror-state-15": true,
		"": false, "mirror-state-": false, "mirror-state-a": false, "mirror-state-1a": false, "my-mirror-state-1": false, "orders": false,
	} {
		if isStateTransaction(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}

// transactionRequests are the requests with a transactional id of a client's, by name.
func transactionRequests(id string) map[string]kmsg.Request {
	out := map[string]kmsg.Request{}
	add := func(version int16, req kmsg.Request) {
		req.SetVersion(version)
		out[fmt.Sprintf("%s v%d", kmsg.NameForKey(req.Key()), version)] = req
	}
	for v := range int16(6) {
		add(v, &kmsg.InitProducerIDRequest{TransactionalID: &id})
		add(v, &kmsg.EndTxnRequest{TransactionalID: id})
	}
	for v := range int16(5) {
		add(v, &kmsg.AddOffsetsToTxnRequest{TransactionalID: id, Group: "g"})
	}
	for v := range int16(4) {
		add(v, &kmsg.AddPartitionsToTxnRequest{TransactionalID: id, Topics: []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "o", Partitions: []int32{0, 1}}}})
	}
	for v := range int16(7) {
		t := kmsg.TxnOffsetCommitRequestTopic{TopicID: topicID(2), Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 4}}}
		if v < 6 {
			t.Topic = "o"
		}
		add(v, &kmsg.TxnOffsetCommitRequest{TransactionalID: id, Group: "g", Topics: []kmsg.TxnOffsetCommitRequestTopic{t}})
	}
	return out
}

func transactionCodes(resp kmsg.Response) (codes []int16) {
	switch r := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		return []int16{r.ErrorCode}
	case *kmsg.EndTxnResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AddOffsetsToTxnResponse:
		return []int16{r.ErrorCode}
	case *kmsg.AddPartitionsToTxnResponse:
		codes = append(codes, r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		if r.Version < 4 {
			codes = codes[1:]
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	}
	return codes
}

// transactionBroker answers followers' fetches as the cluster does whoever has CLUSTER_ACTION
// or not, and everything else with nothing.
func transactionBroker(t *testing.T, action bool) *fakeBroker {
	return startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		if r, ok := req.(*kmsg.FetchRequest); ok {
			code := errTopicAuthorization
			if action {
				code = errUnknownTopicID
			}
			return refuseFetch(r, func(ids.UUID, string, *kmsg.FetchResponseTopicPartition) int16 { return code })
		}
		return req.ResponseKind()
	}))
}

func TestTransactionalIDsOfTheStateTopic(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, action := range []bool{false, true} {
			for _, id := range []string{"mirror-state-3", "orders"} {
				for name, req := range transactionRequests(id) {
					t.Run(fmt.Sprintf("%s of %s virtual %v action %v", name, id, virtual, action), func(t *testing.T) {
						b := transactionBroker(t, action)
						s := setup{view: stateView()}
						s.cfg.Virtual = virtual
						_, addr := s.start(t, b)
						c := dial(t, addr)
						refused := id != "orders" && !action
						for range 2 {
							codes := transactionCodes(c.ask(req))
							if refused && (len(codes) == 0 || slices.ContainsFunc(codes, func(c int16) bool { return c != 53 })) || !refused && slices.ContainsFunc(codes, func(c int16) bool { return c != 0 }) {
								t.Errorf("codes %v", codes)
							}
						}
						sent := 0
						for _, r := range b.requests() {
							if r.key == req.Key() {
								sent++
							}
						}
						if want := map[bool]int{true: 0, false: 2}[refused]; sent != want {
							t.Errorf("the broker got %d of them, want %d", sent, want)
						}
					})
				}
			}
		}
	}
}

// From version 4 on it is brokers who send it, for many transactions at a time.
func TestBatchOfTheStateTopicsTransactions(t *testing.T) {
	for _, action := range []bool{false, true} {
		b := transactionBroker(t, action)
		s := setup{view: stateView()}
		_, addr := s.start(t, b)
		c := dial(t, addr)
		for version := int16(4); version <= 5; version++ {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.Version = version
			for _, id := range []string{"orders", "mirror-state-1"} {
				req.Transactions = append(req.Transactions, kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: id})
			}
			resp := c.ask(req).(*kmsg.AddPartitionsToTxnResponse)
			if want := map[bool]int16{true: 0, false: 31}[action]; resp.ErrorCode != want {
				t.Errorf("v%d, CLUSTER_ACTION %v: code %d", version, action, resp.ErrorCode)
			}
		}
	}
}

// The id is found wherever the read buffer ends.
func TestLongTransactions(t *testing.T) {
	b := transactionBroker(t, false)
	s := setup{view: stateView()}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	long := strings.Repeat("x", 30000)
	for id, want := range map[string]int16{"mirror-state-0": 53, "orders": 0} {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Version, req.TransactionalID = 3, id
		for range 4 { // larger than the read buffer
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Metadata = &long
			req.Topics = append(req.Topics, kmsg.TxnOffsetCommitRequestTopic{Topic: "o", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}})
		}
		codes := transactionCodes(c.ask(req))
		if want != 0 && (len(codes) != 4 || codes[0] != want) || want == 0 && len(codes) != 0 {
			t.Errorf("%s: codes %v", id, codes)
		}
	}
}
