"""`python -m benchmarks.chaos --input spec_bench_240.jsonl --output chaos.json`."""

import typer

from benchmarks.chaos.command import main

typer.run(main)
