"""Find English that is hard to read: docstrings, comments, help texts, log lines and messages.

python -m tests.house.prose [FOLDER ...]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = ("specdec_core", "deployments", "k8s")
MAX_WORDS = 25
"""Maximum number of words of a sentence."""
_FRAGMENT = re.compile(
    r"(Of|What|That|Those|These|Whose|Who|Whoever|Its|Them|One of|Some of|None of|As many|So many"
    r"|By so|Most|Fewest)\b"
)
"""First words of a text that has no subject or no verb."""
_HARD = re.compile(
    r"\b(anew|so many|so much|whoever|likeliest|fewest|plainly|beside|nobody|somebody|in vain"
    r"|by itself|dear|wary|lies in|stands in|tells of|at hand)\b",
    re.IGNORECASE,
)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"(])")
_CODE = re.compile(r"`[^`]*`")
_LEGEND = re.compile(r"Shape legend: [^.]*\.")
"""Lists of shape letters, which are no sentences."""
_WORD = re.compile(r"[A-Za-z0-9'%-]+")
_MESSAGES = ("debug", "info", "warning", "error", "exception")
_HELP = ("help", "description", "doc", "text", "summary")
_DECLARATIONS = (
    *("flag", "argument", "SamplingField"),
    *("Panel", "_count", "_metric", "_of_clients", "_of_replicas", "_prefix", "_seconds"),
)
"""Functions that declare flags, fields, metrics and panels. Their positional texts are read."""


class Rule(StrEnum):
    FRAGMENT = "begins with a fragment"
    HARD_WORD = "hard word"
    LONG_SENTENCE = f"sentence over {MAX_WORDS} words"


class Found(NamedTuple):
    rule: Rule
    line: int
    text: str


def findings(source: str) -> Iterator[Found]:
    """Yield what is hard to read in the texts of a module."""
    for line, text, may_be_fragment in _texts(source):
        plain = _LEGEND.sub("", " ".join(_CODE.sub("X", text).split()))
        if not may_be_fragment and _FRAGMENT.match(plain):
            yield Found(Rule.FRAGMENT, line, plain)
        if _HARD.search(plain):
            yield Found(Rule.HARD_WORD, line, plain)
        for sentence in _END.split(plain):
            if len(_WORD.findall(sentence)) > MAX_WORDS:
                yield Found(Rule.LONG_SENTENCE, line, sentence)


def _texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, whether it may begin with any word)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and (text := string_of(node.value)):
            yield node.lineno, text, False
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _HELP and (text := _message_of(keyword.value)):
                    yield node.lineno, text, False
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _DECLARATIONS:
                texts = map(_message_of, node.args)
                yield from ((node.lineno, text, False) for text in texts if " " in text)
            is_message = name in _MESSAGES or name.endswith("Error")
            if is_message and node.args and (text := _message_of(node.args[0])):
                yield node.lineno, text, True
    for number, line in enumerate(source.splitlines(), start=1):
        if (comment := line.strip()).startswith("# "):
            yield number, comment[2:], True


def string_of(node: ast.expr) -> str:
    """Return the text of a string literal, or nothing for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _message_of(node: ast.expr) -> str:
    """Return the text of a literal, with X for each value of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(string_of(part) or "X" for part in node.values)
    return string_of(node)


def of_folders(folders: tuple[str, ...]) -> Iterator[tuple[Path, Found]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in file.name:
                for found in findings(file.read_text()):
                    yield file.relative_to(ROOT), found


if __name__ == "__main__":
    counts: Counter[Rule] = Counter()
    for path, one in of_folders(tuple(sys.argv[1:]) or PRODUCT):
        counts[one.rule] += 1
        print(f"{path}:{one.line}: {one.rule}: {one.text[:100]}")
    for rule, count in counts.items():
        print(f"{count} x {rule}")
