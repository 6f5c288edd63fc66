#!/usr/bin/env bash
# Regenerates the modules of proto/specdec and docs/grpc.md; CI runs it and expects no difference.
set -euo pipefail
cd "$(dirname "$0")"
docs="${DOCS:-../docs/grpc.md}"
python="${PYTHON:-python}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"$python" -m grpc_tools.protoc -I . \
  --python_out=. --pyi_out=. --grpc_python_out=. \
  --include_source_info --descriptor_set_out="$scratch/described" specdec/v1/*.proto
"$python" document.py "$scratch/described" specdec/v1/generation.proto > "$docs"
# As grpc/health/v1 its Python package would hide grpcio.
"$python" -m grpc_tools.protoc -I grpc/health/v1=specdec/health \
  --python_out="$scratch" --pyi_out="$scratch" specdec/health/health.proto
mv "$scratch"/grpc/health/v1/health_pb2.py* specdec/health/
