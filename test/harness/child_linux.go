package harness

import "syscall"

// childAttr makes the kernel kill the child when the thread that started it
// ends, so that nothing outlives a test that panics or is killed. With ownGroup
// the child leads a process group, so that its own children can be signalled too.
func childAttr(ownGroup bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: ownGroup, Pdeathsig: syscall.SIGKILL}
}
