package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// VirtualOffset is what a virtual broker's id is above its home broker's.
const VirtualOffset = 10000

// What the sidecars of a stack wait before a failed partition is tried again: less than by
// default, so that tests of what comes back need not wait for it.
const (
	RetryInitialBackoff = 200 * time.Millisecond
	RetryMaxBackoff     = 5 * time.Second
)

// Config of a stack.
type Config struct {
	// Kafka is the destination cluster. Advertise is set by Start.
	Kafka harness.Config
	// Bin is the folder of the binaries mirror-sidecar and kafka-cluster-mirrors.
	Bin string
	// Sidecar adds keys to every sidecar's properties file.
	Sidecar map[string]string
	// EachSidecar adds keys to one sidecar's, over those of Sidecar; nil adds none.
	EachSidecar func(c *Sidecar) map[string]string
	// Mapped lets the brokers advertise themselves: what clients are told is for the sidecars'
	// configuration to say.
	Mapped bool
	// NoSidecars leaves the sidecars to StartSidecars.
	NoSidecars bool
	// Network, if any, stands between all processes, see [harness.Config.Network]; sidecars are called
	// "sidecar-<broker>" in it.
	Network harness.Network
	Log     *slog.Logger
}

// Stack is a destination cluster with its sidecars.
type Stack struct {
	Cluster  *harness.Cluster
	Sidecars []*Sidecar // in the order of the brokers' ids

	bin string
	dir string
}

