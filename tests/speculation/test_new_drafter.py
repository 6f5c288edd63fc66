"""A new local drafter is one class and one line in the registry; all else takes it by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from deployments.cli.parsers import methods
from deployments.config.service import ServiceConfig
from deployments.wire.request_codec import submit_from_pb, submit_to_pb
from specdec_core import Request, SamplingParams, SchedulerConfig, SpeculationConfig
from specdec_core.config import KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import InvalidRequestError
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Drafter, Observed, Offer, Row
from specdec_core.speculation.k_policy import OfferedRow
from specdec_core.speculation.registry import DRAFTERS
from tests.equivalence.test_fakes import VOCAB, make_requests, outputs, plain
from tests.fakes import NoisyCopy, TokenListModel
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.test_copy_belief import checked, policy

SPECULATIVE = [name for name in AlgorithmName if name is not AlgorithmName.AUTOREGRESSIVE]


class RepeatDrafter(Drafter):
    """Guesses that the last token comes again."""

    name = "repeat"

    def __init__(self, config: SpeculationConfig) -> None:
        pass

    def propose(self, rows: Sequence[Row], most: Sequence[int]) -> list[Offer]:
        return [Offer((row.ids[-1],) * k) for row, k in zip(rows, most, strict=True)]


@dataclass
class Told:
    """What one row was told, in order."""

    begun_with: tuple[int, ...]
    num_fed: int = 0
    chosen: list[int] = field(default_factory=list)


class LearningDrafter(RepeatDrafter):
    """Keeps a record of every row, and the answers of those that have ended."""

    name = "learning"
    learns = True
    calls: ClassVar[list[int]] = []
    """Rows of each call of `propose`."""
    ended: ClassVar[dict[int, Told]] = {}

    def begin(self, row: Row) -> Told:
        return Told(tuple(row.ids))

    def propose(self, rows: Sequence[Row], most: Sequence[int]) -> list[Offer]:
        self.calls.append(len(rows))
        assert min(most) >= 1
        return super().propose(rows, most)

    def learn(self, rows: Sequence[Row], observed: Sequence[Observed]) -> None:
        for row, seen in zip(rows, observed, strict=True):
            told = row.draft_state
            assert isinstance(told, Told)
            told.num_fed += seen.num_fed
            told.chosen += seen.chosen
            assert list(row.ids) == [*told.begun_with, *told.chosen]
            assert seen.num_accepted <= len(seen.chosen)

    def end(self, row: Row) -> None:
        assert isinstance(row.draft_state, Told)
        assert row.sequence_id not in self.ended, "a row ends once"
        self.ended[row.sequence_id] = row.draft_state


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line each."""
    monkeypatch.setitem(DRAFTERS, "repeat", RepeatDrafter)
    monkeypatch.setitem(DRAFTERS, "learning", LearningDrafter)
    LearningDrafter.calls.clear()
    LearningDrafter.ended.clear()


def speculating(method: str, k_policy: KPolicyName, k: int = 4) -> SchedulerConfig:
    speculation = SpeculationConfig(method=method, num_draft_tokens=k, k_policy=k_policy)
    return SchedulerConfig(max_group_size=4, window=8, prefill_chunk=8, speculation=speculation)


@pytest.mark.parametrize("k_policy", [KPolicyName.GOODPUT, KPolicyName.FIXED])
@pytest.mark.parametrize("algorithm", SPECULATIVE)
def test_the_engine_drafts_by_it_and_answers_as_without(
    algorithm: AlgorithmName, k_policy: KPolicyName
) -> None:
    requests = make_requests(20, seed=3)
    engine = Engine(
        TokenListModel(vocab_size=VOCAB),
        config=speculating("repeat", k_policy),
        algorithm=algorithm,
    )
    assert outputs(engine, requests) == plain(requests)
    # By measured times, goodput may draft nothing on a busy machine.
    assert sum(engine.stats.accepted_per_position) > 0 or k_policy is KPolicyName.GOODPUT


