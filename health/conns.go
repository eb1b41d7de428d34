package health

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns bounds the connections: a scrape and two probes need three.
const maxConns = 64

// conns keeps the connections within maxConns. The one that has been idle for longest makes room for a
// new one: somebody who opens many keeps no probe out, upon which a supervisor would end the process.
type conns struct {
	mu   sync.Mutex // guards the following
	idle map[net.Conn]time.Time
	busy map[net.Conn]bool
}

func newConns() *conns { return &conns{idle: map[net.Conn]time.Time{}, busy: map[net.Conn]bool{}} }

// changed is the server's ConnState.
func (c *conns) changed(nc net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.idle, nc)
	delete(c.busy, nc)
	switch s {
	case http.StateNew:
		c.makeRoom(nc)
	case http.StateIdle:
		c.idle[nc] = time.Now()
	case http.StateActive:
		c.busy[nc] = true
	}
}

// makeRoom takes up a new connection. The caller holds the lock.
func (c *conns) makeRoom(nc net.Conn) {
	if len(c.idle)+len(c.busy) >= maxConns {
		out, since := nc, time.Now()
		for other, at := range c.idle {
			if at.Before(since) {
				out, since = other, at
			}
		}
		_ = out.Close() // the server notices, and says so
		if out == nc {
			return
		}
		delete(c.idle, out)
	}
	c.idle[nc] = time.Now()
}
