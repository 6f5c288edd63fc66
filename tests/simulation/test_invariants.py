"""Each invariant is broken once, in what it looks at, and says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from deployments.simulation import campaign
from deployments.simulation.invariants import SlotChecks
from deployments.simulation.invariants.books import leftovers, lengths
from deployments.simulation.invariants.clocks import no_clocks
from deployments.simulation.invariants.kv_owners import KVOwners
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.record import Violation
from deployments.simulation.tokens import Script
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import EMPTY_HASH, GroupLease, LeaseRow, ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler
from specdec_core.scheduler.batch_builder import BatchBuilder
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.sequence import KVReservation, Sequence

VOCAB_SIZE = 13
BITS = "bits"


def asked(seed: int = 3) -> Request:
    params = SamplingParams(max_tokens=8, seed=seed)
    return Request(request_id=f"r{seed}", prompt_token_ids=(1, 2, 3), params=params)


class Bench:
    """One replica of a role that has run one lease of one request."""

    def __init__(self, role: Role) -> None:
        info = ReplicaInfo(
            replica_id="r",
            role=role,
            incarnation=1,
            num_blocks=9,
            kv_cache_spec=FullAttentionSpec(2),
            max_model_len=18,
            vocab_size=VOCAB_SIZE,
            model_digest="m",
            fingerprint=BITS,
        )
        self.request = asked()
        self.whose = KVOwners(lambda request: [Script(request, BITS, VOCAB_SIZE)])
        self.whose.note(1, 0, self.request)
        self.checks = SlotChecks(self.whose)
        self.runner = ModelReplica(info, agreement=0.5, taught_by=BITS)
        row = LeaseRow(0, 0, EMPTY_HASH, (1, 2, 3), num_choices=3, rules=self.request.rules)
        if role is Role.TARGET:
            row = row._replace(proposal=(4, 5))
        self.lease = GroupLease(
            lease_id=1, epoch=1, replica_id="r", role=role, rows=(row,), ttl_s=1.0
        )
        self.result = self.runner.execute(self.lease, 0.0)

    def check(self) -> None:
        self.checks.executed(self.runner, self.lease, self.result)


@pytest.mark.parametrize("role", Role)
def test_a_slot_that_holds_what_it_should_passes(role: Role) -> None:
    Bench(role).check()


@pytest.mark.parametrize("role", Role)
def test_kv_of_another_request_is_found(role: Role) -> None:
    bench = Bench(role)
    bench.whose.note(1, 0, asked(seed=4))
    with pytest.raises(Violation, match=r"^\(c\)"):
        bench.check()


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("place", [1, 3])
def test_kv_of_other_ids_is_found_at_any_place(role: Role, place: int) -> None:
    bench = Bench(role)
    bench.runner.slots[0].hashes[place] ^= 1
    with pytest.raises(Violation, match=r"^\(c\)"):
        bench.check()


def test_kv_of_targets_of_other_bits_is_found() -> None:
    bench = Bench(Role.TARGET)
    bench.runner.info = replace(bench.runner.info, fingerprint="other")
    with pytest.raises(Violation, match=r"^\(c\)"):
        bench.check()


def test_a_draft_that_caches_more_than_it_said_is_found() -> None:
    bench = Bench(Role.DRAFT)
    bench.runner.slots[0].hashes.append(7)
    with pytest.raises(Violation, match=r"^\(c\)"):
        bench.check()


def test_a_lease_that_runs_although_it_is_void_is_found() -> None:
    bench = Bench(Role.TARGET)
    bench.checks.voided([(1, "r", 1)])
    with pytest.raises(Violation, match=r"^\(b\) r runs lease 1"):
        bench.check()


@pytest.mark.parametrize("error", [-1, 1, -99])
def test_blocks_that_do_not_add_up_are_found(error: int) -> None:
    bench = Bench(Role.TARGET)
    bench.runner.num_free_blocks += error
    with pytest.raises(Violation, match=r"^\(f\)"):
        bench.checks.counted(bench.runner)


def test_who_reads_a_clock_is_found_and_others_read_it() -> None:
    code = "def read(): return time.monotonic()"
    ours: dict[str, Callable[[], float]] = {"__name__": "specdec_core.scheduler.x", "time": time}  # type: ignore[dict-item]
    other: dict[str, Callable[[], float]] = {"__name__": "rich.x", "time": time}  # type: ignore[dict-item]
    exec(code, ours)
    exec(code, other)
    with no_clocks():
        other["read"]()
        with pytest.raises(
            Violation, match=r"^\(j\) specdec_core\.scheduler\.x reads time\.monotonic"
        ):
            ours["read"]()
    ours["read"]()


def found(seeds: int = 40) -> str:
    return campaign.run_seeds(0, seeds).violations[0].violation or ""


def test_a_row_that_nobody_plans_while_no_draft_serves_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note = BatchBuilder._note_on_target

    def forgetful(self: BatchBuilder, sequence: Sequence, reservation: KVReservation) -> None:
        note(self, sequence, reservation)
        if sequence.sequence_id % 3 == 0 and not self._replicas.of_role(Role.DRAFT):
            self._replicas.by_id[reservation.replica_id].ready_queue.remove(sequence.sequence_id)

    monkeypatch.setattr(BatchBuilder, "_note_on_target", forgetful)
    assert found().startswith("(k)")


def test_a_target_that_is_fed_more_prompts_than_it_may_be_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReadyQueue, "num_prefill_tokens", lambda ready_queue, rows: 0)
    assert "is to catch up by" in found()


def test_a_book_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Scheduler.add

    def bookish(self: Scheduler, request: Request, now: float) -> None:
        add(self, request, now)
        self._proposals_seen = [*getattr(self, "_proposals_seen", []), request.request_id]  # type: ignore[attr-defined]

    monkeypatch.setattr(Scheduler, "add", bookish)
    assert "driver.scheduler._proposals_seen" in found()


def test_books_are_found_below_attributes_slots_and_items() -> None:
    bench = Bench(Role.TARGET)
    sequence = Sequence(0, bench.request, 0.0)
    assert lengths({"a": sequence}, "x")["x[].ids"] == 3
    assert leftovers(sequence)["driver.ids"] == 3
