"""What `--pair TARGET,DRAFT` names, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdec_core.errors import InvalidRequestError

RANDOM = "random-"
DEMO = "smollm2-135m"


class DraftKind(StrEnum):
    NGRAM = "ngram"
    """Prompt lookup; no model."""
    SELF = "self"
    """The target without some of its layers."""
    RECORDED = "recorded"
    """Real passes of a draft model, whose proposals come from the target's recorded answer."""
    MODEL = "model"
    """A folder or hub id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """A target and what drafts for it.

    TARGET is the name of a pulled demo model, a folder, a hub id, or `random-vicuna`,
    `random-qwen3`, `random-glm4`: random weights of the shapes of the paper's pairs. DRAFT is
    `ngram`, `self` or `self-N` (N layers left out), `recorded-P` (each proposed token is right with
    probability P), a folder or a hub id.
    """

    target: str
    kind: DraftKind
    draft_model: str = ""
    num_left_out: int = 0
    probability: float = 1.0

    @property
    def name(self) -> str:
        drafts = {
            DraftKind.NGRAM: "ngram",
            DraftKind.SELF: f"self-{self.num_left_out}",
            DraftKind.RECORDED: f"recorded-{self.probability:g}",
            DraftKind.MODEL: self.draft_model,
        }
        return f"{self.target},{drafts[self.kind]}"

    @property
    def is_random(self) -> bool:
        """Whether the target's weights are random: its texts mean nothing."""
        return self.target.startswith(RANDOM)


def parse_pair(text: str) -> PairSpec:
    """Read TARGET,DRAFT. Raises InvalidRequestError that quotes what is wrong."""
    target, _, draft = text.partition(",")
    if not target or not draft:
        raise InvalidRequestError(f"--pair is TARGET,DRAFT, got {text!r}")
    spec = _parse_draft(target, draft)
    if spec.is_random and spec.kind is not DraftKind.RECORDED:
        raise InvalidRequestError(f"--pair {text}: a random target needs the draft recorded-P")
    return spec


def _parse_draft(target: str, draft: str) -> PairSpec:
    name, _, value = draft.partition("-")
    if draft == DraftKind.NGRAM:
        return PairSpec(target=target, kind=DraftKind.NGRAM)
    if name == DraftKind.SELF and (not value or value.isdecimal()):
        return PairSpec(target=target, kind=DraftKind.SELF, num_left_out=int(value or 0))
    if name == DraftKind.RECORDED:
        probability = _probability(value)
        return PairSpec(target=target, kind=DraftKind.RECORDED, probability=probability)
    return PairSpec(target=target, kind=DraftKind.MODEL, draft_model=draft)


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise InvalidRequestError(f"recorded-P needs a probability in 0..1, got {text!r}")
    return value
