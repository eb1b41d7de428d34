package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// directive returns the flags of the go:generate line that runs this program.
func directive(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		args, ok := strings.CutPrefix(lines.Text(), "//go:generate go run ")
		if !ok {
			continue
		}
		words := strings.Fields(args)
		flags := map[string]string{}
		for i := 1; i+1 < len(words); i += 2 {
			flags[words[i]] = words[i+1]
		}
		return flags
	}
	t.Fatalf("%s has no go:generate line", file)
	return nil
}

func TestGeneratedCodeIsFresh(t *testing.T) {
	for _, dir := range []string{"..", filepath.Join("..", "metadatarecords")} {
		flags := directive(t, filepath.Join(dir, "doc.go"))
		var specs []string
		for _, s := range strings.Split(flags["-specs"], ",") {
			specs = append(specs, filepath.Join(dir, s))
		}
		fresh := filepath.Join(t.TempDir(), "generated.go")
		if err := run(specs, flags["-package"], fresh); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(fresh)
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(dir, flags["-out"]))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("%s is stale: run make generate", filepath.Join(dir, flags["-out"]))
		}
	}
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	for name, spec := range map[string]string{
		"mistyped property":   `{"apiKey":1,"type":"value","name":"A","validVersions":"0","flexibleVersions":"0+","feilds":[]}`,
		"unknown kind":        `{"type":"record","name":"A","validVersions":"0"}`,
		"flexible in part":    `{"type":"value","name":"A","validVersions":"0-2","flexibleVersions":"1+"}`,
		"flexible key":        `{"type":"key","name":"A","validVersions":"0","flexibleVersions":"0+"}`,
		"unknown type":        `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"int31","versions":"0+"}]}`,
		"tag in old version":  `{"type":"value","name":"A","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"B","type":"int32","versions":"0+","tag":0,"taggedVersions":"1+"}]}`,
		"tag without section": `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"int32","versions":"0+","tag":0,"taggedVersions":"0+"}]}`,
		"tag twice": `{"type":"value","name":"A","validVersions":"0","flexibleVersions":"0+","fields":[
			{"name":"B","type":"int32","versions":"0+","tag":0,"taggedVersions":"0+"},{"name":"C","type":"int32","versions":"0+","tag":0,"taggedVersions":"0+"}]}`,
		"nullable number":       `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"int32","versions":"0+","nullableVersions":"0+"}]}`,
		"null default":          `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"string","versions":"0+","default":"null"}]}`,
		"no valid version":      `{"type":"value","name":"A"}`,
		"no versions":           `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"int32"}]}`,
		"field in no version":   `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"int32","versions":"1+"}]}`,
		"struct outside a list": `{"type":"value","name":"A","validVersions":"0","fields":[{"name":"B","type":"C","versions":"0+","fields":[{"name":"D","type":"int8","versions":"0+"}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "A.json"), []byte(spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readSpecs(dir); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestTwoStructsOfOneNameAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, typ := range map[string]string{"A": "int8", "B": "int16"} {
		spec := `{"type":"value","name":"` + name + `","validVersions":"0","fields":[{"name":"L","type":"[]E","versions":"0+","fields":[{"name":"F","type":"` + typ + `","versions":"0+"}]}]}`
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{dir}, "p", filepath.Join(dir, "out.go")); err == nil {
		t.Error("accepted")
	}
}
