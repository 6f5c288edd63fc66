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
# Under its name in the descriptor pool, and kept where no package of others is hidden.
"$python" -m grpc_tools.protoc -I grpc_health/v1=specdec/health \
  --python_out="$scratch" --pyi_out="$scratch" specdec/health/health.proto
mv "$scratch"/grpc_health/v1/health_pb2.py* specdec/health/
