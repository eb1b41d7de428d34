#!/usr/bin/env bash
# Runs the tests of the packages in which -short or -race leaves tests out, or of those that are named, two
# packages at a time: nearly all of them start brokers. What failed is said once more at the end, in
# short: sidecars' logs are long.
#
# A package that failed is run once more, alone, if there are few of them and there is time before
# CI's limit. Two cores start a hundred JVMs here, and a test that waits for something in vain
# once in a thousand runs is worth a look and not a red build. It is a look that nobody is spared:
# FLAKY lines end the output and stay in build/reports/flaky.txt. Tests that look for records that
# are lost, doubled or diverged after faults are not run again: one such record is one too many.
set -euo pipefail

go=${GO:-go}
timeout=${REAL_TIMEOUT:-20m}
limit=${LIMIT:-1720} # seconds from BEGUN on
begun=${BEGUN:-$(date +%s)}
most=3
never='/test/(chaos|demo)( |$)'

reports=build/reports
mkdir -p "$reports"
log=$reports/test-real.log
rm -f "$reports/flaky.txt"

# run LOG ARGS…
run() {
  local log=$1 rc=0
  shift
  "$go" test -count=1 -timeout "$timeout" "$@" 2>&1 | tee "$log" || rc=$?
  return "$rc"
}

# why LOG: what tests said, without the logs that they print.
why() {
  grep -E '^ *(--- FAIL: |panic: |FAIL	)|^ +[a-z0-9_]+_test\.go:[0-9]+: |^WARNING: DATA RACE' "$1" | grep -v 'the end of the log of' | cut -c1-600 | head -n 60
}

# Tests that start brokers do so by package test/harness; test/bench has a target of its own. What is
# another program without the race detector is tested here, too.
if [ $# -eq 0 ]; then
  here=$("$go" list -m)
  # shellcheck disable=SC2046 # names of packages
  set -- $({
    "$go" list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
      awk -v harness="$here/test/harness" '{ for (i = 1; i <= NF; i++) if ($i == harness) print $1 }'
    grep -rlE 'testing\.Short\(\)|^//go:build .*race' --include='*_test.go' . | xargs -r -n 1 dirname | sed "s#^\.#$here#"
  } | grep -v '/test/bench$' | sort -u)
fi

if run "$log" -p 2 "$@"; then
  exit 0
fi
failed=$(awk -F'\t' '/^FAIL\t/ { sub(/ .*/, "", $2); print $2 }' "$log" | sort -u)
echo
echo "=== failed, in short"
why "$log"

count=$(wc -w <<<"$failed")
took=$(awk -F'\t' '/^FAIL\t/ { sum += $3 } END { print int(sum) }' "$log")
left=$((begun + limit - $(date +%s)))
if ((count == 0)); then
  echo "=== no package's tests failed: see above"
  exit 1
elif ((count > most)); then
  echo "=== $count packages failed: none is run again"
  exit 1
elif ((took > left)); then
  echo "=== they took $took seconds, and $left are left: none is run again"
  exit 1
elif grep -qE "$never" <<<"$failed"; then
  echo "=== one of them is never run again"
  exit 1
fi

echo "=== once more, alone: $(tr '\n' ' ' <<<"$failed")"
# shellcheck disable=SC2086 # names of packages
if ! run "$reports/test-again.log" -p 1 -timeout "${left}s" $failed; then
  echo "=== failed again, in short"
  why "$reports/test-again.log"
  exit 1
fi
{
  sed 's/^/FLAKY: /' <<<"$failed"
  why "$log"
} | tee "$reports/flaky.txt"
