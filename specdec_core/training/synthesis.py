"""The training text, written by the target itself: user turns, then its answers to them.

A document is a function of the settings and its index. So chunks that are lost are written again
with the same content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from specdec_core.config import SchedulerConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import InvalidRequestError
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason, Request
from specdec_core.sampling_params import MAX_LOGPROBS, SamplingParams, derive_seed
from specdec_core.training.documents import Chunk, Document, chunk_path, read_chunk, write_chunk
from specdec_core.training.overlap import OverlapFilter

_CHUNK_SIZE = 256
_USER_SEED, _ANSWER_SEED = 1, 2

Report = Callable[[int, int], None]
"""Called with (documents done, documents in all)."""


Candidates = tuple[tuple[int, float], ...]
"""Pairs (id, log-probability), the most likely first."""


class Chat(Protocol):
    """The target's text: its tokenizer and chat template."""

    @property
    def user_prefix_ids(self) -> tuple[int, ...]:
        """A conversation up to the first word of its first user turn."""
        ...

    @property
    def user_end_ids(self) -> frozenset[int]:
        """Token IDs that end a user turn."""
        ...

    def encode_part(self, text: str) -> tuple[int, ...]: ...

    def encode_user(self, text: str) -> tuple[int, ...]:
        """Return a conversation whose user has said `text`, up to the first word of the answer."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """Settings of the training text."""

    num_documents: int = 2048
    """Number of documents before any is dropped."""
    max_user_tokens: int = 128
    max_prompt_tokens: int = 512
    """Maximum length of a prompt, in tokens. Longer prompts are dropped."""
    max_answer_tokens: int = 256
    user_temperature: float = 1.0
    temperatures: tuple[float, ...] = (0.0, 1.0)
    """Temperatures of the answers, used in turn."""
    openers: tuple[str, ...] = ("",)
    """Beginnings of user turns, used in turn. The target continues from there."""
    num_candidates: int = 16
    """Number of the target's most likely IDs that are kept at every token (C)."""
    batch_size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("num_documents", "max_user_tokens", "max_prompt_tokens", "max_answer_tokens")
        for name in (*sizes, "num_candidates", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidRequestError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.num_candidates > MAX_LOGPROBS:
            raise InvalidRequestError(
                f"num_candidates must be at most {MAX_LOGPROBS}, got {self.num_candidates}"
            )
        if not self.temperatures:
            raise InvalidRequestError("at least one temperature is needed for the answers")

    @property
    def max_document_tokens(self) -> int:
        """Maximum tokens of a document, or of a user turn with the text before it."""
        return self.max_prompt_tokens + max(self.max_answer_tokens, self.max_user_tokens)


class Text(NamedTuple):
    documents: list[Document]
    """Answers after their prompts."""
    turns: list[Document]
    """User turns that the target made up."""
    num_excluded: int


class _Emitted:
    """Output of a request so far."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.candidates: list[Candidates] = []


class Writer:
    """Makes a target write documents. Synchronous; owns no model."""

    def __init__(
        self,
        target: CachedModel,
        end_token_ids: frozenset[int],
        chat: Chat,
        config: TextConfig,
        excluded: OverlapFilter,
        prompts: Sequence[str] = (),
    ) -> None:
        self._target = target
        self._end_token_ids = end_token_ids
        self._chat = chat
        self._config = config
        self._excluded = excluded
        self._prompts = prompts

    def write(self, folder: Path, report: Report) -> Text:
        """Return every document of the text. A chunk that is stored in `folder` is read from
        there."""
        folder.mkdir(parents=True, exist_ok=True)
        total, text = self._config.num_documents, Text([], [], 0)
        for start in range(0, total, _CHUNK_SIZE):
            end = min(start + _CHUNK_SIZE, total)
            path = chunk_path(folder, start, end)
            if not path.is_file():
                write_chunk(path, self._chunk(range(start, end), lambda n: report(n, total)))
            chunk = read_chunk(path)
            text = Text(
                text.documents + chunk.documents,
                text.turns + chunk.turns,
                text.num_excluded + chunk.num_excluded,
            )
            report(end, total)
        return text

    def _chunk(self, indices: Sequence[int], report_done: Callable[[int], None]) -> Chunk:
        written = self._user_turns(indices)
        texts = self._user_texts(indices, written)
        allowed = {i: text for i, text in texts.items() if not self._excluded.overlaps(text)}
        prompts = {i: self._chat.encode_user(text) for i, text in allowed.items()}
        longest = self._config.max_prompt_tokens
        answers = self._answers(
            {i: ids for i, ids in prompts.items() if len(ids) <= longest}, report_done
        )
        kept = [a for a in answers if not self._excluded.overlaps(self._answer_text(a))]
        num_excluded = len(texts) - len(allowed) + len(answers) - len(kept)
        return Chunk(kept, [written[i] for i in allowed if i in written], num_excluded)

    def _answer_text(self, document: Document) -> str:
        return self._chat.decode(document.ids[document.answer_start :].tolist())

    def _user_turns(self, indices: Sequence[int]) -> dict[int, Document]:
        """Return the user turns that the target makes up; none if prompts are given."""
        if self._prompts:
            return {}
        requests = {i: self._user_request(i, self._opener(i)) for i in indices}
        return self._complete(requests)

    def _opener(self, index: int) -> str:
        return self._config.openers[index % len(self._config.openers)]

    def _user_texts(
        self, indices: Sequence[int], written: Mapping[int, Document]
    ) -> dict[int, str]:
        """Return given prompts in turn, or the words of the turns. Empty turns are left out."""
        if self._prompts:
            return {i: self._prompts[i % len(self._prompts)] for i in indices}
        texts = {i: self._words(turn) for i, turn in written.items()}
        return {i: texts[i] for i in indices if texts[i]}

    def _words(self, turn: Document) -> str:
        said, ends = turn.ids[turn.answer_start :].tolist(), self._chat.user_end_ids
        words = self._chat.decode([token_id for token_id in said if token_id not in ends])
        return (self._opener(turn.index) + words).strip()

    def _user_request(self, index: int, opener: str) -> Request:
        return Request(
            request_id=str(index),
            prompt_token_ids=(*self._chat.user_prefix_ids, *self._chat.encode_part(opener)),
            params=SamplingParams(
                temperature=self._config.user_temperature,
                seed=derive_seed(derive_seed(self._config.seed, _USER_SEED), index + 1),
                max_tokens=self._config.max_user_tokens,
                stop_token_ids=tuple(sorted(self._chat.user_end_ids)),
                num_logprobs=self._config.num_candidates,
            ),
            end_token_ids=self._end_token_ids,
        )

    def _answers(
        self, prompts: Mapping[int, tuple[int, ...]], report_done: Callable[[int], None]
    ) -> list[Document]:
        requests = {i: self._answer_request(i, ids) for i, ids in prompts.items()}
        first = min(prompts, default=0)
        answers = self._complete(requests, lambda done: report_done(first + done))
        return [answers[i] for i in prompts]

    def _answer_request(self, index: int, prompt_ids: tuple[int, ...]) -> Request:
        temperatures = self._config.temperatures
        return Request(
            request_id=str(index),
            prompt_token_ids=prompt_ids,
            params=SamplingParams(
                temperature=temperatures[index % len(temperatures)],
                seed=derive_seed(derive_seed(self._config.seed, _ANSWER_SEED), index + 1),
                max_tokens=self._config.max_answer_tokens,
                num_logprobs=self._config.num_candidates,
            ),
            end_token_ids=self._end_token_ids,
        )

    def _complete(
        self,
        requests: Mapping[int, Request],
        report_done: Callable[[int], None] = lambda done: None,
    ) -> dict[int, Document]:
        """Return the document of each index. The end ID is among the document's IDs."""
        size = self._config.batch_size
        engine = Engine(
            self._target,
            config=SchedulerConfig(max_group_size=size, window=size),
            algorithm=AlgorithmName.AUTOREGRESSIVE,
            end_token_ids=self._end_token_ids,
        )
        emitted: dict[int, _Emitted] = defaultdict(_Emitted)
        num_done = 0
        for event in engine.generate(requests.values()):
            index = int(event.request_id)
            emitted[index].ids += event.token_ids
            emitted[index].candidates += (entry.top for entry in event.logprobs)
            assert event.finish_reason is not FinishReason.ERROR, event.error
            if event.finish_reason is not None:
                num_done += 1
                report_done(num_done)
        return {i: _document(i, requests[i].prompt_token_ids, emitted[i]) for i in requests}


def _document(index: int, prompt_ids: Sequence[int], emitted: _Emitted) -> Document:
    ids = [[token_id for token_id, _ in row] for row in emitted.candidates]
    logprobs = [[logprob for _, logprob in row] for row in emitted.candidates]
    return Document(
        index=index,
        ids=torch.tensor((*prompt_ids, *emitted.ids), dtype=torch.int32),
        answer_start=len(prompt_ids),
        top_ids=torch.tensor(ids, dtype=torch.int32),
        top_logprobs=torch.tensor(logprobs, dtype=torch.float16),
    )
