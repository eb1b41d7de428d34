package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"maps"
	"slices"
	"strings"
)

// vulnerability is one that govulncheck tells of.
type vulnerability struct {
	id, module, found, fixed, summary string
	called                            bool // a vulnerable function is
}

// vulnerabilities reads what govulncheck prints as JSON: each vulnerability once, what is called first.
func vulnerabilities(r io.Reader) ([]vulnerability, error) {
	all, summaries := map[string]vulnerability{}, map[string]string{}
	scanned := false
	for d := json.NewDecoder(r); ; {
		var m struct {
			Config  *struct{}
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV   string
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Function string }
			}
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what govulncheck prints: %w", err)
		}
		scanned = scanned || m.Config != nil
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if f := m.Finding; f != nil && len(f.Trace) > 0 {
			v := all[f.OSV]
			v.id, v.module, v.found, v.fixed = f.OSV, f.Trace[0].Module, f.Trace[0].Version, f.Fixed
			v.called = v.called || f.Trace[0].Function != ""
			all[f.OSV] = v
		}
	}
	if !scanned {
		return nil, errors.New("govulncheck has looked at nothing")
	}
	out := slices.Collect(maps.Values(all))
	for i := range out {
		out[i].summary = summaries[out[i].id]
	}
	slices.SortFunc(out, func(a, b vulnerability) int {
		if a.called != b.called {
			return map[bool]int{true: -1, false: 1}[a.called]
		}
		return cmp.Or(cmp.Compare(a.module, b.module), cmp.Compare(a.id, b.id))
	})
	return out, nil
}

// errVulnerable says that something is called that is vulnerable.
var errVulnerable = errors.New("a vulnerable function is called")

// tellVulnerabilities prints what there is, and returns errVulnerable if anything of it is called. What is the Go
// toolchain's own is mended by building with a newer one: with lenient it is only told.
func tellVulnerabilities(w io.Writer, all []vulnerability, lenient bool) error {
	var err error
	std := ""
	called := 0
	for _, v := range all {
		how := "not called"
		if v.called {
			how = "CALLED"
			called++
			if v.module == "stdlib" {
				if fixed := "go" + strings.TrimPrefix(v.fixed, "v"); version.Compare(fixed, std) > 0 {
					std = fixed
				}
			}
			if v.module != "stdlib" || !lenient {
				err = errVulnerable
			}
		}
		fmt.Fprintf(w, "%-10s %s %s@%s, fixed in %s: %s\n", how, v.id, v.module, v.found, cmp.Or(v.fixed, "no version"), v.summary)
	}
	if std != "" {
		fmt.Fprintf(w, "WARNING: programs that are built with this Go have vulnerabilities of its standard library: build releases with a newer one (%s, or what is newest)\n", std)
	}
	fmt.Fprintf(w, "%d known vulnerabilities, %d of them called\n", len(all), called)
	return err
}
