package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"
)

// largeRequest is an intercepted request above the read buffer.
func largeRequest() *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	value := strings.Repeat("x", 2*readBuffer)
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = "o"
	topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "x", Value: &value}}
	req.Topics = append(req.Topics, topic)
	return req
}

// begunRequest is the beginning of an intercepted request of n bytes.
func begunRequest(n uint32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), 0, byte(kmsg.CreateTopics), 0, 7, 0, 0, 0, 1)
}

// takenOf tells whether somebody holds a part of a budget.
func takenOf(p *Proxy, budget *semaphore.Weighted) bool {
	if !budget.TryAcquire(p.cfg.BufferedBytes) {
		return true
	}
	budget.Release(p.cfg.BufferedBytes)
	return false
}

// Whoever has not logged in is asked to before anything of a large request is waited for.
func TestStrangersHoldNothing(t *testing.T) {
	b := startBroker(t, func(c net.Conn, _ header, _ []byte) []byte { c.Close(); return nil })
	p, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(begunRequest(1 << 20)); err != nil {
		t.Fatal(err)
	}
	c.wantClosed()
	if got := b.requests(); len(got) != 1 || got[0].key != int16(kmsg.Metadata) {
		t.Errorf("the broker got %v", got)
	}
	waitFor(t, func() bool { return !takenOf(p, p.budget) })
}

// What the proxy asks of its own is no answer to the client: a broker that goes down after it is down.
func TestQuestionsAreNoAnswers(t *testing.T) {
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }))
	p, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(begunRequest(1 << 20)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return takenOf(p, p.budget) }) // it is known then
	b.mu.Lock()
	_ = b.conns[0].(*net.TCPConn).SetLinger(0)
	b.mu.Unlock()
	b.closeConns()
	c.wantReset()
}

// A request that does not come to its end holds what it is, not what it could be decoded to.
func TestSlowSendersLeaveRoom(t *testing.T) {
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }))
	p, addr := new(setup).start(t, b)
	if _, err := dial(t, addr).Write(begunRequest(maxDecoded)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return takenOf(p, p.budget) })
	dial(t, addr).ask(largeRequest())
}

// The reader takes no further request before a large one is answered, which is counted until then.
func TestLargeExchangesAreHeld(t *testing.T) {
	for name, local := range map[string]bool{"answered here": true, "passed on": false} {
		t.Run(name, func(t *testing.T) {
			p, _ := new(setup).start(t, startBroker(t, echo))
			synctest.Test(t, func(t *testing.T) {
				client, far := net.Pipe()
				up, broker := net.Pipe()
				c := newFuzzedConn(p, client, up)
				c.toClient = relay{dst: client, src: c.out.r, raw: up, spliced: &p.spliced}
				frame := encodeRequest(largeRequest(), 1, &testClientID)
				answer := frameOf([]byte{0, 0, 0, 1})
				gate := make(chan struct{})
				r := &row{handle: func(_ *conn, r *request) (exchange, error) {
					if !local {
						return r.forward(), nil
					}
					ex := relayed(r.header)
					ex.answer = func(context.Context) (net.Buffers, error) {
						<-gate
						return net.Buffers{answer}, nil
					}
					return ex, nil
				}}
				read, wrote := make(chan error, 1), make(chan error, 1)
				go func() { _, _ = far.Write(frame) }()
				go func() { read <- c.intercept(r, fixedHeader(frame[sizeLen:]), len(frame)-sizeLen) }()
				go func() { wrote <- c.write() }()
				if !local {
					if _, err := readFrame(broker); err != nil {
						t.Fatal(err)
					}
					go func() {
						<-gate
						_, _ = broker.Write(answer)
					}()
				}
				synctest.Wait()
				select {
				case err := <-read:
					t.Errorf("the reader went on: %v", err)
					read <- err
				default:
				}
				if !takenOf(p, p.budget) || takenOf(p, p.decoding) != local {
					t.Errorf("held of the frames: %v, of what is decoded: %v", takenOf(p, p.budget), takenOf(p, p.decoding))
				}
				close(gate)
				if _, err := readFrame(far); err != nil {
					t.Error(err)
				}
				if err := <-read; err != nil {
					t.Error(err)
				}
				if takenOf(p, p.budget) || takenOf(p, p.decoding) {
					t.Error("not given back")
				}
				up.Close()
				if err := <-wrote; err == nil {
					t.Error("the writer ended without a reason")
				}
			})
		})
	}
}

// partlyRefused is a large Produce request of so many partitions of a mirror topic, and one that is not.
func partlyRefused(partitions int) *kmsg.ProduceRequest {
	parts := make([]int32, partitions)
	for i := range parts {
		parts[i] = int32(i)
	}
	req := produceRequest(9, -1, "m", parts...)
	for i := range parts {
		req.Topics[0].Partitions[i].Records = []byte{}
	}
	other := produceRequest(9, -1, "o", 0)
	other.Topics[0].Partitions[0].Records = pattern(2 * readBuffer)
	req.Topics = append(req.Topics, other.Topics...)
	return req
}

