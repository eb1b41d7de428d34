package proxy

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// An abort of a transaction that the broker never heard of, since all that was to be added to it was refused, is
// done: librdkafka takes the broker's INVALID_TXN_STATE for the end of the producer.
func TestAbortOfWhatWasRefused(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			code := errInvalidTxnState
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				resp := req.ResponseKind()
				if end, ok := resp.(*kmsg.EndTxnResponse); ok {
					end.ErrorCode, end.ThrottleMillis = code, 5
				}
				return resp
			}))
			s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))}
			p, addr := s.start(t, b)
			c := dial(t, addr)
			add := func(id string, topics ...string) {
				req := kmsg.NewPtrAddPartitionsToTxnRequest()
				req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, id, 7, 2
				for _, topic := range topics {
					req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic, Partitions: []int32{0}})
				}
				c.ask(req)
			}
			end := func(id string, epoch int16, commit bool) int16 {
				req := kmsg.NewPtrEndTxnRequest()
				req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, id, 7, epoch, commit
				resp := c.ask(req).(*kmsg.EndTxnResponse)
				if version >= 1 && resp.ThrottleMillis != 5 {
					t.Errorf("throttle %d", resp.ThrottleMillis)
				}
				return resp.ErrorCode
			}
			done := errNone
			if version >= 5 { // brokers take an abort of nothing, which gives the producer its next epoch
				done = errInvalidTxnState
			}
			add("x", "o", "m")
			for _, try := range []struct {
				what   string
				id     string
				epoch  int16
				commit bool
				want   int16
			}{
				{"abort", "x", 2, false, done},
				{"abort again, the answer was lost", "x", 2, false, done},
				{"commit", "x", 2, true, errInvalidTxnState},
				{"another producer's abort", "x", 3, false, errInvalidTxnState},
				{"another transaction's abort", "y", 2, false, errInvalidTxnState},
			} {
				if got := end(try.id, try.epoch, try.commit); got != try.want {
					t.Errorf("%s: %d, want %d", try.what, got, try.want)
				}
			}
			code = 51 // the broker's other answers are its own
			if got := end("x", 2, false); got != 51 {
				t.Errorf("abort: %d, want 51", got)
			}
			code = errInvalidTxnState
			add("x", "o") // the broker knows of this one
			if got := end("x", 2, false); got != errInvalidTxnState {
				t.Errorf("abort of what was added: %d", got)
			}
			if !p.nothingAdded.none() {
				t.Error("something is remembered")
			}
		})
	}
}

func TestNothingAddedIsBounded(t *testing.T) {
	var n nothingAdded
	for i := range maxNothingAdded + 10 {
		n.note(notAdded{producerID: int64(i)})
		n.note(notAdded{producerID: int64(i)})
	}
	if len(n.last) > maxNothingAdded || !n.has(notAdded{producerID: maxNothingAdded + 9}) {
		t.Errorf("%d are remembered", len(n.last))
	}
}
