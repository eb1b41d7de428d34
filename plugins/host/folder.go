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
	// A folder that is younger than this may be about to be locked, and one without a lock is left
	// over for certain when it is that old.
	unlocked, unfinished = time.Minute, time.Hour
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
		fi, err := os.Stat(path)
		if err != nil || time.Since(fi.ModTime()) < unlocked {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if err == nil && lockNow(lock) || os.IsNotExist(err) && time.Since(fi.ModTime()) > unfinished {
			_ = os.RemoveAll(path) // as far as it is ours
		}
		if err == nil {
			lock.Close()
		}
	}
}
