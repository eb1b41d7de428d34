package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// reason is why a connection ended, as metrics count it.
type reason string

const (
	reasonClientClosed   reason = "client_closed"
	reasonClientGone     reason = "client_gone"     // it never said so
	reasonBrokerClosed   reason = "broker_closed"   // the home broker hung up
	reasonUnreachable    reason = "unreachable"     // the home broker, when the client came
	reasonNoAnswer       reason = "no_answer"       // of the home broker
	reasonIdle           reason = "idle"            // longer than connections.max.idle.ms
	reasonSlowReader     reason = "slow_reader"     // the client does not take its answers
	reasonStalledRequest reason = "stalled_request" // the client has sent half a request
	reasonOversized      reason = "oversized"       // a request above socket.request.max.bytes
	reasonMalformed      reason = "malformed"       // a request that is none
	reasonHandshake      reason = "tls_handshake"   // it failed
	reasonNoLogin        reason = "no_login"        // within connections.max.login.ms
	reasonPanic          reason = "panic"           // a mistake in the sidecar
	reasonRefusedWrite   reason = "refused_write"   // with acks=0, as Kafka does
	reasonDrained        reason = "drained"         // the sidecar ends, nothing was due
	reasonStopped        reason = "stopped"         // the sidecar ends, and waited long enough
	reasonError          reason = "error"           // anything else
)

// reasons lists all, so that each is a metric from the start.
func reasons() []reason {
	return []reason{
		reasonClientClosed, reasonClientGone, reasonBrokerClosed, reasonUnreachable, reasonNoAnswer, reasonIdle, reasonSlowReader,
		reasonStalledRequest, reasonOversized, reasonMalformed, reasonHandshake, reasonNoLogin, reasonPanic, reasonRefusedWrite, reasonDrained, reasonStopped, reasonError,
	}
}

// fault tells whether somebody should know of a connection that ended so.
func (r reason) fault() bool {
	switch r {
	case reasonClientClosed, reasonBrokerClosed, reasonIdle, reasonRefusedWrite, reasonDrained, reasonStopped:
		return false
	}
	return true
}

// endError is an error that ends a connection, with its reason.
type endError struct {
	reason reason
	err    error
}

func (e *endError) Error() string { return e.err.Error() }
func (e *endError) Unwrap() error { return e.err }

func because(r reason, format string, args ...any) error {
	return &endError{r, fmt.Errorf(format, args...)}
}

// reasonOf returns the reason of an error that ended a connection.
func reasonOf(err error) reason {
	if e, ok := errors.AsType[*endError](err); ok {
		return e.reason
	}
	return reasonError
}

// Errors of connections that end in order.
var (
	errClientClosed = because(reasonClientClosed, "client closed the connection")
	errDrained      = because(reasonDrained, "drained")
	errStopped      = because(reasonStopped, "proxy stopped")
)

// clientError words an error of reading from, or writing to, the client.
func clientError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), isReset(err):
		return errClientClosed
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH):
		return because(reasonClientGone, "the client is gone: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return because(reasonStalledRequest, "the rest of a request takes too long to come: %w", err)
	}
	return fmt.Errorf("read from the client: %w", err)
}

func upstreamError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return because(reasonBrokerClosed, "home broker closed the connection")
	case isReset(err):
		return because(reasonBrokerClosed, "home broker closed the connection: %w", err)
	}
	return fmt.Errorf("read from the home broker: %w", err)
}

// relayError words an error of moving bytes between two sockets, where only the operation
// tells which of them it was: a write was to the one, all else from the other.
func relayError(what string, err error, read, written func(error) error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "write" {
		err = written(err)
	} else {
		err = read(err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// hangUp closes the client's connection when the whole has ended.
//
// A broker that is down refuses connections, and one that goes down resets them, and clients try again. A
// connection that is ended in order before its first answer means something else to them: that they speak
// another protocol than the broker, TLS or SASL, and some give up. So such a one is reset, unless it is
// the broker that has ended it in order.
func (c *conn) hangUp() {
	if tcp := tcpOf(c.client); tcp != nil && !c.answered.Load() && downs(context.Cause(c.ctx)) {
		_ = tcp.SetLinger(0)
		_ = tcp.Close() // without TLS' own farewell
	}
	_ = c.client.Close()
}

// downs tells whether a connection ends because there is no broker, or will be none.
func downs(cause error) bool {
	switch reasonOf(cause) {
	case reasonUnreachable, reasonDrained, reasonStopped:
		return true
	case reasonBrokerClosed:
		return isReset(cause)
	}
	return false
}

// malformed gives an error of reading a request its reason, unless it has one: the handlers'
// own errors are of requests that cannot be read.
func malformed(err error) error {
	if reasonOf(err) != reasonError || errors.Is(err, context.Canceled) {
		return err
	}
	return &endError{reasonMalformed, err}
}
