package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// fetchInspector passes a Fetch response on, looking only at what is not records. From version
// 11 on it may name the replica to read from, from version 12 on the leader of a partition, with
// its address at the very end.
//
// A response that fits the read buffer is looked at in place, and decoded only if
// something has to be rewritten that has another length then. A larger one is streamed: there is no
// way back to its length once the first byte is written, so that a leader that would have to be
// rewritten is overwritten by "none" in place, upon which the client asks for metadata, and so is
// the node that it is.
//
// The replica of a mirror partition that answers may be behind, and say that an offset is out of
// range which it does not have yet: that error is overwritten in place, too.
type fetchInspector struct {
	p         *Proxy
	version   int16
	transform func(body []byte) (kmsg.Response, error)

	topic     []byte // the one that walk is at, by name or id
	partition int32

	// leaderOnly is the connection's, see fetch.go.
	leaderOnly *atomic.Int64
	// session is the exchange's, see behind.go.
	session *newSession
}

// fetchHead is throttle time, error and session id, with which a Fetch response begins.
const fetchHead = 4 + 2 + 4

// tags of the Fetch response.
const (
	fetchTagNodeEndpoints = 0 // of the response
	fetchTagCurrentLeader = 1 // of a partition
)

// fetchVisitor is told of what may need another length. It may overwrite what it is given.
type fetchVisitor interface {
	leader(idAndEpoch []byte)
	endpoints(array []byte)
}

// walking is what the writer needs to walk over a response. It is the connection's, so that no
// response needs memory of its own.
type walking struct {
	fetch fetchInspector
	look  looking
	slice sliceWalker
	frame frameWalker
}

// inspectFetchResponse delivers the answer of a Fetch.
func inspectFetchResponse(c *conn, ex *exchange, size int) error {
	f := &c.walking.fetch
	f.p, f.version, f.transform, f.leaderOnly = c.p, ex.version, ex.transform, &c.leaderOnly
	f.session = ex.session
	return f.deliver(c, ex, size)
}

func (f *fetchInspector) deliver(c *conn, ex *exchange, size int) error {
	if sizeLen+size <= readBuffer {
		return f.deliverSmall(c, ex, size)
	}
	return f.deliverLarge(c, ex, size)
}

func (f *fetchInspector) deliverLarge(c *conn, _ *exchange, size int) error {
	w := c.walking.frame.over(c, sizeLen+size)
	f.header(w)
	f.walk(w, overwriting{f})
	w.skip(int(w.left)) // the rest is of no interest
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err != nil {
		return relayError(fmt.Sprintf("relay a Fetch response of version %d", f.version), w.err, upstreamError, clientError)
	}
	return nil
}

func (f *fetchInspector) deliverSmall(c *conn, ex *exchange, size int) error {
	raw, err := c.out.r.Peek(sizeLen + size)
	if err != nil {
		return upstreamError(err)
	}
	w, look := &c.walking.slice, &c.walking.look
	*w, *look = sliceWalker{cursor{b: raw}}, looking{f: f}
	f.header(w)
	f.walk(w, look)
	if w.err != nil {
		return fmt.Errorf("read a Fetch response of version %d: %w", f.version, w.err)
	}
	return c.deliverPeeked(ex, raw, look.rewrite && f.transform != nil)
}

// looking finds out whether a response has to be decoded.
type looking struct {
	f       *fetchInspector
	rewrite bool
}

func (l *looking) leader(b []byte) {
	l.rewrite = l.rewrite || l.f.p.cfg.IDs.Is(int32(binary.BigEndian.Uint32(b)))
}

func (l *looking) endpoints([]byte) { l.rewrite = true }

// overwriting changes a response on its way.
type overwriting struct{ f *fetchInspector }

// hidden tells whether a broker, with its address, cannot stay in a response. Mapped addresses may
// be longer.
func (o overwriting) hidden(node []byte) bool {
	cfg := &o.f.p.cfg
	return o.f.transform != nil && (cfg.mapped() || cfg.IDs.Is(int32(binary.BigEndian.Uint32(node))))
}

func (o overwriting) leader(b []byte) {
	if o.hidden(b) {
		// -1, -1: no leader, no epoch.
		for i := range b[:8] {
			b[i] = 0xff
		}
	}
}

