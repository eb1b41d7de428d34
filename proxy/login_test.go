package proxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// loginBroker is a broker whose listener has SASL: it takes tokens until one has the text "right", gives
// each of the others a challenge, and hangs up on who asks for anything else before.
func loginBroker(t *testing.T) *fakeBroker {
	t.Helper()
	var in sync.Map // the connections that have logged in
	return startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		if _, ok := in.Load(c); !ok && !ofLogin(h.key) {
			c.Close()
			return nil
		}
		if h.key == int16(kmsg.OffsetCommit) {
			return frameOf(frame[4:8])
		}
		return answers(t, func(req kmsg.Request) kmsg.Response {
			resp := req.ResponseKind()
			if r, is := resp.(*kmsg.SASLAuthenticateResponse); is {
				if string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes) == "right" {
					in.Store(c, true)
				} else {
					r.SASLAuthBytes = []byte("challenge")
				}
			}
			return resp
		})(c, h, frame)
	})
}

func saslSetup(t *testing.T, timeout time.Duration) *counted {
	t.Helper()
	s := countedSetup(t)
	s.cfg.SASL, s.cfg.LoginTimeout = true, timeout
	return s
}

func handshakeOf(mechanism string) *kmsg.SASLHandshakeRequest {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, mechanism
	return req
}

func tokenOf(text []byte) *kmsg.SASLAuthenticateRequest {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 2, text
	return req
}

// Who does not log in is closed, wherever it has come to by then; who has logged in may be silent.
func TestStrangersAreClosed(t *testing.T) {
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.Version = 3
	for name, asks := range map[string][]kmsg.Request{
		"nothing":            nil,
		"versions":           {hello},
		"a handshake":        {hello, handshakeOf("PLAIN")},
		"half of SCRAM":      {handshakeOf("SCRAM-SHA-512"), tokenOf([]byte("n,,n=alice"))},
		"a token refused":    {handshakeOf("OAUTHBEARER"), tokenOf([]byte("wrong"))},
		"versions, for ever": slices.Repeat([]kmsg.Request{hello}, 50),
	} {
		t.Run(name, func(t *testing.T) {
			s := saslSetup(t, 500*time.Millisecond)
			_, addr := s.start(t, loginBroker(t))
			c := dial(t, addr)
			for _, req := range asks {
				if _, err := c.Write(encodeRequest(req, 1, nil)); err != nil {
					break // on a slow machine it is late already
				}
				if _, err := readFrame(c); err != nil {
					break
				}
			}
			s.wantEnded(t, reasonNoLogin)
		})
	}
}

func TestClientsThatLoggedInMayBeSilent(t *testing.T) {
	for name, asks := range map[string][]kmsg.Request{
		"PLAIN":       {handshakeOf("PLAIN"), tokenOf([]byte("right"))},
		"SCRAM":       {handshakeOf("SCRAM-SHA-256"), tokenOf([]byte("n,,n=alice")), tokenOf([]byte("right"))},
		"OAUTHBEARER": {handshakeOf("OAUTHBEARER"), tokenOf([]byte("wrong")), tokenOf([]byte("right"))},
		"its own":     {handshakeOf("OWN"), tokenOf([]byte("right"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := saslSetup(t, time.Hour)
			p, addr := s.start(t, loginBroker(t))
			c := dial(t, addr)
			for i, req := range asks {
				if lateOf(p) == nil {
					t.Errorf("taken for logged in before step %d", i)
				}
				c.ask(req)
			}
			if err := lateOf(p); err != nil {
				t.Error(err)
			}
			c.ask(metadataOfNothing())
		})
	}
}

// lateOf tells why the only connection would be closed if it were as old as can be.
func lateOf(p *Proxy) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		return c.login.late(time.Now().Add(time.Hour), time.Minute)
	}
	return errDrained
}

func metadataOfNothing() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{}
	return req
}

// Tokens without headers, as they follow a handshake of version 0.
func TestLoginOfVersionZero(t *testing.T) {
	b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		if h.key != int16(kmsg.SASLHandshake) {
			return frameOf([]byte("v=")) // to any token
		}
		return answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() })(c, h, frame)
	})
	s := saslSetup(t, time.Hour)
	p, addr := s.start(t, b)
	c := dial(t, addr)
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Mechanism = "SCRAM-SHA-256"
	c.ask(hs)
	for i, token := range []string{"n,,n=alice", "c=biws"} {
		if lateOf(p) == nil {
			t.Errorf("taken for logged in before token %d", i)
		}
		if _, err := c.Write(frameOf([]byte(token))); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := lateOf(p); err != nil {
		t.Error(err)
	}
}

