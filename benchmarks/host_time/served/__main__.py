"""`python -m benchmarks.host_time.served`."""

import typer

from benchmarks.host_time.served.command import main

if __name__ == "__main__":
    typer.run(main)
