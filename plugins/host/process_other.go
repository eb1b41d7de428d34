//go:build !linux

package host

import (
	"os"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return nil }

// awaitExit: there is no way to wait that leaves the id taken.
func awaitExit(int) bool { return false }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func self(path string) string { return path }
