"""`make proto-check`: status 1 where proto/specdec/v1 breaks what clients were promised."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from deployments.wire.lease_codec import PROTOCOL_VERSION
from tests.contract.breaks import breaks

PROTO = Path(__file__).parents[2] / "proto"
PUBLIC, INNER = "generation.proto", "coordination.proto"


def compiled(sources: dict[str, Path]) -> FileDescriptorSet:
    """The descriptors of files, by their names in specdec/v1."""
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch) / "specdec" / "v1"
        package.mkdir(parents=True)
        for name, path in sources.items():
            shutil.copy(path, package / name)
        output = Path(scratch) / "set"
        files = [str(package / name) for name in sources]
        arguments = ["protoc", "-I", scratch, f"--descriptor_set_out={output}", *files]
        assert protoc.main(arguments) == 0, f"protoc refuses {sorted(map(str, sources.values()))}"
        return FileDescriptorSet.FromString(output.read_bytes())


def promised(version: int = PROTOCOL_VERSION) -> FileDescriptorSet:
    """Raises FileNotFoundError for a protocol version that has not been put down."""
    inner = PROTO / "baseline" / f"coordination.v{version}.proto"
    return compiled({PUBLIC: PROTO / "baseline" / PUBLIC, INNER: inner})


def present() -> FileDescriptorSet:
    return compiled({name: PROTO / "specdec" / "v1" / name for name in (PUBLIC, INNER)})


def main() -> int:
    try:
        found = breaks(promised(), present())
    except FileNotFoundError as error:
        print(f"{error.filename} is missing: a new PROTOCOL_VERSION has its {INNER} there")
        return 1
    for words in found:
        print(f"breaks clients: {words}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
