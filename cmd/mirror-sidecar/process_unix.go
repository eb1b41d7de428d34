//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// processSpace names what process ids are of: another container has others.
func processSpace() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "pid"
	}
	return space
}

func terminate(pid int) error { return unix.Kill(pid, unix.SIGTERM) }

// lives tells whether there is a process of this id.
func lives(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// sharePort lets a listener be at an address beside another one that does the same.
func sharePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}
