"""The prefix cache changes no answer and loses no block: engines with it against plain decoding."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.engine import Engine
from tests.decoding import fixed_k
from tests.equivalence.test_fakes import VOCAB, outputs, plain
from tests.paged_fake import PagedTokenModel


def requests_that_begin_alike(count: int, seed: int) -> list[Request]:
    """System prompts of some blocks, shared in part, and short questions behind them."""
    rng = random.Random(seed)
    system = [tuple(rng.randrange(VOCAB) for _ in range(30)) for _ in range(2)]
    requests = []
    for index in range(count):
        question = tuple(rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5])))
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.9]),
            seed=rng.randrange(2**40),
            max_tokens=rng.randint(1, 20),
            repetition_penalty=rng.choice([1.0, 1.3]),
        )
        requests.append(
            Request(
                request_id=f"r{index}",
                prompt_token_ids=(*rng.choice(system)[: rng.randint(0, 30)], *question),
                params=params,
                cache_salt=rng.choice(["", "", "other"]),
            )
        )
    return requests


def models(num_blocks: int, *, enable: bool) -> tuple[PagedTokenModel, PagedTokenModel]:
    target, draft = (
        PagedTokenModel(
            vocab_size=VOCAB,
            num_blocks=num_blocks,
            enable_prefix_caching=enable,
            disagree_every=disagree_every,
        )
        for disagree_every in (None, 3)
    )
    return target, draft


def config(prefill_chunk: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_group_size=4,
        window=12,
        prefill_chunk=prefill_chunk,
        speculation=fixed_k(SpecMethod.DRAFT_MODEL, 3),
    )


@pytest.mark.covering(1)
@pytest.mark.parametrize("num_blocks", [20, 40, 1000])
@pytest.mark.parametrize("prefill_chunk", [6, 8, 256])
def test_answers_are_those_of_plain_decoding(prefill_chunk: int, num_blocks: int) -> None:
    """In the small caches sequences are preempted and blocks evicted."""
    requests = requests_that_begin_alike(30, seed=prefill_chunk + num_blocks)
    num_fed = []
    for enable in (True, False):
        target, draft = models(num_blocks, enable=enable)
        engine = Engine(target, draft, config=config(prefill_chunk))
        assert outputs(engine, requests) == plain(requests)
        for model in (target, draft):
            assert (model.num_slots, model.num_free_blocks) == (0, num_blocks)
        num_fed.append((target.num_fed, draft.num_fed))
    (target_fed, draft_fed), (all_target, all_draft) = num_fed
    assert target_fed < 0.9 * all_target
    assert draft_fed < 0.9 * all_draft


@pytest.mark.parametrize("seed", range(3))
def test_aborts_leave_every_block_free_and_the_others_right(seed: int) -> None:
    requests = requests_that_begin_alike(30, seed)
    expected = plain(requests)
    target, draft = models(60, enable=True)
    engine = Engine(target, draft, config=config(8))
    rng = random.Random(seed)
    for request in requests:
        engine.add_request(request)
    aborted = {f"r{index}" for index in rng.sample(range(30), 10)}
    waiting = sorted(aborted)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    while engine.has_work:
        if waiting and rng.random() < 0.3:
            engine.abort(waiting.pop())
        for event in engine.step():
            tokens[event.request_id] += event.token_ids
    for key, ids in tokens.items():
        answer = expected[key][0]
        assert tuple(ids) == (answer[: len(ids)] if key in aborted else answer)
    for model in (target, draft):
        assert (model.num_slots, model.num_free_blocks) == (0, 60)


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    """Two that do not fit together: the younger gives way, and resumes with what is left of it."""
    requests = [
        Request(
            request_id=f"r{index}",
            prompt_token_ids=tuple(index + i % 5 for i in range(16)),
            params=SamplingParams(temperature=0.0, max_tokens=max_tokens),
        )
        for index, max_tokens in enumerate((24, 24))
    ]
    num_fed = []
    for enable in (True, False):
        target, _ = models(16, enable=enable)
        pool = SchedulerConfig(speculation=SpeculationConfig(method=SpecMethod.NONE))
        engine = Engine(target, config=pool)
        stats = {}
        tokens: dict[str, list[int]] = {"r0": [], "r1": []}
        for event in engine.generate(requests):
            tokens[event.request_id] += event.token_ids
            stats[event.request_id] = event.stats
        assert {key: tuple(ids) for key, ids in tokens.items()} == {
            key: ids for key, (ids, _) in plain(requests).items()
        }
        preempted = stats["r1"]
        assert preempted is not None
        assert preempted.num_preemptions > 0
        num_fed.append(target.num_fed)
    assert num_fed[0] < num_fed[1]


def test_requests_of_other_salts_are_computed_alone() -> None:
    shared = tuple(range(12))
    request = Request(
        request_id="a", prompt_token_ids=(*shared, 1), params=SamplingParams(max_tokens=1)
    )
    target, _ = models(100, enable=True)
    engine = Engine(target, config=config(256))
    fed = []
    for key, salt in (("a", ""), ("b", ""), ("c", "mine"), ("d", "mine")):
        before = target.num_fed
        outputs(engine, [replace(request, request_id=key, cache_salt=salt)])
        fed.append(target.num_fed - before)
    assert fed == [13, 1, 13, 1]
