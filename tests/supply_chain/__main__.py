"""`make audit-deps`: pip-audit over requirements.lock, and loud words when nothing was audited.

pip-audit ends well when its service knows none of the packages, as behind a closed network; here
that is no pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[2] / "requirements.lock"
FOUND, NOT_RUN = 1, 3
MAY_BE_UNREACHABLE = "--may-be-unreachable"


def judge(dependencies: Sequence[dict[str, Any]], *, may_be_unreachable: bool) -> tuple[int, str]:
    """Exit status and what to print, from the `dependencies` of pip-audit's JSON."""
    audited = [one for one in dependencies if "skip_reason" not in one]
    if not audited:
        words = (
            "DEPENDENCIES WERE NOT AUDITED: the vulnerability service cannot be reached from here"
        )
        return 0 if may_be_unreachable else NOT_RUN, words
    lines = [
        f"{one['name']} {one['version']}: {hole['id']}, fixed in {hole['fix_versions']}"
        for one in audited
        for hole in one["vulns"]
    ]
    status = FOUND if lines else 0
    lines += [f"NOT AUDITED: {one['name']}" for one in dependencies if "skip_reason" in one]
    return status, "\n".join([*lines, f"{len(audited)} of {len(dependencies)} packages audited"])


def main(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    command += ["--vulnerability-service", "pypi", "--no-deps", "--disable-pip", "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):  # it did not get as far: the reason is its last line
        print((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1])
        dependencies = []
    status, words = judge(dependencies, may_be_unreachable=MAY_BE_UNREACHABLE in arguments)
    print(words)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
