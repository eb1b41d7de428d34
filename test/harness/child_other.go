//go:build unix && !linux

package harness

import "syscall"

// childAttr: with ownGroup the child leads a process group, so that its own
// children can be signalled too. Only Linux can tie it to its parent's life.
func childAttr(ownGroup bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: ownGroup} }
