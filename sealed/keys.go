package sealed

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const (
	keyBytes = 32
	maxFile  = 64 << 10
	maxKeys  = 100
	// maxMode are the permissions beyond which others than the sidecar's user and group read the file.
	maxMode fs.FileMode = 0o640
)

// howToMake ends errors about keys.
const howToMake = "`openssl rand -base64 32` makes a key"

// key is one key; its id says nothing about it.
type key struct {
	id  string
	raw [keyBytes]byte
}

// Keys are those of a file: the first encrypts, all decrypt. Without a file (nil) there are none.
type Keys struct {
	path string

	mu   sync.Mutex // guards the following
	keys []key      // of the last time that the file was right
	err  error      // why it is not right now
}

// Open reads a file of keys.
func Open(path string) (*Keys, error) {
	k := &Keys{path: path}
	if _, err := k.current(); err != nil {
		return nil, err
	}
	if err := k.Err(); err != nil {
		return nil, err
	}
	return k, nil
}

// current returns the keys as they are now. A file that cannot be read any more, half written maybe,
// takes no key away.
func (k *Keys) current() ([]key, error) {
	if k == nil {
		return nil, nil
	}
	read, err := readKeys(k.path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.keys = read
	}
	if len(k.keys) == 0 {
		return nil, err
	}
	return k.keys, nil
}

// Err says what is wrong with the file now: the keys of before count as long as it is.
func (k *Keys) Err() error {
	if k == nil {
		return nil
	}
	_, _ = k.current() // what is wrong is kept
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// IDs are those of the keys, that which encrypts first.
func (k *Keys) IDs() []string {
	keys, err := k.current()
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(keys))
	for _, key := range keys {
		out = append(out, key.id)
	}
	return out
}

// Exposed is an error if others may read the file.
func (k *Keys) Exposed() error {
	if k == nil {
		return nil
	}
	info, err := os.Stat(k.path)
	if err != nil {
		return nil //nolint:nilerr // Err tells it
	}
	if mode := info.Mode().Perm(); mode&^maxMode != 0 {
		return fmt.Errorf("%s can be read or written by others (mode %04o): chmod 600 it, or 640", k.path, mode)
	}
	return nil
}

// String never shows a key.
func (k *Keys) String() string {
	if k == nil {
		return "no keys"
	}
	return "keys of " + k.path
}

func readKeys(path string) ([]key, error) {
	// A pipe that nobody writes to must not hold the sidecar up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read keys: %s is not a file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// parseKeys reads one key a line, in base64. No error repeats what stands there.
func parseKeys(text []byte) ([]key, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	var out []key
	number := 0
	for line := range bytes.Lines(text) {
		number++
		s := strings.TrimSpace(string(line))
		if s == "" || s[0] == '#' {
			continue
		}
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
		if err != nil || len(raw) != keyBytes {
			return nil, fmt.Errorf("line %d is not %d bytes in base64; %s", number, keyBytes, howToMake)
		}
		k := key{raw: [keyBytes]byte(raw)}
		sum := sha256.Sum256(append([]byte("mirror-sidecar key id\x00"), raw...))
		k.id = hex.EncodeToString(sum[:8])
		if slices.ContainsFunc(out, func(o key) bool { return o.id == k.id }) {
			return nil, fmt.Errorf("line %d has the key of a line before", number)
		}
		if out = append(out, k); len(out) > maxKeys {
			return nil, fmt.Errorf("it has more than %d keys", maxKeys)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it has no key; " + howToMake)
	}
	return out, nil
}
