package near

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// direction is a socket's option for its buffer, and where the limit of that is.
type direction struct {
	option int
	limit  string
}

var (
	receive = direction{unix.SO_RCVBUF, "/proc/sys/net/core/rmem_max"}
	send    = direction{unix.SO_SNDBUF, "/proc/sys/net/core/wmem_max"}
)

func set(c net.Conn, size int, d direction) {
	t := tcp(c)
	if t == nil || d.max() < size {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && time.Duration(info.Rtt)*time.Microsecond <= RoundTrip {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, d.option, size)
		}
	})
}

// max is what the system allows without privileges, 0 if it does not say.
func (d direction) max() int {
	b, err := os.ReadFile(d.limit)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0
	}
	return n
}
