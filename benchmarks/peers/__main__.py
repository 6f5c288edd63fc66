"""`python -m benchmarks.peers COMMAND`."""

from benchmarks.peers.commands import app

app(prog_name="python -m benchmarks.peers")
