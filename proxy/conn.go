package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/proxy/sockets"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

const (
	// readBuffer is the size of a connection's two read buffers. A frame up to this
	// size is looked at and passed on in place; a larger one is streamed.
	readBuffer = 64 << 10
	// lingerTime is how long a client may take to hang up when it is told that nothing more
	// comes.
	lingerTime = time.Second
)

// conn is one client connection and its upstream connection.
type conn struct {
	p      *Proxy
	id     uint64
	log    *slog.Logger
	client net.Conn
	up     net.Conn

	// in belongs to the reader, and so does toBroker.
	in       *bufio.Reader
	toBroker relay
	// tokens counts the raw SASL frames that are still to come, see sasl.go. It
	// belongs to the reader.
	tokens tokens
	// clientID is the client id of the last request read whole. The reader sets it; a
	// conversation reads it while the reader waits.
	clientID *string
	// bulk is set with the first Fetch of a follower. It belongs to the reader.
	bulk bool
	// stateRights belongs to the reader; a conversation sets it while the reader waits.
	stateRights stateRights
	// seen belongs to the reader: mirror topics that the caller may see, and until when that is believed.
	seen  map[string]time.Time
	login login
	// behindSeen belongs to the reader.
	behindSeen behindSeen
	// leaderOnly is until when Fetch requests go without the client's rack, see fetch.go; 0: they
	// do not.
	leaderOnly atomic.Int64
	// producing belongs to the reader: the topic of the Produce request at hand, if its exchange is
	// guarded, and of the last one.
	producing readonly.Topic
	// out belongs to the writer, and so do the following.
	out       *upstreamReader
	toClient  relay
	walking   walking
	authority authority

	queue chan exchange

	watched watched

	// answered is set with the first answer, see ends.go.
	answered atomic.Bool

	// ctx ends with the connection; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex // guards the following
	inFrame  bool       // the reader is between the first byte of a frame and its end
	draining bool
}

// exchange is one request and how it gets its answer. The reader puts it into the
// queue and then writes send upstream; the writer delivers the answer when it comes
// to the head of the queue.
type exchange struct {
	key, version int16
	correlation  int32

	// send goes upstream, a whole frame. Empty: nothing is sent, or it was streamed. It does not go
	// into the queue.
	send []byte
	// noResponse: nothing will be answered (Produce with acks=0), so that the
	// exchange never enters the queue.
	noResponse bool
	// raw: the response is a SASL token without a header.
	raw bool
	// guarded: the frame is streamed and may take long, see producestream.go.
	guarded bool

	// What becomes of the upstream's response; neither: relayed.

	// transform is given the response's body and returns what to send instead, nil to
	// pass the response on as it is.
	transform func(body []byte) (kmsg.Response, error)
	// inspect walks over a response, and applies transform only if it has to; see
	// fetchwalk.go and producewalk.go.
	inspect func(c *conn, ex *exchange, size int) error
	// session is what a Fetch makes, if that has to be known; see behind.go.
	session *newSession

	// How an exchange is answered that waits for no response upstream.

	// converse runs first, with the upstream connection for itself: every earlier
	// answer is delivered, and the reader sends nothing until it returns.
	converse func(ctx context.Context, up *conversation) error
	// released is closed when the reader may go on: after converse, or of what is held after the
	// answer.
	released chan struct{}
	// held: the request or its answer is large, and the reader takes no further one before this one
	// is answered. A broker does neither.
	held bool
	// answer returns a whole response frame. Its context ends with the connection.
	answer func(ctx context.Context) (net.Buffers, error)
	// answered runs after answer did and what it returned was written, or could not be.
	answered func()
	// hangUp ends the connection once the earlier answers are delivered.
	hangUp error
}

// local tells whether the exchange is answered without an upstream response of its own.
func (e *exchange) local() bool {
	return e.answer != nil || e.converse != nil || e.hangUp != nil
}

// serve serves the connection from its first byte on.
func (c *conn) serve() error {
	if c.handshake() {
		c.run()
	}
	return nil
}

