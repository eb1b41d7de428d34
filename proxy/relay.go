package proxy

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/cluster-mirroring/mirror-sidecar/proxy/sockets"
)

const (
	// spliceFrom is the rest of a frame from which on the kernel moves the bytes
	// from socket to socket; below, that costs more than copying.
	spliceFrom = 64 << 10
	// coalesceTo bounds what is gathered of small frames before it is written.
	coalesceTo = 16 << 10
)

// relay passes frames on in one direction of a connection. It belongs to one goroutine.
type relay struct {
	dst net.Conn
	src *bufio.Reader
	// raw is what src reads from.
	raw net.Conn
	// spliced counts the bytes that did not come into this process.
	spliced *atomic.Int64

	// gathered holds small frames while the next one has arrived already: they go out in one
	// write, and the other side is woken once.
	gathered []byte
}

// copy passes the next n bytes on: what is buffered first; then, of a large rest between
// TCP sockets, by the kernel (splice).
func (r *relay) copy(n int64) error {
	rest, err := r.copyBegin(n, 0)
	if err != nil || rest == 0 {
		return err
	}
	return r.pass(int(rest))
}

// copyBegin passes on what comes of the next n bytes until the rest of them is buffered, and returns
// how much that is. What the kernel moves ends before the last so many bytes.
func (r *relay) copyBegin(n, last int64) (rest int64, err error) {
	for n > 0 {
		have := int64(r.src.Buffered())
		switch {
		case have >= n:
			return n, nil
		case have > 0:
			if err := r.pass(int(have)); err != nil {
				return 0, err
			}
			n -= have
			continue
		}
		if n-last >= spliceFrom {
			if err := r.flush(); err != nil {
				return 0, err
			}
			if ok, err := r.splice(n - last); err != nil {
				return 0, err
			} else if ok {
				n = last
				continue
			}
		}
		if _, err := r.src.Peek(1); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// pass passes n buffered bytes on.
func (r *relay) pass(n int) error {
	b, err := r.src.Peek(n)
	if err != nil {
		return err
	}
	if err := r.write(b); err != nil {
		return err
	}
	_, err = r.src.Discard(n)
	return err
}

// copyFrame passes a whole frame of n bytes on, its length included. It may be kept until the
// next call of copyFrame or flush, but only while a further whole frame is buffered.
func (r *relay) copyFrame(n int64) error {
	if len(r.gathered)+int(n) > coalesceTo || !r.another(int(n)) {
		return r.copy(n)
	}
	b, err := r.src.Peek(int(n))
	if err != nil {
		return err
	}
	r.gathered = append(r.gathered, b...)
	_, err = r.src.Discard(int(n))
	return err
}

// another tells whether a whole frame is buffered behind the next n bytes.
func (r *relay) another(n int) bool {
	have := r.src.Buffered() - n
	if have < sizeLen {
		return false
	}
	b, err := r.src.Peek(n + sizeLen)
	if err != nil {
		return false
	}
	size := int(int32(binary.BigEndian.Uint32(b[n:])))
	return size >= 0 && have-sizeLen >= size
}

// write writes b behind what was gathered.
func (r *relay) write(b []byte) error {
	if len(r.gathered) > 0 {
		if len(r.gathered)+len(b) <= coalesceTo {
			r.gathered = append(r.gathered, b...)
			b = nil
		}
		if err := r.flush(); err != nil || len(b) == 0 {
			return err
		}
	}
	_, err := r.dst.Write(b)
	return err
}

// flush writes what was gathered.
func (r *relay) flush() error {
	if len(r.gathered) == 0 {
		return nil
	}
	_, err := r.dst.Write(r.gathered)
	r.gathered = r.gathered[:0]
	return err
}

// splice moves n bytes between two TCP sockets without taking them into this process.
// ok is false if that cannot be done.
func (r *relay) splice(n int64) (ok bool, err error) {
	got, ok, err := sockets.Splice(r.dst, r.raw, n)
	r.spliced.Add(got)
	return ok, err
}
