"""`python -m benchmarks.paper TABLE`."""

from benchmarks.paper.commands import app

app(prog_name="python -m benchmarks.paper")
