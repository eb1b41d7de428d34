package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	keyPluginPath = "plugin.path"
	pluginPrefix  = "plugin."
	// PluginBuiltIn is the plugin that is part of the sidecar: it has no program of its own.
	PluginBuiltIn = "built-in"

	pluginCommand = "command"
	pluginSHA256  = "sha256"
	pluginTimeout = "timeout.ms"
	pluginConfig  = "config."

	defaultPluginTimeout = 5 * time.Second
	// Rounds of questions have minutes for everything.
	maxPluginTimeout = 30_000 // ms
	maxPluginName    = 64
)

// Plugin is what the sidecar's configuration says of one plugin.
type Plugin struct {
	Name string
	// Command is the program and its arguments; empty for the one built in.
	Command []string
	// SHA256 is that of the program, in hex; checked before each start.
	SHA256  string
	Timeout time.Duration
	// Config is handed to the plugin as it is.
	Config map[string]string
}

// pluginKeys lists what may follow plugin.<name>., for suggestions.
func pluginKeys() []string {
	return []string{pluginCommand, pluginSHA256, pluginTimeout, pluginConfig + "<key>"}
}

// takePluginKey keeps plugin.<name>.<key> and tells whether there is such a key.
func (s *Sidecar) takePluginKey(key, value string) (bool, error) {
	rest, ok := strings.CutPrefix(key, pluginPrefix)
	name, bare, more := strings.Cut(rest, ".")
	if !ok || !more || key == keyPluginPath {
		return false, nil
	}
	own, isConfig := strings.CutPrefix(bare, pluginConfig)
	if isConfig && own == "" || !isConfig && !slices.Contains(pluginKeys(), bare) {
		return false, nil
	}
	if err := checkPluginName(name); err != nil {
		return true, fmt.Errorf("%s: %w", key, err)
	}
	if name == PluginBuiltIn && (bare == pluginCommand || bare == pluginSHA256) {
		return true, fmt.Errorf("%s: %s is the plugin that is part of the sidecar, it has no program of its own", key, PluginBuiltIn)
	}
	p := s.plugin(name)
	switch {
	case isConfig:
		p.Config[own] = value
	case bare == pluginCommand:
		if p.Command = strings.Fields(value); len(p.Command) == 0 {
			return true, fmt.Errorf("%s: no program is named", key)
		}
	case bare == pluginSHA256:
		p.SHA256 = strings.ToLower(strings.TrimSpace(value))
		if raw, err := hex.DecodeString(p.SHA256); err != nil || len(raw) != 32 {
			return true, fmt.Errorf("%s: a SHA-256 is 64 hex digits, as sha256sum prints it", key)
		}
	case bare == pluginTimeout:
		d, err := parseMillis(value, 100, maxPluginTimeout)
		if err != nil {
			return true, fmt.Errorf("%s: %w", key, err)
		}
		p.Timeout = d
	}
	return true, nil
}

func (s *Sidecar) plugin(name string) *Plugin {
	p, ok := s.Plugins[name]
	if !ok {
		p = &Plugin{Name: name, Timeout: defaultPluginTimeout, Config: map[string]string{}}
		s.Plugins[name] = p
	}
	return p
}

// checkPluginName: names stand in lists, in keys and in metrics.
func checkPluginName(name string) error {
	ok := name != "" && len(name) <= maxPluginName
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("a plugin's name has up to %d letters, digits, - and _", maxPluginName)
	}
	return nil
}

// finishPlugins fills in defaults, finds the programs, and replaces references in the plugins' own
// configuration.
func (s *Sidecar) finishPlugins() error {
	s.plugin(PluginBuiltIn)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Plugins)) {
		p := s.Plugins[name]
		expanded, err := s.Providers.Expand(p.Config)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%s.%s%w", pluginPrefix, name, pluginConfig, err))
		}
		p.Config = expanded
		if name == PluginBuiltIn {
			continue
		}
		if len(p.Command) == 0 {
			p.Command = []string{name}
		}
		if p.Command[0], err = s.pluginProgram(p.Command[0]); err != nil {
			errs = append(errs, fmt.Errorf("%s%s.%s: %w", pluginPrefix, name, pluginCommand, err))
		}
		if p.SHA256 == "" {
			errs = append(errs, fmt.Errorf("%s%s.%s is required: a program that nobody has vouched for is not run; `sha256sum %s` prints it", pluginPrefix, name, pluginSHA256, p.Command[0]))
		}
	}
	return errors.Join(errs...)
}

// pluginProgram is where a program is. The PATH of whoever started the sidecar is not asked.
func (s *Sidecar) pluginProgram(program string) (string, error) {
	switch {
	case filepath.IsAbs(program):
		return filepath.Clean(program), nil
	case s.PluginPath == "":
		return "", fmt.Errorf("%q is not an absolute path, and %s names no folder to look in", program, keyPluginPath)
	case !filepath.IsLocal(program):
		return "", fmt.Errorf("%q leads out of %s", program, keyPluginPath)
	}
	return filepath.Join(s.PluginPath, program), nil
}
