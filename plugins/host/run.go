package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

const (
	// maxAnswer bounds an answer. A page has 2,000 items at most, with a kilobyte of reason each.
	maxAnswer = 16 << 20
	// leave is how long a plugin that is no longer needed may take to end by itself.
	leave = 4 * time.Second
	// lastWords is how long is waited for the exit status of a process that does not answer any more.
	lastWords = 2 * time.Second
)

// run is one process of a plugin.
type run struct {
	plugin *Plugin
	info   info
	proc   *process
	client *goplugin.Client
	conn   *grpc.ClientConn
	folder *folder
	said   *lines
	began  time.Time
	gone   chan struct{} // closed when nothing is left of it
	over   chan struct{} // closed when it is known, too, when the next one may be started
	doomed atomic.Bool   // it has been ended, and will be gone

	once   sync.Once
	killed atomic.Bool // it did not end when it was told to
	reason error       // why it was ended; nil: it has ended by itself
}

// start starts a process and asks it what it is. It ends with ctx, and leaves nothing behind if it
// fails; if not, the process is to be reaped.
func (p *Plugin) start(ctx context.Context) (_ *run, err error) {
	p.host.swept.Do(p.host.sweep)
	folder, err := newFolder(p.host.places())
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	r := &run{plugin: p, folder: folder, said: newLines(p.host.log, p.cfg.Name), began: time.Now(), gone: make(chan struct{}), over: make(chan struct{})}
	defer func() {
		if err == nil {
			return
		}
		r.clear()
		if words := r.said.last(); words != "" {
			err = fmt.Errorf("%w; it said: %s", err, words)
		}
	}()
	path, dir, err := p.program.private(folder.path)
	if err != nil {
		return nil, p.host.full(folder.path, err)
	}
	cert, tls, err := hostIdentity()
	if err != nil {
		return nil, err
	}
	r.proc = newProcess(path, dir, slices.Clone(p.program.argv))
	r.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: plugins.Handshake(),
		Plugins:         goplugin.PluginSet{plugins.Name: plugins.Connection{}},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			r.proc.cmd.Env = slices.Concat(environment(), cmd.Env, []string{
				clientCertEnv + "=" + string(cert),
				// Not the one that go-plugin has made in it: names of sockets are short.
				goplugin.EnvUnixSocketDir + "=" + folder.path,
			})
			return r.proc, nil
		},
		// Both are those of go-plugin's AutoMTLS, but for the kind of key.
		TLSConfig:        tls,
		SkipHostEnv:      true,
		StartTimeout:     time.Hour, // connect knows better
		Stderr:           r.said.writer(),
		SyncStdout:       r.said.writer(),
		SyncStderr:       r.said.writer(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: folder.path},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(plugins.MaxMessageBytes)),
			grpc.WithMaxHeaderListSize(64 << 10), // errors are there
		},
	})
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// connect starts the process and asks it what it is. go-plugin waits with no context, for the
// process's first line or its connection: when ctx ends the process does.
func (r *run) connect(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.proc.kill)
	defer stop()
	failed := func(what string, err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("has not started in time, it did not %s: %w", what, context.Cause(ctx))
		}
		// go-plugin has killed it by now, unless that was not needed.
		if how, ended := r.proc.outcome(lastWords); ended && how != killed {
			return fmt.Errorf("ended at once (%s)", how)
		}
		return fmt.Errorf("does not %s: %s", what, brief(err))
	}
	if _, err := r.client.Start(); err != nil {
		if !r.proc.started() && ctx.Err() == nil {
			return fmt.Errorf("cannot be started: %w", err)
		}
		return failed("write the line that plugins begin with", err)
	}
	protocol, err := r.client.Client()
	if err != nil {
		return failed("take a connection", err)
	}
	dispensed, err := protocol.Dispense(plugins.Name)
	if err != nil {
		return failed("take a connection", err)
	}
	r.conn = dispensed.(*grpc.ClientConn)
	resp, err := policyv1.NewPluginInfoClient(r.conn).Describe(ctx, &policyv1.DescribeRequest{
		HostVersion: r.plugin.host.cfg.Version, Config: r.plugin.cfg.Config,
	})
	if status.Code(err) == codes.Unimplemented {
		return errors.New("is no policy: it does not serve mirror.policy.v1.PluginInfo")
	}
	if err != nil {
		return failed("say what it is", err)
	}
	if r.info, err = describe(resp); err != nil {
		return err
	}
	return nil
}

