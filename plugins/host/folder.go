package host

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	folderPrefix = "mirror-plugin-"
	lockName     = "lock"
	// unfinished is how old a folder without a lock is when it is left over for certain.
	unfinished = time.Hour
)

// folder is where a process of a plugin has its socket, and the copy that it is run from. It is
// locked as long as this process lives: who was killed cannot clear up, and the copies would add up.
type folder struct {
	path string
	lock *os.File
}

func newFolder() (*folder, error) {
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("a folder of its own: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("a folder of its own: %w", err)
	}
	lockNow(lock) // where there are no such locks nobody sweeps
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) remove() error {
	defer f.lock.Close()
	return os.RemoveAll(f.path)
}

// sweep removes folders whose process was killed.
func sweep() {
	all, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range all {
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		switch {
		case err == nil && lockNow(lock):
			_ = os.RemoveAll(path) // as far as it is ours
		case os.IsNotExist(err):
			if fi, err := os.Stat(path); err == nil && time.Since(fi.ModTime()) > unfinished {
				_ = os.RemoveAll(path)
			}
		}
		if err == nil {
			lock.Close()
		}
	}
}
