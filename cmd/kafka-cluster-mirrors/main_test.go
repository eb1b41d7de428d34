package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCommandLine: what is not understood says so and exits with 2, nothing is asked.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"":                                {exitUsage, "one of --create"},
		"--bogus":                         {exitUsage, "unknown flag: --bogus"},
		"--list":                          {exitUsage, "--bootstrap-server is needed"},
		"--list --describe":               {exitUsage, "cannot be given together"},
		"--bootstrap-server a:1 --start":  {exitUsage, "--start needs --mirror"},
		"--bootstrap-server a:1 --list x": {exitUsage, `unexpected argument "x"`},
		"--bootstrap-server a:1 --list --allow-truncate": {exitUsage, "no meaning with --list"},
		"--decode-log":                    {exitUsage, "needs files"},
		"--decode-log /nonexistent/x.log": {exitFailed, "no such file"},
		"--bootstrap-server 127.0.0.1:1 --create --mirror m --mirror-config /nonexistent/m": {exitFailed, "no such file"},
		"--version": {0, "kafka-cluster-mirrors"},
		"--help":    {0, "--bootstrap-server"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(line), &out, &errs)
		if code != want.code || !strings.Contains(out.String()+errs.String(), want.text) {
			t.Errorf("%q: exit %d, %s%s", line, code, out.String(), errs.String())
		}
	}
}

func TestSplit(t *testing.T) {
	names, patterns := split([]string{"orders", "a.b", "x.*", " y|z "})
	if !slices.Equal(names, []string{"orders", "a.b"}) || !slices.Equal(patterns, []string{"x.*", "y|z"}) {
		t.Errorf("%q %q", names, patterns)
	}
}
