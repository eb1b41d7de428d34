//go:build linux && !race

package sockets

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// most bounds the bytes of one call: the thread that makes it is not to be had for anything else.
const most = 256 << 10

// quick says that connections are those of this package.
const quick = true

// Conn is a TCP connection.
type Conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out call
}

// call is a read or a write on its way. It is the connection's, so that none needs memory of its
// own.
type call struct {
	mu    sync.Mutex // one at a time
	try   func(fd uintptr) (done bool)
	b     []byte
	n     int
	errno syscall.Errno

	// Of a splice instead of b.
	pipe  *pipe
	bytes int
	more  bool
}

// Wrap returns c, quicker if it is a TCP connection of package net.
func Wrap(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	s := &Conn{TCPConn: tcp, raw: raw}
	s.in.try, s.out.try = s.in.receive, s.out.send
	return s
}

// NetConn returns the connection of package net.
func (s *Conn) NetConn() net.Conn { return s.TCPConn }

func (s *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c := &s.in
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b = b[:min(len(b), most)]
	n, err := c.wait(s.raw.Read)
	if err != nil {
		return 0, s.failed("read", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *Conn) Write(b []byte) (int, error) {
	c := &s.out
	c.mu.Lock()
	defer c.mu.Unlock()
	for done := 0; ; {
		c.b = b[done:min(len(b), done+most)]
		n, err := c.wait(s.raw.Write)
		if err != nil {
			return done, s.failed("write", err)
		}
		if done += n; done == len(b) {
			return done, nil
		}
	}
}

// wait makes the call as soon as it can be made.
func (c *call) wait(ready func(func(uintptr) bool) error) (int, error) {
	c.n, c.errno = 0, 0
	err := ready(c.try)
	c.b, c.pipe = nil, nil
	if err == nil && c.errno != 0 {
		err = c.errno
	}
	return c.n, err
}

func (c *call) receive(fd uintptr) bool {
	if c.pipe != nil {
		return c.splice(fd, c.pipe.w)
	}
	return c.plain(syscall.SYS_READ, fd)
}

func (c *call) send(fd uintptr) bool {
	if c.pipe != nil {
		return c.splice(c.pipe.r, fd)
	}
	return c.plain(syscall.SYS_WRITE, fd)
}

func (c *call) plain(trap, fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.b))), uintptr(len(c.b)))
		if errno != syscall.EINTR {
			return c.done(n, errno)
		}
	}
}

func (c *call) splice(from, to uintptr) bool {
	flags := uintptr(spliceNonblock)
	if c.more {
		flags |= spliceMore
	}
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SPLICE, from, 0, to, 0, uintptr(c.bytes), flags)
		if errno != syscall.EINTR {
			return c.done(n, errno)
		}
	}
}

// done takes the result of a call, and tells whether there is one.
func (c *call) done(n uintptr, errno syscall.Errno) bool {
	switch errno {
	case 0:
		c.n = int(n)
	case syscall.EAGAIN:
		return false
	default:
		c.errno = errno
	}
	return true
}

// Busy is for who goes on with what took long to read and takes long to work on: it wakes the thread
// that interrupts whoever keeps a core to itself.
func Busy() { _, _, _ = syscall.Syscall(syscall.SYS_GETPID, 0, 0, 0) }

// failed words an error as package net does, which callers go by.
func (s *Conn) failed(op string, err error) error {
	if raw, ok := errors.AsType[*net.OpError](err); ok {
		err = raw.Err
	} else if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}
