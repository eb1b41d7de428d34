package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Node is one JVM of a cluster. Its methods may be called concurrently.
type Node struct {
	cluster  *Cluster
	plan     nodePlan
	dataDirs []string
	// metadataDir is metadata.log.dir, "" if that is the first of dataDirs.
	metadataDir string

	mu   sync.Mutex
	in   *Installation // what the next start runs from
	proc *Process      // nil before the first start
	from int64         // where the present process's part of the log begins
}

// ID is the node's id.
func (n *Node) ID() int32 { return n.plan.id }

// Role is the node's process.roles.
func (n *Node) Role() Role { return n.plan.role }

// Addr is the address that the node listens on, "" if it has no such listener.
func (n *Node) Addr(listener string) string { return n.plan.addr(listener) }

// Advertised is the address of a listener that others are told: the network's if there is one, else
// the node's own. (What CLIENT advertises by Config.Advertise is somebody else's.)
func (n *Node) Advertised(listener string) string { return n.plan.advertised(listener) }

// Party is the node's name in the network.
func (n *Node) Party() string { return n.cluster.cfg.party(n.plan.id) }

// DataDir is the first of the node's log.dirs.
func (n *Node) DataDir() string { return n.dataDirs[0] }

// DataDirs are the node's log.dirs.
func (n *Node) DataDirs() []string { return append([]string(nil), n.dataDirs...) }

// LogFile is the node's own log, of all its lives.
func (n *Node) LogFile() string { return filepath.Join(n.plan.dir, "kafka.log") }

// LogTail is the end of the node's log, for messages.
func (n *Node) LogTail() string { return fileTail(n.LogFile()) }

// PropertiesFile is the node's server.properties.
func (n *Node) PropertiesFile() string { return filepath.Join(n.plan.dir, "server.properties") }

func (n *Node) String() string {
	return fmt.Sprintf("%s node %d (%s)", n.cluster.cfg.Name, n.plan.id, n.plan.role)
}

// Use has the node run from other jars from its next start on, with the data that it has: an
// upgrade, once it was stopped and started again.
func (n *Node) Use(in *Installation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in = in
}

// Installation gives the jars that the node's next start runs from.
func (n *Node) Installation() *Installation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.in
}

func (n *Node) process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Running tells whether the node's process lives; a paused one does.
func (n *Node) Running() bool {
	p := n.process()
	return p != nil && p.Running()
}

// Paused tells whether the node is frozen.
func (n *Node) Paused() bool {
	p := n.process()
	return p != nil && p.Running() && p.Paused()
}

// PID is the process id of the node's present or last process, 0 if it never ran.
func (n *Node) PID() int {
	if p := n.process(); p != nil {
		return p.PID()
	}
	return 0
}

func (n *Node) format(ctx context.Context, more ...string) error {
	in := n.Installation()
	class, err := in.FindClass("kafka.tools.StorageTool", "org.apache.kafka.tools.StorageTool")
	if err != nil {
		return err
	}
	args := append([]string{"format", "-t", n.cluster.cfg.ClusterID, "-c", n.PropertiesFile()}, n.cluster.cfg.Format...)
	args = append(args, more...)
	res, err := in.Tool(ctx, ToolRun{Class: class, Args: args, Classes: n.cluster.classes})
	if err != nil {
		return fmt.Errorf("format the storage of %s: %w\n%s", n, err, res.Stdout)
	}
	return nil
}

// launch starts the process and does not wait for it to be ready.
func (n *Node) launch(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return fmt.Errorf("%s runs already", n)
	}
	n.from = 0
	if info, err := os.Stat(n.LogFile()); err == nil {
		n.from = info.Size()
	}
	c := n.cluster
	argv := append([]string{c.java}, c.cfg.jvmFlags()...)
	argv = append(argv, n.in.archiveFlags(c.java)...)
	argv = append(argv, n.in.loggingFlags()...)
	cp := n.in.Classpath()
	if c.classes != "" { // last, or the archive would not fit
		cp += string(os.PathListSeparator) + c.classes
	}
	argv = append(argv, "-cp", cp, "kafka.Kafka", n.PropertiesFile())
	start := func() (int, error) {
		p, err := StartProcess(ctx, n.String(), argv, nil, n.LogFile())
		if err != nil {
			return 0, err
		}
		n.proc = p
		return p.PID(), nil
	}
	if c.cfg.Network != nil {
		return c.cfg.Network.Start(n.Party(), start)
	}
	_, err := start()
	return err
}

// Launch starts the node and does not wait until it is ready.
func (n *Node) Launch(ctx context.Context) error { return n.launch(ctx) }

// Start starts a node that does not run, and waits until it is ready: registered,
// unfenced and known to every other broker that runs. It takes until the
// controller has given up the last incarnation, also after an orderly end:
// broker.session.timeout.ms after that one's last heartbeat. When too few
// controllers run for a quorum, [Node.Launch] them all, then [Cluster.WaitReady].
func (n *Node) Start(ctx context.Context) error {
	if err := n.launch(ctx); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// Stop ends the node in an orderly way (SIGTERM: a controlled shutdown). It is
// killed if ctx ends first, which is an error.
func (n *Node) Stop(ctx context.Context) error {
	p := n.process()
	if p == nil {
		return nil
	}
	return p.Stop(ctx)
}

// Kill ends the node at once (SIGKILL).
func (n *Node) Kill() error {
	p := n.process()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// Restart stops the node in an orderly way and starts it again.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Pause freezes the node (SIGSTOP).
func (n *Node) Pause() error {
	p := n.process()
	if p == nil {
		return fmt.Errorf("pause %s: it does not run", n)
	}
	return p.Pause()
}

// Resume lets a frozen node go on (SIGCONT).
func (n *Node) Resume() error {
	p := n.process()
	if p == nil {
		return fmt.Errorf("resume %s: it does not run", n)
	}
	return p.Resume()
}

// WaitReady waits until the node is ready, as [Node.Start] says.
func (n *Node) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cluster.cfg.StartTimeout)
	defer cancel()
	return n.cluster.waitReady(ctx, []*Node{n})
}

// ended tells why the node's process is no more, nil while it lives.
func (n *Node) ended() error {
	p := n.process()
	if p == nil || p.Running() {
		return nil
	}
	err := fmt.Errorf("%s ended with code %d; the end of its log:\n%s", n, exitCodeOf(p.err), n.LogTail())
	if n.couldNotBind() {
		return errors.Join(errBind, err)
	}
	return err
}

// bindMarks are what Kafka logs when a port is taken.
var bindMarks = []string{"java.net.BindException", "Address already in use", "Socket server failed to bind"}

func (n *Node) couldNotBind() bool {
	text, err := os.ReadFile(n.LogFile())
	if err != nil || int64(len(text)) < n.from {
		return false
	}
	for _, m := range bindMarks {
		if strings.Contains(string(text[n.from:]), m) {
			return true
		}
	}
	return false
}

// PartitionDir finds the folder of a partition's log on the node.
func (n *Node) PartitionDir(topic string, partition int32) (string, error) {
	for _, d := range n.dataDirs {
		dir := filepath.Join(d, fmt.Sprintf("%s-%d", topic, partition))
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s has no log of %s-%d: %w", n, topic, partition, os.ErrNotExist)
}

// readyPoll is how often readiness is looked at.
const readyPoll = 100 * time.Millisecond
