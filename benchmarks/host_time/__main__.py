"""`python -m benchmarks.host_time`, or `python benchmarks/host_time` for another tree."""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def _use_own_package() -> None:
    """Let `benchmarks.host_time` be this folder, wherever other packages come from.

    Python puts this folder first on its path when it runs it, which nobody imports from.
    """
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != _FOLDER]
    sys.path.append(str(_FOLDER.parents[1]))
    import benchmarks

    benchmarks.__path__.insert(0, str(_FOLDER.parent))


if __name__ == "__main__":
    if not __package__:
        _use_own_package()
        from benchmarks.host_time.former_names import use_former_names

        use_former_names()
    from benchmarks.host_time.command import main

    sys.exit(main())
