"""What the published code gets wrong (algorithm.md, section 3): a regression test for each defect.

Each runs on every algorithm where the defect could occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specdec_core import FinishReason, Request, SamplingParams, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.request import TokenEvent
from tests.equivalence.test_fakes import VOCAB, make_requests, outputs, plain, scheduler_config
from tests.equivalence.test_models import adapted
from tests.fakes import NoisyCopy, TokenListModel
from tests.tiny_models import tiny_model

ALGORITHMS = (AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED, AlgorithmName.EXSPEC)
PADDED = ALGORITHMS[:2]
EOS = 2
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_padded_algorithm = pytest.mark.parametrize("algorithm", PADDED)


class Scripted(TokenListModel):
    """Continues each known prompt by its script, and then with token 1."""

    def __init__(self, scripts: dict[tuple[int, ...], Sequence[int]]) -> None:
        super().__init__(vocab_size=VOCAB)
        self._scripts = scripts

    def logits(self, ids: Sequence[int]) -> Tensor:
        prompt = max((p for p in self._scripts if tuple(ids[: len(p)]) == p), key=len)
        script, place = self._scripts[prompt], len(ids) - len(prompt)
        return torch.eye(VOCAB)[script[place] if place < len(script) else 1]


def ask(
    name: str,
    prompt: Sequence[int],
    max_tokens: int = 20,
    *,
    end: Sequence[int] = (),
    temperature: float = 0.0,
    seed: int = 0,
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed),
        end_token_ids=frozenset(end),
    )


def engine(
    algorithm: AlgorithmName,
    target: TokenListModel,
    draft: TokenListModel | None = None,
    *,
    k: int = 4,
    batch: int = 4,
    window: int = 8,
) -> Engine:
    method = SpecMethod.DRAFT_MODEL if draft else SpecMethod.NGRAM
    config = replace(scheduler_config(method, k, batch, window), check_invariants=True)
    return Engine(target, draft, config=config, algorithm=algorithm)


def self_drafting(
    algorithm: AlgorithmName, scripts: dict[tuple[int, ...], Sequence[int]], k: int = 4
) -> Engine:
    """A batch whose every draft is right."""
    return engine(algorithm, Scripted(scripts), Scripted(scripts), k=k)


def run_to_the_end(decoding: Engine, asked: Sequence[Request]) -> dict[str, TokenEvent]:
    return {e.request_id: e for e in decoding.generate(asked) if e.finish_reason is not None}


@every_algorithm
def test_defect_1_nothing_follows_a_drafted_end_that_is_accepted(algorithm: AlgorithmName) -> None:
    scripts = {(5,): (9, 9, EOS, 9, 9, 9), (6, 7, 8): (4,) * 30, (3, 3): (EOS, EOS, EOS)}
    asked = [ask(str(prompt), prompt, end=[EOS]) for prompt in scripts]
    answers = outputs(self_drafting(algorithm, scripts), asked)
    assert answers["(5,)"] == ((9, 9, EOS), FinishReason.STOP)
    assert answers["(3, 3)"] == ((EOS,), FinishReason.STOP)
    assert answers["(6, 7, 8)"] == ((4,) * 20, FinishReason.LENGTH)


@every_algorithm
def test_defect_2_an_end_id_in_the_prompt_ends_nothing(algorithm: AlgorithmName) -> None:
    scripts = {(EOS,): (4, 5, EOS), (7, EOS, 8, EOS): (6,) * 9, (EOS, EOS, 3): (1, EOS)}
    asked = [ask(str(prompt), prompt, 6, end=[EOS]) for prompt in scripts]
    answers = outputs(self_drafting(algorithm, scripts), asked)
    assert [ids for ids, _ in answers.values()] == [(4, 5, EOS), (6,) * 6, (1, EOS)]


@every_algorithm
def test_defect_3_padding_with_the_end_id_ends_nothing(algorithm: AlgorithmName) -> None:
    """The cache pads with zeros; 0 ends the request and stands at the start of prompts too."""
    prompts = [(0, 0, 7), (4,), (0,), (3, 0, 5, 6, 7, 8, 9)]
    asked = [ask(str(p), p, 25, end=[0], temperature=0.7, seed=3) for p in prompts]
    target = TokenListModel(vocab_size=VOCAB)
    answers = outputs(engine(algorithm, target, NoisyCopy(target, 3)), asked)
    assert answers == plain(asked)
    assert {reason for _, reason in answers.values()} >= {FinishReason.STOP}
    assert all(ids for ids, _ in answers.values())


@every_algorithm
def test_defect_4_every_one_of_several_stop_ids_ends_the_request(algorithm: AlgorithmName) -> None:
    scripts = {(20 + stop,): (9, stop, 9, 9) for stop in (2, 5, 7)}
    asked = [
        replace(request, params=replace(request.params, stop_token_ids=(7,)))
        for request in (ask(str(prompt), prompt, end=[2, 5]) for prompt in scripts)
    ]
    target, draft = Scripted(scripts), Scripted(scripts)
    target.vocab_size = draft.vocab_size = 40
    answers = outputs(engine(algorithm, target, draft), asked)
    assert [answer for answer in answers.values()] == [
        ((9, stop), FinishReason.STOP) for stop in (2, 5, 7)
    ]


@every_algorithm
def test_defect_5_a_pad_id_in_the_content_is_seen_like_any_other(algorithm: AlgorithmName) -> None:
    for pad in range(3):
        prompts = [(pad,) * 5, (pad, 4), (6, pad, pad), (7, 8, 9, 10, 11, pad, 12)]
        asked = [ask(str(p), p, 30, temperature=1.0, seed=1) for p in prompts]
        target = TokenListModel(vocab_size=VOCAB)
        answers = outputs(engine(algorithm, target, NoisyCopy(target, 3)), asked)
        assert answers == plain(asked)
        assert any(pad in ids for ids, _ in answers.values())


@every_algorithm
@pytest.mark.parametrize("k", [1, 4])
def test_defect_6_a_fully_accepted_proposal_brings_a_bonus_token(
    algorithm: AlgorithmName, k: int
) -> None:
    scripts = {(5,): (4,) * 99, (6, 7, 8): (3,) * 99}
    asked = [ask(str(prompt), prompt, 6 * (k + 1) + 1) for prompt in scripts]
    decoding = self_drafting(algorithm, scripts, k)
    for event in run_to_the_end(decoding, asked).values():
        assert event.stats is not None
        assert event.stats.num_accepted == event.stats.num_drafted == 6 * k
        assert event.stats.num_rounds == 6 + 1, "K + 1 tokens a round, but for one plain round"


@every_algorithm
def test_defect_7_every_answer_belongs_to_its_request_whatever_the_order(
    algorithm: AlgorithmName,
) -> None:
    """Arrival order, order of lengths and order of ending are three orders."""
    prompts = [(7,) * length for length in (20, 1, 9, 3, 14)]
    asked = [ask(f"{len(p)}", p, 30 - len(p), temperature=0.9, seed=len(p)) for p in prompts]
    target = TokenListModel(vocab_size=VOCAB)
    decoding = engine(algorithm, target, NoisyCopy(target, 3))
    expected = plain(asked)
    assert outputs(decoding, asked) == expected
    assert len({ids for ids, _ in expected.values()}) == len(asked)


@every_algorithm
def test_defect_8_a_row_drafts_by_its_own_budget_and_wishes(algorithm: AlgorithmName) -> None:
    """Not by the smallest of its batch: each row's figures are those it has alone."""
    loop = (4, 5, 4, 5, 4, 5, 4)
    asked = [
        ask("long", (9, *loop), 40),
        ask("nearly finished", (8, *loop, 5, 4), 2),
        replace(ask("fewer", (7, *loop), 40), num_draft_tokens=1),
        replace(ask("plainly", (6, 4), 40), speculation_enabled=False),
    ]
    scripts = {request.prompt_token_ids: (5, 4) * 30 for request in asked}

    def figures(some: Sequence[Request]) -> dict[str, tuple[int, int, int]]:
        ends = run_to_the_end(engine(algorithm, Scripted(scripts)), some)
        return {
            name: (event.stats.num_drafted, event.stats.num_accepted, event.stats.num_rounds)
            for name, event in ends.items()
            if event.stats is not None
        }

    together = figures(asked)
    assert together == {name: one for r in asked for name, one in figures([r]).items()}
    assert together["long"][2] < 40 / 4
    assert together["fewer"][0] <= 40
    assert together["plainly"] == (0, 0, 40)


