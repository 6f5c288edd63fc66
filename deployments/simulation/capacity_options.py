"""The flags of `specdec simulate capacity`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.config.flags import OUTPUT_FILE, REQUIRED, flag
from specdec_core.config import KPolicyName
from specdec_core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """Flags of the command."""

    verify_ms: str = flag(
        REQUIRED, "Milliseconds of a target pass by fed tokens: 1:20,8:27,32:38, or base+per_token."
    )
    draft_ms: str = flag(
        REQUIRED, "Milliseconds of a draft step by sequences, in the format of --verify-ms."
    )
    targets: int = flag(1, "Target replicas of all cells.", min=1)
    drafts: int = flag(1, "Draft replicas of all cells.", min=0)
    cells: int = flag(
        1, "Number of cells. Each has a coordinator and a share of the replicas.", min=1
    )
    acceptance: float = flag(0.7, "Probability that a drafted token is right.", min=0, max=1)
    spec_tokens: int = flag(4, "Maximum drafted tokens of a round (K).", min=1, max=32)
    spec_policy: KPolicyName = flag(KPolicyName.FIXED, "Policy that chooses K: fixed or goodput.")
    batch_size: int = flag(8, "Maximum sequences per target pass (the batch).", min=1)
    window: int | None = flag(
        None, "Maximum admitted sequences per target. Default: twice the batch size.", min=1
    )
    request_rate: float | None = flag(
        None, "Requests per second. Default: not set, see --concurrency.", min=0.001
    )
    burstiness: float = flag(
        1.0, "Shape of the arrivals. 1 is a Poisson process; lower values give bursts.", min=0.01
    )
    concurrency: int | None = flag(
        None, "Clients that always wait for an answer. Default: a batch per target.", min=1
    )
    trace_file: Path | None = flag(
        None,
        "File of JSON lines with time, prompt_len and output_len.",
        exists=True,
        dir_okay=False,
    )
    prompt_len: int = flag(128, "Mean tokens of a prompt.", min=1)
    output_len: int = flag(128, "Mean tokens of an answer.", min=1)
    seconds: float = flag(10.0, "Virtual seconds that are measured.", min=0.1)
    warm_up: float = flag(2.0, "Virtual seconds before the measurement, with --concurrency.", min=0)
    row_us: float = flag(15.0, "Coordinator's cost of a row, in microseconds.", min=0)
    message_us: float = flag(
        130.0, "Coordinator's cost of a lease and its result, in microseconds.", min=0
    )
    event_us: float = flag(
        14.0, "Coordinator's cost of an event of a request, in microseconds.", min=0
    )
    recommend: bool = flag(False, "Compare layouts of these accelerators.")
    target_price: float = flag(1.0, "Price of a target's accelerator per hour.", min=0)
    draft_price: float = flag(1.0, "Price of a draft's accelerator per hour.", min=0)
    seed: int = flag(0, "Seed of the traffic.", min=0)
    output: Path | None = flag(None, "File for the figures, as JSON.", **OUTPUT_FILE)

    def __post_init__(self) -> None:
        if self.cells > self.targets:
            raise InvalidRequestError(f"--cells {self.cells} needs at least as many --targets")
        if self.request_rate is not None and self.concurrency is not None:
            raise InvalidRequestError("--request-rate and --concurrency exclude each other")
        if self.recommend and (self.cells > 1 or self.request_rate or self.trace_file):
            raise InvalidRequestError("--recommend compares one cell under --concurrency")

    @property
    def num_clients(self) -> int:
        """Number of clients of all cells together."""
        return self.concurrency or self.targets * self.batch_size