// run serves the connection until it ends. It returns when all goroutines of the
// connection have ended.
func (c *conn) run() {
	defer c.hangUp()
	up, err := c.dial()
	if err != nil {
		c.close(because(reasonUnreachable, "connect to the home broker: %w", err))
		c.logEnd()
		return
	}
	defer up.Close()
	up = sockets.Wrap(up)
	c.up = up
	c.in = bufio.NewReaderSize(clientReader{c}, readBuffer)
	c.out = newUpstreamReader(up)
	c.toBroker = relay{dst: up, src: c.in, raw: c.client, spliced: &c.p.spliced}
	c.toClient = relay{dst: c.client, src: c.out.r, raw: up, spliced: &c.p.spliced}
	c.queue = make(chan exchange, c.p.cfg.MaxInFlight)

	// Closing the sockets is what unblocks reads and writes when the context ends.
	stop := context.AfterFunc(c.ctx, func() {
		c.hangUp()
		_ = up.Close()
	})
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() {
		err := c.guarded(c.write)
		if errors.Is(err, errDrained) {
			c.linger()
		}
		c.close(err)
		// The reader may wait for room in the queue.
		for range c.queue {
		}
	})
	err = c.guarded(c.read)
	if !errors.Is(err, errDrained) {
		c.close(err)
	}
	close(c.queue) // after a drain the writer delivers what is queued first
	c.out.wake()
	wg.Wait()
	c.logEnd()
}

func (c *conn) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.p.cfg.DialTimeout)
	defer cancel()
	return c.p.cfg.Dial(ctx)
}

// close ends the connection. The first cause stands.
func (c *conn) close(cause error) { c.cancel(cause) }

func (c *conn) logEnd() {
	cause := context.Cause(c.ctx)
	why := reasonOf(cause)
	c.p.conn.end(why)
	if why.fault() {
		if others, ok := c.p.faults.allow(time.Now()); ok {
			c.log.Warn("connection closed", "reason", why, "cause", cause, "not logged before", others)
			return
		}
	}
	c.log.Debug("connection closed", "reason", why, "cause", cause)
}

// drain lets the connection end after the frame that is being read, if any, and after
// the answers that are due.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	if !c.inFrame {
		// Wakes the reader, which waits for the next frame.
		_ = c.client.SetReadDeadline(time.Unix(1, 0))
	}
}

// linger lets the client take the last answers before the connection is closed: to close it
// while something has come that nobody read would take them back. What comes is answered by
// nobody, and the client asks again elsewhere.
func (c *conn) linger() {
	if !c.answered.Load() {
		return // there is none to take back
	}
	half, ok := c.client.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.client)
}

// begin waits for the first byte of the next frame.
func (c *conn) begin() error {
	c.mu.Lock()
	c.inFrame = false
	draining := c.draining
	c.mu.Unlock()
	if draining {
		return errDrained
	}
	_, err := c.in.Peek(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return errDrained
	}
	if err != nil {
		return clientError(err)
	}
	c.inFrame = true
	return nil
}

// read is the reader: it takes frames from the client until the connection ends.
func (c *conn) read() error {
	for {
		err := c.begin()
		if err == nil {
			err = c.readFrame()
		}
		if err == nil {
			continue
		}
		// What came before is the broker's, and its answers are due.
		if failed := c.toBroker.flush(); failed != nil && errors.Is(err, errDrained) {
			return relayError("relay a request", failed, clientError, upstreamError)
		}
		return err
	}
}

