#!/usr/bin/env bash
# Looks for known vulnerabilities in what is shipped: govulncheck over both programs, down to the
# functions that they call, and over the versions of their modules.
#
# What is known comes from the Go vulnerability database as the Go module proxy has it (the module
# golang.org/x/vulndb): it is there wherever modules can be downloaded, also where vuln.go.dev
# cannot be reached. It is the newest one, so that the same code may fail tomorrow. VULNDB names a folder of
# OSV files instead. The status is 1 if something is known that is called, which VULNCHECK_GO=warn forgives
# the standard library: what mends that is another Go. It is 0 with a line that begins with SKIPPED if nothing could
# be found out; with VULNCHECK_REQUIRED=1 that is a 1 too.
#
# Usage: vulncheck.sh GOVULNCHECK [PACKAGES]
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1
shift
[ $# -gt 0 ] || set -- ./cmd/...
skipped() {
  echo "SKIPPED: $*; nobody has looked for known vulnerabilities"
  [ -z "${VULNCHECK_REQUIRED:-}" ] || exit 1
  exit 0
}
if [ -z "${VULNDB:-}" ]; then
  # Outside of the module: go.mod has nothing of it.
  got=$(cd / && GOFLAGS=-mod=mod go mod download -json golang.org/x/vulndb@latest 2>&1) ||
    skipped "the vulnerability database cannot be downloaded: $(tail -n 1 <<<"$got")"
  VULNDB=$(sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p' <<<"$got")/data/osv
  echo "vulnerability database of $(sed -n 's/^\t"Version": ".*-\([0-9]\{8\}\)[0-9]*-[0-9a-f]*",*$/\1/p' <<<"$got"), $(ls "$VULNDB" | wc -l) entries"
fi
[ -d "$VULNDB" ] || skipped "there is no folder $VULNDB"
"$tool" -format json -db "file://$VULNDB" "$@" | "${GO:-go}" run ./test/supply vulns
