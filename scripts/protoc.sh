#!/bin/sh
# Generates plugins/policyv1 from its protocol. Needs Python 3 with venv, and Go; run it when
# policy.proto has changed, and commit what it writes.
set -eu
cd "$(dirname "$0")/.."
tools=build/tools/protoc
if [ ! -x "$tools/venv/bin/python" ]; then
	python3 -m venv "$tools/venv"
	"$tools/venv/bin/pip" install -q 'grpcio-tools==1.85.1'
fi
GOBIN="$PWD/$tools" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$PWD/$tools" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH="$PWD/$tools:$PATH" "$tools/venv/bin/python" -m grpc_tools.protoc -I plugins/policyv1 \
	--go_out=plugins/policyv1 --go_opt=paths=source_relative \
	--go-grpc_out=plugins/policyv1 --go-grpc_opt=paths=source_relative \
	plugins/policyv1/policy.proto
