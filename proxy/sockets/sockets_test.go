package sockets

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair returns both ends of a TCP connection, as package net makes them.
func pair(tb testing.TB) (near, far *net.TCPConn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.Close()
		other.Close()
	})
	return c.(*net.TCPConn), other.(*net.TCPConn)
}

// noise is n bytes, the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	a, b := pair(t)
	near, far := Wrap(a), Wrap(b)
	want := noise(3 << 20) // more than the kernel holds
	for _, way := range [][2]net.Conn{{near, b}, {a, far}, {near, far}, {far, near}} {
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := way[0].Write(want); n != len(want) || err != nil {
				t.Errorf("wrote %d bytes: %v", n, err)
			}
		})
		got := make([]byte, len(want))
		if _, err := io.ReadFull(way[1], got); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if !bytes.Equal(got, want) {
			t.Fatal("something else was read")
		}
	}
	// Pieces go out by package net.
	pieces := net.Buffers{want[:10], want[10:100], want[100:1000]}
	if n, err := pieces.WriteTo(near); n != 1000 || err != nil {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	got := make([]byte, 1000)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want[:1000]) {
		t.Errorf("something else was read: %v", err)
	}
}

// Errors are those of package net, whatever the callers ask them.
func TestErrorsAreThoseOfPackageNet(t *testing.T) {
	reset := func(c *net.TCPConn) {
		_ = c.SetLinger(0)
		c.Close()
	}
	read := func(c net.Conn) error {
		_, err := c.Read(make([]byte, 10))
		return err
	}
	write := func(c net.Conn) error {
		var err error
		for err == nil { // until what the kernel holds is full, or it knows better
			_, err = c.Write(make([]byte, 1<<20))
		}
		return err
	}
	past := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		before func(near, far *net.TCPConn)
		do     func(c net.Conn) error
		want   error
	}{
		"end":                     {func(_, far *net.TCPConn) { far.Close() }, read, io.EOF},
		"read, reset":             {func(_, far *net.TCPConn) { reset(far) }, read, syscall.ECONNRESET},
		"read after the deadline": {func(near, _ *net.TCPConn) { _ = near.SetReadDeadline(past) }, read, os.ErrDeadlineExceeded},
		"read at the deadline": {func(near, _ *net.TCPConn) {
			_ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		}, read, os.ErrDeadlineExceeded},
		"read, closed":             {func(near, _ *net.TCPConn) { near.Close() }, read, net.ErrClosed},
		"write, closed":            {func(near, _ *net.TCPConn) { near.Close() }, write, net.ErrClosed},
		"write after the deadline": {func(near, _ *net.TCPConn) { _ = near.SetWriteDeadline(past) }, write, os.ErrDeadlineExceeded},
		"write at the deadline": {func(near, _ *net.TCPConn) {
			_ = near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		}, write, os.ErrDeadlineExceeded},
		"write, closed for writing": {func(near, _ *net.TCPConn) { _ = near.CloseWrite() }, write, syscall.EPIPE},
	} {
		t.Run(name, func(t *testing.T) {
			for _, wrap := range []func(net.Conn) net.Conn{func(c net.Conn) net.Conn { return c }, Wrap} {
				near, far := pair(t)
				tc.before(near, far)
				err := tc.do(wrap(near))
				if !errors.Is(err, tc.want) {
					t.Errorf("%T: %v, want %v", wrap(near), err, tc.want)
				}
				if name == "end" {
					if err != io.EOF { //nolint:errorlint // as it is, as readers expect
						t.Errorf("the end is %#v", err)
					}
					continue
				}
				if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != name[:len(op.Op)] {
					t.Errorf("%T: %#v", wrap(near), err)
				}
			}
		})
	}
}

// Whoever waits is woken by Close and by a deadline.
func TestWaitingEnds(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(c net.Conn)
		want error
	}{
		"close":    {func(c net.Conn) { c.Close() }, net.ErrClosed},
		"deadline": {func(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t)
			near := Wrap(a)
			ended := make(chan error, 2)
			go func() {
				_, err := near.Read(make([]byte, 1))
				ended <- err
			}()
			go func() {
				var err error
				for err == nil {
					_, err = near.Write(make([]byte, 1<<20))
				}
				ended <- err
			}()
			runtime.Gosched()
			end.by(near)
			for range 2 {
				if err := <-ended; !errors.Is(err, end.want) {
					t.Errorf("ended by %v", err)
				}
			}
		})
	}
}

