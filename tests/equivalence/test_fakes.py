"""Speculation never changes an answer: every method against plain decoding, on fake models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from specdec_core import (
    FinishReason,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from tests.fakes import NoisyCopy, TokenListModel

VOCAB = 13
SPECULATIVE = [name for name in AlgorithmName if name is not AlgorithmName.AUTOREGRESSIVE]


def make_requests(count: int, *, seed: int, temperature: float | None = None) -> list[Request]:
    rng = random.Random(seed)
    requests = []
    for index in range(count):
        length = rng.choice([1, 3, 7, 7, 7, 20])
        heat = rng.choice([0.0, 0.8, 1.3]) if temperature is None else temperature
        params = SamplingParams(
            temperature=heat,
            top_k=rng.choice([0, 5]),
            top_p=rng.choice([1.0, 0.9]),
            seed=rng.randrange(2**40),
            max_tokens=rng.randint(1, 40),
        )
        requests.append(
            Request(
                request_id=f"r{index}",
                prompt_token_ids=tuple(rng.randrange(VOCAB) for _ in range(length)),
                params=params,
                end_token_ids=frozenset({2, 5}) if rng.random() < 0.5 else frozenset(),
            )
        )
    return requests


def outputs(engine: Engine, requests: Sequence[Request]) -> dict[str, tuple[tuple[int, ...], str]]:
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    reasons: dict[str, str] = {}
    for event in engine.generate(requests):
        assert event.request_id not in reasons, "nothing follows the last event"
        assert event.index == len(tokens[event.request_id]), "indexes are contiguous"
        tokens[event.request_id] += event.token_ids
        if event.finish_reason is not None:
            reasons[event.request_id] = event.finish_reason
    return {key: (tuple(ids), reasons[key]) for key, ids in tokens.items()}


def plain(requests: Sequence[Request]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {request.request_id: _alone(request) for request in requests}


@cache
def _alone(request: Request) -> tuple[tuple[int, ...], str]:
    """Many tests ask for the same."""
    target = TokenListModel(vocab_size=VOCAB)
    config = SchedulerConfig(max_group_size=1, window=1)
    engine = Engine(target, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    return outputs(engine, [request])[request.request_id]


def scheduler_config(method: SpecMethod, k: int, batch: int, window: int = 24) -> SchedulerConfig:
    speculation = SpeculationConfig(method=method, num_draft_tokens=k, k_policy=KPolicyName.FIXED)
    return SchedulerConfig(
        max_group_size=batch,
        window=max(window, batch),
        prefill_chunk=8,
        speculation=speculation,
    )


@pytest.mark.parametrize("method", SpecMethod)
@pytest.mark.parametrize("name", SPECULATIVE)
def test_every_request_may_name_who_drafts_for_it(name: AlgorithmName, method: SpecMethod) -> None:
    """Its answer stays; a draft model that nobody asks for chooses nothing."""
    unnamed = make_requests(12, seed=9)
    requests = [replace(r, spec_method=method) for r in unnamed]
    target, draft = TokenListModel(vocab_size=VOCAB), TokenListModel(vocab_size=VOCAB, seed=1)
    config = scheduler_config(SpecMethod.DRAFT_MODEL, 4, 4)
    engine = Engine(target, draft, config=config, algorithm=name)
    assert outputs(engine, requests) == plain(unnamed)
    prompts = sum(len(request.prompt_token_ids) for request in requests)
    assert (draft.num_fed > prompts) is (method in DRAFT_MODEL_METHODS)
    assert (engine.stats.num_drafted > 0) is (method is not SpecMethod.NONE)


@pytest.mark.parametrize("name", SPECULATIVE)
def test_requests_of_all_methods_share_a_batch(name: AlgorithmName) -> None:
    methods = [None, *SpecMethod]
    requests = [
        replace(request, spec_method=methods[place % len(methods)])
        for place, request in enumerate(make_requests(25, seed=10))
    ]
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, disagree_every=3)
    config = scheduler_config(SpecMethod.HYBRID, 4, 8)
    engine = Engine(target, draft, config=config, algorithm=name)
    assert outputs(engine, requests) == plain(requests)
    assert engine.stats.num_accepted > 0


@pytest.mark.parametrize("name", SPECULATIVE)
def test_a_draft_that_proposes_only_what_it_is_sure_of_changes_no_answer(
    name: AlgorithmName,
) -> None:
    """It drafts less than one that always drafts K, and some of it is accepted."""
    requests = make_requests(24, seed=5)
    drafted = []
    for min_confidence in (0.0, 0.3):
        config = scheduler_config(SpecMethod.DRAFT_MODEL, 4, 4)
        speculation = replace(config.speculation, min_confidence=min_confidence)
        target = TokenListModel(vocab_size=VOCAB)
        engine = Engine(
            target,
            NoisyCopy(target, disagree_every=3),
            config=replace(config, speculation=speculation),
            algorithm=name,
        )
        assert outputs(engine, requests) == plain(requests)
        assert engine.stats.num_accepted > 0
        drafted.append(engine.stats.num_drafted)
    assert drafted[1] < drafted[0]


@pytest.mark.covering(2)
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("k", [1, 2, 4, 8, 15])
@pytest.mark.parametrize("disagree_every", [1, 2, 3, 10_000])
def test_speculative_output_equals_plain_output(k: int, batch: int, disagree_every: int) -> None:
    requests = make_requests(16, seed=k * 100 + batch)
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, disagree_every)
    config = scheduler_config(SpecMethod.DRAFT_MODEL, k, batch)
    engine = Engine(target, draft, config=config)
    assert outputs(engine, requests) == plain(requests)
    assert target.num_slots == draft.num_slots == 0
    if disagree_every > 1:
        assert engine.stats.num_accepted > 0


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.NONE, SpecMethod.HYBRID])
def test_every_method_gives_the_plain_output(method: SpecMethod) -> None:
    requests = make_requests(24, seed=3)
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, 3) if method is SpecMethod.HYBRID else None
    engine = Engine(target, draft, config=scheduler_config(method, 4, 4))
    assert outputs(engine, requests) == plain(requests)


def test_a_batch_of_plain_decoding_equals_one_at_a_time() -> None:
    requests = make_requests(20, seed=9)
    target = TokenListModel(vocab_size=VOCAB)
    config = SchedulerConfig(max_group_size=6)
    engine = Engine(target, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    assert outputs(engine, requests) == plain(requests)
    assert target.num_slots == 0


@pytest.mark.parametrize("k", [1, 4, 15])
def test_a_draft_that_equals_the_target_is_always_accepted(k: int) -> None:
    """Mean acceptance length is K + 1 until the budget ends the request."""
    target = TokenListModel(vocab_size=VOCAB)
    draft = TokenListModel(vocab_size=VOCAB)
    params = SamplingParams(temperature=0.9, seed=4, max_tokens=1 + 5 * (k + 1))
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=params)
    engine = Engine(target, draft, config=scheduler_config(SpecMethod.DRAFT_MODEL, k, 1))
    *_, last = engine.generate([request])
    assert last.stats is not None
    assert last.stats.num_accepted == last.stats.num_drafted > 0


def test_little_memory_preempts_but_changes_nothing() -> None:
    requests = make_requests(16, seed=5)
    longest = max(request.max_len for request in requests) + 8
    target = TokenListModel(vocab_size=VOCAB, num_blocks=2 * -(-longest // 4))
    draft = NoisyCopy(target, 3, num_blocks=30)
    engine = Engine(target, draft, config=scheduler_config(SpecMethod.DRAFT_MODEL, 4, 8))
    assert outputs(engine, requests) == plain(requests)


@pytest.mark.parametrize("algorithm", list(AlgorithmName))
@pytest.mark.parametrize("max_queued", [0, 2])
def test_more_requests_than_queue_and_memory_take_are_all_decoded(
    algorithm: AlgorithmName, max_queued: int
) -> None:
    """The memory holds fewer than the window, so that the queue is full before the window is."""
    requests = make_requests(12, seed=8)
    target = TokenListModel(vocab_size=VOCAB, num_blocks=20)
    config = replace(scheduler_config(SpecMethod.NGRAM, 4, 4), max_queued=max_queued)
    engine = Engine(target, config=config, algorithm=algorithm)
    assert outputs(engine, requests) == plain(requests)


def test_a_resumed_request_continues_behind_what_it_emitted() -> None:
    (request,) = make_requests(1, seed=21, temperature=0.8)
    whole, reason = plain([request])["r0"]
    for cut in range(len(whole)):
        resumed = Request(
            request_id="r0",
            prompt_token_ids=request.prompt_token_ids,
            params=request.params,
            end_token_ids=request.end_token_ids,
            emitted_token_ids=whole[:cut],
        )
        engine = Engine(
            TokenListModel(vocab_size=VOCAB), config=scheduler_config(SpecMethod.NGRAM, 4, 2)
        )
        events = list(engine.generate([resumed]))
        assert events[0].index == cut
        tokens = tuple(token for event in events for token in event.token_ids)
        assert whole[:cut] + tokens == whole
        assert events[-1].finish_reason == reason


def test_an_abort_between_rounds_ends_the_request_and_frees_its_slot() -> None:
    target = TokenListModel(vocab_size=VOCAB)
    engine = Engine(target, config=scheduler_config(SpecMethod.NGRAM, 2, 4))
    params = SamplingParams(temperature=0.0, max_tokens=1000)
    for name in ("keep", "drop"):
        engine.add_request(Request(request_id=name, prompt_token_ids=(1, 2), params=params))
    for _ in range(5):
        engine.step()
    assert engine.abort("drop")
    events = engine.step()
    assert [e.finish_reason for e in events if e.request_id == "drop"] == [FinishReason.ABORT]
    assert not engine.abort("drop")
    assert target.num_slots == 1


def test_leaving_the_iteration_frees_every_slot() -> None:
    target = TokenListModel(vocab_size=VOCAB)
    engine = Engine(target, config=scheduler_config(SpecMethod.NGRAM, 2, 4))
    params = SamplingParams(temperature=0.0, max_tokens=1000)
    events = engine.generate(
        [Request(request_id=str(i), prompt_token_ids=(1, i), params=params) for i in range(8)]
    )
    for _ in range(10):
        next(events)
    events.close()
    assert target.num_slots == 0
    assert not engine.has_work
