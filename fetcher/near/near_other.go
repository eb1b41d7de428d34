//go:build !linux

package near

import "net"

type direction struct{}

var receive, send direction

// set leaves the buffers to the kernel.
func set(c net.Conn, _ int, _ direction) { _ = tcp(c) }