// endpoints makes nobody of each node that is hidden: nothing refers to it any more.
func (o overwriting) endpoints(b []byte) {
	c := cursor{b: b}
	for n := c.array(true); n > 0 && c.err == nil; n-- {
		at := c.at
		node := c.take(4)
		c.string(true) // host
		c.take(4)      // port
		c.string(true) // rack
		c.skipTags()
		if c.err == nil && o.hidden(node) {
			nobody(b[at:c.at])
		}
	}
}

// nobody overwrites a node with what the Java client takes for none, and leaves out: id -1 without
// host, port and rack. Nodes of another kind it would keep, try to connect to, and fail over two of
// the same id. A tag that nobody knows takes the room that is left.
func nobody(node []byte) {
	const (
		none    = 4 + 1 + 4 + 1 // id, empty host, port, null rack
		unknown = 0x7f
	)
	copy(node, []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff, 0})
	tags := node[none:]
	clear(tags)
	switch n := len(tags); {
	case n == 2: // too short for a tag; zero in two bytes
		tags[0] = 0x80
	case n > 2 && n-3 < 1<<7:
		tags[0], tags[1], tags[2] = 1, unknown, byte(n-3)
	case n > 2: // a length of three bytes is enough for maxTake
		left := n - 5
		tags[0], tags[1] = 1, unknown
		tags[2], tags[3], tags[4] = byte(left)|0x80, byte(left>>7)|0x80, byte(left>>14)
	}
}

// walker reads fields and passes over record bytes.
type walker interface {
	take(n int) []byte // valid until the next call
	skip(n int)
	uvarint() uint32
	skipTags()
	failed() bool
}

func (f *fetchInspector) header(w walker) {
	w.take(sizeLen + minResponse)
	if f.flexible() {
		w.skipTags()
	}
}

// flexible tells whether the response is; a Fetch's is from the version on that names
// leaders.
func (f *fetchInspector) flexible() bool { return f.version >= fetchFlexible }

// walk reads a Fetch response's body.
func (f *fetchInspector) walk(w walker, v fetchVisitor) {
	flexible := f.flexible()
	f.session.answered(w.take(fetchHead))
	for topics := fieldLen(w, flexible, 4); topics > 0 && !w.failed(); topics-- {
		n := len(ids.UUID{})
		if f.version < fetchTopicIDs {
			n = fieldLen(w, flexible, 2)
		}
		f.topic = append(f.topic[:0], w.take(n)...)
		for parts := fieldLen(w, flexible, 4); parts > 0 && !w.failed(); parts-- {
			// partition, error, high watermark, last stable offset, log start offset
			if p := w.take(4 + 2 + 8 + 8 + 8); p != nil {
				f.partition = int32(binary.BigEndian.Uint32(p))
				f.believe(p[4:])
			}
			for aborted := fieldLen(w, flexible, 4); aborted > 0 && !w.failed(); aborted-- {
				w.take(8 + 8) // producer id, first offset
				if flexible {
					w.skipTags()
				}
			}
			if replica := w.take(4); replica != nil {
				f.prefer(replica)
			}
			w.skip(fieldLen(w, flexible, 4)) // records
			if !flexible {
				continue
			}
			for tags := w.uvarint(); tags > 0 && !w.failed(); tags-- {
				tag, n := w.uvarint(), int(w.uvarint())
				value := w.take(n)
				if tag == fetchTagCurrentLeader && len(value) >= 8 {
					v.leader(value)
				}
			}
		}
		if flexible {
			w.skipTags()
		}
	}
	if !flexible {
		return
	}
	for tags := w.uvarint(); tags > 0 && !w.failed(); tags-- {
		tag, n := w.uvarint(), int(w.uvarint())
		value := w.take(n)
		if tag == fetchTagNodeEndpoints && len(value) > 1 {
			v.endpoints(value)
		}
	}
}

// at is the partition that the walk is at.
func (f *fetchInspector) at() (topic string, id ids.UUID, byID bool) {
	if f.version < fetchTopicIDs {
		return string(f.topic), id, false
	}
	copy(id[:], f.topic)
	return "", id, true
}

// believe overwrites the error of a partition if the replica that says it is behind.
func (f *fetchInspector) believe(code []byte) {
	if int16(binary.BigEndian.Uint16(code)) != errOffsetOutOfRange {
		return
	}
	topic, id, byID := f.at()
	if f.p.isBehind(topic, id, byID, f.partition) {
		binary.BigEndian.PutUint16(code, uint16(notYet(f.version)))
	}
}

