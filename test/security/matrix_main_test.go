package security

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// envTable has the matrix printed when the tests are through, and the sum as the last line.
const envTable = "MIRROR_SECURITY_TABLE"

// withTable runs the tests, and prints what came of the matrix. Another test that failed counts as one.
func withTable(run func() int) int {
	if os.Getenv(envTable) == "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "mirror-security-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv(envMatrix, filepath.Join(dir, "cells"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	begun := time.Now()
	code := run()
	cells, err := os.ReadFile(filepath.Join(dir, "cells"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	fmt.Printf("\nafter %v\n\n", time.Since(begun).Round(time.Second))
	passed, failed := table(os.Stdout, string(cells), code)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return 1
	}
	return code
}

// table prints the matrix, a line for each way to speak, and counts its cells.
func table(out io.Writer, cells string, code int) (passed, failed int) {
	const first = 46
	pad := func(s string, width int) string {
		return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
	}
	line := pad("", first)
	for _, l := range matrixLinks() {
		line += "  " + l
	}
	fmt.Fprintln(out, line)
	said := map[string]bool{}
	for row := range strings.Lines(cells) {
		f := strings.Split(strings.TrimSpace(row), "\t")
		said[f[0]] = true
		line := pad(f[0], first)
		for i, l := range matrixLinks() {
			text := "FAILED"
			if i+1 < len(f) && f[i+1] == "true" {
				text = "ok"
				passed++
			} else {
				failed++
			}
			line += "  " + pad(text, utf8.RuneCountInString(l))
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	for _, s := range speeches() {
		if !said[s.String()] {
			fmt.Fprintln(out, pad(s.String(), first)+"  was not tried")
			failed += len(matrixLinks())
		}
	}
	if code != 0 && failed == 0 {
		fmt.Fprintln(out, "a test beside the matrix failed, see above")
		failed++
	}
	return passed, failed
}

func TestTable(t *testing.T) {
	var all strings.Builder
	for i, s := range speeches() {
		all.WriteString(s.String())
		for n := range matrixLinks() {
			fmt.Fprintf(&all, "\t%t", i > 0 || n > 0)
		}
		all.WriteString("\n")
	}
	count := len(speeches()) * len(matrixLinks())
	for name, c := range map[string]struct {
		cells          string
		code           int
		passed, failed int
	}{
		"a cell":         {cells: all.String(), code: 1, passed: count - 1, failed: 1},
		"nothing":        {code: 1, failed: count},
		"another's":      {cells: strings.ReplaceAll(all.String(), "false", "true"), code: 1, passed: count, failed: 1},
		"all that is":    {cells: strings.ReplaceAll(all.String(), "false", "true"), passed: count},
		"one way's gone": {cells: strings.Join(strings.SplitAfter(strings.ReplaceAll(all.String(), "false", "true"), "\n")[1:], ""), passed: count - len(matrixLinks()), failed: len(matrixLinks())},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			passed, failed := table(&out, c.cells, c.code)
			if passed != c.passed || failed != c.failed {
				t.Errorf("%d passed, %d failed:\n%s", passed, failed, out.String())
			}
		})
	}
}
