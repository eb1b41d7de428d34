package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is one that go.mod requires.
type module struct {
	Path, Version, Dir string
	Main               bool
	License            string // an SPDX id
	Shipped            bool   // a part of it is in the programs
}

// allowed are the licences that a dependency may have. MPL-2.0 is a copyleft of single files: it asks for
// the sources of the files under it, which are public, if they are changed, which none is here. No licence is allowed
// that asks for ours (GPL, LGPL, AGPL, SSPL), or keeps anybody from using it (BUSL).
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
}

// texts are what only one licence says, in the order in which they are looked for.
func texts() []struct{ id, text string } {
	return []struct{ id, text string }{
		{"MPL-2.0", "Mozilla Public License, version 2.0"}, // which names those that follow
		{"MPL-2.0", "Mozilla Public License Version 2.0"},
		{"AGPL", "GNU AFFERO GENERAL PUBLIC LICENSE"},
		{"LGPL", "GNU LESSER GENERAL PUBLIC LICENSE"},
		{"GPL", "GNU GENERAL PUBLIC LICENSE Version"},
		{"SSPL", "Server Side Public License"},
		{"BUSL", "Business Source License"},
		{"Apache-2.0", "Apache License Version 2.0"},
		{"Apache-2.0", "Licensed under the Apache License, Version 2.0"},
		{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"BSD-3-Clause", "may be used to endorse or promote products derived from this software"},
		{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
	}
}

var blanks = regexp.MustCompile(`[\s#*>]+`)

// licenseOf reads which licence a text is; empty if it is none that is known.
func licenseOf(text string) string {
	text = strings.ToLower(blanks.ReplaceAllString(text, " "))
	for _, t := range texts() {
		if strings.Contains(text, strings.ToLower(t.text)) {
			return t.id
		}
	}
	return ""
}

// licenses lists what go.mod in dir requires.
func licenses(dir string) ([]module, error) {
	var required struct{ Require []struct{ Path string } }
	if err := goJSON(dir, func(d *json.Decoder) error { return d.Decode(&required) }, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	paths := []string{"list", "-m", "-json"}
	for _, r := range required.Require {
		paths = append(paths, r.Path)
	}
	shipped := map[string]bool{}
	err := goJSON(dir, func(d *json.Decoder) error {
		var p struct{ Module *module }
		if err := d.Decode(&p); err != nil {
			return err
		}
		if p.Module != nil {
			shipped[p.Module.Path] = true
		}
		return nil
	}, "list", "-deps", "-json=Module", "./cmd/...")
	if err != nil {
		return nil, err
	}
	var out []module
	err = goJSON(dir, func(d *json.Decoder) error {
		var m module
		if err := d.Decode(&m); err != nil {
			return err
		}
		m.Shipped = shipped[m.Path]
		out = append(out, m)
		return nil
	}, paths...)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range out {
		m := &out[i]
		if m.License, err = licenseIn(m.Dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Path, err))
		}
	}
	slices.SortFunc(out, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return out, errors.Join(errs...)
}

// licenseIn finds the licence in a module's folder.
func licenseIn(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("it is not downloaded: go mod download")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		if id := licenseOf(string(text)); id != "" {
			return id, nil
		}
	}
	return "", fmt.Errorf("no licence that is known in %s", filepath.Base(dir))
}

// goJSON runs the go command and gives what it prints to next, until there is no more.
func goJSON(dir string, next func(*json.Decoder) error, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args[:2], " "), err, stderr.String())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		if err := next(d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args[:2], " "), err)
		}
	}
}

// licensesPage is docs/licenses.md.
func licensesPage(dir string) ([]byte, error) {
	mods, err := licenses(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Licences of what this is made of\n\n" +
		"Made by `go run ./test/supply licenses docs/licenses.md`; a test fails when it is not what `go.mod` says, and when a licence is\n" +
		"none of " + strings.Join(allowed(), ", ") + ". MPL-2.0 asks for the sources of the files under it where they are changed, which\n" +
		"none is here. Versions are in `go.mod`, and in the SBOM of a release.\n\n" +
		"| module | licence | in the programs |\n|---|---|---|\n")
	for _, m := range mods {
		in := "no: tests only"
		if m.Shipped {
			in = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Path, m.License, in)
	}
	return b.Bytes(), nil
}
