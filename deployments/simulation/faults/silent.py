"""Streams that carry no messages any more, although neither end gets an error."""

from __future__ import annotations

from functools import partial

from deployments.simulation.network import Stream
from deployments.simulation.trial import Trial

_POLL_S = 0.5


def wait_until_noticed(trial: Trial, stream: Stream) -> None:
    """Keep the world from being quiet until both ends have noticed."""
    if not stream.is_over:
        trial.later(_POLL_S, partial(wait_until_noticed, trial, stream))
        trial.healed_at = max(trial.healed_at, trial.now + 2 * _POLL_S)  # it is back soon after
