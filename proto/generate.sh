#!/usr/bin/env bash
# Regenerates the modules of proto/specdec/v1; CI runs it and expects no difference.
set -euo pipefail
cd "$(dirname "$0")"
"${PYTHON:-python}" -m grpc_tools.protoc -I . \
  --python_out=. --pyi_out=. --grpc_python_out=. specdec/v1/*.proto
