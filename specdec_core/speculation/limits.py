"""The draft method of a request and its maximum number of drafted tokens.

Only this module owns both rules. No torch.
"""

from __future__ import annotations

from specdec_core.config import SpecMethod, SpeculationConfig
from specdec_core.request import Request


def draft_method(config: SpeculationConfig, request: Request) -> SpecMethod:
    """Return the request's method, else the configuration's, or NONE if either forbids drafting."""
    if config.method is SpecMethod.NONE or not request.speculation_enabled:
        return SpecMethod.NONE
    return request.spec_method or config.method or SpecMethod.NGRAM


def draft_limit(config: SpeculationConfig, request: Request) -> int:
    """Return the maximum number of drafted tokens in any round; 0 decodes without speculation."""
    if draft_method(config, request) is SpecMethod.NONE:
        return 0
    if request.num_draft_tokens is None:
        return config.num_draft_tokens
    return min(config.num_draft_tokens, request.num_draft_tokens)