// Start starts the cluster and the sidecars and returns when all are ready.
func Start(ctx context.Context, cfg Config) (_ *Stack, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := os.MkdirTemp("", "mirror-stack-")
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	s := &Stack{bin: cfg.Bin, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()

	first := cfg.Kafka.FirstID
	if first == 0 {
		first = 1
	}
	// proxy, virtual and http for each
	ports, err := harness.FreePorts(3 * cfg.Kafka.Brokers)
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	cfg.Kafka.Network = cfg.Network
	for i := range cfg.Kafka.Brokers {
		c := &Sidecar{
			Broker: first + int32(i), HTTP: loopback(ports[3*i+2]),
			proxyAt: loopback(ports[3*i]), virtualAt: loopback(ports[3*i+1]),
			program: filepath.Join(cfg.Bin, "mirror-sidecar"), network: cfg.Network,
		}
		if c.Proxy, err = c.expose(c.proxyAt); err != nil {
			return nil, err
		}
		if c.Virtual, err = c.expose(c.virtualAt); err != nil {
			return nil, err
		}
		s.Sidecars = append(s.Sidecars, c)
	}
	cfg.Kafka.Advertise = func(id int32) string {
		if c := s.Sidecar(id); c != nil && !cfg.Mapped {
			return c.Proxy
		}
		return ""
	}
	if s.Cluster, err = harness.Start(ctx, cfg.Kafka); err != nil {
		return nil, err
	}
	if err = s.makeKey(); err != nil {
		return nil, err
	}
	for _, c := range s.Sidecars {
		extra := maps.Clone(cfg.Sidecar)
		if cfg.EachSidecar != nil {
			if extra == nil {
				extra = map[string]string{}
			}
			maps.Copy(extra, cfg.EachSidecar(c))
		}
		if err = c.configure(s.Cluster, dir, len(s.Sidecars), extra); err != nil {
			return nil, err
		}
	}
	if cfg.NoSidecars {
		return s, nil
	}
	return s, s.StartSidecars(ctx)
}

// KeyFile holds the key that all sidecars encrypt mirrors' secrets with.
func (s *Stack) KeyFile() string { return filepath.Join(s.dir, "state.key") }

func (s *Stack) makeKey() error {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	if err := os.WriteFile(s.KeyFile(), []byte(base64.StdEncoding.EncodeToString(raw)+"\n"), 0o600); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	return nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// StartSidecars starts those that do not run and returns when all are ready.
func (s *Stack) StartSidecars(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range s.Sidecars {
		if !c.Running() {
			group.Go(func() error { return c.Start(ctx) })
		}
	}
	return group.Wait()
}

// Sidecar gives the one beside a broker, nil if there is none.
func (s *Stack) Sidecar(broker int32) *Sidecar {
	for _, c := range s.Sidecars {
		if c.Broker == broker {
			return c
		}
	}
	return nil
}

// Proxies are the addresses that clients are meant to use.
func (s *Stack) Proxies() []string {
	var out []string
	for _, c := range s.Sidecars {
		out = append(out, c.Proxy)
	}
	return out
}

// Direct are the brokers' own addresses, around the proxies.
func (s *Stack) Direct() []string { return s.Cluster.Bootstrap(harness.ListenerInternal) }

// Dir is a folder that is removed with the stack.
func (s *Stack) Dir() string { return s.dir }

// CLI runs kafka-cluster-mirrors against the first sidecar that runs, and returns its standard output.
// A non-zero exit is a *CLIError.
func (s *Stack) CLI(ctx context.Context, args ...string) (string, error) {
	bootstrap := s.Sidecars[0].Proxy
	for _, c := range s.Sidecars {
		if c.Running() {
			bootstrap = c.Proxy
			break
		}
	}
	return s.CLIAt(ctx, bootstrap, args...)
}

// CLIAt is CLI against the given address.
func (s *Stack) CLIAt(ctx context.Context, bootstrap string, args ...string) (string, error) {
	args = append([]string{"--bootstrap-server", bootstrap}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "kafka-cluster-mirrors"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), &CLIError{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Err: err}
	}
	return stdout.String(), nil
}

// CLIError is a run of kafka-cluster-mirrors that failed.
type CLIError struct {
	Args           []string
	Stdout, Stderr string
	Err            error
}

func (e *CLIError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if text == "" {
		text = strings.TrimSpace(e.Stdout)
	}
	return fmt.Sprintf("kafka-cluster-mirrors %s: %v: %s", strings.Join(e.Args, " "), e.Err, text)
}

func (e *CLIError) Unwrap() error { return e.Err }

// ExitCode is the program's exit status, -1 if it did not end by itself.
func (e *CLIError) ExitCode() int {
	var exit *exec.ExitError
	if errors.As(e.Err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// Stop ends everything at once and removes what it wrote.
func (s *Stack) Stop() error {
	var errs []error
	for _, c := range s.Sidecars {
		errs = append(errs, c.Kill())
	}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Stop())
	}
	errs = append(errs, os.RemoveAll(s.dir))
	return errors.Join(errs...)
}

// Sidecar is one sidecar process. Its methods are not for concurrent use.
type Sidecar struct {
	Broker               int32  // id of its home broker
	Proxy, Virtual, HTTP string // addresses

	proxyAt, virtualAt       string // where it listens; the same, if no network is between
	program, config, logFile string
	process                  *harness.Process
	network                  harness.Network
}

// Party is its name in the network.
func (c *Sidecar) Party() string { return fmt.Sprintf("sidecar-%d", c.Broker) }

func (c *Sidecar) expose(addr string) (string, error) {
	if c.network == nil {
		return addr, nil
	}
	return c.network.Expose(c.Party(), addr)
}

// VirtualID is the id of its virtual broker.
func (c *Sidecar) VirtualID() int32 { return c.Broker + VirtualOffset }

// DataDir is where it leaves what the next process begins with.
func (c *Sidecar) DataDir() string { return strings.TrimSuffix(c.config, ".properties") }

// ConfigFile is its properties file.
func (c *Sidecar) ConfigFile() string { return c.config }

func (c *Sidecar) configure(cluster *harness.Cluster, dir string, sidecars int, extra map[string]string) error {
	home := cluster.Node(c.Broker)
	var controllers []string
	for _, n := range cluster.Controllers() {
		controllers = append(controllers, n.Advertised(harness.ListenerController))
	}
	props := map[string]string{
		// The CLIENT listener advertises this proxy; the relay goes to the address it binds.
		"home.broker.bootstrap":                  home.Advertised(harness.ListenerClient),
		"controller.quorum.bootstrap.servers":    strings.Join(controllers, ","),
		"listeners":                              harness.ListenerClient + "://" + c.proxyAt,
		"advertised.listeners":                   harness.ListenerClient + "://" + c.Proxy,
		"virtual.listeners":                      c.virtualAt,
		"virtual.advertised.listeners":           c.Virtual,
		"http.listen":                            c.HTTP,
		"data.dir":                               filepath.Join(dir, fmt.Sprintf("sidecar-%d", c.Broker)),
		"state.encryption.key.file":              filepath.Join(dir, "state.key"),
		"mirror.topic.num.partitions":            "4",
		"mirror.state.topic.replication.factor":  strconv.Itoa(min(3, len(cluster.Brokers()))),
		"mirror.virtual.replicas":                strconv.Itoa(min(2, sidecars)),
		"mirror.metadata.refresh.interval.ms":    "5000",
		"mirror.failed.retry.initial.backoff.ms": strconv.FormatInt(RetryInitialBackoff.Milliseconds(), 10),
		"mirror.failed.retry.max.backoff.ms":     strconv.FormatInt(RetryMaxBackoff.Milliseconds(), 10),
	}
	maps.Copy(props, extra)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, strings.ReplaceAll(props[k], `\`, `\\`))
	}
	c.config = filepath.Join(dir, fmt.Sprintf("sidecar-%d.properties", c.Broker))
	c.logFile = filepath.Join(dir, fmt.Sprintf("sidecar-%d.log", c.Broker))
	if err := os.WriteFile(c.config, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	return nil
}

// Launch starts the process and does not wait until it is ready.
func (c *Sidecar) Launch(ctx context.Context) error {
	if c.Running() {
		return fmt.Errorf("sidecar %d runs already", c.Broker)
	}
	return c.launch(ctx)
}

// StartWith is Start with more arguments.
func (c *Sidecar) StartWith(ctx context.Context, args ...string) error {
	if c.Running() {
		return fmt.Errorf("sidecar %d runs already", c.Broker)
	}
	if err := c.launch(ctx, args...); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// TakeOver starts another process beside the one that runs, which has that one end and takes its
// place, and returns when that has happened and the new one is ready.
func (c *Sidecar) TakeOver(ctx context.Context) error {
	former := c.process
	if err := c.launch(ctx, "--take-over"); err != nil {
		return err
	}
	select {
	case <-former.Done():
	case <-c.process.Done():
		return errors.Join(fmt.Errorf("sidecar %d ended instead of taking over; the end of its log:\n%s", c.Broker, c.LogTail()), former.Kill())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the former sidecar %d has not ended: %w; the end of the log:\n%s", c.Broker, ctx.Err(), c.LogTail()), former.Kill())
	}
	return c.WaitReady(ctx)
}

func (c *Sidecar) launch(ctx context.Context, args ...string) error {
	start := func() (int, error) {
		argv := append([]string{c.program, "run", "--config", c.config}, args...)
		p, err := harness.StartProcess(ctx, fmt.Sprintf("sidecar %d", c.Broker), argv, nil, c.logFile)
		if err != nil {
			return 0, err
		}
		c.process = p
		return p.PID(), nil
	}
	if c.network != nil {
		return c.network.Start(c.Party(), start)
	}
	_, err := start()
	return err
}

// Start starts the process and returns when it is ready.
func (c *Sidecar) Start(ctx context.Context) error {
	if err := c.Launch(ctx); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// WaitReady returns when /readyz says so, or fails at once when the process has ended.
func (c *Sidecar) WaitReady(ctx context.Context) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-c.process.Done():
			return fmt.Errorf("sidecar %d ended before it was ready; the end of its log:\n%s", c.Broker, c.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("sidecar %d is not ready (%w): %w; the end of its log:\n%s", c.Broker, last, ctx.Err(), c.LogTail())
		case <-tick.C:
		}
		if last = ready(ctx, &client, "http://"+c.HTTP+"/readyz"); last == nil {
			return nil
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return nil
}

// Running tells whether the process lives; a paused one does.
func (c *Sidecar) Running() bool { return c.process != nil && c.process.Running() }

// Process gives the present or last process, nil before the first.
func (c *Sidecar) Process() *harness.Process { return c.process }

// Kill ends it at once (SIGKILL), also if it does not run or is paused.
func (c *Sidecar) Kill() error {
	if c.process == nil {
		return nil
	}
	return c.process.Kill()
}

// Terminate ends it in an orderly way (SIGTERM).
func (c *Sidecar) Terminate(ctx context.Context) error {
	if c.process == nil {
		return nil
	}
	return c.process.Stop(ctx)
}

// LogFile holds its output, of all its lives.
func (c *Sidecar) LogFile() string { return c.logFile }

// LogTail is the end of its output.
func (c *Sidecar) LogTail() string {
	if c.process == nil {
		return ""
	}
	return c.process.LogTail()
}
