package fetcher

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// nearRoundTrip is the round trip up to which a source counts as near.
	nearRoundTrip = 2 * time.Millisecond
	// nearBuffer is the receive buffer for a near source: what 1 GB/s needs for that round
	// trip. The kernel's own choice goes up to what the processor's caches do not hold; much
	// less than this makes reader and writer wait for each other.
	nearBuffer = 2 << 20
)

// tuneReads sets the receive buffer of a connection to a near source. To set it ends the
// kernel's own tuning, which links with many bytes on their way need: theirs is left
// alone. It is an optimisation: what fails is left as it is.
func tuneReads(c net.Conn) {
	t, ok := belowTLS(c).(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && time.Duration(info.Rtt)*time.Microsecond <= nearRoundTrip {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, nearBuffer)
		}
	})
}

// belowTLS is the connection below TLS.
func belowTLS(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}
