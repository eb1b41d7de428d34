package proxy

import (
	"net"
	"time"

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

// limitSilence has the kernel end a connection whose peer acknowledges nothing of what was
// sent for so long.
func limitSilence(tcp *net.TCPConn, d time.Duration) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
