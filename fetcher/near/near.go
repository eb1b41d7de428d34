// Package near sizes the socket buffers of connections on short links, where the amount
// of data on its way is small and known, for bulk transfer. The kernel's own tuning grows
// them beyond what the processor's caches hold, or not far enough for a whole answer.
//
// To set a buffer ends the kernel's tuning of it for good, which long links need. So
// nothing is done when the round trip is long, nor when the system's limits would cut the
// size down. It is an optimisation: what fails is left as it is.
package near

import (
	"net"
	"time"
)

// RoundTrip is the round trip up to which a link counts as short.
const RoundTrip = 2 * time.Millisecond

// Receive sets the receive buffer of a TCP connection, or of one below TLS, to size bytes
// if it is near.
func Receive(c net.Conn, size int) { set(c, size, receive) }

// Send sets the send buffer likewise.
func Send(c net.Conn, size int) { set(c, size, send) }

func tcp(c net.Conn) *net.TCPConn {
	for {
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			t, _ := c.(*net.TCPConn)
			return t
		}
		c = below.NetConn()
	}
}
