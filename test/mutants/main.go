// Mutants removes one rule at a time from the packages that lead a partition and runs
// their tests: each patch in replica/leading/mutants must be noticed. For each it says who
// notices: the table tests of the rules, the model gone through exhaustively, or random
// walks through it. It works on copies; the tree is not touched.
//
//	go run ./test/mutants [-run regexp] [-v] [-tables] [-json file] [-doc file]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

const patches = "replica/leading/mutants"

func main() {
	var o options
	flag.StringVar(&o.only, "run", "", "only patches whose names this regular expression finds")
	flag.BoolVar(&o.verbose, "v", false, "print who notices")
	flag.BoolVar(&o.tables, "tables", false, "only the table tests, not the model")
	flag.IntVar(&o.steps, "steps", 2_000_000, "steps of the random walks that a mutant has to pass unnoticed")
	flag.IntVar(&o.workers, "workers", 2, "mutants at a time")
	flag.StringVar(&o.json, "json", "", "write who noticed what to this file")
	flag.StringVar(&o.doc, "doc", "", "write the list as a page to this file")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	only            string
	verbose, tables bool
	steps, workers  int
	json, doc       string
}

func run(o options) error {
	names, err := filepath.Glob(filepath.Join(patches, "*.patch"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no patches in " + patches + "; run it in the module's root")
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var chosen []string
	for _, n := range names {
		if only.MatchString(filepath.Base(n)) {
			chosen = append(chosen, n)
		}
	}
	// The tests must pass without any mutation, or nothing that fails says anything.
	if r := try("", o); r.err != nil || r.killed() {
		return fmt.Errorf("the tests fail without a mutation: %+v %w", r, r.err)
	}
	results := make([]result, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards stdout
	for range max(1, o.workers) {
		wg.Go(func() {
			for i := range next {
				results[i] = try(chosen[i], o)
				if o.verbose {
					mu.Lock()
					fmt.Println(results[i])
					mu.Unlock()
				}
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wg.Wait()

	killed, survived, model := 0, 0, 0
	var failed error
	for _, r := range results {
		if r.Exhaustive != "" || r.Random != "" {
			model++
		}
		switch {
		case r.err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.Name, r.err))
			survived++
		case r.killed():
			killed++
		default:
			survived++
			fmt.Printf("survived  %s\n", r.Name)
		}
	}
	if failed == nil && survived > 0 {
		failed = fmt.Errorf("%d rules can be removed without a test that notices", survived)
	}
	if err := report(results, o); err != nil {
		failed = errors.Join(failed, err)
	}
	if !o.tables {
		fmt.Printf("%d of them also by the model\n", model)
	}
	defer fmt.Printf("%d killed, %d survived\n", killed, survived)
	return failed
}
