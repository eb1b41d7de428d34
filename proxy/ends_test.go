package proxy

import (
	"bufio"
	"net"
	"sync/atomic"
	"testing"
)

// tcpPair is two ends of a connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return c.(*net.TCPConn), other.(*net.TCPConn)
}

// Whose fault it is that the kernel moves no more bytes is told right.
func TestSplicedFailuresAreOfTheRightSide(t *testing.T) {
	for name, tc := range map[string]struct {
		broker bool // it is the broker that goes
		reset  bool
		want   reason
	}{
		"the broker resets": {true, true, reasonBrokerClosed},
		"the broker goes":   {true, false, reasonBrokerClosed},
		"the client resets": {false, true, reasonClientClosed},
		"the client goes":   {false, false, reasonClientClosed},
	} {
		t.Run(name, func(t *testing.T) {
			client, sender := tcpPair(t)
			up, broker := tcpPair(t)
			var spliced atomic.Int64
			r := relay{dst: up, src: bufio.NewReaderSize(client, readBuffer), raw: client, spliced: &spliced}
			goes := sender
			if tc.broker {
				goes = broker
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				b := make([]byte, spliceFrom)
				if _, err := sender.Write(b); err != nil {
					return
				}
				if tc.reset {
					_ = goes.SetLinger(0)
				}
				goes.Close()
				for { // until somebody has gone
					if _, err := sender.Write(b); err != nil {
						return
					}
				}
			}()
			err := relayError("relay a request", r.copy(1<<40), clientError, upstreamError)
			client.Close()
			<-sent
			if got := reasonOf(err); got != tc.want {
				t.Errorf("%s: %v, want %s", got, err, tc.want)
			}
		})
	}
}
