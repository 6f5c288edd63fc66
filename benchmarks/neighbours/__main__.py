"""`python -m benchmarks.neighbours`."""

from benchmarks.neighbours.command import app

if __name__ == "__main__":
    app(prog_name="python -m benchmarks.neighbours")
