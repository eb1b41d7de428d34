// Mutants removes one rule at a time from the packages that lead a partition and runs
// their tests: each patch in replica/leading/mutants must be noticed. It works on copies;
// the tree is not touched.
//
//	go run ./test/mutants [-run name] [-v]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	patches = "replica/leading/mutants"
	// limit of one mutant's tests; the simulation is not among them, as a rule's own test
	// must notice that the rule is gone.
	limit = 2 * time.Minute
)

// copied are the module's parts that the tests need.
var copied = []string{"go.mod", "go.sum", "ids", "lineage", "replica/leading"}

func main() {
	only := flag.String("run", "", "only patches whose names contain this")
	verbose := flag.Bool("v", false, "print which tests notice")
	workers := flag.Int("workers", 2, "mutants at a time")
	flag.Parse()
	if err := run(*only, *verbose, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type result struct {
	killed bool
	tests  []string
	err    error
}

func run(only string, verbose bool, workers int) error {
	names, err := filepath.Glob(filepath.Join(patches, "*.patch"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no patches in " + patches + "; run it in the module's root")
	}
	var chosen []string
	for _, n := range names {
		if strings.Contains(n, only) {
			chosen = append(chosen, n)
		}
	}
	// The tests must pass without any mutation, or nothing that fails says anything.
	if r := try(""); r.err != nil || r.killed {
		return fmt.Errorf("the tests fail without a mutation: %v %w", r.tests, r.err)
	}
	results := make([]result, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for i := range next {
				results[i] = try(chosen[i])
				if verbose {
					fmt.Printf("%-9v %-40s %s\n", results[i].killed, filepath.Base(chosen[i]), strings.Join(results[i].tests, " "))
				}
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wg.Wait()

	killed, survived := 0, 0
	var failed error
	for i, r := range results {
		name := strings.TrimSuffix(filepath.Base(chosen[i]), ".patch")
		switch {
		case r.err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, r.err))
			survived++
		case r.killed:
			killed++
		default:
			survived++
			fmt.Printf("survived  %s\n", name)
		}
	}
	if failed == nil && survived > 0 {
		failed = fmt.Errorf("%d rules can be removed without a test that notices", survived)
	}
	defer fmt.Printf("%d killed, %d survived\n", killed, survived)
	return failed
}

// try runs the tests of a copy with the patch applied; "" is the copy as it is.
func try(patch string) result {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir)
	for _, part := range copied {
		info, err := os.Stat(part)
		if err != nil {
			return result{err: err}
		}
		to := filepath.Join(dir, part)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return result{err: err}
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
			return result{err: err}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if patch != "" {
		abs, err := filepath.Abs(patch)
		if err != nil {
			return result{err: err}
		}
		if out, err := command(ctx, dir, "git", "apply", "-C1", "--recount", abs); err != nil {
			return result{err: fmt.Errorf("apply: %w\n%s", err, out)}
		}
	}
	// Without the directory in it a package that the patch left alone is compiled once.
	out, err := command(ctx, dir, "go", "test", "-trimpath", "-short", "-vet=off", "-skip", "^TestModel", "./lineage", "./replica/leading")
	if err == nil {
		return result{}
	}
	if strings.Contains(out, "[build failed]") {
		return result{err: fmt.Errorf("does not compile:\n%s", out)}
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return result{err: err}
	}
	var tests []string
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			tests = append(tests, name)
		}
	}
	if len(tests) == 0 && !strings.Contains(out, "panic:") {
		return result{err: fmt.Errorf("tests did not run:\n%s", out)}
	}
	return result{killed: true, tests: tests}
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// The copy is no repository of its own, and must not be taken for a part of one.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GOFLAGS=-mod=mod", "GOWORK=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
