package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pattern is n bytes that differ by place, with a period that no buffer size divides.
func pattern(n int) []byte {
	const period = 65521
	b := make([]byte, n)
	for i := range min(n, period) {
		b[i] = byte(i * 7 >> (i % 5))
	}
	for at := period; at < n; at += period {
		copy(b[at:], b[:period])
	}
	return b
}

// relayFrame is a request of an API that the table does not have (OffsetCommit).
func relayFrame(correlation int32, payload []byte) []byte {
	b := []byte{0, byte(kmsg.OffsetCommit), 0, 8}
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	return frameOf(append(b, payload...))
}

// echo answers with the request's correlation id and everything behind its header.
func echo(_ net.Conn, h header, frame []byte) []byte {
	if len(frame) < 8 {
		return nil
	}
	return frameOf(frame[4:])
}

func TestRelayIsByteForByte(t *testing.T) {
	for _, size := range []int{0, 1, 100, readBuffer - 12, readBuffer, readBuffer + 1, 1 << 20, 20 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := startBroker(t, echo)
			_, addr := new(setup).start(t, b)
			c := dial(t, addr)
			payload := pattern(size)
			sent := relayFrame(42, payload)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = c.Write(sent) })
			got, err := readFrame(c)
			wg.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[4:], payload) {
				t.Fatal("response differs")
			}
			if reqs := b.requests(); len(reqs) != 1 || !bytes.Equal(frameOf(reqs[0].frame), sent) {
				t.Fatal("request differs")
			}
		})
	}
}

// What the proxy has no business with is not its business in any version, nor is what nobody
// knows: the broker says what it makes of it.
func TestUnknownIsRelayedUntouched(t *testing.T) {
	for name, head := range map[string][]byte{
		"version beyond kmsg's": {0, byte(kmsg.OffsetCommit), 0, 99},
		"version negative":      {0, byte(kmsg.OffsetCommit), 0xff, 0xff},
		"API of a later Kafka":  {0, 250, 0, 3},
		"API negative":          {0xff, 0xfe, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, echo)
			s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
			s.deps.Mirror = &fakeHandler{}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			sent := frameOf(append(slices.Clone(head), "\x00\x00\x00\x2anot even a header"...))
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			got, err := readFrame(c)
			if err != nil || string(got[4:]) != "not even a header" {
				t.Fatalf("got %q, %v", got, err)
			}
			if reqs := b.requests(); len(reqs) != 1 || !bytes.Equal(frameOf(reqs[0].frame), sent) {
				t.Fatal("request differs")
			}
		})
	}
}

func TestPipelinedAnswersComeInOrder(t *testing.T) {
	// The broker answers in bursts, so that requests pile up; local answers, relayed
	// ones, conversations and produces without an answer are mixed.
	b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		switch h.key {
		case int16(kmsg.OffsetCommit):
			return frameOf(frame[4:])
		case int16(kmsg.Produce):
			return nil // acks=0
		case int16(kmsg.Metadata):
			r := kmsg.NewPtrMetadataResponse()
			r.Version = h.version
			return appendResponse(nil, r, h.correlation)
		case keyAPIVersions:
			r := kmsg.NewPtrApiVersionsResponse()
			r.Version = h.version
			return appendResponse(nil, r, h.correlation)
		}
		return nil
	})
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))}
	s.cfg.MaxInFlight = 8
	_, addr := s.start(t, b)
	c := dial(t, addr)

	const n = 400
	refused := produceRequest(9, 1, "m", 0)
	unacked := produceRequest(9, 0, "o", 0)
	tooNew := kmsg.NewPtrApiVersionsRequest()
	kind := func(i int) int { return i * 7 % 5 }
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			var out []byte
			switch kind(i) {
			case 0, 1:
				out = relayFrame(int32(i), pattern(i*10))
			case 2:
				out = encodeRequest(refused, int32(i), nil)
			case 3:
				out = encodeRequest(unacked, int32(i), nil)
			case 4:
				// ApiVersions of a version that is answered after asking the broker.
				out = encodeRequest(tooNew, int32(i), nil)
				binary.BigEndian.PutUint16(out[6:], 9)
				out = frameOf(append(out[4:], 0, 1, 1, 0))
			}
			if _, err := c.Write(out); err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	})
	for i := range n {
		if kind(i) == 3 {
			continue
		}
		frame, err := readFrame(c)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if got := int32(binary.BigEndian.Uint32(frame)); got != int32(i) {
			t.Fatalf("answer to %d, want %d", got, i)
		}
	}
	wg.Wait()
	// Nothing tells of the last one's arrival.
	waitFor(t, func() bool { return len(produced(b)) == n/5 })
}

