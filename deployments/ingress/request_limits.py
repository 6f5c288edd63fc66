"""The cost of one request: its limits, and threads for work whose cost the caller chooses.

The size of the work decides the thread, so short work never waits for long work. A flood of long
work keeps one thread busy. The event loop does the shortest work itself.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from deployments.errors import ContextLengthError
from deployments.ingress.generation_request import MAX_ENTRIES, too_long
from specdec_core.errors import InvalidRequestError, out_of_range

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 4_096
"""Maximum characters of all stop strings. Each is searched for after every token."""
MAX_TOOLS = 1_024
MAX_ALLOWED_IDS = 500_000
"""Maximum allowed IDs of all choices of a request."""
MAX_REQUEST_ID_LEN = 128
MAX_CHOICES = 128
"""Maximum choices of one request, over all its prompts."""
_MAX_ENTRIES = {
    **MAX_ENTRIES,
    "stop": MAX_STOP_STRINGS,
    "tools": MAX_TOOLS,
    "allowed_token_ids": MAX_ALLOWED_IDS,
}
"""Maximum entries of the lists and objects of a request, by field."""

INLINE = 2_000
"""Maximum size, in characters or IDs, of the event loop's own work: at most 2 ms."""
_BOUNDS = (20_000, 200_000)
"""Maximum sizes of the lanes but the last one."""
_BYTES_PER_CHAR = 10
"""Bytes of a message that are read in the time in which one character is tokenized."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The operator's limits. None: only the model's limits apply."""

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    timeout_s: float | None = None
    max_prompt_chars: int = 2_000_000
    max_messages: int = 4_096

    def check_entries(self, name: str, count: int) -> None:
        """Check the length of a list or object of a request. `name` is its field."""
        limit, setting = _MAX_ENTRIES.get(name), ""
        if name == "messages":
            limit, setting = self.max_messages, " (max_messages)"
        if limit is not None and count > limit:
            raise too_long(f"{name} has {count} entries", f"{limit}{setting}", name, "array")

    def check_prompt_chars(self, num_chars: int, param: str = "prompt") -> None:
        """Check the total size of a request's prompts, in characters or token IDs."""
        limit = self.max_prompt_chars
        if num_chars > limit:
            problem = f"{param} has {num_chars} characters or token IDs in all"
            raise too_long(problem, f"{limit} (max_prompt_chars)", param)

    def check_messages(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the number of characters in the messages. Raises InvalidRequestError."""
        self.check_entries("messages", len(messages))
        texts = [text for m in messages for text in m.values() if isinstance(text, str)]
        num_chars = sum(map(len, texts))
        self.check_prompt_chars(num_chars, "messages")
        return num_chars

    def check_prompt(self, prompt_len: int, max_model_len: int, param: str) -> None:
        """Check the length of a prompt, in tokens. `param` is the field that holds the prompt."""
        limit = self.max_prompt_tokens
        if prompt_len >= max_model_len or (limit is not None and prompt_len > limit):
            raise _long_prompt(prompt_len, max_model_len, limit, param)

    def max_output(self, room: int) -> int:
        """Return the maximum output, in tokens, if the model has room for `room` more."""
        return room if self.max_output_tokens is None else min(room, self.max_output_tokens)

    def refusal_of_output(
        self, max_tokens: int, prompt_len: int, max_model_len: int, param: str
    ) -> InvalidRequestError:
        """Return the error for more than `max_output`. `param` is the field that sets it."""
        limit = self.max_output_tokens
        if limit is not None and max_tokens > limit:
            return InvalidRequestError(
                f"{param}={max_tokens}: this server gives at most {limit} tokens "
                "(max_output_tokens)",
                param=param,
                code="integer_above_max_value",
            )
        return ContextLengthError(
            f"{param}={max_tokens}, the prompt has {prompt_len} tokens",
            max_model_len,
            f"ask for at most {max_model_len - prompt_len}",
            param=param,
        )


def _long_prompt(
    prompt_len: int, max_model_len: int, limit: int | None, param: str
) -> InvalidRequestError:
    if prompt_len >= max_model_len:
        return ContextLengthError(
            f"the prompt is too long: it has {prompt_len} tokens",
            max_model_len,
            f"send at most {max_model_len - 1}",
            param=param,
        )
    return InvalidRequestError(
        f"the prompt has {prompt_len} tokens, this server takes at most {limit} "
        "(max_prompt_tokens)",
        param=param,
        code="context_length_exceeded",
    )


def check_request_id(request_id: str) -> None:
    if len(request_id) > MAX_REQUEST_ID_LEN:
        problem = f"request_id has {len(request_id)} characters"
        raise too_long(problem, MAX_REQUEST_ID_LEN, "request_id")


def check_choices(n: int, num_prompts: int) -> None:
    if not 1 <= n * num_prompts <= MAX_CHOICES:
        raise _wrong_number_of_choices(n, num_prompts)


def _wrong_number_of_choices(n: int, num_prompts: int) -> InvalidRequestError:
    asked, num_choices = f"n={n} choices of {num_prompts} prompts", n * num_prompts
    if num_choices < 1:
        code = "integer_below_min_value"
        return InvalidRequestError(f"{asked}: both must be at least 1", param="n", code=code)
    return InvalidRequestError(
        f"{asked} are {num_choices}, the limit is {MAX_CHOICES}",
        param="n",
        code="integer_above_max_value",
    )


def check_allowed_ids(num_ids: int, num_choices: int) -> None:
    """Check the allowed IDs of all choices. Each choice is a request with its own list of them."""
    if num_ids * num_choices > MAX_ALLOWED_IDS:
        raise InvalidRequestError(
            f"allowed_token_ids has {num_ids} entries for each of {num_choices} choices, "
            f"the limit is {MAX_ALLOWED_IDS} together: ask for fewer choices at a time",
            param="allowed_token_ids",
        )


def check_stop(stops: Sequence[str]) -> None:
    num_chars = sum(map(len, stops))
    if num_chars > MAX_STOP_CHARS:
        problem = f"the stop strings have {num_chars} characters together"
        raise too_long(problem, MAX_STOP_CHARS, "stop")
    if len(stops) > MAX_STOP_STRINGS:
        raise too_long(f"{len(stops)} stop strings", MAX_STOP_STRINGS, "stop", "array")
    if "" in stops:
        raise InvalidRequestError(
            "a stop string is empty: at least 1 character is needed", param="stop"
        )


def last_ids(prompt_token_ids: Sequence[int], count: int | None) -> Sequence[int]:
    """Return the prompt, or its last `count` IDs. Raises InvalidRequestError."""
    if count is None:
        return prompt_token_ids
    if count < 1:
        raise out_of_range("truncate_prompt_tokens", count, 1, math.inf, "at least 1")
    return prompt_token_ids[-count:]


class Lanes:
    """One thread for each range of sizes, for work such as tokenizing and rendering."""

    def __init__(self) -> None:
        self._threads = [
            ThreadPoolExecutor(1, f"lane-{number}") for number in range(len(_BOUNDS) + 1)
        ]

    async def run(self, size: int, call: Callable[[], Result]) -> Result:
        """Return `call()`. `size` is the number of characters or IDs of the whole request."""
        if size <= INLINE:
            return call()
        thread = self._threads[bisect_left(_BOUNDS, size)]
        return await asyncio.get_running_loop().run_in_executor(thread, call)

    async def read(self, num_bytes: int, call: Callable[[], Result]) -> Result:
        """Return `call()`, which reads a message of `num_bytes`."""
        return await self.run(num_bytes // _BYTES_PER_CHAR, call)
