package procedures

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// step of a page: a script with what it prints, or a hook.
type step struct {
	line   int
	hook   []string // name and arguments
	script string
	output string
	exit   int
}

var (
	fence = regexp.MustCompile("^( *)```(.*)$")
	hook  = regexp.MustCompile(`^ *<!-- test: (.+) -->$`)
)

// parsePage finds the steps of a page.
func parsePage(text string) ([]step, error) {
	var steps []step
	lines := strings.Split(text, "\n")
	expecting := false // the next block is what the last script prints
	for i := 0; i < len(lines); i++ {
		if m := hook.FindStringSubmatch(lines[i]); m != nil {
			if expecting {
				return nil, fmt.Errorf("line %d: a hook where the output of a script is missing", i+1)
			}
			steps = append(steps, step{line: i + 1, hook: strings.Fields(m[1])})
			continue
		}
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		at, indent, info := i+1, m[1], strings.Fields(m[2])
		var body strings.Builder
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			body.WriteString(strings.TrimPrefix(lines[i], indent) + "\n")
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: a block without an end", at)
		}
		switch {
		case expecting:
			if !slices.Equal(info, []string{"output"}) {
				return nil, fmt.Errorf("line %d: the output of the script before is missing", at)
			}
			steps[len(steps)-1].output = body.String()
			expecting = false
		case len(info) > 1 && info[0] == "sh" && info[1] == "run":
			s := step{line: at, script: body.String()}
			for _, o := range info[2:] {
				value, ok := strings.CutPrefix(o, "exit=")
				if !ok {
					return nil, fmt.Errorf("line %d: unknown option %q", at, o)
				}
				var err error
				if s.exit, err = strconv.Atoi(value); err != nil {
					return nil, fmt.Errorf("line %d: %w", at, err)
				}
			}
			steps = append(steps, s)
			expecting = true
		case len(info) > 0 && info[0] == "output":
			return nil, fmt.Errorf("line %d: an output without a script", at)
		}
	}
	if expecting {
		return nil, fmt.Errorf("line %d: the output is missing", steps[len(steps)-1].line)
	}
	return steps, nil
}

// matches tells whether a text is what a page says.
func matches(want, got string) bool {
	var re strings.Builder
	re.WriteString(`^\s*`)
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		line = strings.TrimSpace(line)
		if line == "…" {
			re.WriteString(`(.*\n)*?`)
			continue
		}
		re.WriteString(`[ \t]*`)
		var parts []string
		for _, part := range strings.Split(line, "…") {
			words := strings.Fields(part)
			for i, w := range words {
				words[i] = regexp.QuoteMeta(w)
			}
			text := strings.Join(words, `[ \t]+`)
			if strings.HasPrefix(part, " ") && text != "" {
				text = `[ \t]+` + text
			}
			if strings.HasSuffix(part, " ") && text != "" {
				text += `[ \t]+`
			}
			parts = append(parts, text)
		}
		re.WriteString(strings.Join(parts, `.*`) + `[ \t]*\n`)
	}
	re.WriteString(`\s*$`)
	return regexp.MustCompile(re.String()).MatchString(strings.TrimSpace(got) + "\n")
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		want, got string
		ok        bool
	}{
		{"a b\n", "a    b\n", true},
		{"a b\n", "a b c\n", false},
		{"a b\n", "ab\n", false},
		{"A (x*)\n", "A (x*)", true},
		{"a … c\n", "a b b c\n", true},
		{"a … c\n", "a b b d\n", false},
		{"lag …\nx", "lag 0\nx\n", true},
		{"moved…\n", "moved; skipped: x\n", true},
		{"moved…\n", "moved\n", true},
		{"…\nb\n", "x\ny\nb\n", true},
		{"…\nb\n", "b\n", true},
		{"a\n…\nb\n…\n", "a\nb\nc\nd\n", true},
		{"a\nb\n", "b\na\n", false},
		{"", "", true},
		{"", "x\n", false},
	} {
		if matches(tc.want, tc.got) != tc.ok {
			t.Errorf("%q and %q: %t", tc.want, tc.got, !tc.ok)
		}
	}
}

func TestParsePage(t *testing.T) {
	const page = "# x\n<!-- test: topics a b -->\n1. do\n\n   ```sh run exit=3\n   echo 1\n     indented\n   ```\n\n   ```output\n   1\n   ```\n\n```properties\na=b\n```\n"
	steps, err := parsePage(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 2 || !slices.Equal(steps[0].hook, []string{"topics", "a", "b"}) || steps[1].script != "echo 1\n  indented\n" ||
		steps[1].output != "1\n" || steps[1].exit != 3 || steps[1].line != 5 {
		t.Errorf("%+v", steps)
	}
	for _, bad := range []string{
		"```sh run\nx\n", "```sh run\nx\n```\n", "```output\nx\n```\n", "```sh run\nx\n```\n```sh run\nx\n```\n",
		"```sh run often\nx\n```\n", "```sh run\nx\n```\n<!-- test: x -->\n```output\n```\n",
	} {
		if _, err := parsePage(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Every page can be executed, and its hooks are known.
func TestPages(t *testing.T) {
	known := (&world{}).hooks()
	for _, name := range []string{"failover", "switchover", "failback", "migration", "mirrormaker2", "uninstall", "emergency", "lastbroker", pluginPage} {
		steps := readPage(t, name)
		if len(steps) == 0 {
			t.Errorf("%s has no steps", name)
		}
		for _, s := range steps {
			if s.hook == nil {
				continue
			}
			if hookName, _ := findHook(known, s.hook); hookName == "" {
				t.Errorf("%s, line %d: unknown hook %q", name, s.line, s.hook)
			}
		}
	}
}

func readPage(t *testing.T, name string) []step {
	t.Helper()
	text, err := os.ReadFile("../../docs/procedures/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parsePage(string(text))
	if err != nil {
		t.Fatalf("%s.md: %v", name, err)
	}
	return steps
}