func TestBadFramesEndTheConnection(t *testing.T) {
	for name, frame := range map[string][]byte{
		"too large":          {0x7f, 0, 0, 0, 0, 0},
		"negative":           {0xff, 0xff, 0xff, 0xff, 0, 0},
		"too short":          {0, 0, 0, 4, 0, 3, 0, 0},
		"version too new":    frameOf([]byte{0, byte(kmsg.Metadata), 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0}),
		"version negative":   frameOf([]byte{0, byte(kmsg.Metadata), 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0}),
		"mirror API too new": mirrorFrame(12794, 1, ""),
		"header ends":        frameOf([]byte{0, byte(kmsg.ListOffsets), 0, 7, 0, 0, 0, 1, 0, 9, 0}),
		"bad body":           frameOf([]byte{0, byte(kmsg.ListOffsets), 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 2, 3}),
		"bad produce":        frameOf([]byte{0, byte(kmsg.Produce), 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 1}),
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, echo)
			var s setup
			s.deps.Mirror = &fakeHandler{}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			c.wantClosed()
			if len(b.requests()) != 0 {
				t.Error("the broker got something")
			}
		})
	}
}

// Of no API that needs interception a version passes that cannot be read.
func TestNoVersionPassesThatCannotBeRead(t *testing.T) {
	b := startBroker(t, echo)
	for _, virtual := range []bool{false, true} {
		var s setup
		s.cfg.Virtual = virtual
		s.deps.Log, s.deps.Mirror = discardLog(), &fakeHandler{}
		p, addr := s.start(t, b)
		for key, r := range p.rows {
			if key == keyAPIVersions {
				continue // answered, see TestApiVersions
			}
			for _, version := range []int16{r.max + 1, -1} {
				c := dial(t, addr)
				head := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(key)), uint16(version))
				if _, err := c.Write(frameOf(append(head, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0))); err != nil {
					t.Fatal(err)
				}
				c.wantClosed()
				c.Close()
			}
		}
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the broker got %v", got)
	}
}

func TestOutOfStepResponseEndsTheConnection(t *testing.T) {
	b := startBroker(t, func(_ net.Conn, _ header, frame []byte) []byte {
		return frameOf([]byte{0, 0, 0, 99, 1, 2, 3})
	})
	_, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	c.wantClosed()
}

func TestIdleConnectionEndsWithTheBrokers(t *testing.T) {
	b := startBroker(t, echo)
	_, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c); err != nil {
		t.Fatal(err)
	}
	b.closeConns()
	c.wantClosed()
}

func TestBrokerDownEndsTheConnection(t *testing.T) {
	b := startBroker(t, echo)
	_, addr := new(setup).start(t, b)
	b.stop()
	c, err := net.Dial("tcp", addr)
	if err != nil { // it has happened before the client looks
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	(&client{t, c}).wantReset()
}

// wantReset expects the end of a broker that is down. In order, and before the first answer, clients take it
// for that of a broker which speaks another protocol.
func (c *client) wantReset() {
	c.t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("got %v, want a reset", err)
	}
}

func TestConnectionsEndAsTheBrokers(t *testing.T) {
	for name, tc := range map[string]struct{ answers, reset bool }{
		"in order":            {false, false},
		"with a reset":        {false, true},
		"in order, later":     {true, false},
		"with a reset, later": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
				if tc.answers && h.correlation == 1 {
					return frameOf(frame[4:])
				}
				if tc.reset {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
				return nil
			})
			_, addr := new(setup).start(t, b)
			c := dial(t, addr)
			for n := range int32(2) {
				if _, err := c.Write(relayFrame(n+1, nil)); err != nil {
					t.Fatal(err)
				}
				if !tc.answers {
					break
				}
				if n == 0 {
					if _, err := readFrame(c); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.reset && !tc.answers {
				c.wantReset()
			} else if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want the end", err)
			}
		})
	}
}

// Who has had no answer when the sidecar ends is told what a broker's machine tells.
func TestStopResetsWhoHadNoAnswer(t *testing.T) {
	b := startBroker(t, echo)
	p, addr := new(setup).start(t, b)
	fresh, served := dial(t, addr), dial(t, addr)
	if _, err := served.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(served); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) == 2
	})
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(t.Context()) }()
	fresh.wantReset()
	if _, err := served.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
	served.Close()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

func TestStopDeliversWhatIsDue(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{})
	b := startBroker(t, func(_ net.Conn, h header, frame []byte) []byte {
		close(arrived)
		<-release
		return frameOf(frame[4:])
	})
	p, addr := new(setup).start(t, b)
	busy, idle := dial(t, addr), dial(t, addr)
	if _, err := busy.Write(relayFrame(1, []byte("due"))); err != nil {
		t.Fatal(err)
	}
	<-arrived
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- p.Stop(ctx)
	}()
	idle.wantClosed()
	close(release)
	if got, err := readFrame(busy); err != nil || string(got[4:]) != "due" {
		t.Fatalf("got %q, %v", got, err)
	}
	busy.wantClosed()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("still listening")
	}
}

func TestStopEndsWithItsContext(t *testing.T) {
	b := startBroker(t, func(net.Conn, header, []byte) []byte { return nil }) // never answers
	p, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(b.requests()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil {
		t.Error("want the context's error")
	}
	c.wantClosed()
}

func TestMaxConnections(t *testing.T) {
	b := startBroker(t, echo)
	s := setup{}
	s.deps.Limits = NewLimits(LimitsConfig{Total: 1})
	_, addr := s.start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c); err != nil {
		t.Fatal(err)
	}
	dial(t, addr).wantClosed()
}

