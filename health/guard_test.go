package health

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

const patience = 30 * time.Second

// serve starts a server at a port of its own, and returns its address.
func serve(t *testing.T, cfg Config, change ...func(*http.Server)) (*Server, string) {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	s, err := New(cfg, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range change {
		fn(s.server)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.server.Serve(ln) }()
	t.Cleanup(func() { _ = s.server.Close(); <-done })
	return s, ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends bytes as they are, and returns the status of the answer.
func say(t *testing.T, addr, raw string) (code int, header http.Header) {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.60q: %v", raw, err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}

func TestOnlyReading(t *testing.T) {
	_, plain := serve(t, Config{Loopback: true})
	_, profiles := serve(t, Config{Loopback: true, Profiles: true})
	_, open := serve(t, Config{})
	line := func(method, path, host, rest string) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, host, rest)
	}
	for _, tc := range []struct {
		addr, raw string
		want      int
	}{
		{plain, line("GET", "/livez", "localhost:9644", ""), 200},
		{plain, line("HEAD", "/readyz", "127.0.0.1:9644", ""), 200},
		{plain, line("GET", "/metrics", "[::1]:9644", ""), 200},
		{plain, line("GET", "/", "localhost", ""), 404},
		{plain, line("GET", "/debug/pprof/", "localhost", ""), 404},
		{plain, line("GET", "/debug/pprof/heap", "localhost", ""), 404},
		{plain, line("GET", "/livez", "evil.example.com", ""), 403},
		{open, line("GET", "/livez", "sidecar-1.example.com", ""), 200},
		{profiles, line("GET", "/debug/pprof/", "localhost", ""), 200},
		{profiles, line("GET", "/debug/pprof/goroutine?debug=1", "localhost", ""), 200},
		{profiles, line("GET", "/debug/pprof/cmdline", "localhost", ""), 404},
		{profiles, line("POST", "/debug/pprof/symbol", "localhost", "Content-Length: 3\r\n"), 405},
		{plain, line("GET", "/livez", "localhost", "Content-Length: 3\r\n"), 413},
		{plain, line("GET", "/livez", "localhost", "Transfer-Encoding: chunked\r\n"), 413},
		{plain, line("GET", "/livez", "localhost", "X: "+strings.Repeat("x", 64<<10)+"\r\n"), 431},
	} {
		if code, _ := say(t, tc.addr, tc.raw); code != tc.want {
			t.Errorf("%.60q: %d, want %d", tc.raw, code, tc.want)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO"} {
		target := "/readyz"
		switch method {
		case "OPTIONS":
			target = "*"
		case "CONNECT":
			target = "localhost:1"
		}
		code, header := say(t, plain, line(method, target, "localhost", ""))
		if code != http.StatusMethodNotAllowed || header.Get("Allow") == "" {
			t.Errorf("%s: %d, %v", method, code, header)
		}
	}
}

// A header that does not come on is not waited for.
func TestSlowHeaders(t *testing.T) {
	_, addr := serve(t, Config{}, func(s *http.Server) { s.ReadHeaderTimeout = 50 * time.Millisecond })
	c := dial(t, addr)
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost:"); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(c); os.IsTimeout(err) { // on a slow machine what was sent may come late, and the end is a reset
		t.Errorf("%q, %v", out, err)
	}
}

// However many connections somebody opens, a probe gets through, and there are no more than so many.
func TestProbesGetThrough(t *testing.T) {
	_, addr := serve(t, Config{})
	var first []net.Conn
	for i := range 3 * maxConns {
		c := dial(t, addr)
		if i < maxConns {
			first = append(first, c)
		}
	}
	if code, _ := say(t, addr, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); code != 200 {
		t.Errorf("%d", code)
	}
	for i, c := range first {
		if n, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("connection %d is still open: %d, %v", i, n, err)
		}
	}
}

func TestPanicsCostOneRequest(t *testing.T) {
	s, addr := serve(t, Config{})
	s.Ready("part", func() error { panic("planted") })
	c := dial(t, addr)
	if _, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(c); err != nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	counted := prometheus.NewRegistry()
	counted.MustRegister(s.server.Handler.(*guard).panics)
	if all, err := counted.Gather(); err != nil || len(all) != 1 || all[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("counted are %v, %v", all, err)
	}
	if code, _ := say(t, addr, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); code != 200 {
		t.Errorf("%d", code)
	}
}

// The server of net/http would recover from any.
func TestPanicsInStateEndTheProcess(t *testing.T) {
	const planted = "MIRROR_TEST_PANIC"
	if os.Getenv(planted) != "" {
		s, addr := serve(t, Config{})
		s.Ready("part", func() error { (*metadata.Image)(nil).Topic("no image"); return nil })
		c := dial(t, addr)
		_, _ = io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, _ = io.ReadAll(c) // the process ends first
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPanicsInStateEndTheProcess$")
	cmd.Env = append(os.Environ(), planted+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: ") || !strings.Contains(string(out), "metadata.(*Image).Topic") {
		t.Errorf("the process went on, or does not say why it ended: %v\n%s", err, out)
	}
}
