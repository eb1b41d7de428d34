package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchInspector passes a Fetch response of version 12 or later on, looking only at
// what is not records. Such a response may name the leader of a partition, with its
// address at the very end.
//
// A response that fits the read buffer is looked at in place, and decoded only if
// something has to be rewritten. A larger one is streamed: there is no way back to its
// length once the first byte is written, so that a leader that would have to be
// rewritten is overwritten by "none" in place, upon which the client asks for metadata.
type fetchInspector struct {
	p         *Proxy
	version   int16
	transform func(body []byte) (kmsg.Response, error)
}

// tags of the Fetch response.
const (
	fetchTagNodeEndpoints = 0 // of the response
	fetchTagCurrentLeader = 1 // of a partition
)

func (f *fetchInspector) deliver(c *conn, ex *exchange, size int) error {
	if sizeLen+size <= readBuffer {
		return f.deliverSmall(c, ex, size)
	}
	w := &frameWalker{conn: c, left: int64(sizeLen + size)}
	w.take(sizeLen + minResponse)
	w.skipTags()
	f.walk(w, func(leader []byte) {
		if f.p.cfg.IDs.Is(int32(binary.BigEndian.Uint32(leader))) || len(f.p.cfg.Hosts) > 0 {
			// -1, -1: no leader, no epoch.
			for i := range leader[:8] {
				leader[i] = 0xff
			}
		}
	}, nil)
	w.skip(int(w.left)) // the rest is of no interest
	if w.err != nil {
		return fmt.Errorf("relay a Fetch response of version %d: %w", f.version, w.err)
	}
	return w.flush()
}

func (f *fetchInspector) deliverSmall(c *conn, ex *exchange, size int) error {
	raw, err := c.out.r.Peek(sizeLen + size)
	if err != nil {
		return upstreamError(err)
	}
	rewrite := false
	w := &sliceWalker{cursor{b: raw}}
	w.take(sizeLen + minResponse)
	w.skipTags()
	f.walk(w, func(leader []byte) {
		rewrite = rewrite || f.p.cfg.IDs.Is(int32(binary.BigEndian.Uint32(leader)))
	}, func() { rewrite = true })
	if w.err != nil {
		return fmt.Errorf("read a Fetch response of version %d: %w", f.version, w.err)
	}
	if rewrite {
		ex.transform = f.transform
		if err := c.transformAndWrite(ex, raw); err != nil {
			return err
		}
	} else if _, err := c.client.Write(raw); err != nil {
		return fmt.Errorf("write to the client: %w", err)
	}
	_, err = c.out.r.Discard(len(raw))
	return err
}

// walker reads fields and passes over record bytes.
type walker interface {
	take(n int) []byte // valid until the next call
	skip(n int)
	uvarint() uint32
	skipTags()
	failed() bool
}

// walk reads a Fetch response's body. leader is called with the leader id and epoch of
// each partition that has them, which it may overwrite; endpoints, if the response has
// any. Without endpoints the walk ends before the response's own tagged fields.
func (f *fetchInspector) walk(w walker, leader func([]byte), endpoints func()) {
	w.take(4 + 2 + 4) // throttle, error, session id
	for topics := arrayLen(w); topics > 0 && !w.failed(); topics-- {
		if f.version >= 13 {
			w.take(16)
		} else {
			w.take(compactLen(w))
		}
		for parts := arrayLen(w); parts > 0 && !w.failed(); parts-- {
			// partition, error, high watermark, last stable offset, log start offset
			w.take(4 + 2 + 8 + 8 + 8)
			for aborted := arrayLen(w); aborted > 0 && !w.failed(); aborted-- {
				w.take(8 + 8) // producer id, first offset
				w.skipTags()
			}
			w.take(4)             // preferred read replica
			w.skip(compactLen(w)) // records
			for tags := w.uvarint(); tags > 0 && !w.failed(); tags-- {
				tag, n := w.uvarint(), int(w.uvarint())
				value := w.take(n)
				if tag == fetchTagCurrentLeader && len(value) >= 8 {
					leader(value)
				}
			}
		}
		w.skipTags()
	}
	if endpoints == nil {
		return
	}
	for tags := w.uvarint(); tags > 0 && !w.failed(); tags-- {
		tag, n := w.uvarint(), int(w.uvarint())
		w.take(n)
		if tag == fetchTagNodeEndpoints && n > 1 {
			endpoints()
		}
	}
}

// arrayLen reads the length of a compact array; 0 for null.
func arrayLen(w walker) int { return compactLen(w) }

// compactLen reads the length of a compact field; 0 for null.
func compactLen(w walker) int {
	if n := w.uvarint(); n > 0 {
		return int(n - 1)
	}
	return 0
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
	// out is what has been read and not written yet; kept is its end that take returned
	// and may still be overwritten.
	out []byte
	err error
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
	if len(w.out) >= readBuffer/2 {
		if w.err = w.flush(); w.err != nil {
			return nil
		}
	}
	at := len(w.out)
	w.out = append(w.out, make([]byte, n)...)
	if _, err := io.ReadFull(w.conn.out.r, w.out[at:]); err != nil {
		w.err = upstreamError(err)
		return nil
	}
	w.left -= int64(n)
	return w.out[at:]
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
	if w.err = w.flush(); w.err != nil {
		return
	}
	w.err = copyFrame(w.conn.client, w.conn.out.r, w.conn.up, int64(n))
	w.left -= int64(n)
}

func (w *frameWalker) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.conn.client.Write(w.out)
	w.out = w.out[:0]
	if err != nil {
		return fmt.Errorf("write to the client: %w", err)
	}
	return nil
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