func TestSASLTokensOfHandshakeVersion0(t *testing.T) {
	for mechanism, tokens := range map[string][]string{
		"PLAIN":         {"\x00alice\x00secret"},
		"SCRAM-SHA-256": {"n,,n=alice,r=1", "c=biws,r=1,p=2"},
		"GSSAPI":        {"\x60token", "", "\x05\x04ff"},
	} {
		t.Run(mechanism, func(t *testing.T) {
			b := startBroker(t, func(_ net.Conn, h header, frame []byte) []byte {
				if h.key == int16(kmsg.SASLHandshake) && strings.Contains(string(frame), mechanism) {
					r := kmsg.NewPtrSASLHandshakeResponse()
					return appendResponse(nil, r, h.correlation)
				}
				if h.key == int16(kmsg.OffsetCommit) {
					return frameOf(frame[4:])
				}
				return frameOf([]byte("re:" + string(frame)))
			})
			_, addr := new(setup).start(t, b)
			c := dial(t, addr)
			hs := kmsg.NewPtrSASLHandshakeRequest()
			hs.Mechanism = mechanism
			c.ask(hs)
			for _, token := range tokens {
				if _, err := c.Write(frameOf([]byte(token))); err != nil {
					t.Fatal(err)
				}
				if got, err := readFrame(c); err != nil || string(got) != "re:"+token {
					t.Fatalf("token %q: got %q, %v", token, got, err)
				}
			}
			if _, err := c.Write(relayFrame(5, []byte("after"))); err != nil {
				t.Fatal(err)
			}
			if got, err := readFrame(c); err != nil || string(got[4:]) != "after" {
				t.Fatalf("got %q, %v", got, err)
			}
			// From here on requests are looked at again.
			if _, err := c.Write([]byte{0x7f, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			c.wantClosed()
		})
	}
}

func TestParseHeader(t *testing.T) {
	flex := newFlexTable().flexible
	id := "c1"
	for name, tc := range map[string]struct {
		frame []byte
		want  header
		id    *string
		err   string
	}{
		"classic":   {[]byte{0, 3, 0, 1, 0, 0, 0, 9, 0, 2, 'c', '1', 0xaa}, header{key: 3, version: 1, correlation: 9, size: 12}, &id, ""},
		"flexible":  {[]byte{0, 3, 0, 9, 0, 0, 0, 9, 0, 2, 'c', '1', 0, 0xaa}, header{key: 3, version: 9, correlation: 9, size: 13}, &id, ""},
		"tags":      {[]byte{0, 3, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 1, 5, 2, 1, 1, 0xaa}, header{key: 3, version: 9, correlation: 9, size: 15}, nil, ""},
		"mirror":    {[]byte{0x31, 0xfa, 0, 0, 0, 0, 0, 9, 0xff, 0xff, 0}, header{key: 12794, correlation: 9, size: 11}, nil, ""},
		"no id":     {[]byte{0, 7, 0, 0, 0, 0, 0, 9, 0xff}, header{key: 7, correlation: 9, size: 8}, nil, ""},
		"short":     {[]byte{0, 3, 0, 1, 0, 0}, header{}, nil, "too early"},
		"short id":  {[]byte{0, 3, 0, 1, 0, 0, 0, 9, 0, 9, 'c'}, header{}, nil, "too early"},
		"bad id":    {[]byte{0, 3, 0, 1, 0, 0, 0, 9, 0x80, 0}, header{}, nil, "length -32768"},
		"long tags": {[]byte{0, 3, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, header{}, nil, "32 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseHeader(tc.frame, flex)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case (got.clientID == nil) != (tc.id == nil), tc.id != nil && *got.clientID != *tc.id:
				t.Errorf("client id %v, want %v", got.clientID, tc.id)
			}
			got.clientID = nil
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte{0, 3, 0, 9, 0, 0, 0, 9, 0, 2, 'c', '1', 0, 0xaa})
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 1, 5, 2, 1, 1, 0xaa})
	f.Add(encodeRequest(produceRequest(9, 1, "t", 0), 1, nil)[4:])
	flex := newFlexTable().flexible
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b, flex)
		if err != nil {
			return
		}
		if h.size < minRequest || h.size > len(b) {
			t.Fatalf("header of %d bytes in %d", h.size, len(b))
		}
	})
}

func TestDialerTriesTheNextBroker(t *testing.T) {
	b := startBroker(t, echo)
	gone := startBroker(t, echo)
	gone.stop()
	addrs := []string{gone.ln.Addr().String(), b.ln.Addr().String()}
	c, err := Dialer(func() []string { return addrs }, nil)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.RemoteAddr().String() != addrs[1] {
		t.Errorf("connected to %s", c.RemoteAddr())
	}
	if _, err := Dialer(func() []string { return addrs[:1] }, nil)(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, err := Dialer(func() []string { return nil }, nil)(t.Context()); err == nil {
		t.Error("no error without addresses")
	}
}
