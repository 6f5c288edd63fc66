"""Synthetic pairs: real passes and real verification, proposals right as often as one likes.

The target decodes its prompts plainly once. From then on that recording is what a drafter proposes,
each token right with a chosen probability: through a draft model whose passes are run for their
cost alone, or in the place of prompt lookup, which costs nothing. What comes out must be the
recording again, token for token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.paper.answer_book import AnswerBook
from benchmarks.paper.decoding import decode
from benchmarks.paper.recorded_draft import RecordedDraft
from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.config import KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.model import CachedModel
from specdec_core.speculation.drafter import Offer, Row
from specdec_core.speculation.ngram import NgramDrafter
from specdec_core.speculation.registry import DRAFTERS

_RECORDING_BATCH = 32
"""Rows of the passes that record; exact numerics make any number right."""


class DrafterKind(StrEnum):
    LOOKUP = "lookup"
    """Proposals cost nothing, as those of prompt lookup."""
    DRAFT = "draft"
    """Every drafted token costs a pass of the draft's shape."""

    @property
    def method(self) -> SpecMethod:
        return SpecMethod.NGRAM if self is DrafterKind.LOOKUP else SpecMethod.DRAFT_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Prompts and what plain decoding makes of them."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]
    params: SamplingParams
    end_token_ids: frozenset[int] = frozenset()

    def requests(self, count: int, salt: str = "") -> list[Request]:
        return requests_for(self.prompts[:count], self.params, salt, self.end_token_ids)

    def book(self, target: CachedModel, acceptance: float, seed: int = 0) -> AnswerBook:
        return AnswerBook(
            self.prompts,
            self.answers,
            probability=acceptance,
            vocab_size=target.vocab_size,
            seed=seed,
        )


def requests_for(
    prompts: Sequence[tuple[int, ...]],
    params: SamplingParams,
    salt: str = "",
    end_token_ids: frozenset[int] = frozenset(),
) -> list[Request]:
    """Those of one `salt` share what they begin with."""
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=prompt,
            params=params,
            cache_salt=salt,
            end_token_ids=end_token_ids,
        )
        for number, prompt in enumerate(prompts)
    ]


def record(
    target: CachedModel,
    prompts: Sequence[tuple[int, ...]],
    params: SamplingParams,
    cache: Path | None = None,
    name: str = "",
    end_token_ids: frozenset[int] = frozenset(),
) -> Recording:
    """Decode plainly, or read what an earlier call with equal arguments left in `cache`; `name`
    says which target it is. An answer ends with an end ID, if there are any."""
    asked = json.dumps([name, prompts, asdict(params), *sorted(end_token_ids)], default=str)
    key = hashlib.sha256(asked.encode()).hexdigest()
    known = json.loads(cache.read_text()) if cache is not None and cache.is_file() else {}
    if key not in known:
        config = SchedulerConfig(max_group_size=_RECORDING_BATCH, window=_RECORDING_BATCH)
        engine = Engine(target, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
        requests = requests_for(prompts, params, end_token_ids=end_token_ids)
        known[key] = decode(engine, requests).answers
        if cache is not None:
            cache.write_text(json.dumps(known))
    answers = tuple(tuple(answer) for answer in known[key])
    return Recording(
        prompts=tuple(prompts), answers=answers, params=params, end_token_ids=end_token_ids
    )


def synthetic_engine(
    target: CachedModel,
    draft: CachedModel | None,
    book: AnswerBook,
    *,
    batch: int,
    num_draft_tokens: int,
    k_policy: KPolicyName = KPolicyName.FIXED,
) -> Engine:
    """Proposes from `book`: by passes of `draft`, or without one by lookup.

    Without one, use it within `lookups_from(book)`.
    """
    kind = DrafterKind.LOOKUP if draft is None else DrafterKind.DRAFT
    config = SchedulerConfig(
        max_group_size=batch,
        window=batch,
        speculation=SpeculationConfig(
            method=kind.method, num_draft_tokens=num_draft_tokens, k_policy=k_policy
        ),
    )
    return Engine(target, None if draft is None else RecordedDraft(draft, book), config=config)


def idle_engine(target: CachedModel, batch: int) -> Engine:
    """Return the engine that speculates, with speculation off."""
    speculation = SpeculationConfig(method=SpecMethod.NONE, k_policy=KPolicyName.FIXED)
    config = SchedulerConfig(max_group_size=batch, window=batch, speculation=speculation)
    return Engine(target, config=config)


def plain_engine(target: CachedModel, batch: int) -> Engine:
    config = SchedulerConfig(max_group_size=batch, window=batch)
    return Engine(target, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)


@contextmanager
def lookups_from(book: AnswerBook) -> Iterator[None]:
    """Within it prompt lookup offers what the book says of each sequence."""

    class RecordedDrafter(NgramDrafter):
        def begin(self, row: Row) -> Any:
            return book.number_of(row.ids)

        def propose(self, rows: Sequence[Row], most: Sequence[int]) -> list[Offer]:
            return [_recorded(book, row, count) for row, count in zip(rows, most, strict=True)]

    with mock.patch.dict(DRAFTERS, {SpecMethod.NGRAM: RecordedDrafter}):
        yield


def _recorded(book: AnswerBook, row: Row, count: int) -> Offer:
    """Return the recorded tokens after the row's IDs. Nothing says how good they are."""
    number: Any = row.draft_state
    return Offer(tuple(book.next_tokens(number, len(row.ids) + count - 1, count)))
