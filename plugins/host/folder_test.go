package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// short returns a folder with a short name: those of sockets have an end.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ht-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Without a folder for temporary files the one that is configured is taken; without any it is said
// what to do.
func TestFolders(t *testing.T) {
	none := filepath.Join(short(t), "none")
	t.Setenv("TMPDIR", none)
	h, p := start(t, "topics")
	if err := h.Folder(); err == nil || !strings.Contains(err.Error(), "TMPDIR") || !strings.Contains(err.Error(), none) {
		t.Errorf("%v", err)
	}
	if _, err := about(t.Context(), p, "a"); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("%v", err)
	}
	data := short(t)
	h, p = start(t, "topics", func(c *Config, _ *config.Plugin) { c.Folder = data })
	if err := h.Folder(); err != nil {
		t.Error(err)
	}
	insist(t, p, "a")
	if left := folders(t, data); len(left) != 1 {
		t.Errorf("in the configured folder: %v", left)
	}
}

// The longest name of a folder for temporary files will do, and what is longer is told.
func TestLongFolder(t *testing.T) {
	dir := short(t) + "/"
	dir += strings.Repeat("x", maxSocket-inFolder-len(dir))
	for _, d := range []string{dir, dir + "x"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	_, p := start(t, "topics")
	insist(t, p, "a")
	t.Setenv("TMPDIR", dir+"x")
	h, _ := start(t, "topics")
	if err := h.Folder(); err == nil || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("%v", err)
	}
}

// A program may be called as it likes.
func TestProgramsName(t *testing.T) {
	t.Parallel()
	path, _ := me(t)
	lock := filepath.Join(t.TempDir(), "lock")
	if err := os.Symlink(path, lock); err != nil {
		t.Fatal(err)
	}
	_, p := start(t, "topics", func(_ *Config, p *config.Plugin) { p.Command[0] = lock })
	insist(t, p, "a")
}
