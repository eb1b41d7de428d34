package near

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (*net.TCPConn, func(option int) int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn), func(option int) (n int) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option) })
		return n
	}
}

func TestBuffers(t *testing.T) {
	const size = 100 << 10 // below every system's limit
	c, option := pair(t)
	Send(c, size)
	Receive(tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS12}), size)
	// The kernel doubles what it is told, for its own needs.
	if s, r := option(unix.SO_SNDBUF), option(unix.SO_RCVBUF); s != 2*size || r != 2*size {
		t.Errorf("send buffer %d, receive buffer %d", s, r)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	Send(a, size) // nothing to set, and nothing happens
}

// A size that the system would cut down is not set: its own tuning does better.
func TestLimit(t *testing.T) {
	limit := filepath.Join(t.TempDir(), "max")
	if err := os.WriteFile(limit, []byte("212992\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, option := pair(t)
	before := option(unix.SO_SNDBUF)
	set(c, 212993, direction{unix.SO_SNDBUF, limit})
	set(c, 1, direction{unix.SO_SNDBUF, limit + "-missing"})
	if got := option(unix.SO_SNDBUF); got != before {
		t.Errorf("send buffer %d, before %d", got, before)
	}
	set(c, 212992, direction{unix.SO_SNDBUF, limit})
	if got := option(unix.SO_SNDBUF); got == before {
		t.Error("what is allowed was not set")
	}
}
