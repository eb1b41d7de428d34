package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/pki"
)

// logBuffer is a log that is written to and read at the same time.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func (l *logBuffer) await(t *testing.T, s string) {
	t.Helper()
	harness.AwaitT(t, patience, s, func(context.Context) error {
		if l.count(s) == 0 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Errorf("not logged:\n%s", l.b.String())
		}
		return nil
	})
}

// secureSetup is a proxy whose listener and whose broker have TLS.
type secureSetup struct {
	setup
	ca     *pki.CA
	broker *fakeBroker
	log    *logBuffer
	proxy  *Proxy
	addr   string

	mu    sync.Mutex
	certs []*x509.Certificate // of clients, as Dial saw them
}

func startSecure(t *testing.T, s script, change func(*Config, *tls.Config)) *secureSetup {
	t.Helper()
	out := &secureSetup{ca: pki.NewCA(t, "ca"), log: new(logBuffer)}
	server := &tls.Config{
		Certificates: []tls.Certificate{out.ca.Issue(t, pki.Subject{Name: "server"}).TLS(t)},
		ClientCAs:    out.ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}
	b := startBroker(t, s)
	out.broker = b
	// In front of the fake broker, so that it is reached by TLS too.
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server.Clone())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				to, err := net.Dial("tcp", b.ln.Addr().String())
				if err != nil {
					return
				}
				defer to.Close()
				var both sync.WaitGroup
				both.Go(func() { _, _ = io.Copy(to, in); to.Close() })
				both.Go(func() { _, _ = io.Copy(in, to); in.Close() })
				both.Wait()
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	out.cfg.TLS = server
	if change != nil {
		change(&out.cfg, server)
	}
	out.deps.Log = slog.New(slog.NewTextHandler(out.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		out.mu.Lock()
		out.certs = append(out.certs, ClientCertificate(ctx))
		out.mu.Unlock()
		return (&tls.Dialer{Config: &tls.Config{RootCAs: out.ca.Pool(), ServerName: "localhost"}}).DialContext(ctx, "tcp", ln.Addr().String())
	}
	out.proxy, out.addr = out.start(t, b)
	return out
}

func (s *secureSetup) dialTLS(t *testing.T, certs ...tls.Certificate) *client {
	t.Helper()
	c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.ca.Pool(), ServerName: "localhost", Certificates: certs})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return &client{t, c}
}

func TestTLSOnBothSides(t *testing.T) {
	s := startSecure(t, func(_ net.Conn, _ header, frame []byte) []byte { return frameOf(frame[4:]) }, nil)
	cert := s.ca.Issue(t, pki.Subject{Name: "me"})
	c := s.dialTLS(t, cert.TLS(t))
	for _, size := range []int{1, 100, tlsRecord, readBuffer - 1, readBuffer, 3*readBuffer + 7, 2 << 20} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		var got []byte
		var err error
		var both sync.WaitGroup
		both.Go(func() { got, err = readFrame(c) })
		if _, err := c.Write(relayFrame(7, body)); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		if err != nil || !bytes.HasSuffix(got, body) {
			t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
}

func TestResumedSessionsNameTheirClients(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s := startSecure(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }), nil)
		cert := s.ca.Issue(t, pki.Subject{Name: "me"})
		cfg := &tls.Config{
			RootCAs: s.ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{cert.TLS(t)},
			ClientSessionCache: tls.NewLRUClientSessionCache(1), MinVersion: version, MaxVersion: version,
		}
		for n := range 2 {
			c, err := tls.Dial("tcp", s.addr, cfg)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			(&client{t, c}).ask(kmsg.NewPtrApiVersionsRequest()) // reads the ticket, too
			if c.ConnectionState().DidResume != (n > 0) {
				t.Errorf("connection %d: resumed %v", n, n == 0)
			}
			c.Close()
		}
		s.mu.Lock()
		for _, got := range s.certs {
			if got == nil || !got.Equal(cert.Leaf) {
				t.Errorf("Dial saw %v", got)
			}
		}
		s.mu.Unlock()
	}
}

