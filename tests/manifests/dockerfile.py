"""What is wrong with a Dockerfile, as far as reading it tells."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
_PROBES = {"wget"}
"""Called inside the container by the operator's probes."""
_COMPILERS = {"gcc", "libc6-dev"}


@dataclass(frozen=True)
class Step:
    """One instruction and the stage that it belongs to, counted from 0."""

    name: str
    value: str
    stage: int


def steps(text: str) -> list[Step]:
    parser = DockerfileParser(fileobj=BytesIO(text.encode()))
    found: list[Step] = []
    stage = -1
    for one in parser.structure:
        stage += one["instruction"] == "FROM"
        if one["instruction"] != "COMMENT":
            found.append(Step(one["instruction"], one["value"], stage))
    return found


def dockerfile_problems(text: str, ignored: str, root: Path = ROOT) -> Iterator[str]:
    """`ignored` is the text of .dockerignore."""
    found = steps(text)
    yield from _base_problems(found)
    yield from _copy_problems(found, ignored, root)
    yield from _install_problems(found)
    yield from _user_problems(found)


def _base_problems(found: list[Step]) -> Iterator[str]:
    bases = {step.value.split(" ")[0] for step in found if step.name == "FROM"}
    for base in bases:
        if ":" not in base or base.endswith(":latest"):
            yield f"base {base} has no version"
    if len(bases) > 1:
        yield f"the environment moves between bases: {sorted(bases)}"


def _copy_problems(found: list[Step], ignored: str, root: Path) -> Iterator[str]:
    stages = [step.value.partition(" AS ")[2] for step in found if step.name == "FROM"]
    for step in found:
        if step.name == "ADD":
            yield f"ADD {step.value}: COPY says what it does"
        if step.name != "COPY":
            continue
        flags = [word for word in shlex.split(step.value) if word.startswith("--")]
        origin = next((f.partition("=")[2] for f in flags if f.startswith("--from=")), None)
        if origin is not None:
            if origin not in stages[: step.stage]:
                yield f"COPY from {origin}, which is no earlier stage"
            continue
        *sources, _ = [word for word in shlex.split(step.value) if not word.startswith("--")]
        for source in sources:
            if not (root / source).exists():
                yield f"{source} is not in the repository"
            elif _is_ignored(source, ignored):
                yield f"{source} is kept out by .dockerignore"


def _is_ignored(path: str, ignored: str) -> bool:
    """The last pattern that fits decides."""
    verdict = False
    for line in ignored.splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#") and fnmatch(path, pattern.removeprefix("!")):
            verdict = not pattern.startswith("!")
    return verdict


def _install_problems(found: list[Step]) -> Iterator[str]:
    runs = [step for step in found if step.name == "RUN"]
    commands = [part.strip() for run in runs for part in re.split(r"&&|\|\|", run.value)]
    pips = [command for command in commands if command.startswith("pip install")]
    if not pips:
        yield "nothing is installed"
    for command in pips:
        if "--constraint requirements.lock" not in command:
            yield f"{command}: not by requirements.lock"
    if pips and not pips[0].endswith(" torch"):
        yield "torch is not installed first: something else may choose its build"
    for run in runs:
        if "apt-get install" in run.value:
            yield from _apt_problems(run.value)
        if re.search(r"\bsudo\b|curl[^|]*\|\s*(ba)?sh", run.value):
            yield f"RUN {run.value}: neither sudo nor scripts from the network"
    last = max(step.stage for step in found)
    words = {word for run in runs if run.stage == last for word in run.value.split()}
    for package in sorted((_PROBES | _COMPILERS) - words):
        yield f"the image has no {package}"


def _apt_problems(command: str) -> Iterator[str]:
    for needed in ("apt-get update", "--no-install-recommends", "--yes", "/var/lib/apt/lists"):
        if needed not in command:
            yield f"apt-get without {needed}"


def _user_problems(found: list[Step]) -> Iterator[str]:
    last = [step for step in found if step.stage == max(one.stage for one in found)]
    users = [step.value for step in last if step.name == "USER"]
    if not users or users[-1] != "1000:1000":
        yield f"it runs as {users[-1] if users else 'root'}, the pods as 1000"
    for step in last:
        if step.name in ("CMD", "ENTRYPOINT"):
            try:
                json.loads(step.value)
            except ValueError:
                yield f"{step.name} {step.value} runs in a shell, which takes no signal"
