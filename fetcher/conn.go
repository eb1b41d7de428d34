package fetcher

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/near"
	"github.com/cluster-mirroring/mirror-sidecar/fetcher/pool"
)

const (
	// lowestFetch is the first version of Fetch whose answers hold batches of magic 2.
	lowestFetch int16 = 4
	// smallAnswer bounds the answers that make a connection usable.
	smallAnswer = 1 << 20
	// headerBuffer is the size of the buffer that an answer's fields are read through. What
	// of the records comes into it has to be copied out again.
	headerBuffer = 4 << 10
	// nearBuffer is the receive buffer for a near source: what 1 GB/s needs. Much less makes
	// reader and writer wait for each other.
	nearBuffer = 2 << 20
)

// dialer makes connections for the long polls of workers. Everything else goes through
// the franz-go client, from whose options all is taken here: its answers come in new
// memory each, and theirs are to come in a pool's.
type dialer struct {
	dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	dialTimeout time.Duration
	timeout     time.Duration // of an answer, beyond what the request itself allows
	mechanisms  []sasl.Mechanism
	formatter   *kmsg.RequestFormatter
	software    [2]string
	maxAnswer   int32
}

func newDialer(cl *kgo.Client, clientID string, maxAnswer int32) *dialer {
	d := &dialer{
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)),
		maxAnswer: maxAnswer,
	}
	// The client fills in defaults for all of these.
	d.dial, _ = cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	d.dialTimeout, _ = cl.OptValue(kgo.DialTimeout).(time.Duration)
	d.timeout, _ = cl.OptValue(kgo.RequestTimeoutOverhead).(time.Duration)
	d.mechanisms, _ = cl.OptValue(kgo.SASL).([]sasl.Mechanism)
	if v := cl.OptValues(kgo.SoftwareNameAndVersion); len(v) == 2 {
		d.software[0], _ = v[0].(string)
		d.software[1], _ = v[1].(string)
	}
	return d
}

// conn is a connection to one source broker that carries one request at a time. It
// belongs to one goroutine at a time.
type conn struct {
	d    *dialer
	c    net.Conn
	r    *bufio.Reader
	addr string

	correlation int32
	out         []byte
	versions    map[int16]int16 // highest of each request, as the broker says
	mechanism   sasl.Mechanism
	expiry      time.Time // when to authenticate again, zero: never
	throttled   time.Time // no request before this
	answered    bool      // a fetch, at least once
}

// connect dials and makes a connection ready for Fetch.
func (d *dialer) connect(ctx context.Context, addr string) (*conn, error) {
	if d.dial == nil {
		return nil, errors.New("no dialer")
	}
	dialCtx, cancel := context.WithTimeout(ctx, max(d.dialTimeout, time.Second))
	raw, err := d.dial(dialCtx, "tcp", addr)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &conn{d: d, c: raw, r: bufio.NewReaderSize(raw, headerBuffer), addr: addr}
	if err := c.guard(ctx, c.learnVersions); err != nil {
		return nil, fmt.Errorf("ask for API versions: %w", err)
	}
	if err := c.guard(ctx, func() error { return c.authenticate(ctx) }); err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	near.Receive(raw, nearBuffer)
	return c, nil
}

// guard runs f, which uses the connection, and closes it when f fails or ctx ends: an
// answer that was not read to its end is in the way of the next.
func (c *conn) guard(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.c.Close() })
	err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.c.Close()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return err
}

func (c *conn) close() { _ = c.c.Close() }

// send writes a request.
func (c *conn) send(req kmsg.Request) error {
	c.correlation++
	c.out = c.d.formatter.AppendRequest(c.out[:0], req, c.correlation)
	if err := c.c.SetWriteDeadline(time.Now().Add(c.d.timeout)); err != nil {
		return err
	}
	_, err := c.c.Write(c.out)
	return err
}