@every_algorithm
def test_defect_9_every_token_is_fed_to_the_target_once(algorithm: AlgorithmName) -> None:
    """Finished rows are not verified on, and a fresh row's prefill does not repeat the others'."""
    asked = [
        ask(str(i), (4, 5) * (1 + 7 * i % 5), 4 + 9 * i % 31, temperature=1.0, seed=i)
        for i in range(11)
    ]

    def num_fed(some: Sequence[Request]) -> int:
        target = TokenListModel(vocab_size=4 + 2)
        outputs(engine(algorithm, target, batch=3, window=5), list(some))
        return target.num_fed

    assert num_fed(asked) == sum(num_fed([request]) for request in asked)


@every_algorithm
def test_defect_10_the_draft_keeps_its_cache_between_rounds(algorithm: AlgorithmName) -> None:
    asked = [ask(str(i), (5,) * (100 + 40 * i), 30, temperature=1.0, seed=i) for i in range(3)]
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, 3)
    decoding = engine(algorithm, target, draft)
    outputs(decoding, asked)
    num_prompt = sum(len(request.prompt_token_ids) for request in asked)
    num_rounds = decoding.stats.num_sequence_rounds
    assert num_rounds > 20
    assert draft.num_fed <= num_prompt + num_rounds * (4 + 1)


