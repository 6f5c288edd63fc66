#!/usr/bin/env bash
# Regenerates the modules of proto/specdec/v1 and docs/grpc.md; CI runs it and expects no difference.
set -euo pipefail
cd "$(dirname "$0")"
docs="${DOCS:-../docs/grpc.md}"
python="${PYTHON:-python}"
described="$(mktemp)"
trap 'rm -f "$described"' EXIT
"$python" -m grpc_tools.protoc -I . \
  --python_out=. --pyi_out=. --grpc_python_out=. \
  --include_source_info --descriptor_set_out="$described" specdec/v1/*.proto
"$python" document.py "$described" specdec/v1/generation.proto > "$docs"
