"""Drafts of the demo models. The package holds what they do not share with their targets.

They are made with `specdec train-draft --compact`. The model card next to the weights says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from specdec_core.config import DRAFT_MODEL_METHODS, SpecMethod

DATA = Path(__file__).parent / "draft_weights"
"""One compact folder for every draft that is shipped."""
_CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDraft:
    """One draft that `specdec models pull` makes complete."""

    name: str
    target: str
    """Name of its demo model."""
    licence: str
    summary: str
    method: str
    """Method that uses this draft if a draft is requested and no method is set."""

    @property
    def data(self) -> Path:
        """Folder with the compact draft."""
        return DATA / self.name

    @property
    def is_shipped(self) -> bool:
        return (self.data / _CARD).is_file()

    def is_current(self, folder: Path) -> bool:
        """Whether `folder` was made from the draft that is shipped: another one has another card,
        which tells its figures."""
        card = folder / _CARD
        return card.is_file() and card.read_bytes() == (self.data / _CARD).read_bytes()

    def materialise(self, target_folder: Path, folder: Path) -> None:
        """Make the complete folder. Raises ModelNotSupportedError for another target."""
        from specdec_core.training.draft_folder import materialise
        from specdec_core.training.target_files import open_target

        materialise(self.data, open_target(str(target_folder)), folder)


DEMO_DRAFTS = {
    draft.name: draft
    for draft in (
        DemoDraft(
            name="smollm2-135m-draft",
            target="smollm2-135m",
            licence="Apache-2.0",
            summary="draft for smollm2-135m, made with `specdec train-draft`",
            method=SpecMethod.HYBRID,
        ),
    )
}


def shipped_drafts(target: str) -> list[DemoDraft]:
    return [d for d in DEMO_DRAFTS.values() if d.target == target and d.is_shipped]


class Drafting(NamedTuple):
    """The method and the model that propose tokens."""

    method: str
    draft: str | None
    """Draft model; None for the methods that need none."""


def choose_drafting(
    target: str, method: str | None, draft: str | None, *, wants_draft: bool = False
) -> Drafting:
    """Return the drafting that was requested. The default is prompt lookup.

    The drafts that ship take more of a CPU than they were measured to earn. One is used if the
    method needs it, or if `wants_draft`.
    """
    if draft is not None:
        return Drafting(method or SpecMethod.DRAFT_MODEL, draft)
    shipped = shipped_drafts(target)
    uses_draft = wants_draft if method is None else method in DRAFT_MODEL_METHODS
    if not shipped or not uses_draft:
        return Drafting(method or SpecMethod.NGRAM, None)
    return Drafting(method or shipped[0].method, shipped[0].name)
