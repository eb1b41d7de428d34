package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func script(t *testing.T, shell string) string {
	t.Helper()
	var b bytes.Buffer
	if err := completionScript(shell)(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// completionDir is where completion is tried: with a program that answers as a sidecar would.
func completionDir(t *testing.T, shell string) string {
	t.Helper()
	dir := t.TempDir()
	program := `#!/bin/sh
case "$*" in
"--bootstrap-server h:9092 --list") printf 'MIRROR  TOPICS\neast  2\nelse  1\nwest  1\n' ;;
"--bootstrap-server h:9092 --command-config c --describe --mirror east") printf 'MIRROR  TOPIC\neast  orders\neast  orders\neast  pay\n' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "kafka-cluster-mirrors"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "comp"), []byte(script(t, shell)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "source.properties"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The bash script is run by bash itself.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	dir := completionDir(t, "bash")
	for line, want := range map[string][]string{
		"kafka-cluster-mirrors --st":                                                                         {"--start", "--stop"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --list ":                                            {"--bootstrap-server", "--command-config", "--mirror", "--json", "--quiet"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --stop --mirror ":                                   {"east", "else", "west"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --stop --mirror e":                                  {"east", "else"},
		"kafka-cluster-mirrors --stop --mirror e":                                                            nil, // nobody to ask
		"kafka-cluster-mirrors --bootstrap-server ":                                                          nil,
		"kafka-cluster-mirrors --create --mirror x --mirror-config sour":                                     {"source.properties"},
		"kafka-cluster-mirrors --completion ":                                                                {"bash", "zsh", "fish"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --switchover --sk":                                  {"--skip-groups"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --stop --allow":                                     nil,
		"kafka-cluster-mirrors --bootstrap-server h:9092 --command-config c --pause --mirror east --topics ": {"orders", "pay"},
	} {
		cmd := exec.Command(bash, "--norc", "-c", `. ./comp
COMP_LINE="$1" COMP_POINT=${#1}
read -ra COMP_WORDS <<<"$1"
_kafka_cluster_mirrors
printf '%s\n' "${COMPREPLY[@]}"`, "bash", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		if got := strings.Fields(string(out)); !slices.Equal(got, want) {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
}

func TestFishCompletion(t *testing.T) {
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("no fish")
	}
	dir := completionDir(t, "fish")
	for line, want := range map[string][]string{
		"kafka-cluster-mirrors --st":                                                                         {"--start", "--stop"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --stop --mirror e":                                  {"east", "else"},
		"kafka-cluster-mirrors --bootstrap-server h:9092 --command-config c --pause --mirror east --topics ": {"orders", "pay"},
		"kafka-cluster-mirrors --create --mirror x --mirror-config sour":                                     {"source.properties"},
		"kafka-cluster-mirrors --completion ":                                                                {"bash", "fish", "zsh"},
		"kafka-cluster-mirrors --list --allow":                                                               nil,
	} {
		cmd := exec.Command(fish, "--no-config", "-c", "source comp; complete -C '"+line+"'")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		var got []string
		for _, row := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			if name, _, _ := strings.Cut(row, "\t"); name != "" {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
}

// The other shells may not be there: what they get is looked at by people when it changes.
func TestOtherCompletions(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		text := script(t, shell)
		golden(t, shell, text)
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
