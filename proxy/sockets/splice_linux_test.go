//go:build linux && !race

package sockets

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// noPipes takes what pipes are kept.
func noPipes() {
	for {
		select {
		case p := <-pipes:
			p.close()
		default:
			return
		}
	}
}

// A pipe that the kernel has left small is not kept.
func TestSmallPipesAreNotKept(t *testing.T) {
	noPipes()
	for _, tc := range []struct{ size, kept int }{{64 << 10, 1}, {-1, 0}} {
		p, err := makePipe(tc.size)
		if err != nil {
			t.Fatal(err)
		}
		if p.keep(); len(pipes) != tc.kept {
			t.Errorf("of %d bytes: %d are kept", tc.size, len(pipes))
		}
		noPipes()
	}
}

// Where the kernel does not splice, there is another way.
func TestSpliceRefused(t *testing.T) {
	_, toClient, toBroker, broker := spliceRig(t)
	if _, err := broker.Write([]byte("some")); err != nil {
		t.Fatal(err)
	}
	noPipes()
	var fds [2]uintptr // of no pipe, for which the kernel has EINVAL
	for i := range fds {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = uintptr(fd)
	}
	pipes <- &pipe{r: fds[0], w: fds[1]}
	if n, ok, err := Splice(toClient, toBroker, 4); n != 0 || ok || err != nil {
		t.Errorf("%d bytes, %v, %v", n, ok, err)
	}
	if len(pipes) != 0 {
		t.Error("kept")
	}
	for _, no := range []error{unix.ENOSYS, unix.EPERM} {
		if !refused(no) {
			t.Errorf("%v is no refusal", no)
		}
	}
	if refused(unix.ECONNRESET) || refused(errors.New("another")) {
		t.Error("all is a refusal")
	}
}