func (c *conn) readFrame() error {
	b, err := c.in.Peek(sizeLen)
	if err != nil {
		return clientError(err)
	}
	size := int(int32(binary.BigEndian.Uint32(b)))
	switch {
	case size < 0:
		return because(reasonMalformed, "request of %d bytes", size)
	case size > c.p.cfg.MaxFrame && looksLikeTLS(size):
		return because(reasonMalformed, "the client speaks TLS, which this listener does not (listener.security.protocol.map)")
	case size > c.p.cfg.MaxFrame:
		return because(reasonOversized, "request of %d bytes, at most %d are accepted (socket.request.max.bytes)", size, c.p.cfg.MaxFrame)
	}
	if c.tokens.pending() {
		if size > maxLoginFrame {
			return because(reasonOversized, "SASL token of %d bytes, at most %d are read", size, maxLoginFrame)
		}
		token, err := c.peekFrame(min(size, 1))
		if err != nil {
			return err
		}
		if c.tokens.take(token) {
			return c.stream(exchange{raw: true}, size)
		}
	}
	if size < minRequest {
		return because(reasonMalformed, "request of %d bytes, the shortest header has %d", size, minRequest)
	}
	b, err = c.peekFrame(minRequest)
	if err != nil {
		return err
	}
	h := fixedHeader(b)
	r := c.p.rows[h.key]
	c.p.deps.Metrics.Request(h.key, h.version, size)
	if size > maxLoginFrame {
		if err := c.large(h, size); err != nil {
			return err
		}
	}
	if r == nil {
		return c.stream(relayed(h), size)
	}
	if (h.version < 0 || h.version > r.max) && r.key != keyAPIVersions {
		// Brokers hang up too: there is no form of an answer that the client could read.
		return because(reasonMalformed, "%s request of version %d, known are 0 to %d", c.p.apiName(h.key), h.version, r.max)
	}
	if r.light != nil {
		ex, ok, err := r.light(c, h, size)
		if err != nil {
			return malformed(fmt.Errorf("%s request of version %d: %w", kmsg.NameForKey(h.key), h.version, err))
		}
		if ok {
			return c.stream(ex, size)
		}
	}
	return c.intercept(r, h, size)
}

// peekFrame returns the first n bytes of the frame in in, behind its length.
func (c *conn) peekFrame(n int) ([]byte, error) {
	b, err := c.in.Peek(sizeLen + n)
	if err != nil {
		return nil, clientError(err)
	}
	return b[sizeLen:], nil
}

// peekAll returns as much of a frame's beginning as fits the read buffer.
func (c *conn) peekAll(size int) ([]byte, error) {
	return c.peekFrame(min(size, readBuffer-sizeLen))
}

// relayed is the exchange of a request that is passed on untouched.
func relayed(h header) exchange {
	return exchange{key: h.key, version: h.version, correlation: h.correlation}
}

// stream passes the frame in in on, under the given exchange.
func (c *conn) stream(ex exchange, size int) error {
	if err := c.enqueue(&ex); err != nil {
		return err
	}
	n := int64(sizeLen + size)
	if ex.guarded && c.in.Buffered() < int(n) {
		// Much can happen until all of it has come: its end goes out only if what was decided
		// still holds.
		var err error
		if n, err = c.toBroker.copyBegin(n, guardedEnd); err != nil {
			return relayError("relay a request", err, clientError, upstreamError)
		}
		if err := c.stillFree(); err != nil {
			return err
		}
	}
	if err := c.toBroker.copyFrame(n); err != nil {
		return relayError("relay a request", err, clientError, upstreamError)
	}
	return nil
}

