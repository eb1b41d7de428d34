//go:build !linux

package fetcher

import "net"

// tuneReads leaves the receive buffer to the kernel.
func tuneReads(net.Conn) {}
