"""A model that answers chats with the texts of a script, and a replica that runs it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deployments.text.grammars import Compiler
from deployments.text.tokenizer import TextModel
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.model import replica_info
from specdec_core.worker.replica import Replica
from tests.fakes import TokenListModel

ANSWER_BEGINS = "<|im_start|>assistant\n"
"""The last occurrence in a prompt of ChatML is where the answer begins."""
_SCRIPTED, _STEP = 1000.0, 50.0
"""Logits so far apart that no usual temperature changes their order."""
_CLOSING = ('"', "}", "]", ",", "1", "a", "{", "[")
"""Texts that bring a grammar to its end soon, best first; the quote first, as it ends a string."""


def chatml_answer_start(text: str) -> int | None:
    """Return where the last answer of a chat begins; None for a raw prompt."""
    place = text.rfind(ANSWER_BEGINS)
    return None if place < 0 else place + len(ANSWER_BEGINS)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a script: the first rule whose pattern is found in the prompt decides."""

    pattern: re.Pattern[str]
    answer: str
    """Text as the model writes it, with its marks."""


class Script:
    """Rules in the order in which they are tried."""

    def __init__(
        self,
        rules: Sequence[Rule],
        answer_start: Callable[[str], int | None] = chatml_answer_start,
    ) -> None:
        self._rules = tuple(rules)
        self._answer_start = answer_start

    @classmethod
    def read(
        cls,
        file: Path,
        written: Callable[[Any], str] = str,
        answer_start: Callable[[str], int | None] = chatml_answer_start,
    ) -> Script:
        """A JSON list of `{"if": REGEX, "say": ANSWER}`; the regex is searched in the rendered
        prompt, and `.` matches line ends. `written` makes the model's text of an answer."""
        listed = json.loads(file.read_text(encoding="utf-8"))
        rules = [Rule(re.compile(one["if"], re.DOTALL), written(one["say"])) for one in listed]
        return cls(rules, answer_start)

    def find(self, text: str) -> tuple[str, int]:
        """The answer to a prompt that `text` begins with, and where in `text` the answer begins.

        In a raw prompt that is behind the match.
        """
        start = self._answer_start(text)
        for rule in self._rules:
            if found := rule.pattern.search(text[:start]):
                return rule.answer, found.end() if start is None else start
        return "", len(text)


class ScriptedModel(TokenListModel):
    """Emits the script's answer and ends. Where a grammar bans the next token of the answer, the
    model brings the grammar to its end with few tokens."""

    def __init__(self, text: TextModel, script: Script) -> None:
        super().__init__(vocab_size=text.vocab_size, max_model_len=text.max_model_len)
        self._text = text
        self._script = script
        self._end = min(text.end_token_ids)
        self._off_script = torch.zeros(self.vocab_size)
        for place, token in enumerate((self._end, *self._ids_of(_CLOSING))):
            self._off_script[token] = _SCRIPTED - (place + 1) * _STEP

    def logits(self, ids: Sequence[int]) -> Tensor:
        logits = self._off_script.clone()
        token = self._scripted(ids)
        if token is not None:
            logits[token] = _SCRIPTED
        return logits

    def _scripted(self, ids: Sequence[int]) -> int | None:
        """The answer's next token; None once the output has left the answer."""
        text = self._text.decode_all(ids)
        answer, start = self._script.find(text)
        output = list(ids[self._num_ids(ids, text[:start]) :])
        planned = list(self._text.encode_part(answer))
        if not planned or planned[-1] not in self._text.end_token_ids:
            planned.append(self._end)
        is_on_script = len(output) < len(planned) and planned[: len(output)] == output
        return planned[len(output)] if is_on_script else None

    def _num_ids(self, ids: Sequence[int], text: str) -> int:
        """How many of the ids spell the text."""
        ends = itertools.accumulate((len(self._text.token_bytes(i)) for i in ids), initial=0)
        return next(place for place, end in enumerate(ends) if end >= len(text.encode()))

    def _ids_of(self, texts: Sequence[str]) -> list[int]:
        return [self._text.encode_part(text)[0] for text in texts]


class ScriptedReplica(Replica):
    """The real replica over a scripted model, with the library's grammars."""

    def __init__(self, text: TextModel, script: Script) -> None:
        self._scripted = ScriptedModel(text, script)
        super().__init__(self._scripted, Role.TARGET, Compiler(lambda: text))

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return replica_info(
            self._scripted,
            Role.TARGET,
            replica_id,
            incarnation,
            model_digest="scripted",
            fingerprint="scripted",
        )
