"""How many tokens may be drafted for a request: the one owner of that rule. No torch."""

from __future__ import annotations

from specdec_core.config import SpecMethod, SpeculationConfig
from specdec_core.request import Request


def draft_limit(config: SpeculationConfig, request: Request) -> int:
    """The most tokens to draft in any round of the request; 0 decodes it plainly."""
    if config.method is SpecMethod.NONE or not request.speculation_enabled:
        return 0
    if request.num_draft_tokens is None:
        return config.num_draft_tokens
    return min(config.num_draft_tokens, request.num_draft_tokens)
