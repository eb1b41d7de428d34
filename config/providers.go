package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/cluster-mirroring/mirror-sidecar/sealed"
)

// Providers expands ${file:path:key}, ${env:NAME} and ${dir:path:name}, as Kafka's providers of these
// usual names do: a key of a properties file, a variable, and a file in a directory as Kubernetes mounts
// secrets. Mirror configs come over the wire and expand on the server, whose answer goes to an address
// of the caller's choice; so nothing may be read that is not allowed by name. What a reference stands for
// is taken as it is: references in it are none.
type Providers struct {
	AllowedPaths []string
	AllowedEnv   []string
	// AllowedURLs are the token endpoints that mirrors may name.
	AllowedURLs []string
	// Keys open what the state topic keeps encrypted; nil for none.
	Keys *sealed.Keys
	// Log is told of what cannot be read any more, see Live; nil for nobody.
	Log *slog.Logger

	all bool // everything may be read
}

// CallersProviders may read whatever the process may: for what its own user has written.
func CallersProviders() Providers { return Providers{all: true} }

// The keys that say what may be read. References in them themselves are none.
const (
	keyAllowedPaths = "config.providers.allowed.paths"
	keyAllowedEnv   = "config.providers.allowed.env"
)

// maxSecretBytes bounds a file that is one secret.
const maxSecretBytes = 1 << 20

// readTries is how often a file is looked for that its directory may be replacing just now.
const readTries = 3

// providerNames are those that references may begin with.
func providerNames() []string { return []string{"file", "env", "dir", "directory"} }

// providerExpression finds ${provider:rest}; values without one are left alone.
func providerExpression() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z]+):([^}]*)\}`) }

// isReference tells whether a value is one reference and nothing else.
func isReference(value string) bool {
	value = strings.TrimSpace(value)
	m := providerExpression().FindStringSubmatch(value)
	return m != nil && m[0] == value && slices.Contains(providerNames(), m[1])
}

// expandOwn replaces references in one of the sidecar's own keys, such as the address of its pod.
func (v Providers) expandOwn(key, value string) (string, error) {
	if key == keyAllowedPaths || key == keyAllowedEnv || !strings.Contains(value, "${") {
		return value, nil
	}
	p, err := v.Expand(Properties{key: value})
	return p[key], err
}

// Expand returns a copy of p with every reference replaced.
func (v Providers) Expand(p Properties) (Properties, error) {
	re := providerExpression()
	out := make(Properties, len(p))
	for _, key := range p.Keys() {
		var failed error
		out[key] = re.ReplaceAllStringFunc(p[key], func(ref string) string {
			m := re.FindStringSubmatch(ref)
			if !slices.Contains(providerNames(), m[1]) {
				// What stands there may be part of a password, and is not repeated.
				if failed == nil {
					failed = fmt.Errorf("%s: a ${…} in it names none of the providers %s; a secret that is meant so can be kept in a file", key, strings.Join(providerNames(), ", "))
				}
				return ""
			}
			value, err := v.lookup(m[1], m[2])
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %s: %w", key, ref, err)
			}
			return value
		})
		if failed != nil {
			return nil, failed
		}
	}
	return out, nil
}

func (v Providers) lookup(provider, rest string) (string, error) {
	if provider == "env" {
		if !v.all && !slices.Contains(v.AllowedEnv, rest) {
			return "", errors.New("variable is not in config.providers.allowed.env of the sidecar")
		}
		value, ok := os.LookupEnv(rest)
		if !ok {
			return "", errors.New("variable is not set")
		}
		return value, nil
	}
	i := strings.LastIndexByte(rest, ':')
	if i <= 0 {
		what := "key"
		if provider != "file" {
			what = "name"
		}
		return "", fmt.Errorf("write ${%s:path:%s}", provider, what)
	}
	path, name := rest[:i], rest[i+1:]
	if provider == "file" {
		text, err := v.read(path, maxPropertiesBytes)
		if err != nil {
			return "", err
		}
		p, err := ParseProperties(strings.NewReader(text))
		if err != nil {
			// What is wrong may be a secret that stands there without a key.
			return "", errors.New("it is not a properties file: each line a key and a value, none twice, in UTF-8")
		}
		value, ok := p[name]
		if !ok {
			return "", fmt.Errorf("the file has no key %q", name)
		}
		return value, nil
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return "", errors.New("what follows the directory must be the plain name of a file in it")
	}
	text, err := v.read(filepath.Join(path, name), maxSecretBytes)
	if err != nil {
		return "", err
	}
	if !utf8.ValidString(text) {
		return "", errors.New("the file is not UTF-8 text")
	}
	// Editors and echo end files so, and no password.
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), nil
}

// read returns what a file holds that may be read.
func (v Providers) read(path string, limit int64) (string, error) {
	var f *os.File
	var err error
	for try := 1; ; try++ {
		if f, err = v.open(path); try == readTries || !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	switch {
	case errors.Is(err, errNotAllowed):
		return "", errNotAllowed // without what the system says of it
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("there is no such file")
	case err != nil:
		return "", fmt.Errorf("the file cannot be read: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("that is not a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return "", fmt.Errorf("the file cannot be read: %w", err)
	}
	if int64(len(text)) > limit {
		return "", fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return string(text), nil
}

// openFlags do not wait for who writes to a pipe.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

func (v Providers) open(path string) (*os.File, error) {
	if v.all {
		return os.OpenFile(path, openFlags, 0)
	}
	real, root, err := v.inside(path)
	if err != nil {
		return nil, err
	}
	if real == root { // a file that is allowed by itself
		return os.OpenFile(real, openFlags, 0)
	}
	// What has become a link out of there since it was looked at leads nowhere.
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	rel, err := filepath.Rel(root, real)
	if err != nil {
		return nil, errNotAllowed
	}
	return dir.OpenFile(rel, openFlags, 0)
}

// errNotAllowed says nothing about whether there is such a file.
var errNotAllowed = errors.New("path is not inside config.providers.allowed.paths of the sidecar")

// allowedPath is an error if a file may not be read. Who opens one that is missing says so.
func (v Providers) allowedPath(path string) error {
	if v.all {
		return nil
	}
	if _, _, err := v.inside(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errNotAllowed
	}
	return nil
}

// inside returns where a path leads to, and the allowed path that this is inside of, both without
// symbolic links: one inside an allowed directory does not lead out of it. Those with which Kubernetes
// replaces all of a directory's files at once do not. Of a file that is missing it is told only where it would
// be allowed.
func (v Providers) inside(path string) (real, root string, err error) {
	if !filepath.IsAbs(path) || len(v.AllowedPaths) == 0 {
		return "", "", errNotAllowed
	}
	real, missing := filepath.EvalSymlinks(path)
	if missing != nil {
		real = filepath.Clean(path)
	}
	for _, allowed := range v.AllowedPaths {
		root, err := filepath.EvalSymlinks(allowed)
		if err != nil {
			continue
		}
		if missing == nil && within(root, real) {
			return real, root, nil
		}
		if missing != nil && errors.Is(missing, fs.ErrNotExist) && (within(root, real) || within(filepath.Clean(allowed), real)) {
			return "", "", missing
		}
	}
	return "", "", errNotAllowed
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
