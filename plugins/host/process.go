package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// drain is how long the output of a process that has ended is read: whoever it has handed it on to
// may live.
const drain = time.Second

// process is a plugin's process and all that it has started: its group. go-plugin's own runner kills
// only the former, hands down the sidecar's environment and standard input, and lets the process
// outlive the sidecar.
type process struct {
	cmd            *exec.Cmd
	network, addr  string // where the plugin listens
	stdout, stderr *os.File
	pid            int

	mu     sync.Mutex
	doomed bool // killed, also if it has not started yet
	reaped bool // its id may be another's now
	exited chan struct{}
	// patient: it was asked to end, and whoever asked sees to it that it does.
	patient atomic.Bool
	err     error // how it ended; read after exited is closed
}

var _ runner.Runner = (*process)(nil)

// errKilled is what a process that was killed before its start fails with.
var errKilled = errors.New("ended before it had started")

func newProcess(path, dir string, argv []string) *process {
	return &process{
		cmd:    &exec.Cmd{Path: path, Args: argv, Dir: dir, SysProcAttr: childAttr()},
		exited: make(chan struct{}),
	}
}

// Start implements runner.Runner.
func (p *process) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var out, err *os.File
	var failed, failedToo error
	p.stdout, out, failed = os.Pipe()
	p.stderr, err, failedToo = os.Pipe()
	if failed = errors.Join(failed, failedToo); failed != nil {
		return fmt.Errorf("pipes of a plugin: %w", failed)
	}
	defer out.Close()
	defer err.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, err
	started := make(chan error, 1)
	go func() {
		// The kernel's "parent died" signal follows the thread that forked, so that thread must
		// live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.fork()
		started <- err
		if err != nil {
			return
		}
		if taken := awaitExit(p.pid); taken {
			p.mu.Lock()
			killGroup(p.pid) // what it leaves behind
			p.err = p.cmd.Wait()
		} else {
			err := p.cmd.Wait()
			p.mu.Lock()
			p.err = err
		}
		p.reaped = true
		p.mu.Unlock()
		deadline := time.Now().Add(drain)
		_ = p.stdout.SetReadDeadline(deadline)
		_ = p.stderr.SetReadDeadline(deadline)
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return explain(err)
	}
	return nil
}

func (p *process) fork() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doomed {
		return errKilled
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	return nil
}

// kill ends the process and its group at once, also one that is stopped.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = true
	if p.pid != 0 && !p.reaped {
		killGroup(p.pid)
	}
}

// close gives back the pipes.
func (p *process) close() {
	p.stdout.Close()
	p.stderr.Close()
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.err
}

// Kill implements runner.Runner.
func (p *process) Kill(context.Context) error {
	if p.patient.Load() {
		<-p.exited
		return nil
	}
	p.kill()
	return nil
}

// ID implements runner.Runner: empty before the start, which go-plugin takes for "nothing to kill".
func (p *process) ID() string {
	if p.pid == 0 {
		return ""
	}
	return strconv.Itoa(p.pid)
}

// Name implements runner.Runner.
func (p *process) Name() string { return p.cmd.Path }

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Diagnose implements runner.Runner: what there is to say, run says.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	p.network, p.addr = network, addr
	return network, addr, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// environment is what a plugin has of the sidecar's: where programs are, and how to write. Secrets
// come in variables too.
func environment() []string {
	var out []string
	for _, name := range []string{"PATH", "LANG", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}
