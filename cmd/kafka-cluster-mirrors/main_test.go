package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCommandLine: what is not understood says so and exits with 2, nothing is asked.
func TestCommandLine(t *testing.T) {
	const at = "--bootstrap-server a:1 "
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"":                             {exitUsage, "one of --create"},
		"--bogus":                      {exitUsage, "unknown flag: --bogus"},
		"--list":                       {exitUsage, "--bootstrap-server is needed"},
		"--list --describe":            {exitUsage, "cannot be given together"},
		at + "--start":                 {exitUsage, "--start needs --mirror"},
		at + "--start --mirror m":      {exitUsage, "--start needs --topics"},
		at + "--pause --mirror= ":      {exitUsage, "--pause needs --mirror"},
		at + "--list x":                {exitUsage, `unexpected argument "x"`},
		at + "--list --allow-truncate": {exitUsage, "no meaning with --list"},
		at + "--stop --mirror m --topics a --exclude b":              {exitUsage, "--exclude has no meaning with --stop"},
		at + "--stop --mirror m --topics a(":                         {exitUsage, `"a(" is not a regular expression`},
		at + "--stop --mirror m --topics a --timeout 9s":             {exitUsage, "without --wait"},
		at + "--stop --mirror m --topics a --wait --timeout 9ms":     {exitUsage, "too short"},
		at + "--alter --mirror m":                                    {exitUsage, "--alter needs --add-config"},
		at + "--alter --mirror m --add-config x":                     {exitUsage, `"x" is not KEY=VALUE`},
		at + "--alter --mirror m --add-config x=1 --delete-config x": {exitUsage, "x is changed twice"},
		at + "--explain":                               {exitUsage, "one of --topic, --config, --group, --acl and --quota"},
		at + "--explain --topic a --group b":           {exitUsage, "one of --topic, --config, --group, --acl and --quota"},
		at + "--switchover --mirror m --keep-fence 1h": {exitUsage, "cannot be above 10m0s"},
		"--completion tcsh":                            {exitUsage, "no completion for \"tcsh\""},
		"--help --frobnicate":                          {exitUsage, "unknown flag"},
		"--help frobnicate":                            {exitUsage, `no action "frobnicate"`},
		"--version --command-config x":                 {exitUsage, "no meaning with --version"},
		"--decode-log":                                 {exitUsage, "needs files"},
		"--decode-log /nonexistent/x.log":              {exitFailed, "no such file"},
		"--bootstrap-server 127.0.0.1:1 --create --mirror m --mirror-config /nonexistent/m": {exitFailed, "no such file"},
		"--version":        {0, "kafka-cluster-mirrors"},
		"--version --json": {0, `"commit": "unknown"`},
		"--help":           {0, "--bootstrap-server"},
		"--start --help":   {0, "--allow-truncate"},
		"--help start":     {0, "--allow-truncate"},
		"--help --stop":    {0, "the fail-over"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(line), &out, &errs)
		if code != want.code || !strings.Contains(out.String()+errs.String(), want.text) {
			t.Errorf("%q: exit %d, %s%s", line, code, out.String(), errs.String())
		}
		if code == exitUsage && !strings.Contains(errs.String(), "Try 'kafka-cluster-mirrors --help") {
			t.Errorf("%q does not say where help is: %s", line, errs.String())
		}
	}
}

func TestUnreachable(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--bootstrap-server", "127.0.0.1:1", "--list"}, &out, &errs); code != exitUnreachable {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

func TestSplit(t *testing.T) {
	names, patterns := split([]string{"orders", "a.b", "x.*", " y|z "})
	if !slices.Equal(names, []string{"orders", "a.b"}) || !slices.Equal(patterns, []string{"x.*", "y|z"}) {
		t.Errorf("%q %q", names, patterns)
	}
	s, err := newSelector([]string{"a.b", "x.*"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.b": true, "axb": false, "x": true, "xyz": true, "y": false} {
		if s.match(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// Every flag is of use to an action, every action has an example that is understood.
func TestTable(t *testing.T) {
	for _, d := range optionTable() {
		if !slices.ContainsFunc(actions(), func(a action) bool { return a.accepts(d.name) }) {
			t.Errorf("no action takes --%s", d.name)
		}
	}
	for _, a := range actions() {
		if len(a.examples) == 0 || a.long == "" || !slices.Contains(actionGroups(), a.group) {
			t.Errorf("--%s is not explained", a.name)
		}
		for i, e := range a.examples {
			if !strings.HasPrefix(e, "--") {
				continue // the shell's own
			}
			if _, err := parse(shellWords(strings.TrimPrefix(a.example(i), program+" "))); err != nil {
				t.Errorf("example %s: %v", e, err)
			}
		}
	}
}

// shellWords takes a line apart at blanks, but not inside of single quotes.
func shellWords(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

func update() *bool { return flag.Bool("update", false, "write the golden files anew") }

var updateGolden = update()

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -run %s -update writes it anew):\n%s", file, t.Name(), got)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	for _, a := range append([]action{{}}, actions()...) {
		if err := writeHelp(&out, a.name); err != nil {
			t.Fatal(err)
		}
		out.WriteString(strings.Repeat("=", helpWidth) + "\n")
	}
	golden(t, "help", out.String())
}
