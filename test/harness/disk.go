package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// metaProperties says which cluster, node and directory a log directory belongs to.
const metaProperties = "meta.properties"

// failedSuffix is what [Node.FailDir] adds to the name of the directory that it takes away.
const failedSuffix = ".failed"

var errCannotWipe = errors.New("only a broker that does not run and is no controller can lose its disk")

// Wipe empties the log directories of a broker that does not run, as if its disks had been
// replaced. With keepIDs they keep their directory ids, as a machine does that only lost the
// data; else they are formatted anew.
func (n *Node) Wipe(ctx context.Context, keepIDs bool) error {
	if n.Running() || n.plan.role != RoleBroker {
		return fmt.Errorf("wipe %s: %w", n, errCannotWipe)
	}
	for _, dir := range n.dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("wipe %s: %w", n, err)
		}
		for _, e := range entries {
			if keepIDs && e.Name() == metaProperties {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("wipe %s: %w", n, err)
			}
		}
	}
	if keepIDs {
		return nil
	}
	return n.format(ctx)
}

// dirs are all that a failed disk may take: the log directories, and where the metadata log is.
func (n *Node) dirs() []string {
	dirs := n.DataDirs()
	if n.metadataDir != "" {
		dirs = append(dirs, n.metadataDir)
	}
	return dirs
}

// FailDir takes the i-th of the node's log directories away and leaves a file in its place,
// which even root cannot write a log to. A broker that runs notices at its next checkpoint,
// roll or new file there, within replica.high.watermark.checkpoint.interval.ms (5 s).
func (n *Node) FailDir(i int) error {
	dir := n.dataDirs[i]
	if err := os.Rename(dir, dir+failedSuffix); err != nil {
		return fmt.Errorf("fail a log directory of %s: %w", n, err)
	}
	if err := os.WriteFile(dir, []byte("this disk has failed\n"), 0o600); err != nil {
		return fmt.Errorf("fail a log directory of %s: %w", n, err)
	}
	return nil
}

// ReplaceDir puts an empty, formatted directory where [Node.FailDir] has taken one away. The
// broker takes it into use when it is started next, under a directory id of its own.
func (n *Node) ReplaceDir(ctx context.Context, i int) error {
	dir := n.dataDirs[i]
	if err := errors.Join(os.Remove(dir), os.RemoveAll(dir+failedSuffix), os.Mkdir(dir, 0o755)); err != nil {
		return fmt.Errorf("replace a log directory of %s: %w", n, err)
	}
	return n.format(ctx, "--ignore-formatted")
}

// RollingRestart restarts the brokers one after the other in an orderly way, each when the one
// before is ready again; between, if not nil, is called after each.
func (c *Cluster) RollingRestart(ctx context.Context, between func(n *Node) error) error {
	for _, n := range c.Brokers() {
		if err := n.Restart(ctx); err != nil {
			return fmt.Errorf("rolling restart: %w", err)
		}
		if between == nil {
			continue
		}
		if err := between(n); err != nil {
			return fmt.Errorf("rolling restart, after %s: %w", n, err)
		}
	}
	return nil
}
