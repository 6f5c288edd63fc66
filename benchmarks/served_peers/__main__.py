"""`python -m benchmarks.served_peers COMMAND`."""

from benchmarks.harness.commands import errors_told
from benchmarks.served_peers.commands import app

with errors_told():
    app(prog_name="python -m benchmarks.served_peers")
