"""Processors, seeds and logprobs under speculation: ids and every reported bit as without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core import (
    FinishReason,
    Request,
    SamplingParams,
    SchedulerConfig,
    SpecMethod,
)
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling import logit_processors
from specdec_core.sampling.logit_processors import LOGIT_PROCESSORS, LogitProcessor, SequenceRows
from specdec_core.sampling_params import derive_seed
from specdec_core.worker.model_runner import ModelRunner
from tests.decoding import fixed_k
from tests.fakes import NoisyCopy, TokenListModel
from tests.tiny_models import VOCAB as TINY_VOCAB
from tests.tiny_models import tiny_model

VOCAB = 9
NEUTRAL = SamplingParams(max_tokens=25, num_logprobs=3)
Output = tuple[tuple[int, ...], tuple[TokenLogprobs, ...], FinishReason]

PROCESSORS = {
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.8},
    "negative frequency": {"frequency_penalty": -0.6},
    "repetition": {"repetition_penalty": 1.7},
    "bias": {"logit_bias": ((1, 2.5), (4, -3.0), (7, -100.0))},
    "min_tokens": {"min_tokens": 11},
    "allowed": {"allowed_token_ids": (0, 1, 2, 5, 8)},
    "bad words": {"bad_words": ((3,), (1, 2), (4, 4), (0, 1, 0), (5, 6, 5, 6))},
    "everything": {
        "presence_penalty": 0.5,
        "frequency_penalty": 0.4,
        "repetition_penalty": 0.8,
        "logit_bias": ((3, 1.5),),
        "min_tokens": 5,
        "allowed_token_ids": (0, 1, 2, 3, 4, 5, 6),
        "bad_words": ((3, 3), (6,)),
    },
}


def outputs(engine: Engine, requests: Sequence[Request]) -> dict[str, Output]:
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    logprobs: dict[str, list[TokenLogprobs]] = {request.request_id: [] for request in requests}
    reasons: dict[str, FinishReason] = {}
    for event in engine.generate(requests):
        assert len(event.logprobs) in (0, len(event.token_ids))
        tokens[event.request_id] += event.token_ids
        logprobs[event.request_id] += event.logprobs
        if event.finish_reason is not None:
            reasons[event.request_id] = event.finish_reason
    return {key: (tuple(ids), tuple(logprobs[key]), reasons[key]) for key, ids in tokens.items()}


def plain(requests: Sequence[Request], vocab_size: int = VOCAB) -> dict[str, Output]:
    config = SchedulerConfig(max_group_size=1, window=1)
    target = TokenListModel(vocab_size=vocab_size)
    return outputs(Engine(target, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE), requests)


def scheduler_config(method: SpecMethod, k: int, batch: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_group_size=batch,
        window=2 * batch,
        prefill_chunk=5,
        speculation=fixed_k(method, k),
    )


def speculative(requests: Sequence[Request], k: int, batch: int, disagree_every: int) -> Engine:
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, disagree_every)
    return Engine(target, draft, config=scheduler_config(SpecMethod.DRAFT_MODEL, k, batch))


def asked(name: str, params: SamplingParams, prompt: tuple[int, ...] = (1, 2, 3)) -> Request:
    return Request(
        request_id=name, prompt_token_ids=prompt, params=params, end_token_ids=frozenset({2})
    )


def test_speculation_with_a_new_processor_gives_the_plain_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The processor is one entry. It drops the most probable ID, which no other filter does."""

    def drop_greatest(z_GV: torch.Tensor, rows: SequenceRows) -> None:
        z_GV.scatter_(1, z_GV.argmax(dim=-1, keepdim=True), float("-inf"))

    requests = [
        asked(f"{i}", replace(NEUTRAL, min_tokens=1, temperature=0.7 * (i % 2), seed=i))
        for i in range(6)
    ]
    before = plain(requests)
    entry = LogitProcessor(("min_tokens",), drop_greatest)
    monkeypatch.setattr(logit_processors, "LOGIT_PROCESSORS", (*LOGIT_PROCESSORS, entry))
    engine = speculative(requests, 3, batch=4, disagree_every=3)
    expected = plain(requests)
    assert outputs(engine, requests) == expected != before
    assert engine.stats.num_accepted > 0


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", sorted(PROCESSORS))
@pytest.mark.parametrize("k", [1, 3, 15])
def test_each_processor_gives_the_plain_ids_and_logprobs(name: str, k: int) -> None:
    changed = PROCESSORS[name]
    base = replace(NEUTRAL, **changed)  # type: ignore[arg-type]
    requests = [
        asked(
            f"{i}",
            replace(base, temperature=0.6 * (i % 3), seed=i, top_p=1.0 - 0.1 * (i % 2)),
            (1, 2, i),
        )
        for i in range(9)
    ]
    engine = speculative(requests, k, batch=4, disagree_every=3)
    expected = plain(requests)
    assert outputs(engine, requests) == expected
    assert engine.stats.num_accepted > 0
    assert all(len(ids) == len(logprobs) > 0 for ids, logprobs, _ in expected.values())
    unprocessed = [
        replace(
            r, params=replace(r.params, **{field: getattr(NEUTRAL, field) for field in changed})
        )
        for r in requests
    ]
    assert plain(unprocessed) != expected, "the processor changes something"


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.4]),
    top_k=st.sampled_from([0, 4]),
    top_p=st.sampled_from([1.0, 0.85]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 2**40),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -0.7]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.4]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB), st.floats(-4, 4), max_size=2).map(
        lambda bias: tuple(bias.items())
    ),
    min_tokens=st.integers(0, 6),
    # The last is no id of the model: rules may leave none, where no ban says so beforehand.
    allowed_token_ids=st.lists(st.integers(0, VOCAB), max_size=4).map(
        lambda some: (*some, VOCAB) if some else ()
    ),
    bad_words=st.lists(
        st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3).map(tuple), max_size=3
    ).map(tuple),
    num_logprobs=st.sampled_from([None, 0, 2]),
    max_tokens=st.integers(6, 20),
    stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=1).map(tuple),
    ignore_eos=st.booleans(),
)
prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9).map(tuple)
mixes = st.lists(st.tuples(prompts, params), min_size=1, max_size=7)


