package proxy

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRefusedHandshakesOpenNoWayAroundInterception: a broker that refuses a handshake of
// version 0 goes on with requests, and so does the proxy. Mechanisms that only the broker
// knows are for it to judge.
func TestRefusedHandshakesOpenNoWayAroundInterception(t *testing.T) {
	const refused = int16(34) // ILLEGAL_SASL_STATE
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-512", "GSSAPI", "OWN"} {
		t.Run(mechanism, func(t *testing.T) {
			var mu sync.Mutex
			var produced []string
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				resp := req.ResponseKind()
				switch r := resp.(type) {
				case *kmsg.SASLHandshakeResponse:
					r.ErrorCode, r.SupportedMechanisms = refused, []string{"A", "B"}
				case *kmsg.ProduceResponse:
					mu.Lock()
					defer mu.Unlock()
					for _, topic := range req.(*kmsg.ProduceRequest).Topics {
						produced = append(produced, topic.Topic)
					}
				}
				return resp
			}))
			s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			hs := kmsg.NewPtrSASLHandshakeRequest()
			hs.Mechanism = mechanism
			if r := c.ask(hs).(*kmsg.SASLHandshakeResponse); r.ErrorCode != refused || !slices.Equal(r.SupportedMechanisms, []string{"A", "B"}) {
				t.Fatalf("got %+v", r)
			}
			p := kmsg.NewPtrProduceRequest()
			p.Version, p.Acks = 9, -1
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = "m"
			part := kmsg.NewProduceRequestTopicPartition()
			part.Records = []byte{1}
			topic.Partitions = append(topic.Partitions, part)
			p.Topics = append(p.Topics, topic)
			if r := c.ask(p).(*kmsg.ProduceResponse); r.Topics[0].Partitions[0].ErrorCode == 0 {
				t.Error("a write to a mirror topic was let through")
			}
			mu.Lock()
			defer mu.Unlock()
			if len(produced) > 0 {
				t.Errorf("the broker got writes to %v", produced)
			}
		})
	}
}

// TestCallersAreAskedForAgain: the broker ends a session that is not renewed when it is next
// sent something, so it must be sent something now and then.
func TestCallersAreAskedForAgain(t *testing.T) {
	var mu sync.Mutex
	expired := false
	b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if expired {
			c.Close()
			return nil
		}
		return answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() })(c, h, frame)
	})
	s := setup{}
	s.cfg.Virtual = true
	p, addr := s.start(t, b)
	c := dial(t, addr)
	ask := func() *kmsg.DescribeLogDirsRequest { // answered without the broker
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version = 1
		return req
	}
	c.ask(ask())
	mu.Lock()
	expired = true
	mu.Unlock()
	c.ask(ask())
	p.mu.Lock()
	for conn := range p.conns {
		conn.authority.authenticated.until.Store(time.Now().Add(-time.Second).UnixNano())
	}
	p.mu.Unlock()
	c.send(ask(), 9)
	c.wantClosed()
}
