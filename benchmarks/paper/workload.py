"""What is decoded: prompts as ids, and how long each answer may be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper.pair_spec import PairSpec
from benchmarks.paper.shapes import pair_shape
from deployments.cli.generate.prompt_file import PromptLine, read_prompt_file, select
from deployments.demo.models import resolve_model
from deployments.text.tokenizer import load_text_model
from specdec_core import Request, SamplingParams

_CHARACTERS_PER_TOKEN = 4
_SHORTEST_PROMPT = 4
_SHORTEST_ANSWER = 0.25
"""Of max_tokens, where the weights are random and nothing ends an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in input order; greedy, as everything in the paper."""

    prompts: tuple[tuple[int, ...], ...]
    answer_lens: tuple[int, ...]
    end_token_ids: frozenset[int] = frozenset()

    def requests(self) -> list[Request]:
        pairs = zip(self.prompts, self.answer_lens, strict=True)
        return [
            Request(
                request_id=str(index),
                prompt_token_ids=prompt,
                params=SamplingParams(temperature=0.0, max_tokens=answer_len),
                end_token_ids=self.end_token_ids,
            )
            for index, (prompt, answer_len) in enumerate(pairs)
        ]

    @property
    def longest(self) -> int:
        """Prompt and answer of the longest request, in tokens."""
        return max(request.max_len for request in self.requests())


def load_workload(
    spec: PairSpec, path: Path, *, sample: int, max_tokens: int, max_prompt_len: int, seed: int
) -> Workload:
    """Raw first turns of the file, cut to their last `max_prompt_len` tokens.

    For random weights the ids are random too, as many as the text would give; answers end where a
    seeded draw says, since no weights would end them.
    """
    lines = select(read_prompt_file(path), sample=sample)
    if spec.is_random:
        prompts = _random_prompts(lines, pair_shape(spec.target).vocab_size, seed)
        lens = answer_lens(len(prompts), max_tokens, seed)
        return Workload(prompts=_cut(prompts, max_prompt_len), answer_lens=lens)
    text = load_text_model(resolve_model(spec.target))
    prompts = [text.encode(line.first_text) for line in lines]
    return Workload(
        prompts=_cut(prompts, max_prompt_len),
        answer_lens=(max_tokens,) * len(prompts),
        end_token_ids=text.end_token_ids,
    )


def answer_lens(count: int, max_tokens: int, seed: int) -> tuple[int, ...]:
    """Uniform between a quarter of `max_tokens` and all of it."""
    rng = random.Random(f"answers/{seed}")
    shortest = max(int(_SHORTEST_ANSWER * max_tokens), 1)
    return tuple(rng.randint(shortest, max_tokens) for _ in range(count))


def _random_prompts(
    lines: Sequence[PromptLine], vocab_size: int, seed: int
) -> list[tuple[int, ...]]:
    rng = random.Random(f"prompts/{seed}")
    lens = [max(len(x.first_text) // _CHARACTERS_PER_TOKEN, _SHORTEST_PROMPT) for x in lines]
    return [tuple(rng.randrange(vocab_size) for _ in range(length)) for length in lens]


def _cut(prompts: Sequence[tuple[int, ...]], limit: int) -> tuple[tuple[int, ...], ...]:
    return tuple(prompt[-limit:] for prompt in prompts)
