package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// counted is a setup whose connections are counted.
type counted struct {
	setup
	metrics *prometheus.Registry
}

func countedSetup(t *testing.T) *counted {
	t.Helper()
	c := &counted{metrics: prometheus.NewRegistry()}
	var err error
	if c.deps.Connections, err = NewConnMetrics(c.metrics); err != nil {
		t.Fatal(err)
	}
	return c
}

// value reads a metric of the listener, by the value of its other label.
func (c *counted) value(t *testing.T, name, label string) float64 {
	t.Helper()
	all, err := c.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "kafka_mirror_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetValue() == label
			}
			if match {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of %q", name, label)
	return 0
}

// wantEnded waits until a connection has ended for a reason.
func (c *counted) wantEnded(t *testing.T, why reason) {
	t.Helper()
	waitFor(t, func() bool { return c.value(t, "proxy_connections_closed_total", string(why)) == 1 })
	waitFor(t, func() bool { return c.value(t, "proxy_connections", "") == 0 })
}

// partial is the beginning of a request of n bytes.
func partial(n uint32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), 0, byte(kmsg.OffsetCommit), 0, 8, 0, 0, 0, 1)
}

func TestConnectionsThatStandStillEnd(t *testing.T) {
	silent := func(net.Conn, header, []byte) []byte { return nil }
	// Each request is answered by more than the kernel holds for a client that does not read.
	// It begins at once, however long the rest takes.
	much := make([]byte, 64<<20)
	flood := func(c net.Conn, _ header, frame []byte) []byte {
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(much))), frame[4:8]...)); err != nil {
			return nil
		}
		return much
	}
	// What counts from the first request on has a second: before it a connection is merely idle.
	for name, tc := range map[string]struct {
		cfg    Config
		broker script
		send   []byte
		want   reason
	}{
		"nothing was asked":         {Config{MaxIdle: 30 * time.Millisecond}, echo, nil, reasonIdle},
		"the broker never answers":  {Config{MaxIdle: time.Second}, silent, relayFrame(1, nil), reasonNoAnswer},
		"half a length":             {Config{MaxStall: 30 * time.Millisecond}, echo, []byte{0, 0}, reasonStalledRequest},
		"half a request":            {Config{MaxStall: 30 * time.Millisecond}, echo, partial(100), reasonStalledRequest},
		"half a large request":      {Config{MaxIdle: time.Second}, echo, partial(10 << 20), reasonStalledRequest},
		"answers that nobody reads": {Config{MaxStall: time.Millisecond, MaxIdle: time.Second}, flood, relayFrame(1, nil), reasonSlowReader},
		"too large":                 {Config{MaxFrame: 1000}, echo, partial(1001), reasonOversized},
		"a negative length":         {Config{}, echo, []byte{0x80, 0, 0, 0}, reasonMalformed},
		"another protocol":          {Config{MaxFrame: 1 << 20}, echo, []byte("GET / HTTP/1.1\r\n\r\n"), reasonOversized},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, tc.broker)
			s := countedSetup(t)
			s.cfg = tc.cfg
			_, addr := s.start(t, b)
			c := dial(t, addr)
			begun := time.Now()
			if _, err := c.Write(tc.send); err != nil {
				t.Fatal(err)
			}
			s.wantEnded(t, tc.want)
			// A consumer may pause for as long as a broker lets it.
			if took := time.Since(begun); tc.want == reasonSlowReader && took < tc.cfg.MaxIdle {
				t.Errorf("cut after %v", took)
			}
		})
	}
}

