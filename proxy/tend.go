package proxy

import (
	"net"
	"sync/atomic"
	"time"
)

const (
	// keepAliveIdle, keepAliveInterval and keepAliveCount have the kernel find out within a
	// minute that a client is gone that never said so, unless answers are due to it.
	keepAliveIdle     = 30 * time.Second
	keepAliveInterval = 10 * time.Second
	keepAliveCount    = 3
	// tendAtMost is how often connections are looked at with limits as by default.
	tendAtMost = 5 * time.Second
	// slowestRequest is how fast a request must come that is held in memory, bytes per second.
	slowestRequest = 64 << 10
)

// socketState is what the kernel knows of a connection. Asked for now and then, it tells who
// stands still without a single instruction on the way of the bytes.
type socketState struct {
	received, taken uint64 // bytes that came from the peer, and that the peer took
	unread, due     bool   // some have come that nobody read; some were sent that the peer has not taken
}

// tcpOf returns the TCP connection that c is, or is made of; nil if there is none.
func tcpOf(c net.Conn) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ NetConn() net.Conn }: // TLS
		return tcpOf(c.NetConn())
	}
	return nil
}

// tune sets what the kernel sees to by itself.
func (p *Proxy) tune(c net.Conn) {
	tcp := tcpOf(c)
	if tcp == nil {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
	})
	// No TCP_USER_TIMEOUT: the kernel would end by it who only takes nothing for a while.
}

// tend looks at the connections again and again, and ends those that stand still. It is one
// goroutine for all, so that no connection needs a timer that each frame would have to set.
func (p *Proxy) tend() {
	every := max(min(p.cfg.MaxStall/4, p.cfg.MaxIdle/4, p.cfg.LoginTimeout/4, tendAtMost), time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var all []*conn
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		all = all[:0]
		p.mu.Lock()
		for c := range p.conns {
			all = append(all, c)
		}
		p.mu.Unlock()
		now := time.Now()
		for _, c := range all {
			if err := c.look(now); err != nil {
				c.close(err)
			}
		}
		clear(all)
	}
}

// vigil is what tend remembers of a connection.
type vigil struct {
	begun bool
	last  socketState
	// received, taken and moved are when last the client sent something, had nothing to take
	// or took something, and did either.
	received, taken, moved time.Time
}

// look returns why the connection has to end, nil if it need not.
func (c *conn) look(now time.Time) error {
	if err := c.login.late(now, c.p.cfg.LoginTimeout); err != nil {
		return err
	}
	s, ok := stateOf(c.client)
	if !ok {
		s = socketState{received: c.watched.got.Load()}
	}
	v := &c.watched.vigil
	if !v.begun {
		*v = vigil{begun: true, last: s, received: now, taken: now, moved: now}
		return nil
	}
	if s.received != v.last.received {
		v.received, v.moved = now, now
	}
	if s.taken != v.last.taken {
		v.taken, v.moved = now, now
	}
	if !s.due {
		v.taken = now
	}
	v.last = s
	stall, idle := c.p.cfg.MaxStall, c.p.cfg.MaxIdle
	switch {
	case s.due && now.Sub(v.taken) >= idle:
		// Not stall: a consumer that has paused leaves a large answer where it is, and fetches all
		// of it again if it is cut. A broker waits as long.
		return because(reasonSlowReader, "the client has taken nothing of its answers for %v", idle)
	case ok && c.watched.reading.Load() && !s.unread && c.midFrame() && now.Sub(v.received) >= stall:
		return because(reasonStalledRequest, "the client has sent nothing more of a request for %v", stall)
	case now.Sub(v.moved) < idle:
		return nil
	case c.midFrame():
		return because(reasonStalledRequest, "the client has sent nothing more of a request for %v", idle)
	case c.watched.due.Load() > 0:
		return because(reasonNoAnswer, "the home broker has answered nothing for %v", idle)
	}
	return because(reasonIdle, "idle for %v", idle)
}

// midFrame tells whether a request has begun to come that is not all there.
func (c *conn) midFrame() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFrame
}

// clientReader reads from the client and says that it waits for it.
type clientReader struct{ c *conn }

func (r clientReader) Read(b []byte) (int, error) {
	r.c.watched.reading.Store(true)
	n, err := r.c.client.Read(b)
	r.c.watched.reading.Store(false)
	r.c.watched.got.Add(uint64(n))
	return n, err
}

// watched is what a connection shows to tend.
type watched struct {
	vigil   vigil         // tend's own
	reading atomic.Bool   // the reader waits for bytes of the client
	got     atomic.Uint64 // bytes that it got
	due     atomic.Int32  // requests without an answer yet
}
