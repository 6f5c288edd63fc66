"""Who drafts for a request, and how many tokens at most: the one owner of both rules. No torch."""

from __future__ import annotations

from specdec_core.config import SpecMethod, SpeculationConfig
from specdec_core.request import Request


def draft_method(config: SpeculationConfig, request: Request) -> SpecMethod:
    """What the request asks for, else the configuration's; NONE where either forbids drafting."""
    if config.method is SpecMethod.NONE or not request.speculation_enabled:
        return SpecMethod.NONE
    return request.spec_method or config.method or SpecMethod.NGRAM


def draft_limit(config: SpeculationConfig, request: Request) -> int:
    """The most tokens to draft in any round of the request; 0 decodes it plainly."""
    if draft_method(config, request) is SpecMethod.NONE:
        return 0
    if request.num_draft_tokens is None:
        return config.num_draft_tokens
    return min(config.num_draft_tokens, request.num_draft_tokens)
