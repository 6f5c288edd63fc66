"""`python -m benchmarks.chaos --input spec_bench_240.jsonl --output chaos.json`."""

from benchmarks.chaos.command import app

app(prog_name="python -m benchmarks.chaos")
