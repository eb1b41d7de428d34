package procedures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// pluginPage is the walk-through of who writes a plugin.
const pluginPage = "../plugins"

// sdk is what $SDK stands for: this checkout.
func sdk(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPluginWalkThrough executes what an author does before there are sidecars to give the plugin to. The rest
// of the page needs clusters and belongs to TestProcedures' long form.
func TestPluginWalkThrough(t *testing.T) {
	harness.SkipShort(t)
	dir := t.TempDir()
	vars := map[string]string{"SDK": sdk(t), "PATH": stack.Binaries() + ":" + os.Getenv("PATH"), "LC_ALL": "C"}
	for _, s := range readPage(t, pluginPage) {
		if s.hook != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := runScript(ctx, s, dir, vars)
		cancel()
		if err != nil {
			t.Fatalf("docs/plugins.md, line %d: %v", s.line, err)
		}
	}
	t.Error("the page ends before the sidecars come in")
}

// configure adds a file's lines to the configuration of the destination's sidecars, and starts them anew.
func (w *world) configure(ctx context.Context, args []string) error {
	lines, err := os.ReadFile(filepath.Join(w.dir, args[0]))
	if err != nil {
		return fmt.Errorf("what to configure: %w", err)
	}
	for _, c := range w.dst.Sidecars {
		f, err := os.OpenFile(c.ConfigFile(), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("configure sidecar %d: %w", c.Broker, err)
		}
		_, err = f.Write(append([]byte("\n"), lines...))
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("configure sidecar %d: %w", c.Broker, err)
		}
		if err := c.Terminate(ctx); err != nil {
			return err
		}
		if err := c.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
