package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// secured is a client's connection with TLS, if the listener has it.
func (p *Proxy) secured(nc net.Conn) net.Conn {
	if p.cfg.TLS == nil {
		return nc
	}
	return tls.Server(nc, p.cfg.TLS)
}

// handshake makes the client's TLS handshake, if there is one to be made, before anything is
// opened upstream. It tells whether the connection can be served.
func (c *conn) handshake() bool {
	tc, ok := c.client.(*tls.Conn)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.p.cfg.HandshakeTimeout, because(reasonHandshake, "no TLS handshake within %v", c.p.cfg.HandshakeTimeout))
	defer cancel()
	err := tc.HandshakeContext(ctx)
	if err == nil {
		state := tc.ConnectionState()
		c.ctx = context.WithValue(c.ctx, stateKey{}, &state)
		return true
	}
	switch cause := context.Cause(ctx); {
	case c.isDraining():
		err = errDrained
	case cause != nil:
		err = cause
	default:
		// Whoever only looks whether somebody listens, as load balancers do, has not failed.
		if closed := clientError(err); errors.Is(closed, errClientClosed) {
			err = closed
		}
	}
	if reasonOf(err) == reasonError {
		err = because(reasonHandshake, "%w", handshakeError(err))
	}
	c.close(err)
	c.hangUp()
	why := reasonOf(err)
	c.p.conn.end(why)
	if why == reasonHandshake {
		if others, ok := c.p.handshakes.allow(time.Now()); ok {
			c.log.Warn("TLS handshake of a client failed", "error", err, "not logged before", others)
		}
	}
	return false
}

func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// handshakeError says in other words what library errors leave to the reader.
func handshakeError(err error) error {
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		return fmt.Errorf("the client does not speak TLS (its security.protocol is not SSL or SASL_SSL): %w", err)
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return fmt.Errorf("the client refused, mostly because it does not trust this listener's certificate or asked for another host: %w", err)
	}
	return err
}

// tlsRecord is the most that one TLS record holds.
const tlsRecord = 16 << 10

// writeFrame writes the pieces of a frame: on TCP by one call of the kernel's, on TLS in as
// few records as they fill, since each is a call. Encryption copies them anyway.
func (p *Proxy) writeFrame(to net.Conn, frame net.Buffers) error {
	if _, ok := to.(*tls.Conn); !ok || len(frame) == 1 {
		_, err := frame.WriteTo(to)
		return err
	}
	return p.gather(to, frame)
}

func (p *Proxy) gather(to io.Writer, frame net.Buffers) error {
	buf := p.buffers.get(tlsRecord)
	defer buf.release()
	held := buf.b[:0]
	for _, piece := range frame {
		for len(held)+len(piece) >= tlsRecord {
			if len(held) == 0 {
				whole := len(piece) &^ (tlsRecord - 1)
				if _, err := to.Write(piece[:whole]); err != nil {
					return err
				}
				piece = piece[whole:]
				continue
			}
			n := tlsRecord - len(held)
			if _, err := to.Write(append(held, piece[:n]...)); err != nil {
				return err
			}
			held, piece = held[:0], piece[n:]
		}
		held = append(held, piece...)
	}
	if len(held) == 0 {
		return nil
	}
	_, err := to.Write(held)
	return err
}

type stateKey struct{}

// ClientCertificate returns the certificate that the client of the connection that is being
// opened has proved to have, nil if none. It is for Config.Dial.
func ClientCertificate(ctx context.Context) *x509.Certificate {
	state, ok := ctx.Value(stateKey{}).(*tls.ConnectionState)
	if !ok || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// looksLikeTLS tells whether a frame's length is the beginning of a TLS handshake instead.
func looksLikeTLS(size int) bool { return size>>16 == 0x1603 }

// logLimit lets one line a second through.
type logLimit struct {
	mu      sync.Mutex // guards the following
	last    time.Time
	skipped int
}

// allow tells whether a line may be logged now, and how many were not since the last one.
func (l *logLimit) allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) < time.Second {
		l.skipped++
		return 0, false
	}
	skipped = l.skipped
	l.last, l.skipped = now, 0
	return skipped, true
}
