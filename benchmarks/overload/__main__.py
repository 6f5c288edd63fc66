"""`python -m benchmarks.overload COMMAND`."""

from benchmarks.overload.commands import app

# Client processes import this module again.
if __name__ == "__main__":
    app(prog_name="python -m benchmarks.overload")