// spliceRig is a client and a broker, and what stands between them.
func spliceRig(t *testing.T) (client, toClient, toBroker, broker net.Conn) {
	t.Helper()
	a, b := pair(t)
	c, d := pair(t)
	return a, Wrap(b), Wrap(c), d
}

func TestSplice(t *testing.T) {
	for _, size := range []int{1, 100, 64 << 10, 1 << 20, 5<<20 + 7} {
		client, toClient, toBroker, broker := spliceRig(t)
		want := noise(size)
		var wg sync.WaitGroup
		wg.Go(func() {
			// In pieces that do not fit anything, and more behind.
			for piece := range slices.Chunk(append(slices.Clone(want), "next"...), 100_001) {
				if _, err := broker.Write(piece); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			got := make([]byte, size)
			for at := 0; at < size; {
				n, err := client.Read(got[at:min(size, at+30_001)])
				if err != nil {
					t.Error(err)
					return
				}
				at += n
			}
			if !bytes.Equal(got, want) {
				t.Error("something else has come")
			}
		})
		if n, ok, err := Splice(toClient, toBroker, int64(size)); n != int64(size) || !ok || err != nil {
			t.Errorf("%d of %d bytes, %v, %v", n, size, ok, err)
		}
		next := make([]byte, 4)
		if _, err := io.ReadFull(toBroker, next); err != nil || string(next) != "next" {
			t.Errorf("what follows is %q, %v", next, err)
		}
		wg.Wait()
	}
}

func TestSpliceEnds(t *testing.T) {
	t.Run("source ends", func(t *testing.T) {
		client, toClient, toBroker, broker := spliceRig(t)
		if _, err := broker.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		broker.Close()
		n, ok, err := Splice(toClient, toBroker, 100)
		if n != 4 || !ok || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes, %v, %v", n, ok, err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "half" {
			t.Errorf("the client got %q, %v", got, err)
		}
	})
	t.Run("destination is gone", func(t *testing.T) {
		client, toClient, toBroker, broker := spliceRig(t)
		client.Close()
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := broker.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		})
		_, ok, err := Splice(toClient, toBroker, 1<<40)
		op, isOp := errors.AsType[*net.OpError](err)
		if !ok || !isOp || op.Op != "write" {
			t.Errorf("%v, %#v", ok, err)
		}
		toBroker.Close()
		wg.Wait()
	})
	t.Run("closed while it waits", func(t *testing.T) {
		_, toClient, toBroker, broker := spliceRig(t)
		ended := make(chan error)
		go func() {
			_, _, err := Splice(toClient, toBroker, 1<<20)
			ended <- err
		}()
		if _, err := broker.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		toBroker.Close()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
	t.Run("not both are TCP", func(t *testing.T) {
		_, toClient, _, _ := spliceRig(t)
		p, q := net.Pipe()
		defer p.Close()
		defer q.Close()
		for _, way := range [][2]net.Conn{{toClient, p}, {p, toClient}} {
			if n, ok, err := Splice(way[0], way[1], 1); n != 0 || ok || err != nil {
				t.Errorf("%d, %v, %v", n, ok, err)
			}
		}
	})
}

// A pipe that something is left in is not used again.
func TestSpliceLeavesNothingToTheNext(t *testing.T) {
	client, toClient, toBroker, broker := spliceRig(t)
	// The client's window fills up, so that the pipe holds something when the client goes.
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := broker.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	_ = toClient.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if _, _, err := Splice(toClient, toBroker, 1<<40); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ended by %v", err)
	}
	client.Close()
	toBroker.Close()
	wg.Wait()
	for range 20 {
		client, toClient, toBroker, broker := spliceRig(t)
		if _, err := broker.Write([]byte("mine")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Splice(toClient, toBroker, 4); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "mine" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	client, toClient, toBroker, broker := spliceRig(t)
	small, large := make([]byte, 100), make([]byte, 100_000)
	n := testing.AllocsPerRun(100, func() {
		for _, b := range [][]byte{small, large} {
			if _, err := broker.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(toBroker, small); err != nil {
			t.Fatal(err)
		}
		if _, err := toClient.Write(small); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Splice(toClient, toBroker, int64(len(large))); err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{small, large} {
			if _, err := io.ReadFull(client, b); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n >= 1 && quick {
		t.Errorf("%.0f allocations", n)
	}
}
