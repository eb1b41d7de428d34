package links

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestMain lets the test binary be another process that calls: it copies its input to the address
// it is given and the answers to its output.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LINKS_TEST_CALL"); addr != "" {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(c, os.Stdin) }()
		_, _ = io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// echo is a party that sends back what it gets.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// network is a fabric with one party called to, whose link from the test it gives.
func network(t *testing.T) (f *Fabric, l *Link, addr string) {
	t.Helper()
	f = New()
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	addr, err := f.Expose("to", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	ls, err := f.Between(Client, "to")
	if err != nil {
		t.Fatal(err)
	}
	return f, ls[0], addr
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say sends text and waits that long for it to come back.
func say(c net.Conn, text string, wait time.Duration) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != text {
		return fmt.Errorf("got %q for %q", buf, text)
	}
	return nil
}

const (
	long  = 30 * time.Second
	short = 200 * time.Millisecond
)

func TestPassesAndCounts(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	if err := say(c, "hello", long); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	if s.Up != 5 || s.Down != 5 || s.Opened != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	_ = c.Close()
	harness.AwaitT(t, long, "the pair ends with its caller", func(context.Context) error {
		if n := l.Stats().Open; n != 0 {
			return fmt.Errorf("%d open", n)
		}
		return nil
	})
}

func TestCut(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	if err := say(c, "hello", long); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	if err := say(c, "hello", long); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("not reset but %v", err)
	}
	if err := say(dial(t, addr), "hello", long); !broken(err) {
		t.Errorf("a new connection is not refused but %v", err)
	}
	l.Restore()
	if err := say(dial(t, addr), "hello", long); err != nil {
		t.Errorf("after Restore: %v", err)
	}
	if s := l.Stats(); s.Reset != 1 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

func broken(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func TestBlackholeHoldsAndGoesOn(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	if err := say(c, "hello", long); err != nil {
		t.Fatal(err)
	}
	l.Blackhole()
	if err := say(c, "held ", short); !timedOut(err) {
		t.Errorf("something came through: %v", err)
	}
	fresh := dial(t, addr)
	if err := say(fresh, "held ", short); !timedOut(err) {
		t.Errorf("something came through a new connection: %v", err)
	}
	l.Restore()
	for _, c := range []net.Conn{c, fresh} {
		_ = c.SetReadDeadline(time.Now().Add(long))
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "held " {
			t.Errorf("after Restore: %q, %v", buf, err)
		}
		if err := say(c, "again", long); err != nil {
			t.Errorf("after Restore: %v", err)
		}
	}
}

func TestHalfOpenStaysSilent(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	if err := say(c, "hello", long); err != nil {
		t.Fatal(err)
	}
	l.HalfOpen()
	late := dial(t, addr)
	if err := say(late, "lost", short); !timedOut(err) {
		t.Errorf("not silent: %v", err)
	}
	l.Restore()
	for _, c := range []net.Conn{c, late} {
		if err := say(c, "lost", short); !timedOut(err) {
			t.Errorf("not silent after Restore: %v", err)
		}
	}
	if err := say(dial(t, addr), "hello", long); err != nil {
		t.Errorf("a new connection after Restore: %v", err)
	}
	_, _ = c.Close(), late.Close()
	harness.AwaitT(t, long, "silent connections end with their callers", func(context.Context) error {
		if n := l.Stats().Open; n != 1 {
			return fmt.Errorf("%d open", n)
		}
		return nil
	})
}

func TestResetAfter(t *testing.T) {
	_, l, addr := network(t)
	l.ResetAfter(1000)
	var sent int
	c := dial(t, addr)
	for range 100 {
		if err := say(c, strings.Repeat("x", 100), long); err != nil {
			break
		}
		sent += 100
	}
	if sent > 1000 || sent < 300 {
		t.Errorf("%d bytes passed there and back", sent)
	}
	l.Restore()
	c = dial(t, addr)
	for range 30 {
		if err := say(c, strings.Repeat("x", 100), long); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSlowLinks(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	for _, tt := range []struct {
		name string
		set  func() error
		size int
		took time.Duration
	}{
		{"latency", func() error { return l.Latency(100*time.Millisecond, 10*time.Millisecond) }, 10, 150 * time.Millisecond},
		{"bandwidth", func() error { return l.Bandwidth(100 << 10) }, 100 << 10, 700 * time.Millisecond},
		{"slices", func() error { return l.Slice(100, 10*time.Millisecond) }, 2000, 150 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.set(); err != nil {
				t.Fatal(err)
			}
			if err := tt.set(); err != nil { // twice is once
				t.Fatal(err)
			}
			begun := time.Now()
			if err := say(c, strings.Repeat("x", tt.size), long); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took < tt.took {
				t.Errorf("took %v only", took)
			}
			l.Restore()
			if err := say(c, strings.Repeat("x", tt.size), long); err != nil {
				t.Errorf("after Restore: %v", err)
			}
		})
	}
}

// A change cannot wait for who does not read: that one is reset.
func TestChangeDespiteDeafPeer(t *testing.T) {
	_, l, addr := network(t)
	c := dial(t, addr)
	if err := l.Latency(time.Millisecond, 0); err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
	for { // nobody reads the echo
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			break
		}
	}
	done := make(chan struct{})
	go func() { l.Restore(); close(done) }()
	select {
	case <-done:
	case <-time.After(long):
		t.Fatal("Restore waits for ever")
	}
	if err := say(dial(t, addr), "hello", long); err != nil {
		t.Error(err)
	}
}

func TestLinksAreTheCallers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whose a connection is")
	}
	f, own, addr := network(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LINKS_TEST_CALL="+addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start("other", func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, _ = io.WriteString(in, "hello")
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	theirs, err := f.Between("oth*", "t?")
	if err != nil {
		t.Fatal(err)
	}
	if up := theirs.Stats().Up; up != 5 {
		t.Errorf("%d bytes on the other's link", up)
	}
	theirs.Cut()
	if err := say(dial(t, addr), "hello", long); err != nil {
		t.Errorf("the test's own link: %v", err)
	}
	if up := own.Stats().Up; up != 5 {
		t.Errorf("%d bytes on the test's own link", up)
	}
	if _, err := f.Between("nobody", "to"); err == nil {
		t.Error("a fault of nobody is no error")
	}
}

func TestNobodyListens(t *testing.T) {
	f := New()
	defer f.Close()
	addr, err := f.Expose("gone", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := say(dial(t, addr), "hello", long); !broken(err) {
		t.Errorf("not reset but %v", err)
	}
}
