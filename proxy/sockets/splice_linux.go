//go:build linux && !race

package sockets

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

const (
	spliceMore     = unix.SPLICE_F_MORE
	spliceNonblock = unix.SPLICE_F_NONBLOCK
	// idlePipes is how many pipes are kept for the next splice.
	idlePipes = 16
)

// pipe is what bytes are in between two sockets.
type pipe struct {
	r, w uintptr
	// small: the kernel has lent as much to other pipes as it may. It may be more generous next time.
	small bool
}

var pipes = make(chan *pipe, idlePipes)

func newPipe() (*pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	return makePipe(most)
}

func makePipe(size int) (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	// As much as one call moves; less will do.
	_, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, size)
	return &pipe{r: uintptr(fds[0]), w: uintptr(fds[1]), small: err != nil}, nil
}

// keep takes back a pipe that is empty.
func (p *pipe) keep() {
	if p.small {
		p.close()
		return
	}
	select {
	case pipes <- p:
	default:
		p.close()
	}
}

func (p *pipe) close() {
	_ = unix.Close(int(p.r))
	_ = unix.Close(int(p.w))
}

// Splice moves n bytes from src to dst without taking them into this process. ok is false if it
// cannot, and nothing was moved.
func Splice(dst, src net.Conn, n int64) (moved int64, ok bool, err error) {
	d, ok := dst.(*Conn)
	if !ok {
		return 0, false, nil
	}
	s, ok := src.(*Conn)
	if !ok {
		return 0, false, nil
	}
	p, err := newPipe()
	if err != nil {
		return 0, false, nil //nolint:nilerr // no file descriptor is left; there is another way
	}
	for moved < n {
		got, err := s.fill(p, int(min(n-moved, most)))
		if err != nil {
			p.close()
			if moved == 0 && refused(err) {
				return 0, false, nil
			}
			return moved, true, err
		}
		put, err := d.drain(p, got, moved+int64(got) < n)
		moved += int64(put)
		if err != nil {
			p.close()
			return moved, true, err
		}
	}
	p.keep()
	return moved, true, nil
}

// refused tells whether the kernel does not do it, as in some sandboxes.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)
}

// fill moves what there is, at most n bytes, to an empty pipe.
func (s *Conn) fill(p *pipe, n int) (int, error) {
	c := &s.in
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe, c.bytes, c.more = p, n, false
	got, err := c.wait(s.raw.Read)
	if err != nil {
		return 0, s.failed("read", err)
	}
	if got == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return got, nil
}

// drain moves n bytes from a pipe. more says that others follow at once.
func (s *Conn) drain(p *pipe, n int, more bool) (put int, err error) {
	c := &s.out
	c.mu.Lock()
	defer c.mu.Unlock()
	for put < n {
		c.pipe, c.bytes, c.more = p, n-put, more
		got, err := c.wait(s.raw.Write)
		if err != nil {
			return put, s.failed("write", err)
		}
		put += got
	}
	return put, nil
}
