package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/filelock"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Files of data.dir. Nothing is lost with them but time at the next start.
const (
	lockFile      = "lock"
	successorFile = "successor"
	savedFile     = "metadata.json"
)

// savedVersion is the form of savedFile; another one is not read.
const savedVersion = 1

// saved is what one process leaves to the next.
type saved struct {
	Version       int                   `json:"version"`
	ClusterID     string                `json:"clusterId"`
	Home          metadata.Broker       `json:"home"`
	HomeBroker    []string              `json:"homeBroker"`
	VirtualOffset ids.Virtual           `json:"virtualOffset"`
	Topics        []metadata.SavedTopic `json:"topics"`
}

// dataDir is data.dir. A nil one is that of a sidecar without.
type dataDir struct {
	path string
	lock *os.File
	// locked: this process has the folder. As long as it has not, a former one holds it.
	locked bool

	written []byte // what save wrote last; the saver's own
}

// openDataDir opens the folder, and has it unless a former process does.
func openDataDir(path string) (*dataDir, error) {
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data.dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data.dir: %w", err)
	}
	d := &dataDir{path: path, lock: f}
	if err := d.tryLock(); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// tryLock has the folder if nobody else does; the end of a process gives it up.
func (d *dataDir) tryLock() error {
	got, err := filelock.Try(d.lock)
	if errors.Is(err, errors.ErrUnsupported) {
		got, err = true, nil // nothing shows that somebody else has it
	}
	if err != nil {
		return fmt.Errorf("data.dir: lock %s: %w", d.lock.Name(), err)
	}
	if !got {
		return nil
	}
	d.locked = true
	_ = os.Remove(filepath.Join(d.path, successorFile))
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	if _, err := d.lock.WriteAt([]byte(processName()), 0); err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	return nil
}

// holder names the process that has the folder: its id, and the space that ids are of.
func (d *dataDir) holder() string {
	b := make([]byte, 256)
	n, _ := d.lock.ReadAt(b, 0)
	return strings.TrimSpace(string(b[:n]))
}

// processName tells this process from any other, also of other containers.
func processName() string { return strconv.Itoa(os.Getpid()) + " " + processSpace() }

// takeOver asks the process that has the folder to end, and waits until it has. One in
// another container cannot be asked: whoever runs both ends it.
func (d *dataDir) takeOver(ctx context.Context, log *slog.Logger) error {
	if d == nil || d.locked {
		return nil
	}
	if err := os.WriteFile(filepath.Join(d.path, successorFile), []byte(processName()), 0o600); err != nil {
		return fmt.Errorf("data.dir: %w", err)
	}
	defer func() {
		// Whoever ends without a successor listens until it has ended.
		if !d.locked && d.successor() == processName() {
			_ = os.Remove(filepath.Join(d.path, successorFile))
		}
	}()
	holder := d.holder()
	id, space, _ := strings.Cut(holder, " ")
	if pid, err := strconv.Atoi(id); err == nil && space == processSpace() && pid != os.Getpid() {
		log.Info("taking over from the former process", "pid", pid)
		if err := terminate(pid); err != nil {
			return fmt.Errorf("ask process %d, which has data.dir, to end: %w", pid, err)
		}
	} else {
		log.Warn("the former process is out of reach: end it", "process", holder)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !d.locked {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %q, which has data.dir, has not ended: %w", holder, context.Cause(ctx))
		case <-tick.C:
		}
		if err := d.tryLock(); err != nil {
			return err
		}
	}
	log.Info("the former process has ended")
	return nil
}

// successor names the process that waits for the folder, as holder does; nobody: "".
func (d *dataDir) successor() string {
	b, _ := os.ReadFile(filepath.Join(d.path, successorFile))
	return string(b)
}

// succeeded tells whether another process waits for this one to end. One that died while it
// waited does not; of another container's that cannot be told.
func (d *dataDir) succeeded() bool {
	if d == nil {
		return false
	}
	id, space, ok := strings.Cut(d.successor(), " ")
	if !ok {
		return false
	}
	pid, err := strconv.Atoi(id)
	return err == nil && (space != processSpace() || lives(pid))
}

// listen listens for clients. With data.dir, which has the lock, a process that takes over
// listens beside the former one; whoever else is at the address is an error all the same.
func (d *dataDir) listen(ctx context.Context, addr string) (net.Listener, error) {
	var alone net.ListenConfig
	if d == nil {
		return alone.Listen(ctx, "tcp", addr)
	}
	if d.locked {
		ln, err := alone.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		ln.Close()
	}
	beside := net.ListenConfig{Control: sharePort}
	return beside.Listen(ctx, "tcp", addr)
}

// load returns what a former process has left, if it was of the same home broker.
func (d *dataDir) load(cfg *config.Sidecar, log *slog.Logger) (saved, bool) {
	if d == nil {
		return saved{}, false
	}
	var s saved
	raw, err := os.ReadFile(filepath.Join(d.path, savedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	switch {
	case err != nil:
		log.Warn("what the former process left cannot be read", "error", err)
	case s.Version != savedVersion || len(s.HomeBroker) == 0 || s.HomeBroker[0] != cfg.HomeBroker[0] || s.VirtualOffset != cfg.VirtualOffset:
		log.Info("what the former process left is of another version or home broker, and is not used")
	default:
		log.Info("clients are served with what the former process knew until the metadata log is read", "broker", s.Home.ID, "topics", len(s.Topics))
		return s, true
	}
	return saved{}, false
}

// save leaves s to the next process.
func (d *dataDir) save(s saved) error {
	s.Version = savedVersion
	raw, err := json.Marshal(s)
	if err != nil || bytes.Equal(raw, d.written) {
		return err
	}
	// A reader sees the one or the other, never half of one.
	name := filepath.Join(d.path, savedFile)
	if err := os.WriteFile(name+".tmp", raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	d.written = raw
	return nil
}

// forget removes what was saved.
func (d *dataDir) forget() {
	if d != nil {
		_ = os.Remove(filepath.Join(d.path, savedFile))
	}
}
