package links

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// pair is one connection: what the caller opened and what was opened for it.
type pair struct {
	link   *Link
	client *net.TCPConn

	mu     sync.Mutex
	server *net.TCPConn
	ended  bool
	done   chan struct{} // closed by reset and end

	dead           atomic.Bool // carries nothing more, ever
	limit, carried atomic.Int64
	halves         sync.WaitGroup
}

// connected takes the second connection, unless the pair has ended meanwhile.
func (p *pair) connected(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		reset(c)
		return false
	}
	p.server = c
	return true
}

// pass waits while the link lets nothing pass; false if the pair has ended meanwhile.
func (p *pair) pass() bool {
	for {
		if p.dead.Load() {
			// Nobody is told anything until the caller gives it up.
			_, _ = io.Copy(io.Discard, p.client)
			p.reset()
			return false
		}
		p.link.mu.Lock()
		hold := p.link.hold
		p.link.mu.Unlock()
		if hold == nil {
			select {
			case <-p.done:
				return false
			default:
				return true
			}
		}
		select {
		case <-hold:
		case <-p.done:
			return false
		}
	}
}

// reset ends both sides with a RST.
func (p *pair) reset() { p.finish(reset) }

// end ends both sides in the ordinary way.
func (p *pair) end() { p.finish(func(c *net.TCPConn) { _ = c.Close() }) }

func (p *pair) finish(shut func(*net.TCPConn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	close(p.done)
	shut(p.client)
	if p.server != nil {
		shut(p.server)
	}
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// half is one end of one direction, as toxiproxy wants it: from is read or to is written.
type half struct {
	pair     *pair
	from, to *net.TCPConn
	count    *atomic.Int64
}

// Read gives what came, once the link lets it pass.
func (h *half) Read(buf []byte) (int, error) {
	n, err := h.from.Read(buf)
	if !h.pair.pass() {
		return 0, io.EOF
	}
	h.count.Add(int64(n))
	if limit := h.pair.limit.Load(); limit > 0 && h.pair.carried.Add(int64(n)) > limit {
		h.pair.link.resets.Add(1)
		h.pair.reset()
		return 0, io.EOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		h.pair.reset()
		return 0, io.EOF
	}
	return n, err
}

// Write never fails: toxiproxy would stop taking data, and whoever changes its toxics would wait for
// that for ever.
func (h *half) Write(buf []byte) (int, error) {
	if _, err := h.to.Write(buf); err != nil {
		h.pair.reset()
	}
	return len(buf), nil
}

// Close follows the last Write.
func (h *half) Close() error {
	h.pair.end()
	h.pair.halves.Done()
	return nil
}