// begin reads the head of an answer, up to and including the correlation id, and returns
// the size of what follows. wait is what the request allows the broker to think.
func (c *conn) begin(wait time.Duration, limit int32) (int, error) {
	if err := c.c.SetReadDeadline(time.Now().Add(wait + c.d.timeout)); err != nil {
		return 0, err
	}
	head, err := c.r.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, &silentError{err}
	}
	size := int32(binary.BigEndian.Uint32(head))
	if size < 4 || size > limit {
		return 0, fmt.Errorf("an answer of %d bytes, at most %d are read", size, limit)
	}
	if head, err = c.r.Peek(8); err != nil {
		return 0, fmt.Errorf("read an answer: %w", err)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != c.correlation {
		return 0, fmt.Errorf("answer with correlation id %d, want %d: out of step", got, c.correlation)
	}
	_, err = c.r.Discard(8)
	return int(size) - 4, err
}

// silentError says that a connection ended, or was silent for too long, where an answer
// was due.
type silentError struct{ err error }

func (e *silentError) Error() string { return "wait for an answer: " + e.err.Error() }
func (e *silentError) Unwrap() error { return e.err }

// call sends a small request and returns the body of its answer.
func (c *conn) call(req kmsg.Request) ([]byte, error) {
	if err := c.send(req); err != nil {
		return nil, err
	}
	n, err := c.begin(0, smallAnswer)
	if err != nil {
		return nil, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	// ApiVersions' answer has the old header, so that everybody can read it.
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		r := fields{b: body}
		r.tags()
		if r.bad {
			return nil, errShort
		}
		body = r.b
	}
	return body, nil
}

// learnVersions asks for the broker's versions. It begins with what brokers since 2.4
// know; an older one answers that with an error, and is asked as the oldest were.
func (c *conn) learnVersions() error {
	for _, version := range []int16{3, 0} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = version
		req.ClientSoftwareName, req.ClientSoftwareVersion = c.d.software[0], c.d.software[1]
		body, err := c.call(req)
		if err != nil {
			return err
		}
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		if len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == kerr.UnsupportedVersion.Code && version > 0 {
			continue
		}
		if err := resp.ReadFrom(body); err != nil {
			return err
		}
		if resp.ErrorCode != 0 {
			return errors.New(codeName(resp.ErrorCode))
		}
		c.versions = make(map[int16]int16, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			c.versions[k.ApiKey] = k.MaxVersion
		}
		if v, ok := c.version(kmsg.NewPtrFetchRequest()); !ok || v < lowestFetch {
			return fmt.Errorf("the broker knows Fetch up to version %d only, %d is needed", v, lowestFetch)
		}
		return nil
	}
	return errors.New(kerr.UnsupportedVersion.Message)
}

// version is the highest version of a request that the broker knows too.
func (c *conn) version(req kmsg.Request) (int16, bool) {
	v, ok := c.versions[req.Key()]
	return min(v, req.MaxVersion()), ok
}

// authenticate does what the security settings ask for, on a new connection or again on
// one whose session is about to end (KIP-368).
func (c *conn) authenticate(ctx context.Context) error {
	if len(c.d.mechanisms) == 0 {
		return nil
	}
	if c.mechanism == nil {
		c.mechanism = c.d.mechanisms[0]
	}
	if err := c.handshake(); err != nil {
		return err
	}
	session, token, err := c.mechanism.Authenticate(ctx, c.addr)
	if err != nil {
		return fmt.Errorf("SASL %s: %w", c.mechanism.Name(), err)
	}
	var begin time.Time
	var lifetime time.Duration
	// The last token may have to be sent after all was said.
	for done := false; !done || len(token) > 0; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, _ = c.version(req)
		req.SASLAuthBytes = token
		begin = time.Now()
		body, err := c.call(req)
		if err != nil {
			return fmt.Errorf("SASL %s: %w", c.mechanism.Name(), err)
		}
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		if err := resp.ReadFrom(body); err != nil {
			return fmt.Errorf("SASL %s: %w", c.mechanism.Name(), err)
		}
		if resp.ErrorCode != 0 {
			why := codeName(resp.ErrorCode)
			if resp.ErrorMessage != nil {
				why += ": " + *resp.ErrorMessage
			}
			return fmt.Errorf("SASL %s: %s", c.mechanism.Name(), why)
		}
		lifetime = time.Duration(min(resp.SessionLifetimeMillis, maxLifetime.Milliseconds())) * time.Millisecond
		token = nil
		if !done {
			if done, token, err = session.Challenge(resp.SASLAuthBytes); err != nil {
				return fmt.Errorf("SASL %s: %w", c.mechanism.Name(), err)
			}
		}
	}
	c.expiry = time.Time{}
	if lifetime > 0 {
		c.expiry = begin.Add(renewAfter(lifetime, time.Since(begin)))
	}
	return nil
}

