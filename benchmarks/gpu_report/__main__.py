"""`python -m benchmarks.gpu_report`."""

import sys

from benchmarks.gpu_report.command import main

if __name__ == "__main__":  # processes that are spawned import this file again
    sys.exit(main())
