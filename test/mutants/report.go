package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func report(results []result, o options) error {
	if o.json != "" {
		b, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		if err := write(o.json, append(b, '\n')); err != nil {
			return err
		}
	}
	if o.doc == "" {
		return nil
	}
	var b bytes.Buffer
	tables, exhaustive, random := 0, 0, 0
	for _, r := range results {
		tables += count(len(r.Tables) > 0)
		exhaustive += count(r.Exhaustive != "")
		random += count(r.Random != "")
	}
	fmt.Fprintf(&b, `# Who notices when a rule is gone

Written by %[1]smake mutants%[1]s; do not edit. Each line is a patch in [replica/leading/mutants](../../replica/leading/mutants) that removes one
rule of leading, or one half of one, from the code. Of %[2]d, the table tests of the rules notice %[3]d, the model gone through exhaustively in its
smallest worlds %[4]d, and its random walks (up to %[5]d steps) %[6]d. What only a table test notices is guarded twice in the code, or
belongs to what the model leaves out (see [model.md](model.md)).

The letters are those of what must hold in the model: S1 nothing visible is dropped, S1b nothing replaces it, S2 one batch at an offset and epoch, S3 the high
watermark, S4 nothing is changed after a hand-back, S5 it settles, S6 the lineage, P1 PAUSED, R4 ready, R10 epochs of batches, F fetchers, D the buffer.

| rule | table tests | exhaustive | random |
|---|---|---|---|
`, "`", len(results), tables, exhaustive, o.steps, random)
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Name, tests(r.Tables), kind(r.Exhaustive), kind(r.Random))
	}
	return write(o.doc, b.Bytes())
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tests names one test, and how many more there are.
func tests(names []string) string {
	switch len(names) {
	case 0:
		return "–"
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

func kind(found string) string {
	if found == "" {
		return "–"
	}
	k, _, _ := strings.Cut(found, ":")
	return k
}

func write(name string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}