// maxLifetime is what a longer session is taken for.
const maxLifetime = 365 * 24 * time.Hour

// renewAfter is how long after its beginning a session is renewed: well before its end,
// by a twentieth of it and by what an exchange takes.
func renewAfter(lifetime, roundTrip time.Duration) time.Duration {
	return lifetime - max(lifetime/20, 2*roundTrip, min(time.Second, lifetime/4))
}

func (c *conn) handshake() error {
	req := kmsg.NewPtrSASLHandshakeRequest()
	v, ok := c.version(req)
	if !ok || v < 1 {
		return errors.New("the broker does not offer SASL as Kafka 1.0 and later do")
	}
	req.Version = v
	for tried := false; ; tried = true {
		req.Mechanism = c.mechanism.Name()
		body, err := c.call(req)
		if err != nil {
			return err
		}
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if err := resp.ReadFrom(body); err != nil {
			return err
		}
		if resp.ErrorCode == 0 {
			return nil
		}
		other := c.offered(resp.SupportedMechanisms)
		if resp.ErrorCode != kerr.UnsupportedSaslMechanism.Code || other == nil || tried {
			return fmt.Errorf("SASL %s: %s, the broker offers %v", c.mechanism.Name(), codeName(resp.ErrorCode), resp.SupportedMechanisms)
		}
		c.mechanism = other
	}
}

// offered returns a mechanism that is configured and that the broker has.
func (c *conn) offered(names []string) sasl.Mechanism {
	for _, m := range c.d.mechanisms {
		for _, n := range names {
			if m.Name() == n && m.Name() != c.mechanism.Name() {
				return m
			}
		}
	}
	return nil
}

// question is a Fetch and what is needed to work on its answer.
type question struct {
	req *kmsg.FetchRequest
	// noID: a topic has no id, so that it has to be named: v12 is the last that does.
	noID bool
	asks []ask
}

// ask is one partition of a question, in the request's order.
type ask struct {
	topic     string
	topicID   [16]byte
	partition int32
	offset    int64
}

// fetch asks and reads the answer into buffers of the pool. The connection is closed if
// it fails; the answer's buffers are then released.
func (c *conn) fetch(ctx context.Context, q *question, p *pool.Pool, tagger batch.Tagger) (a *reply, err error) {
	err = c.guard(ctx, func() error {
		if err := c.pause(ctx); err != nil {
			return err
		}
		if !c.expiry.IsZero() && time.Now().After(c.expiry) {
			if err := c.authenticate(ctx); err != nil {
				return fmt.Errorf("authenticate again: %w", err)
			}
		}
		q.req.Version, _ = c.version(q.req)
		if q.noID {
			q.req.Version = min(q.req.Version, lastNamed)
		}
		if err := c.send(q.req); err != nil {
			return &silentError{err}
		}
		n, err := c.begin(time.Duration(q.req.MaxWaitMillis)*time.Millisecond, c.d.maxAnswer)
		if err != nil {
			return err
		}
		// Before anything of it is held, so that answers never wait for each other.
		memory, err := p.Reserve(ctx, n)
		if err != nil {
			return err
		}
		defer memory.Done()
		a, err = c.read(q, n, memory, tagger)
		return err
	})
	if err != nil {
		a.release()
		return nil, err
	}
	if q.req.Version >= 8 && a.resp.ThrottleMillis > 0 {
		// KIP-219: since 2.0 a broker answers at once and expects its clients to wait.
		c.throttled = time.Now().Add(time.Duration(a.resp.ThrottleMillis) * time.Millisecond)
	}
	return a, nil
}

// pause waits as long as the broker's quota demands.
func (c *conn) pause(ctx context.Context) error {
	wait := time.Until(c.throttled)
	if c.throttled.IsZero() || wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hungUp tells whether a connection that was used before had been ended by the other
// side, as brokers do with idle ones: then nothing is wrong but the connection.
func hungUp(err error) bool {
	var silent *silentError
	return errors.As(err, &silent) && !errors.Is(err, os.ErrDeadlineExceeded) &&
		(errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}
