"""One generation from prompt to text, whatever the protocol: checks, defaults, stops, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from deployments.detokenizer import IncrementalDetokenizer, StopStrings
from deployments.errors import DeadlineError, PoolUnavailableError, UnknownModelError
from deployments.pool_client import PoolClient
from deployments.text import TextModel
from specdec_core.config import MAX_DRAFT_TOKENS
from specdec_core.errors import InvalidRequestError
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import MAX_SEED, SamplingParams

MAX_STOP_STRINGS = 16
MAX_REQUEST_ID_LEN = 128
_ALL = 0
_ALL_FOR_OTHERS = -1
"""How other servers spell a top_k that keeps every id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a client asked, in either protocol. None: the client did not say."""

    model: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    speculation_enabled: bool = True
    num_draft_tokens: int | None = None
    priority: int = 0
    request_id: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A checked request, ready to run."""

    request: Request
    stop: tuple[str, ...]
    timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is new since the last piece; the last one has a finish reason."""

    index: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop id or stop string that ended the output."""
    stats: RequestStats | None = None


class GenerationService:
    """Serves one model from the pool behind `pool`."""

    def __init__(
        self,
        text: TextModel,
        pool: PoolClient,
        *,
        model_name: str,
        num_draft_tokens: int,
        timeout_s: float | None = None,
    ) -> None:
        self.text = text
        self.pool = pool
        self.model_name = model_name
        self.num_draft_tokens = num_draft_tokens
        """K that the server aims at for requests that do not say."""
        self._timeout_s = timeout_s

    @property
    def is_ready(self) -> bool:
        return self.pool.state is not None and self.pool.state.num_targets > 0

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output; what the targets say overrules the model's files."""
        state = self.pool.state
        return (state.max_model_len if state else 0) or self.text.max_model_len

    @property
    def system_fingerprint(self) -> str:
        state = self.pool.state
        return f"{state.model_digest[:12]} {state.fingerprint}" if state else ""

    def check_model(self, name: str | None) -> None:
        if name and name != self.model_name:
            raise UnknownModelError(f"model {name!r} is not served here: use {self.model_name!r}")

    def check_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        limit = self.text.vocab_size
        wrong = next((i for i in token_ids if not 0 <= i < limit), None)
        if wrong is not None:
            raise InvalidRequestError(f"token id {wrong} is not in 0..{limit - 1}")
        return tuple(token_ids)

    def prepare(self, prompt_token_ids: Sequence[int], ask: Ask) -> Generation:
        """Check everything that can be checked here. Raises InvalidRequestError and kin."""
        self.check_model(ask.model)
        prompt = self.check_ids(prompt_token_ids)
        _check_stop(ask.stop)
        _check_draft_tokens(ask.num_draft_tokens)
        if len(ask.request_id) > MAX_REQUEST_ID_LEN:
            raise InvalidRequestError(
                f"request_id has {len(ask.request_id)} characters, "
                f"the limit is {MAX_REQUEST_ID_LEN}"
            )
        request = Request(
            request_id=ask.request_id or uuid.uuid4().hex,
            prompt_token_ids=prompt,
            params=self._sampling(len(prompt), ask),
            end_token_ids=self.text.end_token_ids,
            speculation_enabled=ask.speculation_enabled,
            num_draft_tokens=ask.num_draft_tokens,
            priority=ask.priority,
        )
        timeouts = [t for t in (ask.timeout_s, self._timeout_s) if t is not None]
        return Generation(
            request=request, stop=tuple(ask.stop), timeout_s=min(timeouts, default=None)
        )

    async def run(self, generation: Generation) -> AsyncGenerator[Piece]:
        """Pieces until the last; leaving early aborts the request in the pool."""
        output = _Output(generation, self.text)
        async with contextlib.aclosing(self._events(generation)) as events:
            async for event in events:
                piece = output.take(event)
                if piece.finish_reason is FinishReason.STOP and event.finish_reason is None:
                    stats = await self._end_early(generation.request.request_id, events)
                    piece = replace(piece, stats=stats)
                yield piece
                if piece.finish_reason is not None:
                    return

    async def _events(self, generation: Generation) -> AsyncGenerator[TokenEvent]:
        deadline = None
        if generation.timeout_s is not None:
            deadline = time.monotonic() + generation.timeout_s
        async with contextlib.aclosing(self.pool.generate(generation.request)) as events:
            while True:
                remaining = None if deadline is None else deadline - time.monotonic()
                try:
                    event = await asyncio.wait_for(anext(events), remaining)
                except TimeoutError:
                    raise DeadlineError(f"not finished within {generation.timeout_s:g} s") from None
                except StopAsyncIteration:
                    return
                yield event

    async def _end_early(
        self, request_id: str, events: AsyncIterator[TokenEvent]
    ) -> RequestStats | None:
        """Abort what a stop string has ended, and hear what speculation had done for it."""
        try:
            await self.pool.abort(request_id)
            async for event in events:
                if event.stats is not None:
                    return event.stats
        except PoolUnavailableError:
            return None
        return None

    def _sampling(self, prompt_len: int, ask: Ask) -> SamplingParams:
        room = self.max_model_len - prompt_len
        if room < 1:
            raise InvalidRequestError(
                f"the prompt has {prompt_len} tokens, the model's context is {self.max_model_len}: "
                "there is no room for an answer"
            )
        max_tokens = room if ask.max_tokens is None else ask.max_tokens
        if max_tokens > room:
            raise InvalidRequestError(
                f"max_tokens={max_tokens} and a prompt of {prompt_len} tokens exceed the model's "
                f"context of {self.max_model_len}: at most {room} can be asked for"
            )
        return SamplingParams(
            temperature=1.0 if ask.temperature is None else ask.temperature,
            top_k=_ALL if ask.top_k in (None, _ALL_FOR_OTHERS) else ask.top_k,
            top_p=1.0 if ask.top_p is None else ask.top_p,
            min_p=0.0 if ask.min_p is None else ask.min_p,
            seed=random.randint(0, MAX_SEED) if ask.seed is None else ask.seed,
            max_tokens=max_tokens,
            stop_token_ids=self.check_ids(ask.stop_token_ids),
            ignore_eos=ask.ignore_eos,
        )