// prefer overwrites a replica to read from that is virtual.
func (f *fetchInspector) prefer(replica []byte) {
	virtual := int32(binary.BigEndian.Uint32(replica))
	if f.transform == nil || !f.p.cfg.IDs.Is(virtual) {
		return
	}
	topic, id, _ := f.at()
	chosen := f.p.preferred(id, topic, f.partition, virtual)
	if chosen < 0 && f.leaderOnly != nil {
		f.leaderOnly.Store(time.Now().Add(leaderOnlyFor).UnixNano())
	}
	binary.BigEndian.PutUint32(replica, uint32(chosen))
}

// fieldLen reads the length of an array, a string or bytes, which is a compact one, or has so
// many bytes; 0 for null.
func fieldLen(w walker, flexible bool, size int) int {
	if flexible {
		if n := w.uvarint(); n > 0 {
			return int(n - 1)
		}
		return 0
	}
	b := w.take(size)
	switch {
	case b == nil:
		return 0
	case size == 2:
		return max(int(int16(binary.BigEndian.Uint16(b))), 0)
	default:
		return max(int(int32(binary.BigEndian.Uint32(b))), 0)
	}
}

// sliceWalker walks over bytes in memory.
type sliceWalker struct{ cursor }

func (w *sliceWalker) skip(n int)   { w.take(n) }
func (w *sliceWalker) failed() bool { return w.err != nil }

// frameWalker walks over a frame that is on its way from the broker to the client.
type frameWalker struct {
	conn *conn
	// left is what of the frame has not been read yet.
	left int64
	// held is what of the read buffer has been read, and goes out with what follows it. Its end is
	// what take returned last, and may still be overwritten.
	held int
	// out is a field that does not fit there, read and not written yet; nothing is held then.
	out []byte
	err error
}

// over begins a walk over the next n bytes of the broker's.
func (w *frameWalker) over(c *conn, n int) *frameWalker {
	*w = frameWalker{conn: c, left: int64(n)}
	return w
}

// maxTake bounds one field that is not records: the largest legitimate one is a topic
// name or a small set of tagged fields.
const maxTake = 1 << 20

var errTooLong = errors.New("field too long")

func (w *frameWalker) failed() bool { return w.err != nil }

func (w *frameWalker) take(n int) []byte {
	switch {
	case w.err != nil:
		return nil
	case n < 0 || n > maxTake:
		w.err = errTooLong
		return nil
	case int64(n) > w.left:
		w.err = errShort
		return nil
	}
	if len(w.out) > 0 || w.held+n > readBuffer {
		if w.err = w.flush(); w.err != nil {
			return nil
		}
	}
	src := w.conn.out.r
	var got []byte
	if n > readBuffer {
		w.out = make([]byte, n)
		_, w.err = io.ReadFull(src, w.out)
		got = w.out
	} else {
		var b []byte
		if b, w.err = src.Peek(w.held + n); w.err == nil {
			got = b[w.held:]
			w.held += n
		}
	}
	if w.err != nil {
		return nil
	}
	w.left -= int64(n)
	return got
}

// skip passes n bytes on.
func (w *frameWalker) skip(n int) {
	switch {
	case w.err != nil || n == 0:
		return
	case n < 0 || int64(n) > w.left:
		w.err = errShort
		return
	}
	if len(w.out) > 0 {
		if w.err = w.flush(); w.err != nil {
			return
		}
	}
	// What is held is in the read buffer, before the first of them.
	w.err = w.conn.toClient.copy(int64(w.held + n))
	w.left -= int64(n)
	w.held = 0
}

func (w *frameWalker) flush() error {
	if len(w.out) > 0 {
		_, err := w.conn.client.Write(w.out)
		w.out = nil
		return err
	}
	held := w.held
	w.held = 0
	return w.conn.toClient.copy(int64(held))
}

func (w *frameWalker) uvarint() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := w.take(1)
		if b == nil {
			return 0
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	w.err = errTooLong
	return 0
}

func (w *frameWalker) skipTags() {
	for n := w.uvarint(); n > 0 && w.err == nil; n-- {
		w.uvarint()
		w.take(int(w.uvarint()))
	}
}