// A client that takes its time is not taken for one that stands still.
func TestSlowClientsGoOn(t *testing.T) {
	b := startBroker(t, func(_ net.Conn, _ header, frame []byte) []byte {
		return frameOf(append(frame[4:8:8], make([]byte, 16<<20)...))
	})
	slowly := func(stall time.Duration) error {
		s := countedSetup(t)
		s.cfg.MaxStall = stall
		_, addr := s.start(t, b)
		c := dial(t, addr)
		request := relayFrame(1, pattern(40))
		// Byte by byte, for longer than is allowed for nothing.
		for i := range request {
			if _, err := c.Write(request[i : i+1]); err != nil {
				return err
			}
			time.Sleep(stall / 20)
		}
		// And the answer a megabyte at a time.
		left := int64(sizeLen + 4 + 16<<20)
		for left > 0 {
			n, err := io.CopyN(io.Discard, c, min(left, 1<<20))
			if left -= n; err != nil {
				return fmt.Errorf("%d bytes are missing: %w", left, err)
			}
			time.Sleep(stall / 5)
		}
		return nil
	}
	// A loaded machine may itself stand still for that long.
	for stall := 200 * time.Millisecond; ; stall *= 3 {
		err := slowly(stall)
		if err == nil {
			return
		}
		if stall > 5*time.Second {
			t.Fatal(err)
		}
		t.Logf("cut at a limit of %v: %v", stall, err)
	}
}

// A client that hangs up in the middle of a large answer has not failed, whatever the answer is of.
func TestClientsHangUpInLargeAnswers(t *testing.T) {
	fetch := fetchBoth(12, newFakeView(), 0, 0, "o")
	for name, size := range map[string]int{"records that the kernel moves": 16 << 20, "small ones": 1000} {
		t.Run(name, func(t *testing.T) {
			answer := fetchedOf(12, size, 64<<20/size) // more than the kernel holds
			b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response { return answer }))
			s := countedSetup(t)
			_, addr := s.start(t, b)
			c := dial(t, addr)
			c.send(fetch, 1)
			if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			c.Close()
			s.wantEnded(t, reasonClientClosed)
		})
	}
}