func TestFailedHandshakesAreOneLine(t *testing.T) {
	s := startSecure(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }), nil)
	plain := dial(t, s.addr)
	plain.send(kmsg.NewPtrApiVersionsRequest(), 1)
	plain.wantClosed()
	s.log.await(t, "does not speak TLS")
	for range 20 {
		c := dial(t, s.addr)
		c.send(kmsg.NewPtrApiVersionsRequest(), 1)
		c.wantClosed()
	}
	if n := s.log.count("TLS handshake of a client failed"); n > 15 {
		t.Errorf("%d lines", n)
	}
	// Who looks whether somebody listens is no failure.
	before := s.log.count("level=WARN")
	dial(t, s.addr).Close()
	s.dialTLS(t).ask(kmsg.NewPtrApiVersionsRequest())
	if n := s.log.count("level=WARN"); n != before {
		t.Errorf("%d warnings, %d before", n, before)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.certs) != 1 {
		t.Errorf("%d connections upstream for one client", len(s.certs))
	}
}

func TestClientsWithoutTrustAreTold(t *testing.T) {
	s := startSecure(t, nil, func(_ *Config, server *tls.Config) { server.ClientAuth = tls.RequireAndVerifyClientCert })
	if c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: pki.NewCA(t, "other").Pool(), ServerName: "localhost"}); err == nil {
		c.Close()
		t.Error("trusted")
	}
	s.log.await(t, "does not trust this listener's certificate")
	s.proxy.handshakes.allow(time.Now().Add(-time.Hour)) // the next one is logged again
	stranger := pki.NewCA(t, "stranger").Issue(t, pki.Subject{Name: "stranger"})
	c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{stranger.TLS(t)}})
	if err == nil { // TLS 1.3: the refusal comes afterwards
		_ = c.SetDeadline(time.Now().Add(patience))
		(&client{t, c}).wantClosed()
	}
}

func TestTLSClientAtPlainListener(t *testing.T) {
	log := new(logBuffer)
	s := setup{deps: Deps{Log: slog.New(slog.NewTextHandler(log, nil))}}
	_, addr := s.start(t, startBroker(t, nil))
	if c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "localhost"}); err == nil {
		c.Close()
		t.Fatal("there is TLS")
	}
	log.await(t, "the client speaks TLS, which this listener does not")
}

func TestHandshakesEnd(t *testing.T) {
	s := startSecure(t, nil, func(c *Config, _ *tls.Config) { c.HandshakeTimeout = 50 * time.Millisecond })
	dial(t, s.addr).wantClosed()
	s.log.await(t, "no TLS handshake within 50ms")
}

func TestStopDuringHandshake(t *testing.T) {
	s := startSecure(t, nil, nil)
	c := dial(t, s.addr)
	harness.AwaitT(t, patience, "the connection", func(context.Context) error {
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		if len(s.proxy.conns) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.proxy.Stop(ctx); err != nil {
		t.Error(err)
	}
	c.wantReset()
}

func TestFramesFillTLSRecords(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	p := &Proxy{buffers: new(buffers)}
	for _, sizes := range [][]int{{4, 9}, {tlsRecord, 1}, {10, tlsRecord - 10, 5}, {100, 3*tlsRecord + 5, 0, 7}, {tlsRecord - 1, 2, 2 * tlsRecord}, {0}} {
		w := &writes{Conn: server}
		var frame net.Buffers
		var want []byte
		for i, n := range sizes {
			piece := bytes.Repeat([]byte{byte(i + 1)}, n)
			frame = append(frame, piece)
			want = append(want, piece...)
		}
		if err := p.gather(w, frame); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.got, want) {
			t.Errorf("%v: got %d bytes, want %d", sizes, len(w.got), len(want))
		}
		if most := (len(want)+tlsRecord-1)/tlsRecord + 1; w.records > most {
			t.Errorf("%v: %d records, want %d", sizes, w.records, most)
		}
	}
}

// writes counts the records that TLS would make of what it is given.
type writes struct {
	net.Conn
	got     []byte
	records int
}

func (w *writes) Write(b []byte) (int, error) {
	w.got = append(w.got, b...)
	w.records += (len(b) + tlsRecord - 1) / tlsRecord
	return len(b), nil
}