@every_padded_algorithm
def test_defect_11_a_round_waits_for_the_device_once_per_pass(
    algorithm: AlgorithmName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once per layer and row."""
    weights = tiny_model("llama", num_hidden_layers=3)
    asked = [
        replace(ask(str(i), range(3, 5 + 3 * i), 12), num_draft_tokens=1 + i % 3) for i in range(5)
    ]
    config = scheduler_config(SpecMethod.DRAFT_MODEL, 3, 4)
    decoding = Engine(adapted(weights), adapted(weights), config=config, algorithm=algorithm)
    num_waits = {"tolist": 0, "item": 0, "cpu": 0, "__bool__": 0, "__int__": 0, "__float__": 0}
    for name in num_waits:
        monkeypatch.setattr(torch.Tensor, name, counted(num_waits, name))
    outputs(decoding, asked)
    assert decoding.stats.aligned_bytes > 0
    num_passes = (3 + 1) * decoding.stats.num_rounds
    assert 0 < num_waits.pop("tolist") <= num_passes
    assert not any(num_waits.values())


def counted(counts: dict[str, int], name: str) -> object:
    original = getattr(torch.Tensor, name)

    def count(self: Tensor, *args: object, **kwargs: object) -> object:
        counts[name] += 1
        return original(self, *args, **kwargs)

    return count


@every_padded_algorithm
def test_defect_11_no_batch_lives_on_behind_its_rows(algorithm: AlgorithmName) -> None:
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, 3)
    decoding = engine(algorithm, target, draft, batch=3, window=7)
    for request in make_requests(14, seed=4):
        decoding.add_request(request)
    while decoding.has_work:
        decoding.step()
        for model in (target, draft):
            alive = [kv for kv in model.over_padding.batches if kv.num_rows > 1]
            assert len(alive) <= 1, "the rectangle of this round, and none before it"


@every_algorithm
@pytest.mark.parametrize("temperature", [0.4, 1.3])
def test_defect_12_sampled_output_equals_plain_sampling(
    algorithm: AlgorithmName, temperature: float
) -> None:
    asked = make_requests(9, seed=7, temperature=temperature)
    greedy = [replace(r, params=replace(r.params, temperature=0.0)) for r in asked]
    target = TokenListModel(vocab_size=VOCAB)
    answers = outputs(engine(algorithm, target, NoisyCopy(target, 3)), asked)
    assert answers == plain(asked)
    assert answers != plain(greedy)
