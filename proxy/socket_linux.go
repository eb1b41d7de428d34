package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// stateOf asks the kernel for the state of a connection. ok is false if it cannot tell, as
// for one that is closed.
func stateOf(c net.Conn) (s socketState, ok bool) {
	tcp := tcpOf(c)
	if tcp == nil {
		return s, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return s, false
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		s.received, s.taken = info.Bytes_received, info.Bytes_acked
		unread, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		if err != nil {
			return
		}
		due, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err != nil {
			return
		}
		s.unread, s.due = unread > 0, due > 0
		ok = true
	})
	return s, ok && err == nil
}
