package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/filelock"
)

const (
	folderPrefix = "mirror-plugin-"
	// lockName is none that a program has, whose copy is beside it.
	lockName = ".lock-of-the-sidecar"
	// A folder that is younger than this may be about to be locked, and one without a lock is left
	// over for certain when it is that old.
	unlocked, unfinished = time.Minute, time.Hour

	// maxSocket is what the name of a socket may have: 107 bytes on Linux, 103 elsewhere. In a folder
	// go-plugin calls it "plugin" and a number, which folders' names end with too.
	maxSocket = 103
	number    = len("4294967295")
	inFolder  = len("/"+folderPrefix+"/plugin") + 2*number
)

// folder is where a process of a plugin has its socket, and the copy that it is run from. It is
// locked as long as this process lives: who was killed cannot clear up, and the copies would add up.
type folder struct {
	path string
	lock *os.File
}

// places are where folders may be, the best one first. Containers often have nothing of temporary
// files, and a folder for data.
func (h *Host) places() []string {
	places := []string{os.TempDir()}
	if h.cfg.Folder != "" {
		places = append(places, h.cfg.Folder)
	}
	return places
}

// Folder is an error if there is no place for what plugins need: none can be started then, the
// built-in one neither.
func (h *Host) Folder() error {
	f, err := newFolder(h.places())
	if err != nil {
		return err
	}
	if err := f.remove(); err != nil {
		return fmt.Errorf("remove a plugin's folder: %w", err)
	}
	return nil
}

// newFolder makes a folder in the first place where that works.
func newFolder(places []string) (*folder, error) {
	var why []string
	for _, place := range places {
		f, err := folderIn(place)
		if err == nil {
			return f, nil
		}
		why = append(why, err.Error())
	}
	return nil, fmt.Errorf("there is no folder for its socket (TMPDIR names one, data.dir is tried next): %s", strings.Join(why, "; "))
}

func folderIn(place string) (*folder, error) {
	place, err := filepath.Abs(place)
	if err != nil {
		return nil, fmt.Errorf("a folder's whole name: %w", err)
	}
	if longest := maxSocket - inFolder; len(place) > longest {
		return nil, fmt.Errorf("%s is too long, names of sockets have an end: at most %d bytes", place, longest)
	}
	path, err := os.MkdirTemp(place, folderPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, err
	}
	_, _ = filelock.Try(lock) // where there are no such locks nobody sweeps
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) remove() error {
	defer f.lock.Close()
	return os.RemoveAll(f.path)
}

// full adds to an error what can be done about it, and does what this process can.
func (h *Host) full(folder string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	h.sweep()
	return fmt.Errorf("%w (a copy of the program has no room in %s: TMPDIR names another folder)", err, filepath.Dir(folder))
}

// sweep removes folders whose process was killed.
func (h *Host) sweep() {
	var all []string
	for _, place := range h.places() {
		found, _ := filepath.Glob(filepath.Join(place, folderPrefix+"*"))
		all = append(all, found...)
	}
	for _, path := range all {
		fi, err := os.Stat(path)
		if err != nil || time.Since(fi.ModTime()) < unlocked {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		mine := false
		if err == nil {
			mine, _ = filelock.Try(lock)
		}
		if mine || os.IsNotExist(err) && time.Since(fi.ModTime()) > unfinished {
			_ = os.RemoveAll(path) // as far as it is ours
		}
		if err == nil {
			lock.Close()
		}
	}
}
