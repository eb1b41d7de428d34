//go:build unix

package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/filelock"
)

// TestTry: whoever opened it first has it until he closes it.
func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	for _, c := range []struct {
		f    *os.File
		want bool
	}{{first, true}, {second, false}} {
		if got, err := filelock.Try(c.f); err != nil || got != c.want {
			t.Errorf("locked: %t, %v, want %t", got, err, c.want)
		}
	}
	first.Close()
	if got, err := filelock.Try(second); err != nil || !got {
		t.Errorf("locked once it is given up: %t, %v", got, err)
	}
	if _, err := filelock.Try(first); err == nil {
		t.Error("a closed file is locked")
	}
}