@dataclass(eq=False, slots=True)
class _Output:
    """The visible output of one generation."""

    generation: Generation
    text: TextModel
    detokenizer: IncrementalDetokenizer = field(init=False)
    stops: StopStrings = field(init=False)

    def __post_init__(self) -> None:
        self.detokenizer = IncrementalDetokenizer(self.text.decode)
        self.stops = StopStrings(self.generation.stop)

    def take(self, event: TokenEvent) -> Piece:
        """Token by token, so that where the output is cut never depends on what a round brought."""
        shown = ""
        for count, token_id in enumerate(event.token_ids, start=1):
            if self._is_stop_id(event, count):
                continue
            shown += self.stops.add(self.detokenizer.add(token_id))
            if self.stops.found is not None:
                return Piece(
                    index=event.index,
                    token_ids=event.token_ids[:count],
                    text=shown,
                    finish_reason=FinishReason.STOP,
                    stop_reason=self.stops.found,
                    stats=event.stats,
                )
        if event.finish_reason is not None:
            shown += self.stops.add(self.detokenizer.flush()) + self.stops.flush()
        return Piece(
            index=event.index,
            token_ids=event.token_ids,
            text=shown,
            finish_reason=event.finish_reason,
            stop_reason=self._stop_id(event),
            stats=event.stats,
        )

    def _is_stop_id(self, event: TokenEvent, count: int) -> bool:
        """The id that ended the output is emitted, its text is not shown."""
        return event.finish_reason is FinishReason.STOP and count == len(event.token_ids)

    def _stop_id(self, event: TokenEvent) -> int | None:
        asked = self.generation.request.params.stop_token_ids
        if event.finish_reason is not FinishReason.STOP or not event.token_ids:
            return None
        return event.token_ids[-1] if event.token_ids[-1] in asked else None


def _check_stop(stops: Sequence[str]) -> None:
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidRequestError(f"{len(stops)} stop strings, the limit is {MAX_STOP_STRINGS}")
    if any(not stop for stop in stops):
        raise InvalidRequestError("a stop string is empty: at least 1 character is needed")


def _check_draft_tokens(num_draft_tokens: int | None) -> None:
    if num_draft_tokens is not None and not 0 <= num_draft_tokens <= MAX_DRAFT_TOKENS:
        raise InvalidRequestError(
            f"num_speculative_tokens must be in 0..{MAX_DRAFT_TOKENS}, got {num_draft_tokens}"
        )
