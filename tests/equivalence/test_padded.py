"""EQSPEC and EXSPEC on the left-padded cache against plain decoding, with I1 to I3 asserted."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile

import pytest
import torch
from transformers import PreTrainedModel

from specdec_core import FinishReason, PoolConfig, Request, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.models.exact import make_exact
from specdec_core.models.packed_linear import pack_linears
from specdec_core.models.transformers_adapter import TransformersModel
from tests.equivalence import test_models as tiny
from tests.equivalence.test_fakes import VOCAB, make_requests, outputs, plain, pool_config
from tests.fakes import NoisyCopy, TokenListModel
from tests.tiny_models import ARCHITECTURES, reference_greedy, tiny_model

PADDED = (AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED)


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def weights(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.set_num_threads(1)
    return tiny_model(request.param)


def checked(config: PoolConfig) -> PoolConfig:
    return replace(config, check_invariants=True)


def fake_engine(
    algorithm: AlgorithmName, method: SpecMethod, k: int, batch: int, disagree_every: int = 3
) -> Engine:
    target = TokenListModel(vocab_size=VOCAB)
    drafts = method in (SpecMethod.DRAFT_MODEL, SpecMethod.HYBRID)
    draft = NoisyCopy(target, disagree_every) if drafts else None
    config = checked(pool_config(method, k, batch))
    return Engine(target, draft, config=config, algorithm=algorithm)


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
    config = checked(pool_config(SpecMethod.NGRAM, 4, 8))
    engine = Engine(target, config=config, algorithm=algorithm)
    assert outputs(engine, requests) == plain(requests)


@pytest.mark.parametrize("algorithm", PADDED)
def test_random_arrivals_and_aborts_change_nothing(algorithm: AlgorithmName) -> None:
    requests = make_requests(30, seed=13)
    expected = plain(requests)
    rng = random.Random(6)
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, 3)
    config = checked(pool_config(SpecMethod.HYBRID, 3, 4))
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
    config = checked(pool_config(SpecMethod.NGRAM, 2, 2))
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


@pytest.mark.parametrize("algorithm", PADDED)
@pytest.mark.parametrize(("k", "batch"), [(1, 2), (4, 5), (8, 8)])
def test_greedy_output_of_a_tiny_model_equals_generate(
    weights: PreTrainedModel, algorithm: AlgorithmName, k: int, batch: int
) -> None:
    asked = tiny.requests(temperature=0.0)
    expected = [
        reference_greedy(weights, r.prompt_token_ids, r.params.max_tokens, tiny.STOP_IDS)
        for r in asked
    ]
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, weights)):
        engine = tiny_engine(algorithm, weights, draft, method, k, batch)
        assert tiny.run(engine, asked) == expected
        assert engine.stats.num_accepted > 0


@pytest.mark.parametrize("algorithm", PADDED)
def test_sampled_output_of_a_tiny_model_equals_plain_decoding(
    weights: PreTrainedModel, algorithm: AlgorithmName
) -> None:
    asked = tiny.requests(temperature=0.8)
    alone = PoolConfig(max_group_size=1, window=1)
    reference = Engine(tiny.adapted(weights), config=alone, algorithm=AlgorithmName.AUTOREGRESSIVE)
    expected = tiny.run(reference, asked)
    for method, draft in ((SpecMethod.NGRAM, None), (SpecMethod.DRAFT_MODEL, weights)):
        assert tiny.run(tiny_engine(algorithm, weights, draft, method, 4, 4), asked) == expected


def tiny_engine(
    algorithm: AlgorithmName,
    target: PreTrainedModel,
    draft: PreTrainedModel | None,
    method: SpecMethod,
    k: int,
    batch: int,
) -> Engine:
    return Engine(
        tiny.adapted(target),
        tiny.adapted(draft) if draft else None,
        config=checked(pool_config(method, k, batch)),
        algorithm=algorithm,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("algorithm", PADDED)
def test_exact_numerics_keep_ids_and_logprobs_to_the_bit(
    algorithm: AlgorithmName, dtype: torch.dtype
) -> None:
    torch.set_num_threads(1)
    weights = tiny_model("qwen2", initializer_range=0.05).to(dtype)
    pack_linears(weights)
    model = tiny.adapted(weights)
    make_exact(model)
    asked = [
        replace(r, params=replace(r.params, num_logprobs=2), end_token_ids=frozenset())
        for temperature in (0.0, 0.8)
        for r in named(tiny.requests(temperature, count=8), f"T={temperature}")
    ]
    alone = PoolConfig(max_group_size=1, window=1)
    expected = everything(
        Engine(model, config=alone, algorithm=AlgorithmName.AUTOREGRESSIVE), asked
    )
    draft = TransformersModel(weights, vocab_size=tiny.VOCAB, kv_cache_tokens=8192)
    for method, k, batch in ((SpecMethod.NGRAM, 4, 8), (SpecMethod.DRAFT_MODEL, 3, 5)):
        config = checked(pool_config(method, k, batch))
        uses_draft = method is SpecMethod.DRAFT_MODEL
        engine = Engine(model, draft if uses_draft else None, config=config, algorithm=algorithm)
        assert everything(engine, asked) == expected
        assert engine.stats.num_accepted > 0
        assert engine.stats.aligned_bytes > 0
        assert engine.stats.seconds["view"] > 0


def named(requests: list[Request], prefix: str) -> list[Request]:
    return [replace(r, request_id=f"{prefix} {r.request_id}") for r in requests]


def everything(engine: Engine, asked: list[Request]) -> dict[str, list[object]]:
    """Ids and log-probabilities of every request."""
    told: dict[str, list[object]] = {request.request_id: [] for request in asked}
    for event in engine.generate(asked):
        assert len(event.logprobs) == len(event.token_ids)
        told[event.request_id] += zip(event.token_ids, event.logprobs, strict=True)
    return told
