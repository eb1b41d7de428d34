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

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// Cluster is a running KRaft cluster.
type Cluster struct {
	cfg   Config
	in    *Installation
	dir   string
	java  string
	nodes []*Node // brokers first, then separate controllers, ascending
	zoo   *zooKeeper

	classes string // folder of plugins' classes, "" if there are none
}

// bindTries is how often Start picks other ports when somebody took one of them.
const bindTries = 3

var errBind = errors.New("a port was taken by another process")

// Start starts a cluster and returns when every broker is registered, unfenced
// and known to every other. What it started is ended if it fails.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	fail := func(err error) (*Cluster, error) { return nil, fmt.Errorf("start cluster %s: %w", cfg.Name, err) }
	in := cfg.Installation
	if in == nil {
		if in, err = Install(ctx, cfg.Version); err != nil {
			return fail(err)
		}
	}
	java, err := javaBinary()
	if err != nil {
		return fail(err)
	}
	if !cfg.ZooKeeper { // what an archive is made of is a KRaft node's start
		if err := in.ensureArchive(ctx, java, cfg.Log); err != nil {
			return fail(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	for try := 1; ; try++ {
		c, err := startOnce(ctx, cfg, in)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errBind) || try == bindTries {
			return fail(err)
		}
		cfg.Log.Warn("cluster start: port taken, trying others", "cluster", cfg.Name, "try", try)
	}
}

func startOnce(ctx context.Context, cfg Config, in *Installation) (_ *Cluster, err error) {
	java, err := javaBinary()
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, in: in, java: java, dir: cfg.Dir}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "harness-"+cfg.Name+"-"); err != nil {
			return nil, err
		}
	} else if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, err
	}
	plans, err := cfg.plan(c.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if cfg.ZooKeeper {
		if c.zoo, err = startZooKeeper(ctx, in, c.dir, java); err != nil {
			return nil, err
		}
		cfg.zooKeeperAt = c.zoo.addr
	}
	v := voters(plans)
	for _, p := range plans {
		props := cfg.properties(p, v)
		n := &Node{cluster: c, plan: p, dataDirs: splitList(props["log.dirs"]), metadataDir: props["metadata.log.dir"], in: in}
		c.nodes = append(c.nodes, n)
		// A folder left by a failed try has the wrong ports and maybe half a log.
		if err := os.RemoveAll(p.dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(n.PropertiesFile(), []byte(propertiesText(props)), 0o600); err != nil {
			return nil, err
		}
	}
	if len(cfg.ForbidConfigs) > 0 {
		if c.classes, err = in.compile(ctx); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		if !cfg.ZooKeeper { // brokers of a ZooKeeper make their folders themselves
			g.Go(func() error { return n.format(gctx) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	formatted := time.Now()
	for _, n := range c.nodes {
		if err := n.launch(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, err
	}
	if cfg.ZooKeeper {
		if c.cfg.ClusterID, err = c.askID(ctx); err != nil {
			return nil, err
		}
	}
	cfg.Log.Info("cluster started", "cluster", cfg.Name, "version", in.Version, "nodes", len(c.nodes),
		"format", formatted.Sub(begun).Round(time.Millisecond), "ready", time.Since(formatted).Round(time.Millisecond))
	return c, nil
}

func splitList(s string) []string {
	var out []string
	for _, f := range strings.Split(s, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// Stop kills every node at once and removes its folders, unless they are to be
// kept. For an orderly end of one node, see [Node.Stop].
func (c *Cluster) Stop() error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = n.Kill() })
	}
	wg.Wait()
	removed := c.zoo.stop()
	if !c.cfg.KeepDir {
		removed = errors.Join(removed, c.removeDir())
	}
	if err := errors.Join(errors.Join(errs...), removed); err != nil {
		return fmt.Errorf("stop cluster %s: %w", c.cfg.Name, err)
	}
	return nil
}

// removeDir removes what the cluster made, and nothing else that is in a folder
// that the caller chose.
func (c *Cluster) removeDir() error {
	if c.cfg.Dir == "" {
		return os.RemoveAll(c.dir)
	}
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, os.RemoveAll(n.plan.dir))
	}
	if c.zoo != nil {
		errs = append(errs, os.RemoveAll(c.zoo.dir))
	}
	_ = os.Remove(c.dir) // stays if it holds more
	return errors.Join(errs...)
}

// ID is the cluster's id.
func (c *Cluster) ID() string { return c.cfg.ClusterID }

// Name is the cluster's name in messages.
func (c *Cluster) Name() string { return c.cfg.Name }

// Dir is the folder that holds the nodes' properties, logs and data.
func (c *Cluster) Dir() string { return c.dir }

// Installation gives the jars that the cluster runs from.
func (c *Cluster) Installation() *Installation { return c.in }

// Nodes gives all nodes, ascending by id; separate controllers come last.
func (c *Cluster) Nodes() []*Node { return append([]*Node(nil), c.nodes...) }

// Brokers gives the nodes that are brokers, ascending by id.
func (c *Cluster) Brokers() []*Node {
	return c.having(func(n *Node) bool { return n.plan.role != RoleController })
}

// Controllers gives the nodes that are controllers, ascending by id.
func (c *Cluster) Controllers() []*Node {
	return c.having(func(n *Node) bool { return n.plan.role != RoleBroker })
}

func (c *Cluster) having(want func(*Node) bool) []*Node {
	var out []*Node
	for _, n := range c.nodes {
		if want(n) {
			out = append(out, n)
		}
	}
	return out
}

// Node gives one node, nil if there is none of that id.
func (c *Cluster) Node(id int32) *Node {
	for _, n := range c.nodes {
		if n.plan.id == id {
			return n
		}
	}
	return nil
}

// Bootstrap gives every broker's own address on a listener (not what it
// advertises there).
func (c *Cluster) Bootstrap(listener string) []string {
	var out []string
	for _, n := range c.Brokers() {
		if a := n.Addr(listener); a != "" {
			out = append(out, a)
		}
	}
	return out
}

// ControllerBootstrap gives every controller's address.
func (c *Cluster) ControllerBootstrap() []string {
	var out []string
	for _, n := range c.Controllers() {
		out = append(out, n.Addr(ListenerController))
	}
	return out
}

// Client makes a client on the INTERNAL listener, which always reaches the
// brokers themselves, whatever CLIENT advertises. The caller closes it.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return c.ClientOn(ListenerInternal, opts...)
}

// ClientOn makes a client that starts at a listener. What it meets from there
// on is what that listener advertises. The caller closes it.
func (c *Cluster) ClientOn(listener string, opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{kgo.SeedBrokers(c.Bootstrap(listener)...)}, c.cfg.ClientOpts...)
	cl, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client of cluster %s: %w", c.cfg.Name, err)
	}
	return cl, nil
}