// Of a stranger nothing large is read, nor passed on; who has logged in may begin with something large,
// also when no answer has told yet that it is in.
func TestFramesOfStrangers(t *testing.T) {
	produce := relayFrame(1, pattern(maxLoginFrame)) // of an API that is relayed as it is
	for name, tc := range map[string]struct {
		sasl  bool
		login []kmsg.Request
		send  []byte
		want  reason // none: it arrives
	}{
		"a large token":           {true, []kmsg.Request{handshakeOf("PLAIN")}, encodeRequest(tokenOf(pattern(maxLoginFrame)), 1, nil), reasonOversized},
		"versions with much else": {false, nil, partialOf(keyAPIVersions, maxLoginFrame+1), reasonOversized},
		"a token of some size":    {true, []kmsg.Request{handshakeOf("GSSAPI")}, encodeRequest(tokenOf(pattern(3*readBuffer)), 1, nil), ""},
		"a stranger's records":    {true, nil, produce, reasonBrokerClosed},
		"somebody's records":      {true, []kmsg.Request{handshakeOf("PLAIN"), tokenOf([]byte("right"))}, produce, ""},
		"anybody's records":       {false, nil, produce, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := loginBroker(t)
			if !tc.sasl {
				b = startBroker(t, echo)
			}
			s := countedSetup(t)
			s.cfg.SASL = tc.sasl
			_, addr := s.start(t, b)
			c := dial(t, addr)
			for _, req := range tc.login {
				c.ask(req)
			}
			if _, err := c.Write(tc.send); err != nil && tc.want == "" {
				t.Fatal(err)
			}
			if tc.want == "" {
				waitFor(t, func() bool {
					return slices.ContainsFunc(b.requests(), func(r gotRequest) bool { return len(r.frame) == len(tc.send)-sizeLen })
				})
				return
			}
			s.wantEnded(t, tc.want)
			for _, r := range b.requests() {
				if len(r.frame) > readBuffer {
					t.Errorf("the broker got %d bytes of API %d", len(r.frame), r.key)
				}
			}
		})
	}
}

func partialOf(key int16, n uint32) []byte {
	b := partial(n)
	b[sizeLen], b[sizeLen+1], b[sizeLen+3] = byte(key>>8), byte(key), 2
	return b
}

// A stranger has one request in memory, however many it sends.
func TestStrangersHaveOneRequest(t *testing.T) {
	gate := make(chan struct{})
	b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		<-gate
		return answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() })(c, h, frame)
	})
	s := saslSetup(t, time.Hour)
	p, addr := s.start(t, b)
	c := dial(t, addr)
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.Version = 3
	for i := range int32(10) {
		c.send(hello, i)
	}
	waitFor(t, func() bool { return len(b.requests()) == 1 })
	p.mu.Lock()
	for conn := range p.conns {
		if n := conn.watched.due.Load(); n != 1 {
			t.Errorf("%d requests were taken", n)
		}
	}
	p.mu.Unlock()
	close(gate)
	for i := range int32(10) {
		c.recv(hello, i)
	}
}

// What large tokens hold is bounded for all together, and none of it is anybody else's.
func TestLargeTokensShareTheirOwn(t *testing.T) {
	s := saslSetup(t, time.Hour)
	p, addr := s.start(t, loginBroker(t))
	for range loginBytes/maxLoginFrame + 3 {
		if _, err := dial(t, addr).Write(partialOf(keySASLAuthenticate, maxLoginFrame)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool {
		return !p.logins.TryAcquire(maxLoginFrame) || func() bool { p.logins.Release(maxLoginFrame); return false }()
	})
	if takenOf(p, p.budget) || takenOf(p, p.decoding) {
		t.Error("strangers hold what is for those who have logged in")
	}
	// Who logs in with a token as they mostly are waits for none of them.
	c := dial(t, addr)
	c.ask(handshakeOf("PLAIN"))
	c.ask(tokenOf([]byte("right")))
	c.ask(metadataOfNothing())
}

// A handshake that does not come on ends, with the login's time if that is less.
func TestHandshakesAreBounded(t *testing.T) {
	var c Config
	c.Dial = func(context.Context) (net.Conn, error) { return nil, nil }
	c.IDs = testVirtual
	c.LoginTimeout = time.Second
	if err := c.defaults(); err != nil || c.HandshakeTimeout != time.Second {
		t.Errorf("%v, %v", c.HandshakeTimeout, err)
	}
}
