"""Many seeded requests of several processors through one Engine, counted by output."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec_core import Request, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import KPolicyName, NgramConfig
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.messages import EMPTY_HASH, extend_hash
from tests.distribution.processors import NUM_TOKENS, Processor
from tests.fakes import TokenListModel

VOCAB = 5
PROMPTS: tuple[tuple[int, ...], ...] = ((0, 1, 0, 1, 0), (4, 4, 4), (2, 1, 2, 2, 1, 2, 2, 1, 2))
"""Of different lengths; repetitive, so that n-gram proposals exist from the start, and without most
ids, so that the output has ids of its own to be penalised."""
DRAFT_BLUR = 0.7
"""The draft is the target plus as much noise: it guesses right about every second time."""
_TABLE_SIZE = 1 << 12

Counts = Mapping[tuple[int, ...], Counter[tuple[int, ...]]]
"""How often each prompt got each output, cut to NUM_TOKENS ids."""


class TableModel(TokenListModel):
    """A TokenListModel whose logits are a row of a fixed random table, picked by all the ids."""

    def __init__(self, *, blur: float = 0.0, vocab_size: int = VOCAB) -> None:
        super().__init__(vocab_size=vocab_size, num_blocks=1 << 20, block_size=16)
        self._rows = (_table(0, vocab_size) + blur * _table(1, vocab_size)).unbind()
        self._known: dict[tuple[int, ...], Tensor] = {}

    @property
    def num_free_blocks(self) -> int:
        """Memory never ends here, and counting it would take most of the time."""
        return self.num_blocks

    def logits(self, ids: Sequence[int]) -> Tensor:
        key = tuple(ids)
        if key not in self._known:
            self._known[key] = self._rows[extend_hash(EMPTY_HASH, key) % _TABLE_SIZE]
        return self._known[key]

    def logits_of(self, ids: Sequence[int]) -> list[float]:
        values: list[float] = self.logits(ids).tolist()
        return values


def _table(seed: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1.2 * torch.randn(_TABLE_SIZE, vocab_size, generator=generator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How requests are decoded. None of it may change what is emitted."""

    algorithm: AlgorithmName = AlgorithmName.EXSPEC
    method: SpecMethod = SpecMethod.NONE
    k: int = 0
    batch: int = 48

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.method}-K{self.k}-B{self.batch}"

    @property
    def max_tokens(self) -> int:
        """Nobody drafts beyond the budget: K drafts need K + 1 tokens behind the first one."""
        return max(NUM_TOKENS, self.k + 2)

    def engine(self) -> Engine:
        uses_model = self.method in (SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID)
        speculation = SpeculationConfig(
            method=self.method,
            num_draft_tokens=self.k,
            ngram=NgramConfig(lookup_min=1, lookup_max=3),
            k_policy=KPolicyName.FIXED,
        )
        config = SchedulerConfig(
            max_group_size=self.batch,
            window=3 * self.batch,
            speculation=speculation,
            check_invariants=True,
        )
        draft = TableModel(blur=DRAFT_BLUR) if uses_model else None
        return Engine(TableModel(), draft, config=config, algorithm=self.algorithm)


@dataclass(frozen=True, slots=True)
class Sample:
    """Outputs of one setting."""

    counts: dict[str, dict[tuple[int, ...], Counter[tuple[int, ...]]]]
    """By processor, then prompt."""
    stats: AlgorithmStats


def draw(
    setting: Setting, processors: Mapping[str, Processor], *, first_seed: int, num_seeds: int
) -> Sample:
    """Decode so many seeds with every processor, all of them mixed in each group."""
    engine = setting.engine()
    seeds = range(first_seed, first_seed + num_seeds)
    requests = {request.request_id: request for request in requests_of(setting, processors, seeds)}
    emitted: dict[str, tuple[int, ...]] = dict.fromkeys(requests, ())
    for event in engine.generate(requests.values()):
        assert event.error is None, event.error
        emitted[event.request_id] += event.token_ids
        if len(emitted[event.request_id]) >= NUM_TOKENS and event.finish_reason is None:
            engine.abort(event.request_id)
    counts: dict[str, dict[tuple[int, ...], Counter[tuple[int, ...]]]] = {
        name: {prompt: Counter() for prompt in PROMPTS} for name in processors
    }
    for request_id, request in requests.items():
        name = request_id.partition(" ")[0]
        counts[name][request.prompt_token_ids][emitted[request_id][:NUM_TOKENS]] += 1
    return Sample(counts, engine.stats)


def requests_of(
    setting: Setting, processors: Mapping[str, Processor], seeds: Sequence[int]
) -> Iterator[Request]:
    """Neighbours differ in processor and in prompt; every processor gets every prompt."""
    for seed in seeds:
        prompts = itertools.islice(itertools.cycle(PROMPTS), seed % len(PROMPTS), None)
        for name, processor in processors.items():
            yield Request(
                request_id=f"{name} {seed}",
                prompt_token_ids=next(prompts),
                params=replace(processor.params, seed=seed, max_tokens=setting.max_tokens),
                end_token_ids=processor.end_token_ids,
            )
