#!/bin/sh
# Generates the Go code of the plugin protos; the result is committed. It needs
# protoc (Debian: protobuf-compiler; 3.21.12 was used) and Go.
set -eu
cd "$(dirname "$0")"
tools=$(cd ../.. && pwd)/bin/tools
mkdir -p "$tools"
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$tools:$PATH protoc -I proto \
	--go_out=. --go_opt=module=github.com/hardpointmq/hardpoint/sdk/wire \
	--go-grpc_out=. --go-grpc_opt=module=github.com/hardpointmq/hardpoint/sdk/wire \
	$(find proto -name '*.proto')
# The messages of the Python package; its services need no generated code.
(cd proto && protoc -I . --python_out=../../python hardpoint/plugin/v1/*.proto hardpoint/allocate/v1/*.proto hardpoint/storage/v1/*.proto)