// intercept reads the frame in in whole and lets the row's handler decide.
func (c *conn) intercept(r *row, h header, size int) error {
	if err := c.toBroker.flush(); err != nil {
		return relayError("relay a request", err, clientError, upstreamError)
	}
	req := request{header: h}
	defer req.decoded.keep(0)
	defer req.drop()
	// What is held in memory by all connections together is bounded; small frames are
	// bounded by the number of connections.
	large := size > readBuffer
	if large {
		budget := c.p.logins
		if !ofLogin(h.key) {
			if err := c.p.fits(r, size); err != nil {
				return err
			}
			if err := c.introduced(h); err != nil {
				return err
			}
			budget = c.p.budget
		}
		var err error
		if req.counted, err = c.acquire(budget, int64(size)); err != nil {
			return err
		}
		// Nobody holds for long what others wait for.
		_ = c.client.SetReadDeadline(time.Now().Add(c.p.cfg.MaxStall + time.Duration(size/slowestRequest)*time.Second))
		defer func() { _ = c.client.SetReadDeadline(time.Time{}) }()
	}
	if r.pooled {
		req.buf = c.p.buffers.get(sizeLen + size)
		req.raw = req.buf.b
	} else {
		req.raw = make([]byte, sizeLen+size)
	}
	if _, err := io.ReadFull(c.in, req.raw); err != nil {
		return clientError(err)
	}
	if large {
		sockets.Busy()
	}
	full, err := parseHeader(req.raw[sizeLen:], c.p.flex.flexible)
	if err != nil {
		return because(reasonMalformed, "request header of API %d version %d: %w", h.key, h.version, err)
	}
	req.header = full
	req.body = req.raw[sizeLen+full.size:]
	c.clientID = full.clientID
	if large && !r.pooled && !ofLogin(h.key) {
		if req.decoded, err = c.acquire(c.p.decoding, decodedWeight*int64(size)); err != nil {
			return err
		}
	}
	ex, err := r.handle(c, &req)
	if err != nil {
		return malformed(fmt.Errorf("%s request of version %d: %w", c.p.apiName(h.key), h.version, err))
	}
	if ex.hangUp != nil {
		// What else the request held goes out before the writer ends the connection.
		if err := c.send(&ex); err != nil {
			return err
		}
		if err := c.enqueue(&ex); err != nil {
			return err
		}
		ex.send = nil
		req.drop()
		req.decoded.keep(0)
		<-c.ctx.Done()
		return context.Cause(c.ctx)
	}
	// Until it is answered, an exchange refers to what was made of its request. A stranger has one of them.
	ex.held = ex.held || large && (ex.local() || !r.pooled) || !c.login.done.Load()
	if err := c.enqueue(&ex); err != nil {
		return err
	}
	if err := c.send(&ex); err != nil {
		return err
	}
	if !ex.local() {
		// A broker may let it wait, a Fetch or a Produce for one, and little is left of it here.
		ex.send = nil
		if r.pooled {
			req.drop()
		}
		req.decoded.keep(req.answer)
	}
	if ex.released != nil {
		c.mu.Lock()
		c.inFrame = false // what it waits for is not the client
		c.mu.Unlock()
		select {
		case <-ex.released:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

func (c *conn) send(ex *exchange) error {
	if len(ex.send) == 0 {
		return nil
	}
	if _, err := c.up.Write(ex.send); err != nil {
		return fmt.Errorf("write to the home broker: %w", upstreamError(err))
	}
	return nil
}

// enqueue puts an exchange into the queue. It waits while MaxInFlight answers are due,
// which stops reading from the client.
func (c *conn) enqueue(ex *exchange) error {
	if ex.noResponse {
		return nil
	}
	if ex.converse != nil || ex.held {
		ex.released = make(chan struct{})
	}
	c.watched.due.Add(1)
	queued := *ex
	queued.send = nil // until it is answered nobody else has a use for it
	select {
	case c.queue <- queued:
	default:
		if err := c.toBroker.flush(); err != nil {
			return relayError("relay a request", err, clientError, upstreamError)
		}
		select {
		case c.queue <- queued:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	if ex.local() {
		c.out.wake() // no answer of the broker's will do it
	}
	return nil
}

// write is the writer: it delivers the answers of the queue in order.
func (c *conn) write() error {
	// One for all: what is called through a pointer would have memory made for each.
	ex := new(exchange)
	for {
		var err error
		if *ex, err = c.next(); err != nil {
			return err
		}
		if err := c.deliver(ex); err != nil {
			return err
		}
		if !c.answered.Load() && (ex.answer != nil || !ex.local()) {
			c.answered.Store(true)
		}
		c.watched.due.Add(-1)
		if ex.held {
			released := ex.released
			*ex = exchange{} // which would keep it until the next one comes
			close(released)
		}
	}
}

// next returns the next exchange. While there is none, it watches the upstream
// connection.
func (c *conn) next() (exchange, error) {
	var ex exchange
	var ok, taken bool
	take := func() bool {
		// Whoever asks again gets what idle took, and no further one in its place.
		if taken {
			return true
		}
		select {
		case ex, ok = <-c.queue:
			taken = true
		default:
		}
		return taken
	}
	for !take() {
		err := c.out.idle(take)
		switch {
		case taken, errors.Is(err, errWoken):
			continue
		case err != nil:
			return exchange{}, upstreamError(err)
		}
		// A response is there; its exchange was put into the queue before the request was
		// sent.
		select {
		case ex, ok = <-c.queue:
			return c.queued(ex, ok)
		case <-c.ctx.Done():
			return exchange{}, context.Cause(c.ctx)
		}
	}
	return c.queued(ex, ok)
}

func (c *conn) queued(ex exchange, ok bool) (exchange, error) {
	if !ok {
		return ex, errDrained
	}
	return ex, nil
}

// deliver writes the answer of an exchange to the client.
func (c *conn) deliver(ex *exchange) error {
	if ex.local() {
		return c.deliverLocal(ex)
	}
	size, err := c.out.size()
	if err != nil {
		return err
	}
	if !ex.raw {
		if err := c.out.checkCorrelation(ex.correlation); err != nil {
			return err
		}
	}
	if !c.login.done.Load() {
		switch {
		case ex.raw:
			c.login.accepted(size) // a broker that refuses one hangs up
		case !ofLogin(ex.key):
			c.login.done.Store(true) // a broker answers nothing else before
		}
	}
	switch {
	case ex.inspect != nil:
		return ex.inspect(c, ex, size)
	case ex.transform != nil:
		return c.deliverTransformed(ex, size)
	default:
		return c.relayResponse(size)
	}
}

// relayResponse passes the upstream frame on.
func (c *conn) relayResponse(size int) error {
	if err := c.toClient.copy(int64(sizeLen + size)); err != nil {
		return relayError("relay a response", err, upstreamError, clientError)
	}
	return nil
}

func (c *conn) deliverLocal(ex *exchange) error {
	if ex.converse != nil {
		err := ex.converse(c.ctx, &conversation{c: c})
		if !ex.held {
			close(ex.released)
		}
		if err != nil {
			return fmt.Errorf("%s of version %d: %w", c.p.apiName(ex.key), ex.version, err)
		}
	}
	if ex.hangUp != nil {
		return ex.hangUp
	}
	if ex.answer == nil {
		return nil // a question of consult's
	}
	if ex.answered != nil {
		defer ex.answered()
	}
	frame, err := ex.answer(c.ctx)
	if err != nil {
		return fmt.Errorf("%s of version %d: %w", c.p.apiName(ex.key), ex.version, err)
	}
	return c.writeClient(frame)
}

func (c *conn) writeClient(frame net.Buffers) error {
	if err := c.p.writeFrame(c.client, frame); err != nil {
		return fmt.Errorf("write to the client: %w", clientError(err))
	}
	return nil
}

func (c *conn) deliverTransformed(ex *exchange, size int) error {
	if size > c.p.cfg.MaxResponse {
		return fmt.Errorf("%s response of %d bytes, at most %d are read", c.p.apiName(ex.key), size, c.p.cfg.MaxResponse)
	}
	buf := c.p.buffers.get(sizeLen + size)
	defer buf.release()
	if _, err := io.ReadFull(c.out.r, buf.b); err != nil {
		return upstreamError(err)
	}
	if size > readBuffer {
		sockets.Busy()
	}
	return c.transformAndWrite(ex, buf.b)
}

// deliverPeeked delivers a whole response frame that is in the read buffer, and was looked at there.
func (c *conn) deliverPeeked(ex *exchange, raw []byte, rewrite bool) error {
	if rewrite {
		if err := c.transformAndWrite(ex, raw); err != nil {
			return err
		}
	} else if _, err := c.client.Write(raw); err != nil {
		return fmt.Errorf("write to the client: %w", clientError(err))
	}
	_, err := c.out.r.Discard(len(raw))
	return err
}

// transformAndWrite applies an exchange's transform to a whole response frame.
func (c *conn) transformAndWrite(ex *exchange, raw []byte) error {
	body, err := responseBody(raw[sizeLen:], ex.key, c.p.flex.flexible(ex.key, ex.version))
	if err != nil {
		return err
	}
	resp, err := ex.transform(body)
	if err != nil {
		return fmt.Errorf("%s response of version %d: %w", c.p.apiName(ex.key), ex.version, err)
	}
	if resp == nil {
		return c.writeClient(net.Buffers{raw})
	}
	out := c.p.buffers.get(len(raw) + 512)
	defer out.release()
	return c.writeClient(net.Buffers{appendResponse(out.b[:0], resp, ex.correlation)})
}
