#!/usr/bin/env bash
# Runs every fuzz target of the module, or of the packages that are named (./proxy), for FUZZ_TIME
# each; one target of one package at a time. FUZZ_WORKERS bounds what runs at
# a time, all cores if it is not set. What is found is written into the package's testdata/fuzz, where it
# stays as a test; what only covers more is not made small for long, or little else would be done.
#
# FUZZ_PLAIN=1 takes the binaries that tests run in, which know nothing of what is covered: seeds are changed
# blindly. To compile everything for coverage costs minutes where nothing is cached, as in CI.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZ_TIME:-20s}
[ $# -gt 0 ] || set -- ./...
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
cache=$(go env GOCACHE)/fuzz # where `go test -fuzz` keeps what it comes upon, too
count=0
while read -r dir package; do
  targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | awk '{print $2}' || true)
  [ -n "$targets" ] || continue
  # A binary serves all targets of its package: `go test -fuzz` would link it anew for each.
  # shellcheck disable=SC2046 # one word or two
  go test -c $([ -n "${FUZZ_PLAIN:-}" ] || echo -fuzz .) -o "$bin/fuzz.test" "$package"
  for target in $targets; do
    echo "== ${dir#"$PWD"/} $target ($time)"
    (cd "$dir" && "$bin/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 200x \
      -test.fuzzcachedir "$cache/$package" ${FUZZ_WORKERS:+-test.parallel "$FUZZ_WORKERS"})
    count=$((count + 1))
  done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' "$@")
echo "$count fuzz targets"
