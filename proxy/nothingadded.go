package proxy

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Of a refused AddPartitionsToTxn the broker never hears, so that for it no transaction has
// begun. The client aborts the one that it has begun, and some (librdkafka) say so to the broker, which finds that out of
// place (INVALID_TXN_STATE) and which they then take for the end of the producer. There is
// nothing open, which is all that they want to be told: whose additions were refused is
// remembered, and such an answer to an abort says that it is done.

// maxNothingAdded bounds what is remembered. What is forgotten too early is answered as the
// broker does.
const maxNothingAdded = 10000

const errInvalidTxnState int16 = 48

// notAdded identifies the producer of a transaction.
type notAdded struct {
	transactionalID string
	producerID      int64
	epoch           int16
}

// nothingAdded are the producers whose additions to a transaction were refused last.
type nothingAdded struct {
	mu   sync.Mutex // guards the following
	last map[notAdded]struct{}
}

func (n *nothingAdded) note(k notAdded) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil {
		n.last = make(map[notAdded]struct{})
	}
	if len(n.last) >= maxNothingAdded {
		for old := range n.last { // any of them
			delete(n.last, old)
			break
		}
	}
	n.last[k] = struct{}{}
}

func (n *nothingAdded) forget(k notAdded) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, k)
}

func (n *nothingAdded) has(k notAdded) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.last[k]
	return ok
}

func (n *nothingAdded) none() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.last) == 0
}

// addition takes note of whether a client's addition to its transaction is passed on. Since
// version 4 brokers add for their producers, who tell of no abort that nothing preceded.
func (n *nothingAdded) addition(req *kmsg.AddPartitionsToTxnRequest, refused bool) {
	if req.Version >= 4 {
		return
	}
	k := notAdded{req.TransactionalID, req.ProducerID, req.ProducerEpoch}
	switch {
	case refused:
		n.note(k)
	case !n.none():
		n.forget(k)
	}
}

// lightEndTxn streams the end of a transaction while none was refused anything.
func (c *conn) lightEndTxn(h header, size int) (exchange, bool, error) {
	if !c.p.nothingAdded.none() {
		return exchange{}, false, nil
	}
	return c.lightTransaction(h, size)
}

// aborted completes the exchange of an EndTxn that is passed on.
func (c *conn) aborted(ex exchange, req *kmsg.EndTxnRequest) exchange {
	k := notAdded{req.TransactionalID, req.ProducerID, req.ProducerEpoch}
	if req.Commit || req.Version >= 5 || !c.p.nothingAdded.has(k) { // since version 5 an abort may be of nothing
		return ex
	}
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(ex.key, ex.version, body)
		if err != nil {
			return nil, err
		}
		end := resp.(*kmsg.EndTxnResponse)
		if end.ErrorCode != errInvalidTxnState {
			return nil, nil
		}
		end.ErrorCode = errNone
		return end, nil
	}
	return ex
}
