// Command generator writes Go message types from JSON message specs, in the manner of
// Kafka's own message generator: one spec per message, fields with version ranges,
// nullable and tagged fields, nested arrays of structs.
//
// It is run by go generate (see protocol/doc.go); its output is committed, and a test
// proves that it is fresh.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	var (
		dirs = flag.String("specs", "", "directories of the message specs (*.json), comma separated")
		pkg  = flag.String("package", "", "name of the package that the output belongs to")
		out  = flag.String("out", "", "file to write")
	)
	flag.Parse()
	if err := run(strings.Split(*dirs, ","), *pkg, *out); err != nil {
		fmt.Fprintln(os.Stderr, "generator:", err)
		os.Exit(1)
	}
}

func run(dirs []string, pkg, out string) error {
	var specs []*message
	for _, dir := range dirs {
		more, err := readSpecs(dir)
		if err != nil {
			return err
		}
		specs = append(specs, more...)
	}
	src, err := generate(pkg, specs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, src, 0o644); err != nil {
		return fmt.Errorf("write messages: %w", err)
	}
	return nil
}
