"""On a GPU a round waits for it where it needs an answer, nowhere else, and mixes no devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.paper.answer_book import one_hot_like
from specdec_core.algorithms.exspec import Exspec
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import EMPTY_HASH, GroupLease, GroupResult, LeaseRow, Role
from specdec_core.model import score
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder
from specdec_core.worker.model_runner import ModelRunner
from specdec_core.worker.replica import Replica
from specdec_core.worker.round import RoundRow, propose, round_row, score_and_verify
from tests.models.fake_gpu import GPU, on_gpu, over_blocks
from tests.tiny_models import VOCAB

K = 4
GREEDY = SamplingParams(temperature=0.0)
SETTINGS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(temperature=0.9, seed=2**60),
    "top-p": SamplingParams(temperature=0.8, top_p=0.95, min_p=0.01),
}
RULES = {
    "penalties": SamplingParams(temperature=0.0, repetition_penalty=1.2, frequency_penalty=0.5),
    "bias": SamplingParams(temperature=0.0, logit_bias=((5, 1.0), (7, -100.0))),
    "allowed ids": SamplingParams(temperature=0.0, allowed_token_ids=(3, 4, 5)),
    "bad words": SamplingParams(temperature=0.0, bad_words=((5,), (1, 6))),
}


def filled(model: ModelRunner, lengths: tuple[int, ...] = (40, 3, 17)) -> list[int]:
    slots = [model.allocate() for _ in lengths]
    score(model, [(s, range(2, 2 + n), 0) for s, n in zip(slots, lengths, strict=True)])
    return slots


def turns_of(slots: list[int], params: SamplingParams, proposal: tuple[int, ...]) -> list[RoundRow]:
    rules = SamplingRules(params, prompt_len=3)
    ids = tuple(range(2, 60))
    return [
        round_row(slot, (7,), proposal, K + len(proposal) // K, rules, ids=ids) for slot in slots
    ]


@pytest.mark.parametrize(
    ("decoder", "attention", "recorder"),
    [
        ("glm4", None, None),
        ("fused qwen3", over_blocks, None),
        ("glm4", over_blocks, DirectRecorder()),
        ("fused qwen3", None, DirectRecorder()),
    ],
)
def test_a_pass_never_waits(
    waits: list[str], decoder: str, attention: Any, recorder: DirectRecorder | None
) -> None:
    """Neither of a prefill nor of a verification."""
    model = on_gpu(waits, decoder, recorder=recorder, block_attention=attention)
    slots = filled(model, (40, 3, 17, 60))
    logits = score(model, [(slot, (5, 6, 7), 3) for slot in slots])
    assert (logits.shape, logits.device) == ((12, VOCAB), GPU)
    assert waits == []


@pytest.mark.parametrize(
    ("settings", "min_confidence"), [("greedy", 0.0), ("sampled", 0.3), ("top-p", 0.3)]
)
def test_a_draft_waits_once(waits: list[str], settings: str, min_confidence: float) -> None:
    model = on_gpu(waits, recorder=DirectRecorder())
    turns = turns_of(filled(model), SETTINGS[settings], ())
    proposals = propose(model, turns, min_confidence)
    assert [len(proposal) for proposal in proposals] == [K, K, K]
    assert waits == ["tolist"]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_verification_waits_once(waits: list[str], settings: str) -> None:
    """Where the first candidates decide every row."""
    model = on_gpu(waits, recorder=DirectRecorder())
    verdicts = score_and_verify(model, turns_of(filled(model), SETTINGS[settings], (0,) * K))
    assert [verdict.num_accepted for verdict in verdicts] == [K, K, K]
    assert waits == ["tolist"]


def test_a_verification_of_rows_that_choose_in_different_ways_waits_once(waits: list[str]) -> None:
    """Rows without filters are looked at in another way than the others."""
    model = on_gpu(waits, recorder=DirectRecorder())
    turns = [
        turns_of([slot], params, (0,) * K)[0]
        for slot, params in zip(filled(model), SETTINGS.values(), strict=True)
    ]
    score_and_verify(model, turns)
    assert waits == ["tolist"]


def test_rules_that_change_logits_add_no_wait(waits: list[str]) -> None:
    model = on_gpu(waits, recorder=DirectRecorder())
    turns = [
        turns_of([slot], params, (0,) * K)[0]
        for slot, params in zip(filled(model, (40, 3, 17, 5)), RULES.values(), strict=True)
    ]
    score_and_verify(model, turns)
    assert waits == ["tolist"]


def test_recorded_proposals_of_the_benchmarks_add_no_wait(waits: list[str]) -> None:
    one_hot_like(torch.ones(3, 7, device=GPU), [6, 0, 2])
    assert waits == []


def test_log_probabilities_are_read_once_and_their_ids_once(waits: list[str]) -> None:
    model = on_gpu(waits, recorder=DirectRecorder())
    params = SamplingParams(temperature=0.0, num_logprobs=3)
    (verdict, *_) = score_and_verify(model, turns_of(filled(model), params, (0,) * K))
    assert len(verdict.logprobs) == K + 1
    assert waits == ["tolist"] * 3


@pytest.mark.thorough
def test_every_lease_of_a_served_round_waits_once(
    waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that change hands or are shared, prefills and catch-ups add no wait."""
    leases: list[tuple[bool, list[str]]] = []
    execute = Replica.execute

    def watched(replica: Replica, lease: GroupLease) -> GroupResult:
        waits.clear()
        result = execute(replica, lease)
        leases.append((any(row.num_choices for row in lease.rows), list(waits)))
        return result

    monkeypatch.setattr(Replica, "execute", watched)
    speculation = SpeculationConfig(
        method=SpecMethod.DRAFT_MODEL, num_draft_tokens=K, k_policy=KPolicyName.FIXED
    )
    config = SchedulerConfig(max_group_size=3, window=4, prefill_chunk=16, speculation=speculation)
    target, draft = (on_gpu(waits, recorder=DirectRecorder()) for _ in range(2))
    running = Exspec(target, draft, config=config)
    for place, params in enumerate((*SETTINGS.values(), GREEDY)):
        params = replace(params, max_tokens=2 * K)
        prompt = tuple(range(2, 30))
        running.add(Request(request_id=f"{place}", prompt_token_ids=prompt, params=params))
    while running.has_work:
        running.step()
    assert {is_choosing for is_choosing, _ in leases} == {True, False}
    for is_choosing, seen in leases:
        assert seen == (["tolist"] if is_choosing else ["synchronize"])


