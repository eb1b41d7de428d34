package proxy

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Of a peer that has gone without a word, on either side, the kernel tells.
func TestKernelLooksForPeersThatAreGone(t *testing.T) {
	b := startBroker(t, echo)
	s := setup{}
	s.cfg.Dial = Dialer(func() []string { return []string{b.ln.Addr().String()} }, nil)
	p, addr := s.start(t, b)
	cl := dial(t, addr)
	if _, err := cl.Write(relayFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(cl); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.mu.Lock() // after the reader, which begins when both are there
		sides := map[string]net.Conn{"client": c.client, "home broker": c.up}
		c.mu.Unlock()
		for side, nc := range sides {
			for option, most := range map[int]int{unix.TCP_KEEPIDLE: 60, unix.TCP_KEEPINTVL: 30, unix.TCP_KEEPCNT: 10} {
				if got := sockopt(t, nc, unix.IPPROTO_TCP, option); got < 1 || got > most {
					t.Errorf("%s: option %d is %d", side, option, got)
				}
			}
			if sockopt(t, nc, unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 {
				t.Errorf("%s: nobody looks", side)
			}
		}
	}
}

func sockopt(t *testing.T, c net.Conn, level, option int) (value int) {
	t.Helper()
	raw, err := tcpOf(c).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { value, failed = unix.GetsockoptInt(int(fd), level, option) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}
