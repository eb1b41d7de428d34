package main

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// The page that scripts are written by names every field and every exit status.
func TestDocumentedShapes(t *testing.T) {
	page, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, line := range strings.Split(string(page), "\n") {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `--") && len(cells) == 2 {
			rows[strings.Trim(strings.FieldsFunc(cells[0], func(r rune) bool { return r == '|' || r == ',' || r == ' ' })[0], "`")] = cells[1]
		}
	}
	for action, types := range map[string][]any{
		"--create":           {mirrorOutcome{}},
		"--start":            {topicOutcome{}},
		"--list":             {listed{}},
		"--describe":         {described{}},
		"--policies":         {describedPolicy{}, skippedItem{}},
		"--describe-configs": {configRow{}},
		"--explain":          {explanation{}, explanationStep{}},
		"--switchover":       {switchoverReport{}, switchoverStep{}, groupOutcome{}},
		"--verify":           {verify.Report{}, verify.PartitionReport{}, verify.Difference{}},
		"--version":          {versionText{}},
	} {
		for _, v := range types {
			for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if f.IsExported() && name != "-" && !strings.Contains(rows[action], "`"+name+"`") {
					t.Errorf("%s: %T.%s, %q in JSON, is not documented", action, v, f.Name, name)
				}
			}
		}
	}
	for _, code := range []int{0, exitFailed, exitUsage, exitTimeout, exitUnreachable, exitInterrupted} {
		if !strings.Contains(string(page), "\n| "+strconv.Itoa(code)+" | ") {
			t.Errorf("exit status %d is not documented", code)
		}
	}
}