@pytest.mark.parametrize("algorithm", SPECULATIVE)
def test_one_request_asks_for_it_where_others_have_a_draft_model(algorithm: AlgorithmName) -> None:
    plain_requests = make_requests(20, seed=4)
    requests = [
        replace(one, spec_method="repeat") if i % 2 else one for i, one in enumerate(plain_requests)
    ]
    target = TokenListModel(vocab_size=VOCAB)
    draft = NoisyCopy(target, disagree_every=3)
    engine = Engine(
        target, draft, config=speculating("draft_model", KPolicyName.FIXED), algorithm=algorithm
    )
    assert outputs(engine, requests) == plain(plain_requests)
    alone = [one for one in requests if one.spec_method]
    engine = Engine(
        target, draft, config=speculating("draft_model", KPolicyName.FIXED), algorithm=algorithm
    )
    fed = draft.num_fed
    outputs(engine, alone)
    assert sum(engine.stats.accepted_per_position) > 0
    assert draft.num_fed - fed <= sum(len(one.prompt_token_ids) for one in alone)


def test_the_scheduler_asks_it_once_for_all_rows_of_a_target() -> None:
    cell = Cell(config("learning", 3, max_group_size=4, window=4))
    cell.join(info())
    clients = [cell.add(request(str(i), (1, 2, 3), 8, seed=i)) for i in range(4)]
    cell.turn()
    assert LearningDrafter.calls == [4]
    cell.run()
    for client in clients:
        client.check_plain()
    assert cell.pool.counters().num_accepted > 0


def test_it_learns_of_every_pass_and_forgets_rows_that_end() -> None:
    """Chunks of the prompt, the last pass of an answer, and an abort."""
    cell = Cell(config("learning", 3, max_group_size=4, window=4, prefill_chunk=4))
    cell.join(info())
    prompt = tuple(range(5)) * 3
    clients = [cell.add(request(str(i), prompt, 12, seed=i)) for i in range(3)]
    for _ in range(6):
        cell.turn()
    cell.pool.abort("2", cell.now)
    cell.run()
    assert sorted(LearningDrafter.ended) == [0, 1, 2]
    for i, client in enumerate(clients):
        told = LearningDrafter.ended[i]
        assert told.begun_with == prompt
        assert told.chosen == client.token_ids
    whole = LearningDrafter.ended[0]
    assert len(prompt) < whole.num_fed <= len(prompt) + len(whole.chosen)


@pytest.mark.parametrize("algorithm", [AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED])
def test_the_padded_algorithms_keep_the_order_of_its_calls(algorithm: AlgorithmName) -> None:
    requests = make_requests(9, seed=5)
    engine = Engine(
        TokenListModel(vocab_size=VOCAB),
        config=speculating("learning", KPolicyName.FIXED),
        algorithm=algorithm,
    )
    answers = outputs(engine, requests)
    for number, told in LearningDrafter.ended.items():
        tokens, _ = answers[requests[number].request_id]
        assert tuple(told.chosen) == tokens
    assert len(LearningDrafter.ended) > 5


def test_settings_flags_and_the_wire_take_its_name() -> None:
    assert (
        ServiceConfig.of(model="m", spec_method="repeat").scheduler_config().speculation.method
        == "repeat"
    )
    assert methods("repeat,learning") == ("repeat", "learning")
    asked = Request(
        request_id="a",
        prompt_token_ids=(1,),
        params=SamplingParams(max_tokens=1),
        spec_method="repeat",
    )
    assert submit_from_pb(submit_to_pb(asked, resume=False)).spec_method == "repeat"


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    known = "draft_model, ngram, .*repeat, learning, hybrid, none"
    target = TokenListModel(vocab_size=VOCAB)
    with pytest.raises(InvalidRequestError, match=f"must be one of {known}, got 'reapet'"):
        Engine(target, config=speculating("reapet", KPolicyName.FIXED))
    engine = Engine(target)
    with pytest.raises(InvalidRequestError, match=f"must be one of {known}, got 'reapet'"):
        engine.add_request(replace(make_requests(1, seed=1)[0], spec_method="reapet"))
    with pytest.raises(ValueError, match=r"Input should be 'draft_model', 'ngram', .* or 'none'"):
        ServiceConfig.of(model="m", spec_method="reapet")


def test_the_policy_learns_how_good_the_kinds_of_any_drafter_are() -> None:
    """Both kinds are said to be equally likely. A row costs more than a wrong token is worth."""
    chooser = policy(0.007, 0.0005, 8)
    good, bad = (Offer((1,), (0.5,), (kind,)) for kind in (0, 1))
    for _ in range(200):
        chooser.learn(AcceptanceHistory(), "repeat", good, (1,))
        chooser.learn(AcceptanceHistory(), "repeat", bad, (0,))
    rows = [OfferedRow(AcceptanceHistory(), "repeat", one, 99) for one in (good, bad) * 4]
    assert checked(chooser, rows) == [1, 0] * 4
