"""`python -m benchmarks.served_peers COMMAND`."""

from benchmarks.served_peers.commands import app

app(prog_name="python -m benchmarks.served_peers")
