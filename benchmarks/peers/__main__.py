"""`python -m benchmarks.peers COMMAND`."""

from benchmarks.harness.commands import errors_told
from benchmarks.peers.commands import app

with errors_told():
    app(prog_name="python -m benchmarks.peers")
