package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is one running program whose output goes to a file. It leads its own
// process group, and ends at the latest with the process that started it.
type Process struct {
	Name    string
	LogFile string

	pid    int
	done   chan struct{}
	err    error // how it ended; read after done is closed
	mu     sync.Mutex
	paused bool
}

// StartProcess starts argv[0] with env added to this process's environment and
// its output appended to logFile. ctx only guards the start: the process lives
// until it ends, or is stopped, or this process ends.
func StartProcess(ctx context.Context, name string, argv, env []string, logFile string) (*Process, error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("start %s: no program named", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	// An *os.File needs no copying goroutine, so a reader of the log never
	// keeps Wait from returning.
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttr(true)

	p := &Process{Name: name, LogFile: logFile, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel's "parent died" signal follows the thread that forked, so
		// that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended; a paused one is running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Paused tells whether Pause was the last of Pause and Resume.
func (p *Process) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// Wait waits for the process's end and returns its exit code, -1 after a
// signal. Its error is only ctx's.
func (p *Process) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-p.done:
		return exitCodeOf(p.err), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("wait for %s: %w", p.Name, ctx.Err())
	}
}

func exitCodeOf(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// Signal sends a signal to the process and its own children. A process that has
// ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s (pid %d): %w", sig, p.Name, p.pid, err)
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and waits. If ctx ends first, the
// process is killed, and the error says so.
func (p *Process) Stop(ctx context.Context) error {
	if p.Paused() { // a stopped process would never see the signal
		if err := p.Resume(); err != nil {
			return err
		}
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not end when asked and was killed: %w", p.Name, ctx.Err()), p.Kill())
	}
}

// killWait bounds the wait for the kernel to carry out a SIGKILL.
const killWait = 30 * time.Second

// Kill ends the process at once (SIGKILL), also a paused one, and waits until
// it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	timer := time.NewTimer(killWait)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s (pid %d) is still there %s after SIGKILL", p.Name, p.pid, killWait)
	}
}

// Pause freezes the process (SIGSTOP): its connections stay open and nobody answers.
func (p *Process) Pause() error { return p.setPaused(true, syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.setPaused(false, syscall.SIGCONT) }

func (p *Process) setPaused(paused bool, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Running() {
		return fmt.Errorf("send %s to %s: it has ended", sig, p.Name)
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	p.paused = paused
	return nil
}

// tailBytes is how much of a log goes into an error.
const tailBytes = 4 << 10

// LogTail returns the end of the process's output, for messages.
func (p *Process) LogTail() string { return fileTail(p.LogFile) }

func fileTail(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	from := max(0, info.Size()-tailBytes)
	buf := make([]byte, info.Size()-from)
	n, _ := f.ReadAt(buf, from)
	return string(buf[:n])
}
