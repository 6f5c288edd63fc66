"""Log-probabilities of prompts: those of one forward pass, whatever chunks, batches and drafts do.

In exact numerics they are bit for bit those of plain decoding alone; the oracle of their values is
log_softmax of the whole prompt's logits.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.logprobs import TokenLogprobs
from specdec_core.model import score
from specdec_core.request import TokenEvent
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import fixed_k
from tests.tiny_models import VOCAB, exact_model

LENGTHS = (1, 2, 5, 33, 34, 70, 33)
TOP = 3


@pytest.fixture(scope="module")
def target() -> ModelRunner:
    return exact_model("llama", torch.bfloat16, 4096, initializer_range=0.05)


def requests() -> list[Request]:
    """Every third asks for nothing."""
    rng = random.Random(9)
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=tuple(rng.randrange(VOCAB) for _ in range(length)),
            params=SamplingParams(
                temperature=index % 2 * 0.8,
                seed=index,
                max_tokens=9,
                num_logprobs=None if index % 2 else 1,
                num_prompt_logprobs=None if index % 3 == 2 else TOP,
            ),
        )
        for index, length in enumerate(LENGTHS)
    ]


def events_of(engine: Engine, asked: list[Request]) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {request.request_id: [] for request in asked}
    for event in engine.generate(asked):
        events[event.request_id].append(event)
    return events


def told(events: list[TokenEvent]) -> tuple[TokenLogprobs, ...]:
    """They come with the first token, and only then."""
    assert not any(event.prompt_logprobs for event in events[1:])
    return events[0].prompt_logprobs


def engine_of(
    model: ModelRunner, algorithm: AlgorithmName, batch: int = 4, chunk: int = 8
) -> Engine:
    config = SchedulerConfig(
        max_group_size=batch,
        window=2 * batch,
        prefill_chunk=chunk,
        speculation=fixed_k(SpecMethod.NGRAM, 4),
    )
    return Engine(model, config=config, algorithm=algorithm)


@pytest.fixture(scope="module")
def plain(target: ModelRunner) -> dict[str, list[TokenEvent]]:
    found: dict[str, list[TokenEvent]] = {}
    for request in requests():
        found |= events_of(engine_of(target, AlgorithmName.AUTOREGRESSIVE, 1), [request])
    return found


def test_they_are_log_softmax_of_the_logits_before_each_token(
    target: ModelRunner, plain: dict[str, list[TokenEvent]]
) -> None:
    for request in requests():
        reported = told(plain[request.request_id])
        if request.params.num_prompt_logprobs is None:
            assert reported == ()
            continue
        ids = request.prompt_token_ids
        slot = target.allocate()
        logits = score(target, [(slot, ids, len(ids))])[:-1, :VOCAB].double()
        target.free(slot)
        expected = logits.log_softmax(dim=-1)
        assert len(reported) == len(ids) - 1
        for token_id, row, entry in zip(ids[1:], expected, reported, strict=True):
            assert entry.logprob == pytest.approx(row[token_id].item(), abs=2e-6)
            values = row.tolist()
            order = sorted(range(VOCAB), key=lambda v: (-values[v], v))
            assert [v for v, _ in entry.top] == order[:TOP]


@pytest.mark.parametrize("chunk", [1, 2, 8, 33, 512])
@pytest.mark.parametrize("algorithm", AlgorithmName)
def test_speculation_and_chunks_change_no_bit_of_them(
    target: ModelRunner,
    plain: dict[str, list[TokenEvent]],
    algorithm: AlgorithmName,
    chunk: int,
) -> None:
    events = events_of(engine_of(target, algorithm, chunk=chunk), requests())
    for request in requests():
        expected, actual = plain[request.request_id], events[request.request_id]
        assert told(actual) == told(expected)
        assert [i for e in actual for i in e.token_ids] == [
            i for e in expected for i in e.token_ids
        ]
        assert [x for e in actual for x in e.logprobs] == [x for e in expected for x in e.logprobs]


@pytest.mark.parametrize("algorithm", AlgorithmName)
def test_an_attempt_that_goes_on_tells_them_no_more(
    target: ModelRunner, plain: dict[str, list[TokenEvent]], algorithm: AlgorithmName
) -> None:
    whole = requests()[4]
    emitted = tuple(i for event in plain[whole.request_id] for i in event.token_ids)
    resumed = replace(whole, emitted_token_ids=emitted[:3])
    events = events_of(engine_of(target, algorithm), [resumed])[whole.request_id]
    assert told(events) == ()
    assert tuple(i for event in events for i in event.token_ids) == emitted[3:]


def test_a_preemption_in_the_middle_of_a_prompt_tells_them_once() -> None:
    """Room for one long prompt: the others are preempted and come again from the start."""
    narrow = exact_model("llama", torch.bfloat16, 112, initializer_range=0.05)
    asked = [
        replace(r, params=replace(r.params, num_prompt_logprobs=TOP, max_tokens=40))
        for r in requests()[3:]
    ]
    alone = {r.request_id: events_of(engine_of(narrow, AlgorithmName.EXSPEC), [r]) for r in asked}
    together = events_of(engine_of(narrow, AlgorithmName.EXSPEC, chunk=8), asked)
    last = [events[-1].stats for events in together.values()]
    assert sum(stats.num_preemptions for stats in last if stats) > 0
    for request in asked:
        request_id = request.request_id
        assert told(together[request_id]) == told(alone[request_id][request_id])
        assert len(told(together[request_id])) == len(request.prompt_token_ids) - 1
