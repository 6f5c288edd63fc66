"""One seeded defect: where it is, what it breaks, and which tests must notice."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CAMPAIGN = (
    "tests/simulation/test_campaign.py"
    "::test_no_seed_finds_a_violation_and_everything_that_can_happen_happens"
)
"""The test whose worlds of faults must show a defect."""


class StaleMutantError(Exception):
    """The record no longer belongs to the code; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """Replaces `old` by `new` in one file. Every one of its tests must then fail."""

    name: str
    path: str
    """From the root of the repository."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    breaks: str
    """What the defect would do to a user or an operator."""
    killed_by: str | tuple[str, ...]
    """pytest node id or ids; one without parameters fails when one of its cases does."""

    @property
    def tests(self) -> tuple[str, ...]:
        """Return the node ids of all tests that must fail."""
        return (self.killed_by,) if isinstance(self.killed_by, str) else self.killed_by

    def mutated(self, root: Path) -> str:
        """The defective text of the file; raises StaleMutantError when it cannot be made."""
        path = root / self.path
        text = path.read_text() if path.is_file() else ""
        if text.count(self.old) != 1:
            raise StaleMutantError(
                f"{self.name}: the old text occurs {text.count(self.old)} times in {self.path}"
            )
        defective = text.replace(self.old, self.new)
        if path.suffix == ".py":
            self._check_python(defective, text)
        return defective

    def _check_python(self, defective: str, text: str) -> None:
        try:
            tree = ast.parse(defective)
            compile(tree, self.path, "exec")
        except SyntaxError as error:
            raise StaleMutantError(f"{self.name}: the mutant does not compile: {error}") from error
        if ast.dump(tree) == _dump(text):
            raise StaleMutantError(f"{self.name}: the mutant changes nothing")

    def check_tests(self, root: Path) -> None:
        """Raise StaleMutantError when a named test does not exist."""
        for node_id in self.tests:
            path, _, test = node_id.partition("::")
            if test.partition("[")[0] not in _names_of_tests(root / path):
                raise StaleMutantError(f"{self.name}: there is no test {node_id}")

    @contextmanager
    def applied(self, root: Path) -> Iterator[None]:
        """The file of `root`, a copy of the tree, is defective in between."""
        path = root / self.path
        text = path.read_text()
        path.write_text(self.mutated(root))
        try:
            yield
        finally:
            path.write_text(text)


@functools.lru_cache(maxsize=16)  # the mutants of a file follow each other
def _dump(text: str) -> str:
    return ast.dump(ast.parse(text))


def _names_of_tests(path: Path) -> set[str]:
    """Functions of a test file, and methods as `Class::method`; none when there is no file."""
    if not path.is_file():
        return set()
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            names |= {f"{node.name}::{method.name}" for method in methods}
    return names
