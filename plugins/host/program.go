package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// program is the file that a plugin is, and who has vouched for it.
type program struct {
	argv []string
	// sha256 in hex; empty: not checked.
	sha256 string
	// own: it is the program of this process itself.
	own bool

	mu   sync.Mutex
	seen stamp // of the file that was found to be right
}

// stamp changes when a file does; what is run is hashed anew each time, so that it need not be
// proof against forgery.
type stamp struct {
	file     os.FileInfo
	size     int64
	modified time.Time
}

func (s stamp) same(fi os.FileInfo) bool {
	return s.file != nil && os.SameFile(s.file, fi) && s.size == fi.Size() && s.modified.Equal(fi.ModTime())
}

// verify tells whether the file is the one that was vouched for.
func (p *program) verify() error {
	if p.own {
		return nil
	}
	f, fi, err := p.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if p.sha256 == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen.same(fi) {
		return nil
	}
	if err := p.hash(io.Discard, f); err != nil {
		return err
	}
	p.seen = stamp{file: fi, size: fi.Size(), modified: fi.ModTime()}
	return nil
}

func (p *program) open() (*os.File, os.FileInfo, error) {
	if len(p.argv) == 0 {
		return nil, nil, errors.New("there is no program")
	}
	f, err := os.Open(p.argv[0])
	if err != nil {
		return nil, nil, fmt.Errorf("its program: %w", err)
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("its program: %w", err)
	case !fi.Mode().IsRegular():
		err = fmt.Errorf("its program %s is no file", p.argv[0])
	case fi.Mode().Perm()&0o111 == 0:
		err = fmt.Errorf("its program %s is not executable (chmod +x)", p.argv[0])
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// hash copies the file and tells whether it is the one that was vouched for.
func (p *program) hash(to io.Writer, from io.Reader) error {
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(h, to), from); err != nil {
		return fmt.Errorf("read its program %s: %w", p.argv[0], err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); p.sha256 != "" && sum != p.sha256 {
		return fmt.Errorf("its program %s is not the one whose sha256 is configured: it has %s, not %s", p.argv[0], sum, p.sha256)
	}
	return nil
}

// private makes a copy in a folder that only this process writes to, and returns what to run: the
// file that was hashed, whatever happens to the original meanwhile. dir is where the plugin works.
func (p *program) private(folder string) (path, dir string, err error) {
	if p.own {
		return self(p.argv[0]), folder, nil
	}
	f, _, err := p.open()
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	path = filepath.Join(folder, filepath.Base(p.argv[0]))
	// A process that is forked meanwhile would keep the copy open for writing, and what is written
	// to cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500)
	if err != nil {
		return "", "", fmt.Errorf("a private copy of its program: %w", err)
	}
	if err := errors.Join(p.hash(to, f), to.Close()); err != nil {
		return "", "", err
	}
	return path, filepath.Dir(p.argv[0]), nil
}

// explain adds what the operating system's word for a failed start leaves out.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (is %s mounted noexec? TMPDIR names another folder)", err, os.TempDir())
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (of a script: is the interpreter of its first line there?)", err)
	}
	return err
}
