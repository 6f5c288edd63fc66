"""Records of what a K policy was given and what it decided, and their replay.

A record is a dictionary that JSON can hold. Its floats survive JSON unchanged. It contains no token
IDs, because a policy sees only how many of them are equal. Each record contains what is known of
its sequence, so a replay needs no sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, ReplicaInfo, Role, RowResult
from specdec_core.speculation.k_policy import (
    AcceptanceHistory,
    DraftLengthReason,
    DraftSource,
    KPolicy,
    OfferedRow,
)

Record = dict[str, Any]
_TOLD = ("step_times", "tile_rows", "max_num_seqs")
"""Fields of ReplicaInfo that a policy reads, besides the role."""
_ASKED = ("limit", "num_live", "targets_per_draft", "num_agreed")
"""Arguments of `num_draft_tokens`, besides the sequence's history and the drafter."""


class TracedK:
    """A K policy that records every call of the policy it wraps."""

    def __init__(self, policy: KPolicy, write: Callable[[Record], None]) -> None:
        self._policy = policy
        self._write = write

    @property
    def is_selective(self) -> bool:
        return self._policy.is_selective

    @property
    def figures(self) -> Mapping[str, float]:
        return self._policy.figures

    @property
    def cause(self) -> DraftLengthReason:
        return self._policy.cause

    @property
    def is_draft_short(self) -> bool:
        return self._policy.is_draft_short

    def may_look_up(self, num_live: int) -> bool:
        return self._policy.may_look_up(num_live)

    def goes_by_agreement(self, num_live: int) -> bool:
        return self._policy.goes_by_agreement(num_live)

    def welcome(self, info: ReplicaInfo) -> None:
        self._policy.welcome(info)
        told = {name: getattr(info, name) for name in _TOLD}
        if any(told.values()):
            self._write({"event": "welcome", "role": info.role.value, **told})

    def num_draft_tokens(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        num_agreed: int = 0,
    ) -> int:
        record: Record = {"event": "draft", "rates": _rates(history), "drafter": drafter.value}
        values = limit, num_live, targets_per_draft, num_agreed
        k = self._policy.num_draft_tokens(history, drafter, *values)
        asked = dict(zip(_ASKED, values, strict=True))
        self._write({**record, **asked, "decided": k})
        return k

    def num_checked(self, offers: Sequence[OfferedRow], tile_rows: int) -> list[int]:
        told = [(_rates(o.history), o.drafter.value, *o[2:]) for o in offers]
        lengths = self._policy.num_checked(offers, tile_rows)
        record = {"event": "check", "offers": told, "tile_rows": tile_rows, "decided": lengths}
        self._write(record)
        return lengths

    def learn(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        drafted: Sequence[int],
        chosen: Sequence[int],
        num_agreed: int = 0,
    ) -> None:
        pairs = zip(drafted, chosen, strict=False)
        are_equal = [ours == own for ours, own in pairs]
        record: Record = {"event": "learn", "rates": _rates(history), "drafter": drafter.value}
        self._policy.learn(history, drafter, drafted, chosen, num_agreed)
        told = {"num_drafted": len(drafted), "are_equal": are_equal, "num_agreed": num_agreed}
        self._write({**record, **told})

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        rows = [(len(row.new_ids), len(row.proposal), row.num_choices) for row in lease.rows]
        accepted = [row.num_accepted for row in result.rows]
        self._policy.observe(lease, result, seconds)
        record = {"event": "observe", "role": lease.role.value, "seconds": seconds}
        self._write({**record, "rows": rows, "accepted": accepted})


class Decision(NamedTuple):
    record: Record
    again: int | list[int]

    @property
    def is_same(self) -> bool:
        return bool(self.record["decided"] == self.again)


def replay(records: Iterable[Record], policy: KPolicy) -> Iterator[Decision]:
    """Replay the records to a fresh policy, and yield every decision with the recorded one."""
    for record in records:
        match record["event"]:
            case "welcome":
                policy.welcome(_info(record))
            case "draft":
                history, drafter = _history(record["rates"]), DraftSource(record["drafter"])
                asked = [record[name] for name in _ASKED]
                k = policy.num_draft_tokens(history, drafter, *asked)
                yield Decision(record, k)
            case "check":
                offers = [
                    OfferedRow(_history(rates), DraftSource(drafter), *rest)
                    for rates, drafter, *rest in record["offers"]
                ]
                yield Decision(record, policy.num_checked(offers, record["tile_rows"]))
            case "learn":
                _learn_again(record, policy)
            case "observe":
                policy.observe(*_group(record), record["seconds"])


def _info(record: Record) -> ReplicaInfo:
    told = {name: record[name] for name in _TOLD}
    return ReplicaInfo(
        replica_id="",
        role=Role(record["role"]),
        incarnation=0,
        num_blocks=1,
        kv_cache_spec=FullAttentionSpec(block_size=1),
        max_model_len=1,
        vocab_size=1,
        model_digest="",
        **told,
    )


def _learn_again(record: Record, policy: KPolicy) -> None:
    chosen = [int(is_equal) for is_equal in record["are_equal"]]
    drafted = (1,) * record["num_drafted"]
    history, drafter = _history(record["rates"]), DraftSource(record["drafter"])
    policy.learn(history, drafter, drafted, chosen, record["num_agreed"])


def _group(record: Record) -> tuple[GroupLease, GroupResult]:
    rows = [
        LeaseRow(
            sequence_id=number,
            base_len=0,
            base_hash=0,
            new_ids=(0,) * num_new,
            proposal=(0,) * num_proposed,
            num_choices=num_choices,
        )
        for number, (num_new, num_proposed, num_choices) in enumerate(record["rows"])
    ]
    lease = GroupLease(
        lease_id=0, epoch=0, replica_id="", role=Role(record["role"]), rows=tuple(rows), ttl_s=0.0
    )
    answers = [
        RowResult(sequence_id=number, num_accepted=num_accepted)
        for number, num_accepted in enumerate(record["accepted"])
    ]
    return lease, GroupResult(lease_id=0, epoch=0, replica_id="", rows=tuple(answers))


def _rates(history: AcceptanceHistory) -> dict[str, Any]:
    rates = [(source, rate.num_accepted, rate.num_trials) for source, rate in history.rates.items()]
    return {"is_drawn": history.is_drawn, "rates": rates}


def _history(rates: Mapping[str, Any]) -> AcceptanceHistory:
    history = AcceptanceHistory(is_drawn=rates["is_drawn"])
    for source, num_accepted, num_trials in rates["rates"]:
        rate = history.rate_of(source if isinstance(source, int) else DraftSource(source))
        rate.num_accepted, rate.num_trials = num_accepted, num_trials
    return history
