"""EQSPEC and EXSPEC on the left-padded cache against plain decoding, with I1 to I3 asserted."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile

import pytest

from specdec_core import FinishReason, Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from tests.equivalence.test_fakes import VOCAB, make_requests, outputs, plain, scheduler_config
from tests.fakes import NoisyCopy, TokenListModel

PADDED = (AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED)


def checked(config: SchedulerConfig) -> SchedulerConfig:
    return replace(config, check_invariants=True)


def fake_engine(
    algorithm: AlgorithmName, method: SpecMethod, k: int, batch: int, disagree_every: int = 3
) -> Engine:
    target = TokenListModel(vocab_size=VOCAB)
    drafts = method in (SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID)
    draft = NoisyCopy(target, disagree_every) if drafts else None
    config = checked(scheduler_config(method, k, batch))
    return Engine(target, draft, config=config, algorithm=algorithm)


@pytest.mark.covering(1)
@pytest.mark.parametrize("algorithm", PADDED)
@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("batch", [1, 2, 5, 8])
def test_speculative_output_equals_plain_output(
    algorithm: AlgorithmName, k: int, batch: int
) -> None:
    requests = make_requests(12, seed=k * 100 + batch)
    engine = fake_engine(algorithm, SpecMethod.DRAFT_MODEL, k, batch)
    assert outputs(engine, requests) == plain(requests)
    assert engine.stats.num_accepted > 0


@pytest.mark.covering(2)
@pytest.mark.parametrize("algorithm", PADDED)
@pytest.mark.parametrize("method", list(SpecMethod))
@pytest.mark.parametrize("disagree_every", [1, 2, 10_000])
def test_every_method_and_draft_gives_the_plain_output(
    algorithm: AlgorithmName, method: SpecMethod, disagree_every: int
) -> None:
    requests = make_requests(14, seed=3)
    engine = fake_engine(algorithm, method, 4, 4, disagree_every)
    assert outputs(engine, requests) == plain(requests)


@pytest.mark.parametrize("algorithm", PADDED)
@pytest.mark.parametrize("disagree_every", [2, 3, 5])
def test_drafts_are_those_of_the_draft_alone_over_the_whole_content(
    algorithm: AlgorithmName, disagree_every: int
) -> None:
    """A draft whose cache went wrong would only be slower: outputs do not tell."""
    requests = make_requests(6, seed=17, temperature=0.0)
    engine = fake_engine(algorithm, SpecMethod.DRAFT_MODEL, 4, 4, disagree_every)
    ends = {e.request_id: e.stats for e in engine.generate(requests) if e.finish_reason}
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, disagree_every)
    expected = plain(requests)
    for request in requests:
        stats = ends[request.request_id]
        assert stats is not None
        output = expected[request.request_id][0]
        figures = (stats.num_rounds, stats.num_drafted, stats.num_accepted)
        assert figures == rounds_of_one(request, output, draft, k=4)


def rounds_of_one(
    request: Request, output: tuple[int, ...], draft: TokenListModel, k: int
) -> tuple[int, int, int]:
    """Rounds, drafted and accepted tokens where a draft without a cache proposes greedily."""
    done = num_rounds = num_drafted = num_accepted = 0
    while done < len(output):
        ids = [*request.prompt_token_ids, *output[:done]]
        proposal: list[int] = []
        for _ in range(min(k, request.params.max_tokens - done - 1)):
            proposal.append(int(draft.logits([*ids, *proposal]).argmax()))
        pairs = zip(proposal, output[done:], strict=False)
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        num_rounds += 1
        num_drafted += len(proposal)
        num_accepted += agreed
        done += agreed + 1
    return num_rounds, num_drafted, num_accepted


@pytest.mark.parametrize("algorithm", PADDED)
def test_one_row_moves_nothing(algorithm: AlgorithmName) -> None:
    engine = fake_engine(algorithm, SpecMethod.DRAFT_MODEL, 4, 1)
    outputs(engine, make_requests(5, seed=1))
    assert engine.stats.aligned_bytes == engine.stats.stacked_bytes == 0


def test_eqspec_moves_nothing_while_all_rows_commit_equally_many() -> None:
    """A draft that is always right: K + 1 tokens for every row, in every round."""
    engine = fake_engine(AlgorithmName.EQSPEC, SpecMethod.DRAFT_MODEL, 4, 4, 10_000)
    (first, *_) = make_requests(1, seed=2, temperature=0.0)
    params = replace(first.params, max_tokens=30)
    requests = [
        replace(first, request_id=str(i), params=params, end_token_ids=frozenset())
        for i in range(4)
    ]
    outputs(engine, requests)
    assert engine.stats.mean_acceptance_length == 5
    assert engine.stats.aligned_bytes == 0


def test_exspec_stacks_rows_of_equal_length_without_aligning_them() -> None:
    engine = fake_engine(AlgorithmName.EXSPEC_PADDED, SpecMethod.DRAFT_MODEL, 4, 2, 10_000)

    def add(name: str, length: int, max_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        engine.add_request(
            Request(request_id=name, prompt_token_ids=(int(name),) * length, params=params)
        )

    add("1", 5, 30)
    add("2", 10, 30)
    engine.step()  # a fresh rectangle of both: 10 and 15 tokens after it
    assert (engine.stats.num_equal_length_groups, engine.stats.stacked_bytes) == (0, 0)
    add("3", 15, 25)
    while engine.has_work:
        engine.step()
    target_tokens, draft_tokens = 14 + 14 + 9, 13 + 8
    assert engine.stats.stacked_bytes == 16 * (target_tokens + draft_tokens)
    assert engine.stats.aligned_bytes == 0
    assert engine.stats.num_equal_length_groups > 5


def test_exspec_refills_where_eqspec_waits_for_its_batch() -> None:
    requests = make_requests(24, seed=8)
    rounds = {}
    for algorithm in PADDED:
        engine = fake_engine(algorithm, SpecMethod.DRAFT_MODEL, 4, 4)
        outputs(engine, requests)
        rounds[algorithm] = engine.stats.num_rounds
    assert rounds[AlgorithmName.EXSPEC_PADDED] < rounds[AlgorithmName.EQSPEC]


@pytest.mark.parametrize("algorithm", PADDED)
def test_a_resumed_request_continues_behind_what_it_emitted(algorithm: AlgorithmName) -> None:
    (request,) = make_requests(1, seed=21, temperature=0.8)
    whole, reason = plain([request])["r0"]
    for cut in range(len(whole)):
        resumed = replace(request, emitted_token_ids=whole[:cut])
        engine = fake_engine(algorithm, SpecMethod.NGRAM, 4, 2)
        events = list(engine.generate([resumed]))
        assert events[0].index == cut
        assert whole[:cut] + tuple(i for event in events for i in event.token_ids) == whole
        assert events[-1].finish_reason == reason


@pytest.mark.parametrize("algorithm", PADDED)
def test_little_memory_makes_smaller_batches_and_changes_nothing(
    algorithm: AlgorithmName,
) -> None:
    requests = make_requests(10, seed=5)
    target = TokenListModel(vocab_size=VOCAB, num_blocks=20)
    config = checked(scheduler_config(SpecMethod.NGRAM, 4, 8))
    engine = Engine(target, config=config, algorithm=algorithm)
    assert outputs(engine, requests) == plain(requests)


@pytest.mark.parametrize("algorithm", PADDED)
def test_random_arrivals_and_aborts_change_nothing(algorithm: AlgorithmName) -> None:
    requests = make_requests(30, seed=13)
    expected = plain(requests)
    rng = random.Random(6)
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, 3)
    config = checked(scheduler_config(SpecMethod.HYBRID, 3, 4))
    engine = Engine(target, draft, config=config, algorithm=algorithm)
    waiting = list(requests)
    tokens: dict[str, list[int]] = {}
    reasons: dict[str, FinishReason] = {}
    while waiting or engine.has_work:
        if waiting and rng.random() < 0.5:
            request = waiting.pop()
            engine.add_request(request)
            tokens[request.request_id] = []
        live = [name for name in tokens if name not in reasons]
        if live and rng.random() < 0.1:
            assert engine.abort(rng.choice(live))
        for event in engine.step():
            assert event.request_id not in reasons, "nothing follows the last event"
            assert event.index == len(tokens[event.request_id])
            tokens[event.request_id] += event.token_ids
            if event.finish_reason:
                reasons[event.request_id] = event.finish_reason
    assert not target.over_padding.batches
    assert not draft.over_padding.batches
    assert 2 < sum(reason is FinishReason.ABORT for reason in reasons.values()) < 20
    for name, (ids, reason) in expected.items():
        if reasons[name] is FinishReason.ABORT:
            assert tuple(tokens[name]) == ids[: len(tokens[name])]
        else:
            assert (tuple(tokens[name]), reasons[name]) == (ids, reason)


@pytest.mark.parametrize("algorithm", PADDED)
def test_an_aborted_request_gives_its_memory_back_at_once(algorithm: AlgorithmName) -> None:
    target = TokenListModel(vocab_size=VOCAB)
    config = checked(scheduler_config(SpecMethod.NGRAM, 2, 2))
    engine = Engine(target, config=config, algorithm=algorithm)
    requests = make_requests(2, seed=30, temperature=0.0)
    for request in requests:
        engine.add_request(replace(request, params=replace(request.params, max_tokens=100)))
    engine.step()
    for request in requests:
        assert engine.abort(request.request_id)
    assert not target.over_padding.batches


@pytest.mark.parametrize("algorithm", PADDED)
def test_an_unknown_request_is_not_aborted(algorithm: AlgorithmName) -> None:
    engine = fake_engine(algorithm, SpecMethod.NGRAM, 2, 2)
    assert not engine.abort("nobody")
    assert not engine.has_work
