"""The token IDs of an answer that a body brings back, of its choice or of each of its choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from specdec_core.errors import InvalidRequestError


def checked_resume_ids(token_ids: Any) -> Sequence[Sequence[int]]:
    """Return a list of IDs for every choice. Raises InvalidRequestError for everything else."""
    if isinstance(token_ids, list):
        is_nested = bool(token_ids) and all(isinstance(one, list) for one in token_ids)
        choices = token_ids if is_nested else [token_ids]
        if all(_is_id(one) for choice in choices for one in choice):
            return choices
    raise InvalidRequestError(
        "resume.token_ids must be a list of token ids, or a list of those for every choice, "
        f"got {json.dumps(token_ids):.80}",
        param="resume.token_ids",
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
