package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// limit is that of one of a mutant's runs. One that hangs is noticed by it.
const limit = 3 * time.Minute

// copied are the module's parts that the tests need.
var copied = []string{"go.mod", "go.sum", "ids", "lineage", "replica/leading"}

// result says who has noticed a mutant: empty for who has not.
type result struct {
	Name       string   `json:"name"`
	Rule       string   `json:"rule,omitempty"`
	Tables     []string `json:"tables"`
	Exhaustive string   `json:"exhaustive,omitempty"`
	Random     string   `json:"random,omitempty"`
	err        error
}

func (r result) killed() bool { return len(r.Tables) > 0 || r.Exhaustive != "" || r.Random != "" }

func (r result) String() string {
	if r.err != nil {
		return fmt.Sprintf("%-45s %v", r.Name, r.err)
	}
	return fmt.Sprintf("%-45s tables: %s · exhaustive: %s · random: %s", r.Name, or(strings.Join(r.Tables, " "), "no"), or(r.Exhaustive, "no"), or(r.Random, "no"))
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// try runs the tests of a copy with the patch applied; "" is the copy as it is.
func try(patch string, o options) (r result) {
	r.Name = strings.TrimSuffix(filepath.Base(patch), ".patch")
	if _, rest, ok := strings.Cut(r.Name, "-"); ok {
		if rule, _, ok := strings.Cut(rest, "-"); ok && len(rule) > 1 && rule[0] == 'R' && rule[1] >= '0' && rule[1] <= '9' {
			r.Rule = rule
		}
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		r.err = err
		return r
	}
	defer os.RemoveAll(dir)
	if r.err = copyTo(dir); r.err != nil {
		return r
	}
	if patch != "" {
		abs, err := filepath.Abs(patch)
		if err != nil {
			r.err = err
			return r
		}
		if out, err := command(dir, "git", "apply", "-C1", "--recount", abs); err != nil {
			r.err = fmt.Errorf("apply: %w\n%s", err, out)
			return r
		}
	}
	packages := []string{"replica/leading"}
	if b, err := os.ReadFile(patch); patch == "" || err == nil && bytes.Contains(b, []byte("+++ b/lineage/")) {
		packages = append(packages, "lineage") // it does not use the other one
	}
	for _, pkg := range packages {
		// Without the directory in it a package that the patch left alone is compiled once.
		if out, err := command(dir, "go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-s -w", "-o", filepath.Join(dir, filepath.Base(pkg)+".test"), "./"+pkg); err != nil {
			r.err = fmt.Errorf("does not compile: %w\n%s", err, out)
			return r
		}
		tests, err := tables(dir, pkg)
		r.Tables = append(r.Tables, tests...)
		if err != nil {
			r.err = err
			return r
		}
	}
	if o.tables {
		return r
	}
	r.Exhaustive = model(dir, "^TestModelExhaustive$", "-test.short")
	if r.Random = model(dir, "^TestModelWalks$", "-model.steps="+strconv.Itoa(o.steps/10)); r.Random == "" {
		r.Random = model(dir, "^TestModelWalks$", "-model.seed=2", "-model.steps="+strconv.Itoa(o.steps))
	}
	return r
}

func copyTo(dir string) error {
	for _, part := range copied {
		info, err := os.Stat(part)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, part)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(part))
		} else {
			var b []byte
			if b, err = os.ReadFile(part); err == nil {
				err = os.WriteFile(to, b, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tables returns the tests of a package that fail, without the model.
func tables(dir, pkg string) ([]string, error) {
	out, err := test(dir, pkg, "-test.short", "-test.skip=^TestModel")
	if err == nil {
		return nil, nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return nil, err
	}
	var tests []string
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			tests = append(tests, name)
		}
	}
	switch {
	case len(tests) > 0:
	case strings.Contains(out, "panic:"):
		tests = append(tests, "panic")
	default:
		return nil, fmt.Errorf("tests did not run: %w\n%s", err, out)
	}
	return tests, nil
}

// model returns what a part of the model has found, "" if nothing.
func model(dir, run string, args ...string) string {
	out, err := test(dir, "replica/leading", append(args, "-test.run="+run, "-model.fast", "-test.v")...)
	if err == nil {
		return ""
	}
	for line := range strings.SplitSeq(out, "\n") {
		if _, found, ok := strings.Cut(line, "violation: "); ok {
			return strings.TrimSpace(found)
		}
	}
	if strings.Contains(out, "panic: test timed out") || errors.Is(err, context.DeadlineExceeded) {
		return "hangs"
	}
	return "panic"
}

// test runs a package's compiled tests, in the package's directory as go test does.
func test(dir, pkg string, args ...string) (string, error) {
	args = append(args, "-test.timeout="+limit.String())
	return command(filepath.Join(dir, pkg), filepath.Join(dir, filepath.Base(pkg)+".test"), args...)
}

func command(dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// The copy is no repository of its own, and must not be taken for a part of one.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GOFLAGS=-mod=mod", "GOWORK=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.String(), err
}
