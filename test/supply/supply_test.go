package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// What go.mod requires is listed with licences that are allowed.
func TestLicenses(t *testing.T) {
	page, err := licensesPage(root)
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(root, "docs", "licenses.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, written) {
		t.Errorf("docs/licenses.md is not what go.mod says: go run ./test/supply licenses docs/licenses.md\nit would be\n%s", page)
	}
	mods, err := licenses(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mods {
		if !slices.Contains(allowed(), m.License) {
			t.Errorf("%s has the licence %q", m.Path, m.License)
		}
	}
}

func TestLicenseOf(t *testing.T) {
	for text, want := range map[string]string{
		"MIT License\n\nPermission is hereby granted, free of charge, to any\n person obtaining a copy":                                   "MIT",
		"Apache License\n   Version 2.0, January 2004":                                                                                    "Apache-2.0",
		"Redistribution and use in source and binary forms\n * may be used to endorse or promote\n * products derived from this software": "BSD-3-Clause",
		"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007":                                                                            "GPL",
		"Mozilla Public License, version 2.0":                                                                                             "MPL-2.0",
		"all rights reserved":                                                                                                             "",
	} {
		if got := licenseOf(text); got != want {
			t.Errorf("%.30q: %q, want %q", text, got, want)
		}
	}
}

// An SBOM lists every module that a program is linked from, with its version, and says the same each time.
func TestSBOM(t *testing.T) {
	program := filepath.Join(root, "build", "bin", "mirror-sidecar")
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs make build")
	}
	known, err := licenses(root)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sbom(program, known)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := sbom(program, known); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("another one: %v", err)
	}
	var b bom
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, c := range b.Components {
		have[c.Name] = true
		if c.Version == "" || len(c.Licenses) != 1 || c.Licenses[0].License.ID == "" {
			t.Errorf("%+v", c)
		}
	}
	if !have["std"] || len(b.Metadata.Component.Hashes) != 1 {
		t.Errorf("%+v", b.Metadata)
	}
	for _, m := range known {
		switch m.Path {
		case "github.com/twmb/franz-go", "github.com/prometheus/client_golang":
			if !have[m.Path] {
				t.Errorf("%s is not listed", m.Path)
			}
		}
	}
}

func TestVulnerabilities(t *testing.T) {
	const config = `{"config":{"protocol_version":"v1.0.0"}}`
	finding := func(id, module, function string) string {
		return `{"osv":{"id":"` + id + `","summary":"text of ` + id + `"}}
{"finding":{"osv":"` + id + `","fixed_version":"v2","trace":[{"module":"` + module + `","version":"v1"}]}}
{"finding":{"osv":"` + id + `","fixed_version":"v2","trace":[{"module":"` + module + `","version":"v1","function":"` + function + `"}]}}`
	}
	for name, tc := range map[string]struct {
		in         string
		warn, fine bool
		want       string
	}{
		"nothing":            {config, false, true, "0 known vulnerabilities, 0 of them called"},
		"not called":         {config + finding("A", "m", ""), false, true, "not called A m@v1, fixed in v2: text of A"},
		"called":             {config + finding("A", "m", "f"), true, false, "CALLED     A m@v1"},
		"of Go":              {config + finding("A", "stdlib", "f"), false, false, "WARNING: "},
		"of Go, only a word": {config + finding("A", "stdlib", "f"), true, true, "WARNING: "},
	} {
		all, err := vulnerabilities(strings.NewReader(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tellVulnerabilities(&out, all, tc.warn); (err == nil) != tc.fine || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: %v, %s", name, err, &out)
		}
	}
	for _, in := range []string{"", "{", `{"osv":{}}`} {
		if _, err := vulnerabilities(strings.NewReader(in)); err == nil {
			t.Errorf("%q passes", in)
		}
	}
}
