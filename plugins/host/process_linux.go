package host

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when a child has ended, and tells whether its id is still taken.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// self is the program of this process, also if its file has been replaced or removed.
func self(string) string { return "/proc/self/exe" }
