"""Interface of every decoding algorithm to the Engine: requests in, token events out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from specdec_core.request import Request, TokenEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmStats:
    """Totals since the algorithm was created."""

    num_rounds: int = 0
    """Target passes."""
    num_committed: int = 0
    """Emitted tokens."""
    num_drafted: int = 0
    num_accepted: int = 0
    num_sequence_rounds: int = 0
    """Rounds counted once per sequence: a group of B rows counts B."""
    num_proposed_rounds: int = 0
    """Sequence rounds that checked a proposal. The others were decoding without speculation."""
    accepted_per_position: tuple[int, ...] = ()
    """Index j: how often drafted token j was accepted."""
    drafted_per_position: tuple[int, ...] = ()
    num_groups: int = 0
    num_equal_length_groups: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by stage: draft, verify, align, schedule. The padded algorithms also have view and
    stack. View is reading rows through their start offsets in exact numerics. Stack is putting rows
    of equal length side by side, and taking a rectangle apart."""
    aligned_bytes: int = 0
    """Bytes of KV moved only because rows of a rectangle had become unequally long, or had left."""
    stacked_bytes: int = 0
    """Bytes of KV copied by stage stack."""

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens committed per sequence and proposal, the next token included."""
        rounds = self.num_proposed_rounds
        return 1.0 + self.num_accepted / rounds if rounds else 0.0


class Algorithm(Protocol):
    """A decoding algorithm over one or two models. Synchronous; one caller."""

    @property
    def has_work(self) -> bool: ...

    @property
    def stats(self) -> AlgorithmStats: ...

    def add(self, request: Request) -> None:
        """Take a request. Raises InvalidRequestError or QueueFullError and then keeps nothing."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request in any state; return False when it is unknown. Its last event follows."""
        ...

    def step(self) -> list[TokenEvent]:
        """Run one round; return the committed tokens."""
        ...
