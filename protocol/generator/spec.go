package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// versions is an inclusive range of message versions. Its zero value, a property that is
// not in the spec, is empty.
type versions struct {
	min, max int
	some     bool
}

func (v versions) empty() bool            { return !v.some || v.min > v.max }
func (v versions) covers(o versions) bool { return v.min <= o.min && o.max <= v.max }

func (v versions) and(o versions) versions {
	return versions{max(v.min, o.min), min(v.max, o.max), v.some && o.some}
}

func (v *versions) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	r, err := parseVersions(s)
	if err != nil {
		return err
	}
	*v = r
	return nil
}

// parseVersions reads "0", "1+", "2-3" and "none".
func parseVersions(s string) (versions, error) {
	if s == "none" || s == "" {
		return versions{}, nil
	}
	lo, hi, isRange := strings.Cut(s, "-")
	if open, ok := strings.CutSuffix(s, "+"); ok {
		n, err := strconv.Atoi(open)
		return versions{n, math.MaxInt16, true}, err
	}
	from, err := strconv.Atoi(lo)
	if err != nil {
		return versions{}, fmt.Errorf("versions %q: %w", s, err)
	}
	to := from
	if isRange {
		if to, err = strconv.Atoi(hi); err != nil {
			return versions{}, fmt.Errorf("versions %q: %w", s, err)
		}
	}
	return versions{from, to, true}, nil
}

// message is one spec file.
type message struct {
	APIKey   int      `json:"apiKey"`
	Type     string   `json:"type"` // request, response, data, metadata, key or value
	Name     string   `json:"name"`
	Valid    versions `json:"validVersions"`
	Flexible versions `json:"flexibleVersions"`
	About    string   `json:"about"`
	Source   string   `json:"source"` // the text the layout comes from
	Fields   []field  `json:"fields"`
}

// field is one field of a message or of a struct inside it.
type field struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"`
	Versions versions  `json:"versions"`
	Nullable *versions `json:"nullableVersions"`
	Tag      *uint32   `json:"tag"`
	Tagged   *versions `json:"taggedVersions"`
	Default  any       `json:"default"`
	About    string    `json:"about"`
	Fields   []field   `json:"fields"`
}

func (m *message) flexible() bool { return !m.Flexible.empty() }
func (m *message) keepsTags() bool {
	return m.flexible() && m.Type != "metadata"
}

func (f *field) array() bool { return strings.HasPrefix(f.Type, "[]") }
func (f *field) elem() string {
	return strings.TrimPrefix(f.Type, "[]")
}

func (f *field) nullable() bool { return f.Nullable != nil && !f.Nullable.empty() }
func (f *field) tagged() bool   { return f.Tag != nil }

// goName turns a spec's name into Go's: ids and in-sync replicas are initialisms.
func goName(s string) string {
	var words []string
	start := 0
	for i := 1; i <= len(s); i++ {
		if i == len(s) || (s[i] >= 'A' && s[i] <= 'Z') {
			words = append(words, s[start:i])
			start = i
		}
	}
	for i, w := range words {
		switch w {
		case "Id", "Isr", "Elr":
			words[i] = strings.ToUpper(w)
		case "Ids":
			words[i] = "IDs"
		}
	}
	return strings.Join(words, "")
}

// jsonName is the name that Kafka's tools print.
func jsonName(s string) string { return strings.ToLower(s[:1]) + s[1:] }

var errSpec = errors.New("invalid spec")

func readSpecs(dir string) ([]*message, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list specs: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no *.json in %s", errSpec, dir)
	}
	all := make([]*message, 0, len(names))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read spec: %w", err)
		}
		m := new(message)
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields() // a mistyped property would change the layout silently
		if err := d.Decode(m); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		all = append(all, m)
	}
	return all, nil
}

func (m *message) check() error {
	switch m.Type {
	case "request", "response", "data", "metadata", "key", "value":
	default:
		return fmt.Errorf("%w: type %q", errSpec, m.Type)
	}
	if m.Type == "key" && m.flexible() {
		return fmt.Errorf("%w: a key must not be flexible: two processes must write the same bytes for it", errSpec)
	}
	if m.Valid.empty() {
		return fmt.Errorf("%w: no valid version", errSpec)
	}
	if m.flexible() && !m.Flexible.covers(m.Valid) {
		// Ours always are or never are, and one code path less is one less to get wrong.
		return fmt.Errorf("%w: flexible in some versions only", errSpec)
	}
	return m.checkFields(m.Name, m.Fields)
}

func (m *message) checkFields(where string, fields []field) error {
	tags := map[uint32]bool{}
	for i := range fields {
		f := &fields[i]
		at := where + "." + f.Name
		if f.Versions.and(m.Valid).empty() {
			return fmt.Errorf("%w: %s is in no version", errSpec, at)
		}
		if f.tagged() {
			if !m.flexible() || f.Tagged == nil || !f.Tagged.covers(f.Versions.and(m.Valid)) {
				return fmt.Errorf("%w: %s must be tagged in all of its versions", errSpec, at)
			}
			if tags[*f.Tag] {
				return fmt.Errorf("%w: %s reuses tag %d", errSpec, at, *f.Tag)
			}
			tags[*f.Tag] = true
		}
		if f.nullable() {
			if !f.array() && f.Type != "string" {
				return fmt.Errorf("%w: %s cannot be null", errSpec, at)
			}
			if !f.Nullable.covers(f.Versions.and(m.Valid)) {
				return fmt.Errorf("%w: %s must be nullable in all of its versions", errSpec, at)
			}
		}
		if f.Default == "null" && !f.nullable() {
			return fmt.Errorf("%w: %s defaults to null but is not nullable", errSpec, at)
		}
		if _, ok := primitives[f.elem()]; ok == (len(f.Fields) > 0) {
			return fmt.Errorf("%w: %s: type %s", errSpec, at, f.Type)
		}
		if !f.array() && len(f.Fields) > 0 {
			return fmt.Errorf("%w: %s: structs must be in arrays", errSpec, at)
		}
		if err := m.checkFields(at, f.Fields); err != nil {
			return err
		}
	}
	return nil
}
