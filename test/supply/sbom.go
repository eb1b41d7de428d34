package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// The part of CycloneDX 1.6 that is used here.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbom reads out of a program what it was built from. The same program gives the same bytes.
func sbom(program string, known []module) ([]byte, error) {
	raw, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("%s does not say what it was built from: %w", program, err)
	}
	sum := sha256.Sum256(raw)
	if v := os.Getenv("VERSION"); v != "" && info.Main.Version == "(devel)" { // as make has it
		info.Main.Version = v
	}
	self := componentOf(&info.Main, known)
	self.Type, self.Name = "application", filepath.Base(program)
	self.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs.") || s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			self.Properties = append(self.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	out := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{self}}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	std := component{Type: "library", Name: "std", Version: goVersion, PURL: "pkg:golang/std@" + goVersion}
	std.Ref = std.PURL
	std.Licenses = licensed("BSD-3-Clause")
	out.Components = append(out.Components, std)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out.Components = append(out.Components, componentOf(m, known))
	}
	root := dependency{Ref: self.Ref}
	for _, c := range out.Components {
		root.DependsOn = append(root.DependsOn, c.Ref)
	}
	out.Dependencies = []dependency{root}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

func componentOf(m *debug.Module, known []module) component {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + url.PathEscape(m.Version)}
	c.Ref = c.PURL
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	if i := slices.IndexFunc(known, func(k module) bool { return k.Path == m.Path }); i >= 0 {
		c.Licenses = licensed(known[i].License)
	} else if m.Sum == "" { // the project itself
		c.Licenses = licensed("Apache-2.0")
	}
	return c
}

func licensed(id string) []license {
	var l license
	l.License.ID = id
	return []license{l}
}