// One client that reads nothing holds neither memory nor anybody up.
func TestSlowReaderIsAlone(t *testing.T) {
	var sent atomic.Int64
	b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte {
		out := frameOf(append(frame[4:8:8], make([]byte, 1<<20)...))
		if h.correlation == 1 {
			n, _ := c.Write(out)
			sent.Add(int64(n))
			return nil
		}
		return out
	})
	s := countedSetup(t)
	_, addr := s.start(t, b)
	slow := dial(t, addr)
	go func() {
		for range 1000 { // a gigabyte of answers; it ends with the connection
			if _, err := slow.Write(relayFrame(1, nil)); err != nil {
				return
			}
		}
	}()
	waitFor(t, func() bool { return sent.Load() > 0 })
	for i := range 20 {
		other := dial(t, addr)
		if _, err := other.Write(relayFrame(int32(100+i), nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(other); err != nil {
			t.Fatal(err)
		}
		other.Close()
	}
	if n := sent.Load(); n > 100<<20 {
		t.Errorf("%d MB of answers went somewhere", n>>20)
	}
}

func TestSlowDialHoldsNobodyUp(t *testing.T) {
	b := startBroker(t, echo)
	release := make(chan struct{})
	var dials atomic.Int32
	s := setup{}
	s.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		if dials.Add(1) == 1 {
			select {
			case <-release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", b.ln.Addr().String())
	}
	_, addr := s.start(t, b)
	first := dial(t, addr)
	waitFor(t, func() bool { return dials.Load() == 1 })
	second := dial(t, addr)
	for _, c := range []*client{second, first} {
		if _, err := c.Write(relayFrame(1, nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(c); err != nil {
			t.Fatal(err)
		}
		if c == second {
			close(release)
		}
	}
}

// A broker that does not answer what the proxy asks itself is not waited for for ever.
func TestOwnQuestionsAreBounded(t *testing.T) {
	b := startBroker(t, func(net.Conn, header, []byte) []byte { return nil })
	s := countedSetup(t)
	s.cfg.AnswerTimeout = 30 * time.Millisecond
	s.view = newFakeView(mirrorPart("m", topicID(1), 0))
	_, addr := s.start(t, b)
	dial(t, addr).send(produceRequest(9, 1, "m", 0), 1)
	s.wantEnded(t, reasonNoAnswer)
}

func TestLimits(t *testing.T) {
	none, one := 0, 1
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	for name, tc := range map[string]struct {
		cfg  LimitsConfig
		from []string
		want []string
	}{
		"none":       {LimitsConfig{}, []string{"10.0.0.1", "10.0.0.1"}, []string{"", ""}},
		"total":      {LimitsConfig{Total: 1}, []string{"10.0.0.1", "10.0.0.2"}, []string{"", refusedTotal}},
		"by address": {LimitsConfig{PerIP: &one}, []string{"10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"}, []string{"", refusedPerIP, ""}},
		"its own": {
			LimitsConfig{PerIP: &one, PerIPOverrides: map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 2, netip.MustParseAddr("10.0.0.3"): 0}},
			[]string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"},
			[]string{"", "", refusedPerIP, "", refusedPerIP, refusedPerIP},
		},
		"only its own": {
			LimitsConfig{PerIP: &none, PerIPOverrides: map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 1}},
			[]string{"10.0.0.1", "10.0.0.2"},
			[]string{"", refusedPerIP},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLimits(tc.cfg)
			for i, ip := range tc.from {
				if got := l.admit(addr(ip)); got != tc.want[i] {
					t.Errorf("connection %d of %s: %q, want %q", i, ip, got, tc.want[i])
				}
			}
			for i, ip := range tc.from {
				if tc.want[i] == "" {
					l.release(addr(ip))
				}
			}
			if l.open != 0 || len(l.byIP) != 0 {
				t.Errorf("%d connections are left, of %v", l.open, l.byIP)
			}
			if got := l.admit(addr(tc.from[0])); got != "" {
				t.Errorf("after all have gone: %q", got)
			}
		})
	}
}

func TestRefusedConnectionsAreCounted(t *testing.T) {
	b := startBroker(t, echo)
	s := countedSetup(t)
	one := 1
	s.deps.Limits = NewLimits(LimitsConfig{PerIP: &one})
	_, addr := s.start(t, b)
	first := dial(t, addr)
	if _, err := first.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(first); err != nil {
		t.Fatal(err)
	}
	dial(t, addr).wantClosed()
	// Another address is another client.
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	other, err := from.Dial("tcp", addr)
	if err != nil {
		t.Skipf("no second address here: %v", err)
	}
	defer other.Close()
	_ = other.SetDeadline(time.Now().Add(patience))
	if _, err := other.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(other); err != nil {
		t.Fatal(err)
	}
	if n := s.value(t, "proxy_connections_refused_total", refusedPerIP); n != 1 {
		t.Errorf("%v connections were refused", n)
	}
	if n := s.value(t, "proxy_connections", ""); n != 2 {
		t.Errorf("%v connections are open", n)
	}
}

func TestRateOfConnections(t *testing.T) {
	l := NewLimits(LimitsConfig{Rate: 20})
	begun := time.Now()
	for range 20 + 6 { // a second's worth goes through at once
		if err := l.pace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("six more than a second's worth were accepted within %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.pace(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// The last answers arrive, although the client has sent more than was read.
func TestDrainTakesNoAnswerBack(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{})
	b := startBroker(t, func(_ net.Conn, h header, frame []byte) []byte {
		close(arrived) // once: the second request never arrives
		<-release
		return frameOf(append(frame[4:8:8], pattern(1<<20)...))
	})
	p, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	<-arrived
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- p.Stop(ctx)
	}()
	waitFor(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stopping
	})
	if _, err := c.Write(relayFrame(2, pattern(1000))); err != nil {
		t.Fatal(err)
	}
	close(release)
	if got, err := readFrame(c); err != nil || !bytes.Equal(got[4:], pattern(1<<20)) {
		t.Fatalf("the answer that was due: %d bytes, %v", len(got), err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after it: %v, want the end", err)
	}
	c.Close()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

func TestStopListening(t *testing.T) {
	b := startBroker(t, echo)
	p, addr := new(setup).start(t, b)
	c := dial(t, addr)
	if _, err := c.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c); err != nil {
		t.Fatal(err)
	}
	p.StopListening()
	if late, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		late.Close()
		t.Error("still listening")
	}
	if _, err := c.Write(relayFrame(2, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c); err != nil {
		t.Fatal(err)
	}
}
