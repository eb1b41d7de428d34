package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Providers expands ${file:path:key} and ${env:NAME}. Mirror configs come over the
// wire and expand on the server, whose answer goes to an address of the caller's
// choice; so nothing may be read that is not allowed by name.
type Providers struct {
	AllowedPaths []string
	AllowedEnv   []string
}

// providerExpression finds ${provider:rest}; values without one are left alone.
func providerExpression() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z]+):([^}]*)\}`) }

// Expand returns a copy of p with every reference replaced.
func (v Providers) Expand(p Properties) (Properties, error) {
	re := providerExpression()
	out := make(Properties, len(p))
	for _, key := range p.Keys() {
		var failed error
		out[key] = re.ReplaceAllStringFunc(p[key], func(ref string) string {
			m := re.FindStringSubmatch(ref)
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
	switch provider {
	case "env":
		if !slices.Contains(v.AllowedEnv, rest) {
			return "", fmt.Errorf("variable is not in config.providers.allowed.env of the sidecar")
		}
		value, ok := os.LookupEnv(rest)
		if !ok {
			return "", fmt.Errorf("variable is not set")
		}
		return value, nil
	case "file":
		i := strings.LastIndexByte(rest, ':')
		if i < 0 {
			return "", fmt.Errorf("write ${file:path:key}")
		}
		path, err := v.allowedPath(rest[:i])
		if err != nil {
			return "", err
		}
		p, err := ReadPropertiesFile(path)
		if err != nil {
			return "", err
		}
		value, ok := p[rest[i+1:]]
		if !ok {
			return "", fmt.Errorf("the file has no key %q", rest[i+1:])
		}
		return value, nil
	}
	return "", fmt.Errorf("unknown provider %q, known are file and env", provider)
}

// allowedPath resolves symbolic links before it compares, so that a link inside an
// allowed directory does not lead out of it.
func (v Providers) allowedPath(path string) (string, error) {
	refused := fmt.Errorf("path is not inside config.providers.allowed.paths of the sidecar")
	if !filepath.IsAbs(path) || len(v.AllowedPaths) == 0 {
		return "", refused
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", refused // whether it exists is nobody's business outside the allowed paths
	}
	for _, dir := range v.AllowedPaths {
		root, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(root, real)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return real, nil
		}
	}
	return "", refused
}
