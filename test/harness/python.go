package harness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// Python gives a Python interpreter that has packages, each as pip names it, in a virtual environment
// that is kept in the cache folder. imports is what shows that they are there. An error says why it
// cannot be had here, without python3 or a package index: tests may do without.
func Python(ctx context.Context, name, imports string, packages ...string) (python string, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	python = filepath.Join(dir, "bin", "python")
	works := func() bool {
		_, err := runChild(ctx, "", python, "-c", "import "+imports)
		return err == nil
	}
	if works() {
		return python, nil
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	defer unlock()
	if works() {
		return python, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := runChild(ctx, "", args[0], args[1:]...); err != nil {
			return "", fmt.Errorf("%s: %v: %w\n%s", name, args, err, out)
		}
	}
	return python, nil
}

// PolicyPython gives the virtual environment that plugins in Python are built with and run in, made
// of a file for pip.
func PolicyPython(ctx context.Context, requirements string) (venv string, err error) {
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", fmt.Errorf("python for policies: %w", err)
	}
	python, err := Python(ctx, fmt.Sprintf("policies-%.6x", sha256.Sum256(text)), "grpc, grpc_tools, cryptography", "-r", requirements)
	if err != nil {
		return "", err
	}
	return filepath.Dir(filepath.Dir(python)), nil
}
