package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "licenses":
		page, err := licensesPage(".")
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], page, 0o644)
	case len(args) == 1 && args[0] == "vulns":
		all, err := vulnerabilities(os.Stdin)
		if err != nil {
			return err
		}
		return tellVulnerabilities(os.Stdout, all, os.Getenv("VULNCHECK_GO") == "warn")
	case len(args) > 2 && args[0] == "sbom":
		known, err := licenses(".")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(args[1], 0o755); err != nil {
			return err
		}
		for _, program := range args[2:] {
			out, err := sbom(program, known)
			if err != nil {
				return err
			}
			name := filepath.Join(args[1], filepath.Base(program)+".cdx.json")
			if err := os.WriteFile(name, out, 0o644); err != nil {
				return err
			}
			fmt.Println(name)
		}
		return nil
	}
	return fmt.Errorf("usage: supply licenses FILE | supply sbom FOLDER PROGRAM … | supply vulns < OUTPUT")
}
