"""What one request may ask for at most, whatever the model's context has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError, check_range

MAX_STOP_STRINGS = 16
MAX_REQUEST_ID_LEN = 128
MAX_CHOICES = 128
"""Of one request, all its prompts together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The operator's own limits; None: only what the model sets."""

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    timeout_s: float | None = None

    def check_prompt(self, prompt_len: int, param: str) -> None:
        """`param` is the field that holds the prompt."""
        limit = self.max_prompt_tokens
        if limit is not None and prompt_len > limit:
            raise InvalidRequestError(
                f"the prompt has {prompt_len} tokens, this server takes at most {limit}",
                param=param,
                code="context_length_exceeded",
            )

    def check_output(self, max_tokens: int, param: str) -> None:
        """`param` is the field that says `max_tokens`."""
        limit = self.max_output_tokens
        if limit is not None and max_tokens > limit:
            raise InvalidRequestError(
                f"{param}={max_tokens}: this server gives at most {limit} tokens",
                param=param,
                code="integer_above_max_value",
            )

    def longest_output(self, room: int) -> int:
        """For a request that names no max_tokens."""
        return room if self.max_output_tokens is None else min(room, self.max_output_tokens)


def check_request_id(request_id: str) -> None:
    if len(request_id) > MAX_REQUEST_ID_LEN:
        raise InvalidRequestError(
            f"request_id has {len(request_id)} characters, the limit is {MAX_REQUEST_ID_LEN}",
            param="request_id",
            code="string_above_max_length",
        )


def check_choices(n: int, num_prompts: int) -> None:
    if n < 1 or not num_prompts:
        raise InvalidRequestError(
            f"n={n} choices of {num_prompts} prompts: at least 1 each",
            param="n",
            code="integer_below_min_value",
        )
    if n * num_prompts > MAX_CHOICES:
        raise InvalidRequestError(
            f"n={n} choices of {num_prompts} prompts are {n * num_prompts}, "
            f"the limit is {MAX_CHOICES}",
            param="n",
            code="integer_above_max_value",
        )


def check_stop(stops: Sequence[str]) -> None:
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"{len(stops)} stop strings, the limit is {MAX_STOP_STRINGS}",
            param="stop",
            code="array_above_max_length",
        )
    if any(not stop for stop in stops):
        raise InvalidRequestError(
            "a stop string is empty: at least 1 character is needed", param="stop"
        )


def last_ids(prompt_token_ids: Sequence[int], count: int | None) -> Sequence[int]:
    """The prompt, or the end of it that was asked for. Raises InvalidRequestError."""
    if count is None:
        return prompt_token_ids
    check_range("truncate_prompt_tokens", count, 1, math.inf, "at least 1")
    return prompt_token_ids[-count:]
