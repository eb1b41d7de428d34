package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/python"
)

// Module is the Go module that has the SDK.
const Module = "github.com/cluster-mirroring/mirror-sidecar"

// Langs are what Options.Lang may be.
var Langs = []string{"go", "python"}

// Options say what is written.
type Options struct {
	Name string // of the plugin, and of its program
	Lang string
	Kind string
	// Dir is the folder; it must not be there yet. Empty is the plugin's name.
	Dir string
	// SDK is a folder with this project, whose SDK is used instead of a released one. Go only.
	SDK string
	// Version is that of the SDK, a module's; empty is the newest. Go only.
	Version string
}

//go:embed templates
var templates embed.FS

// A name is that of plugin.<name>.command, and Go must take it for a module's.
var nameRE = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,63}$`)

// moduleVersion is a release's: what else a build is called, the Go command may not find anywhere.
var moduleVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// Write writes a plugin and returns the folder, and the names of the files in it.
func Write(o Options) (dir string, files []string, err error) {
	if !nameRE.MatchString(o.Name) || o.Name == config.PluginBuiltIn || o.Name == "path" {
		return "", nil, fmt.Errorf("%q can be no plugin's name: it begins with a letter and has up to 64 letters, digits, - and _", o.Name)
	}
	if !slices.Contains(Langs, o.Lang) {
		return "", nil, fmt.Errorf("there is no scaffold in %q, only in %s; docs/plugins.md says what other languages need", o.Lang, strings.Join(Langs, " and "))
	}
	k, ok := kindOf(o.Kind)
	if !ok {
		return "", nil, fmt.Errorf("there is no kind %q; there are %s", o.Kind, strings.Join(KindNames(), ", "))
	}
	content, err := render(o, k)
	if err != nil {
		return "", nil, err
	}
	if dir = o.Dir; dir == "" {
		dir = o.Name
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return "", nil, fmt.Errorf("the folder of plugin %s: %w", o.Name, err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", nil, fmt.Errorf("%s is there already; nothing is written into it", dir)
		}
		return "", nil, fmt.Errorf("the folder of plugin %s: %w", o.Name, err)
	}
	for name := range content {
		files = append(files, name)
	}
	slices.Sort(files)
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content[name], 0o666); err != nil {
			return "", nil, fmt.Errorf("plugin %s: %w", o.Name, err)
		}
	}
	return dir, files, nil
}

// values are what templates see.
type values struct {
	kind
	Plugin, SDK, Version, Module string
}

// render makes the files' content.
func render(o Options, k kind) (map[string][]byte, error) {
	v := values{kind: k, Plugin: o.Name, Module: Module}
	out := map[string][]byte{}
	switch o.Lang {
	case "go":
		if moduleVersion.MatchString(o.Version) {
			v.Version = o.Version
		}
		if o.SDK != "" {
			sdk, err := filepath.Abs(o.SDK)
			if err != nil {
				return nil, fmt.Errorf("the folder of the SDK: %w", err)
			}
			sums, err := os.ReadFile(filepath.Join(sdk, "go.sum"))
			if err != nil {
				return nil, fmt.Errorf("the folder of the SDK has no Go module in it: %w", err)
			}
			v.SDK, v.Version = sdk, "v0.0.0"
			out["go.sum"] = sums
		}
	case "python":
		out["mirror_policy.py"], out["requirements.txt"], out["policy.proto"] = python.Module, python.Requirements, policyv1.Proto
	}
	from := path.Join("templates", o.Lang)
	entries, err := templates.ReadDir(from)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		// policy.events.go.tmpl stands for policy.go where the kind is events.
		special := strings.Contains(name, ".events.")
		plain := strings.Replace(name, ".events.", ".", 1)
		if special != (k.Name == events.Name) && (special || hasSpecial(entries, name)) {
			continue
		}
		t, err := template.ParseFS(templates, path.Join(from, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", e.Name(), err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return nil, fmt.Errorf("template %s: %w", e.Name(), err)
		}
		if plain == "gitignore" { // one with a dot would count here
			plain = ".gitignore"
		}
		out[plain] = b.Bytes()
	}
	return out, nil
}

// hasSpecial tells whether there is another template of a file for events.
func hasSpecial(entries []fs.DirEntry, name string) bool {
	base, ext, _ := strings.Cut(name, ".")
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == base+".events."+ext+".tmpl" })
}