@pytest.mark.thorough
@settings(max_examples=25)
@given(mixes, st.integers(1, 8), st.integers(1, 5), st.sampled_from([1, 2, 3, 10_000]))
def test_any_mix_gives_the_plain_ids_logprobs_and_ends(
    mix: list[tuple[tuple[int, ...], SamplingParams]], k: int, batch: int, disagree_every: int
) -> None:
    """Rows that end because no id may be chosen included."""
    requests = [asked(f"{i}", each, prompt) for i, (prompt, each) in enumerate(mix)]
    expected = plain(requests)
    assert outputs(speculative(requests, k, batch, disagree_every), requests) == expected
    target = TokenListModel(vocab_size=VOCAB)
    ngram = Engine(target, config=scheduler_config(SpecMethod.NGRAM, k, batch))
    assert outputs(ngram, requests) == expected


@settings(max_examples=20)
@given(prompts, params, st.integers(0, 20), st.integers(1, 8))
def test_a_resumed_request_goes_on_as_if_it_had_never_stopped(
    prompt: tuple[int, ...], each: SamplingParams, cut: int, k: int
) -> None:
    """What an earlier attempt emitted counts as output, for penalties, bans and positions."""
    request = asked("a", each, prompt)
    ids, logprobs, reason = plain([request])["a"]
    cut = min(cut, len(ids) - 1) if ids else 0
    resumed = [replace(request, emitted_token_ids=ids[:cut])]
    rest = {"a": (ids[cut:], logprobs[cut:], reason)}
    assert plain(resumed) == rest
    assert outputs(speculative(resumed, k, 1, 3), resumed) == rest


def test_choice_j_of_n_is_the_request_with_its_derived_seed() -> None:
    """Whatever the batch: n choices are n requests, and they differ."""
    base = SamplingParams(temperature=1.2, seed=77, max_tokens=12, ignore_eos=True)
    requests = [asked(f"{j}", replace(base, seed=derive_seed(77, j))) for j in range(5)]
    together = outputs(speculative(requests, 4, 5, 2), requests)
    for request in requests:
        assert plain([request])[request.request_id] == together[request.request_id]
    assert len({ids for ids, _, _ in together.values()}) == 5


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
def test_a_transformer_reports_the_same_ids_and_nearly_the_same_logprobs(
    method: SpecMethod,
) -> None:
    """float32 without exact numerics: passes of other shapes may differ in their last bits."""
    model = tiny_model("llama")
    requests = [
        replace(
            asked(
                f"{i}",
                replace(
                    SamplingParams(max_tokens=20, num_logprobs=2),
                    seed=i,
                    temperature=0.8 * (i % 2),
                    **processor,
                ),
                (5, 17, 40, 17),
            ),
            end_token_ids=frozenset({2, 11}),
        )
        for i, processor in enumerate(PROCESSORS.values())
    ]

    def adapted() -> ModelRunner:
        return ModelRunner(model, vocab_size=TINY_VOCAB, kv_cache_tokens=4096)

    single = SchedulerConfig(max_group_size=1, window=1)
    expected = outputs(
        Engine(adapted(), config=single, algorithm=AlgorithmName.AUTOREGRESSIVE), requests
    )
    draft = adapted() if method is SpecMethod.DRAFT_MODEL else None
    engine = Engine(adapted(), draft, config=scheduler_config(method, 4, 4))
    got = outputs(engine, requests)
    for key, (ids, logprobs, reason) in expected.items():
        assert got[key][0] == ids
        assert got[key][2] is reason
        for ours, theirs in zip(got[key][1], logprobs, strict=True):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
            assert [v for v, _ in ours.top] == [v for v, _ in theirs.top]