func describe(resp *policyv1.DescribeResponse) (info, error) {
	i := info{name: clip(resp.GetName(), 128), version: clip(resp.GetVersion(), 128)}
	if why := resp.GetConfigError(); why != "" {
		return i, fmt.Errorf("its configuration (plugin.<name>.config.*) is of no use to it: %s", clip(why, policyv1.MaxReason))
	}
	for _, k := range []policy.Kind{policy.Topics, policy.Configs, policy.ACLs, policy.Groups, policy.Quotas, policy.Events} {
		if slices.Contains(resp.GetKinds(), string(k)) {
			i.kinds = append(i.kinds, k)
		}
	}
	if len(i.kinds) == 0 {
		return i, fmt.Errorf("decides on nothing that this sidecar knows, but on %q", clip(strings.Join(resp.GetKinds(), ", "), 256))
	}
	return i, nil
}

// fault ends a process that has done something wrong. It returns why it was ended, which may be
// what it did to somebody else before.
func (r *run) fault(err error) error {
	r.once.Do(func() {
		r.reason = err
		r.doomed.Store(true)
		r.proc.kill()
	})
	return r.reason
}

// broken is the fault of a process that cannot be reached: that it has ended, if it has. A policy
// may say the same of something else, which is no fault.
func (r *run) broken(err error) error {
	if r.answers() {
		return fmt.Errorf("does not decide: %s", brief(err))
	}
	if how, ended := r.proc.outcome(lastWords); ended {
		<-r.gone // what it has said is read by then
		return r.fault(r.crash(how))
	}
	return r.fault(fmt.Errorf("cannot be reached: %s", brief(err)))
}

// answers tells whether the process can be reached.
func (r *run) answers() bool {
	ctx, cancel := context.WithTimeout(r.plugin.host.ctx, lastWords)
	defer cancel()
	_, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true // whatever the answer is
}

func (r *run) crash(how string) error {
	if words := r.said.last(); words != "" {
		return fmt.Errorf("crashed (%s); it said: %s", how, words)
	}
	return fmt.Errorf("crashed (%s)", how)
}

// reap waits for the end of the process, or of the host, and clears up behind it.
func (r *run) reap() {
	p := r.plugin
	select {
	case <-r.proc.exited:
	case <-p.host.ctx.Done():
		r.once.Do(func() { r.reason = context.Canceled })
	}
	r.doomed.Store(true)
	p.host.metrics.up.WithLabelValues(p.cfg.Name).Set(0)
	r.clear()
	close(r.gone)
	how, _ := r.proc.outcome(0)
	err := r.fault(r.crash(how))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = nil
	p.failed(time.Now(), time.Since(r.began), err)
	p.overdue = r.killed.Load()
	close(r.over)
}

// clear ends the process, if it has not yet, and everything that there was for it.
func (r *run) clear() {
	if r.proc != nil {
		// go-plugin asks the plugin to end. It would wait for two seconds, and end it without telling.
		r.proc.patient.Store(r.conn != nil)
		late := time.AfterFunc(leave, func() {
			r.killed.Store(true)
			r.proc.kill()
		})
		if r.conn == nil {
			r.proc.kill()
		}
		r.client.Kill()
		late.Stop()
		if r.proc.started() {
			r.proc.kill()
			<-r.proc.exited
		}
		r.proc.close()
	}
	if err := r.folder.remove(); err != nil {
		r.plugin.host.log.Warn("what a plugin left behind cannot be removed", "plugin", r.plugin.cfg.Name, "error", err)
	}
}

// killed is the outcome of a process that somebody has ended, this one mostly.
const killed = "signal: killed"

// started tells whether there is, or was, a process.
func (p *process) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid != 0
}

// outcome is how a process ended, if it does within some time.
func (p *process) outcome(within time.Duration) (string, bool) {
	if within > 0 {
		t := time.NewTimer(within)
		defer t.Stop()
		select {
		case <-p.exited:
		case <-t.C:
		}
	}
	select {
	case <-p.exited:
	default:
		return "", false
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return "signal: " + ws.Signal().String(), true
		}
		return fmt.Sprintf("exit status %d", exit.ExitCode()), true
	}
	if p.err != nil {
		return p.err.Error(), true
	}
	return "exit status 0", true
}

// brief is an error of gRPC or go-plugin for people: one line, without what they add for programs.
func brief(err error) string {
	if s, ok := status.FromError(err); ok {
		return clip(s.Message(), 300)
	}
	return clip(err.Error(), 300)
}

var _ slog.LogValuer = info{}

// LogValue implements slog.LogValuer.
func (i info) LogValue() slog.Value { return slog.StringValue(i.name + " " + i.version) }
