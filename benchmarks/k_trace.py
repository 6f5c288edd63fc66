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
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import Decision, KPolicy, OfferedRow, Terms

Record = dict[str, Any]
_INFO_FIELDS = ("step_times", "tile_rows", "max_num_seqs")
"""Fields of ReplicaInfo that a policy reads, besides the role."""
_ARGUMENTS = ("limit", "num_live", "targets_per_draft")
"""Arguments of `draft_steps`, besides the sequence's history and the local offer."""


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
    def is_draft_short(self) -> bool:
        return self._policy.is_draft_short

    def welcome(self, info: ReplicaInfo) -> None:
        self._policy.welcome(info)
        recorded = {name: getattr(info, name) for name in _INFO_FIELDS}
        if any(recorded.values()):
            self._write({"event": "welcome", "role": info.role.value, **recorded})

    def terms(self, source: str, num_live: int) -> Terms:
        terms = self._policy.terms(source, num_live)
        self._write({"event": "terms", "asked": (source, num_live), "decided": list(terms)})
        return terms

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        record: Record = {"event": "draft", "rates": _rates(history)}
        record["local"] = None if local is None else _row(local)
        values = limit, num_live, targets_per_draft
        steps = self._policy.draft_steps(history, *values, local)
        arguments = dict(zip(_ARGUMENTS, values, strict=True))
        self._write({**record, **arguments, "decided": list(steps)})
        return steps

    def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
        recorded = [_row(row) for row in rows]
        checked = self._policy.num_checked(rows, tile_rows)
        record = {"event": "check", "rows": recorded, "tile_rows": tile_rows}
        self._write({**record, "decided": [list(one) for one in checked]})
        return checked

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        pairs = zip(offer.tokens, chosen, strict=False)
        are_equal = [ours == own for ours, own in pairs]
        record: Record = {"event": "learn", "rates": _rates(history), "source": source}
        self._policy.learn(history, source, offer, chosen)
        self._write({**record, "offer": _without_ids(offer), "are_equal": are_equal})

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        rows = [(len(row.new_ids), len(row.proposal), row.num_choices) for row in lease.rows]
        accepted = [row.num_accepted for row in result.rows]
        self._policy.observe(lease, result, seconds)
        record = {"event": "observe", "role": lease.role.value, "seconds": seconds}
        self._write({**record, "rows": rows, "accepted": accepted})


class Replayed(NamedTuple):
    record: Record
    again: list[Any]

    @property
    def is_same(self) -> bool:
        return bool(self.record["decided"] == self.again)

    @property
    def lengths(self) -> list[int]:
        """Tokens that each row of a batch checks; empty for other decisions."""
        return [k for k, _ in self.again] if self.record["event"] == "check" else []


def replay(records: Iterable[Record], policy: KPolicy) -> Iterator[Replayed]:
    """Replay the records to a fresh policy, and yield every decision with the recorded one."""
    for record in records:
        match record["event"]:
            case "welcome":
                policy.welcome(_info(record))
            case "terms":
                yield Replayed(record, list(policy.terms(*record["asked"])))
            case "draft":
                history = _history(record["rates"])
                local = record["local"] and _row_again(record["local"])
                arguments = {name: record[name] for name in _ARGUMENTS}
                yield Replayed(record, list(policy.draft_steps(history, **arguments, local=local)))
            case "check":
                rows = [_row_again(row) for row in record["rows"]]
                checked = policy.num_checked(rows, record["tile_rows"])
                yield Replayed(record, [list(one) for one in checked])
            case "learn":
                _learn_again(record, policy)
            case "observe":
                policy.observe(*_group(record), record["seconds"])


def _info(record: Record) -> ReplicaInfo:
    recorded = {name: record[name] for name in _INFO_FIELDS}
    return ReplicaInfo(
        replica_id="",
        role=Role(record["role"]),
        incarnation=0,
        num_blocks=1,
        kv_cache_spec=FullAttentionSpec(block_size=1),
        max_model_len=1,
        vocab_size=1,
        model_digest="",
        **recorded,
    )


def _learn_again(record: Record, policy: KPolicy) -> None:
    chosen = [int(is_equal) for is_equal in record["are_equal"]]
    policy.learn(_history(record["rates"]), record["source"], _offer(record["offer"]), chosen)


def _without_ids(offer: Offer) -> tuple[int, tuple[float, ...], tuple[int, ...]]:
    """Return an offer with the number of its tokens in place of their IDs."""
    return len(offer.tokens), offer.chances, offer.kinds


def _offer(recorded: Sequence[Any]) -> Offer:
    count, chances, kinds = recorded
    return Offer((1,) * count, tuple(chances), tuple(kinds))


def _row(row: OfferedRow) -> list[Any]:
    return [_rates(row.history), row.source, _without_ids(row.offer), row.num_left]


def _row_again(recorded: Sequence[Any]) -> OfferedRow:
    rates, source, offer, num_left = recorded
    return OfferedRow(_history(rates), source, _offer(offer), num_left)


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
    rates = [(key, rate.num_accepted, rate.num_trials) for key, rate in history.rates.items()]
    return {"is_drawn": history.is_drawn, "rates": rates}


def _history(rates: Mapping[str, Any]) -> AcceptanceHistory:
    history = AcceptanceHistory(is_drawn=rates["is_drawn"])
    for key, num_accepted, num_trials in rates["rates"]:
        rate = history.rates[key]
        rate.num_accepted, rate.num_trials = num_accepted, num_trials
    return history
