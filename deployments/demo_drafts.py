"""Drafts of the demo models. The package holds what they do not share with their targets.

They are made with `specdec train-draft --compact`; the card beside the weights says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    @property
    def is_shipped(self) -> bool:
        return (DATA / self.name / _CARD).is_file()

    def is_current(self, folder: Path) -> bool:
        """Whether `folder` was made from the draft that is shipped: another one has another card,
        which tells its figures."""
        card = folder / _CARD
        return card.is_file() and card.read_bytes() == (DATA / self.name / _CARD).read_bytes()

    def materialise(self, target_folder: Path, folder: Path) -> None:
        """Make the complete folder. Raises ModelNotSupportedError for another target."""
        from specdec_core.training.draft_folder import materialise
        from specdec_core.training.target_files import open_target

        materialise(DATA / self.name, open_target(str(target_folder)), folder)


DEMO_DRAFTS = {
    draft.name: draft
    for draft in (
        DemoDraft(
            name="smollm2-135m-draft",
            target="smollm2-135m",
            licence="Apache-2.0",
            summary="draft for smollm2-135m, made with `specdec train-draft`",
        ),
    )
}


def shipped_drafts(target: str) -> list[DemoDraft]:
    return [d for d in DEMO_DRAFTS.values() if d.target == target and d.is_shipped]