def test_a_draft_asked_token_by_token_waits_for_each(waits: list[str]) -> None:
    model = on_gpu(waits, recorder=DirectRecorder())
    propose(model, turns_of(filled(model), RULES["bias"], ()))
    assert waits == ["tolist"] * K


HOST = torch.ones(3)


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers.sum().item(),
        lambda numbers: numbers.tolist(),
        lambda numbers: bool(numbers[0] > 0),
        lambda numbers: numbers.cpu(),
        lambda numbers: numbers[torch.tensor([0, 1])],
        lambda numbers: numbers[[0, 1]],
        lambda numbers: numbers.__setitem__(torch.zeros(1, dtype=torch.long, device=GPU), 2.0),
        lambda numbers: torch.tensor([1, 2], device=GPU),
        lambda numbers: HOST.to(GPU),
        lambda numbers: HOST.to(GPU, non_blocking=True),
        lambda numbers: numbers.copy_(HOST),
        lambda numbers: torch.equal(numbers, numbers),
    ],
    ids=[
        "item",
        "tolist",
        "bool",
        "cpu",
        "index of the host",
        "list as an index",
        "number put at an index",
        "tensor",
        "to",
        "not pinned",
        "copy_",
        "equal",
    ],
)
def test_the_fake_sees_who_waits(waits: list[str], work: Callable[[Tensor], object]) -> None:
    numbers = torch.ones(3, device=GPU)
    assert waits == []
    work(numbers)
    assert len(waits) == 1


def test_the_fake_lets_pinned_copies_pass_and_no_mixture(waits: list[str]) -> None:
    numbers = HOST.pin_memory().to(GPU, non_blocking=True)
    numbers.copy_(HOST.pin_memory(), non_blocking=True)
    assert waits == []
    with pytest.raises(RuntimeError, match="devices"):
        numbers + HOST


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("num_choices", "expected"), [(0, ["synchronize"]), (1, ["tolist"])])
def test_a_lease_that_only_catches_up_is_answered_when_the_gpu_is_done(
    waits: list[str], role: Role, num_choices: int, expected: list[str]
) -> None:
    """Else the pool sends one part of a prompt after the other, and the next round's seconds hold
    the prefill."""
    replica = Replica(on_gpu(waits), role)
    row = LeaseRow(
        sequence_id=1,
        base_len=0,
        base_hash=EMPTY_HASH,
        new_ids=(2, 3, 4),
        num_choices=num_choices,
        rules=SamplingRules(SamplingParams(temperature=0.0), prompt_len=3),
    )
    lease = GroupLease(lease_id=1, epoch=0, replica_id="r", role=role, rows=(row,), ttl_s=1.0)
    assert [answer.cached_len for answer in replica.execute(lease).rows] == [3]
    assert waits == expected