// What is left of a Produce request that is refused in part, once the broker has it, is counted until it
// is answered.
func TestPartlyRefusedProducesAreHeld(t *testing.T) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		r, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return req.ResponseKind()
		}
		<-gate
		return okProduce(r)
	}))
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))}
	p, addr := s.start(t, b)
	c := dial(t, addr)
	req := partlyRefused(1)
	c.send(req, 1)
	waitFor(t, func() bool { return len(produced(b)) == 1 })
	// A broker may take its time; its records have gone to it.
	const left = 4 * splitWeight // two topics and two partitions
	waitFor(t, func() bool {
		if takenOf(p, p.budget) || !p.decoding.TryAcquire(p.cfg.BufferedBytes-left) {
			return false
		}
		p.decoding.Release(p.cfg.BufferedBytes - left)
		return true
	})
	if p.decoding.TryAcquire(p.cfg.BufferedBytes - left + 1) {
		t.Error("what is held for the answer is not counted")
		p.decoding.Release(p.cfg.BufferedBytes - left + 1)
	}
	open()
	resp := c.recv(req, 1).(*kmsg.ProduceResponse)
	if m, o := resp.Topics[0].Partitions[0], resp.Topics[1].Partitions[0]; m.ErrorCode != errPolicyViolation || o.ErrorCode != 0 {
		t.Errorf("mirror topic: error %d, ordinary topic: error %d", m.ErrorCode, o.ErrorCode)
	}
	waitFor(t, func() bool { return !takenOf(p, p.decoding) && !takenOf(p, p.budget) })
}

// What is not counted any more is not held either.
func TestPartlyRefusedProducesLetGoOfRecords(t *testing.T) {
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))}
	p, _ := s.start(t, startBroker(t, echo))
	req := partlyRefused(1)
	req.Topics[1].Partitions[0].Records = make([]byte, 1<<maxClass) // too large for the pool
	frame := encodeRequest(req, 1, &testClientID)
	for name, acks := range map[string]int16{"answered": -1, "hung up on": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, far := net.Pipe()
				up, broker := net.Pipe()
				c := newFuzzedConn(p, client, up)
				c.seen = map[string]time.Time{"m": time.Now().Add(time.Hour)} // nobody is there to ask the broker
				var raw, sent weak.Pointer[byte]
				r := *p.rows[int16(kmsg.Produce)]
				r.handle = func(c *conn, r *request) (exchange, error) {
					binary.BigEndian.PutUint16(r.body[1:], uint16(acks)) // behind the transactional id
					raw = weak.Make(&r.raw[0])
					ex, err := c.produce(r)
					sent = weak.Make(&ex.send[0])
					return ex, err
				}
				go func() { _, _ = far.Write(frame) }()
				read := make(chan error, 1)
				go func() { read <- c.intercept(&r, fixedHeader(frame[sizeLen:]), len(frame)-sizeLen) }()
				if _, err := readFrame(broker); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				runtime.GC()
				if raw.Value() != nil || sent.Value() != nil {
					t.Errorf("what came is held: %v, what was sent: %v", raw.Value() != nil, sent.Value() != nil)
				}
				c.close(errStopped)
				if err := <-read; !errors.Is(err, errStopped) {
					t.Error(err)
				}
				runtime.KeepAlive(c)
			})
		})
	}
}

// A connection may end while one of its requests waits for others to give back what they have.
func TestWaitingForOthersEnds(t *testing.T) {
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))}
	p, _ := s.start(t, startBroker(t, echo))
	for name, req := range map[string]kmsg.Request{"decoded": largeRequest(), "refused in part": partlyRefused(1)} {
		for _, budget := range []*semaphore.Weighted{p.budget, p.decoding} {
			t.Run(fmt.Sprintf("%s, %t", name, budget == p.decoding), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if !budget.TryAcquire(p.cfg.BufferedBytes) {
						t.Fatal("somebody has taken of it")
					}
					client, far := net.Pipe()
					c := newFuzzedConn(p, client, nil)
					frame := encodeRequest(req, 1, &testClientID)
					go func() { _, _ = far.Write(frame) }()
					read := make(chan error, 1)
					go func() { read <- c.intercept(p.rows[req.Key()], fixedHeader(frame[sizeLen:]), len(frame)-sizeLen) }()
					synctest.Wait()
					c.close(errStopped)
					if err := <-read; !errors.Is(err, errStopped) {
						t.Error(err)
					}
					client.Close()
					budget.Release(p.cfg.BufferedBytes)
					if takenOf(p, p.budget) || takenOf(p, p.decoding) {
						t.Error("not given back")
					}
				})
			})
		}
	}
}

// A few bytes of a request make much of an answer.
func TestPartlyRefusedProducesAreBounded(t *testing.T) {
	b := brokerForWrites(t)
	s := countedSetup(t)
	s.view = newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	_, addr := s.start(t, b)
	c := dial(t, addr)
	c.send(partlyRefused(maxSplit), 1)
	c.wantClosed()
	s.wantEnded(t, reasonOversized)
	if got := produced(b); len(got) > 0 {
		t.Errorf("%d requests went to the broker", len(got))
	}
}
