#!/usr/bin/env bash
# Runs every fuzz target of the module, or of the packages that are named (./proxy), for FUZZ_TIME
# each; `go test -fuzz` takes one target of one package at a time. FUZZ_WORKERS bounds what runs at
# a time, all cores if it is not set. What is found is written into the package's testdata/fuzz, where it
# stays as a test; what only covers more is not made small for long, or little else would be done.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZ_TIME:-20s}
[ $# -gt 0 ] || set -- ./...
count=0
for dir in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@"); do
  for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | awk '{print $2}'); do
    echo "== ${dir#"$PWD"/} $target ($time)"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 200x ${FUZZ_WORKERS:+-parallel "$FUZZ_WORKERS"} "$dir"
    count=$((count + 1))
  done
done
echo "$count fuzz targets"
