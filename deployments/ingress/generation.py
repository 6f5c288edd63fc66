"""One generation from prompt to text, whatever the protocol: checks, defaults, stops, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from deployments.cells.pool import Pool
from deployments.errors import PoolUnavailableError, UnknownModelError
from deployments.ingress.ask import Ask, Generation
from deployments.ingress.choices import choices_of
from deployments.ingress.client_resume import (
    check_end,
    check_fingerprint,
    divided,
    resumed,
    untold,
    with_seed,
)
from deployments.ingress.deadline import within
from deployments.ingress.echo import prompt_offsets, prompt_text
from deployments.ingress.gathering import gathered
from deployments.ingress.interleaving import interleaved
from deployments.ingress.output import Output, Piece
from deployments.ingress.request_limits import (
    RequestLimits,
    check_choices,
    check_request_id,
    check_stop,
    last_ids,
)
from deployments.ingress.request_record import current_record
from deployments.ingress.sampling_request import resolve_sampling
from deployments.metrics.request_times import RequestWatch
from deployments.telemetry.requests import RequestSpans, observed
from deployments.text.chat_template import ChatOptions
from deployments.text.grammars import check_grammar
from deployments.text.model import TextModel
from specdec_core.config import SpecMethod, SpeculationConfig
from specdec_core.drafting.limits import draft_limit, draft_method
from specdec_core.errors import InvalidRequestError, check_range
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams

_LARGE = 20_000
"""Characters or ids from which tokenizing is worth a thread of its own: it holds up the others."""
_OWN_TEMPLATES = 2
"""Rendered at a time: each is a process, and may last for seconds."""
_DRAWN_SEEDS = 2**53
"""Seeds are told to the client, and to many of them a JSON number is a double."""

Content = TypeVar("Content", bound=Sized)
Result = TypeVar("Result")


class GenerationService:
    """Serves one model from the pool behind `pool`."""

    def __init__(
        self,
        text: TextModel,
        pool: Pool,
        *,
        model_name: str,
        speculation: SpeculationConfig,
        sampling_defaults: Mapping[str, Any] | None = None,
        limits: RequestLimits | None = None,
        trusts_chat_templates: bool = False,
        stream_interval: int = 1,
        stats_wait_s: float = 2.0,
        spans: RequestSpans | None = None,
    ) -> None:
        """`sampling_defaults`, by the names of SamplingParams: for what a request leaves open.
        `trusts_chat_templates`: requests may bring their own."""
        self.text = text
        self.pool = pool
        self.model_name = model_name
        self.spans = spans or RequestSpans()
        self._speculation = speculation
        self._sampling_defaults = dict(sampling_defaults or {})
        self._trusts_chat_templates = trusts_chat_templates
        self._places_for_own_templates = asyncio.Semaphore(_OWN_TEMPLATES)
        self._limits = limits or RequestLimits()
        self._fewest = stream_interval
        self._stats_wait_s = stats_wait_s

    @property
    def is_ready(self) -> bool:
        return self.pool.is_serving

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output; what the targets say overrules the model's files."""
        state = self.pool.state
        return (state.max_model_len if state else 0) or self.text.max_model_len

    @property
    def numerics(self) -> str:
        """What the targets keep, "exact" or "fast"; empty while there is no coordinator."""
        return self.pool.state.numerics if self.pool.state else ""

    @property
    def system_fingerprint(self) -> str:
        state = self.pool.state
        return f"{state.model_digest[:12]} {state.fingerprint}" if state else ""

    def num_spec_tokens(self, request: Request) -> int:
        """K that is aimed at for `request`."""
        return draft_limit(self._speculation, request)

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """See TextModel, as for the next two; other requests go on meanwhile."""
        call = partial(self.text.encode, add_special_tokens=add_special_tokens)
        return await _aside(call, text)

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
    ) -> tuple[int, ...]:
        if options is None or options.template is None:
            return await asyncio.to_thread(self.text.encode_chat, messages, options)
        if not self._trusts_chat_templates:
            raise InvalidRequestError(
                "chat_template: this server takes none from requests "
                "(trust_request_chat_template is off)",
                param="chat_template",
                code="unsupported_parameter",
            )
        async with self._places_for_own_templates:
            return await asyncio.to_thread(self.text.encode_chat, messages, options)

    async def decode_all(self, token_ids: Sequence[int], name: str) -> str:
        return await _aside(self.text.decode_all, self.text.check_ids(token_ids, name))

    async def echo(
        self, token_ids: Sequence[int], given: str | None, *, has_offsets: bool
    ) -> tuple[str, tuple[int, ...]]:
        """Return a prompt's text, which is `given` if the client sent text, and where its tokens
        begin in it, if `has_offsets`."""
        checked = self.text.check_ids(token_ids, "prompt")
        shown = given
        if shown is None:
            shown = await _aside(partial(prompt_text, self.text), checked)
        if not has_offsets:
            return shown, ()
        return shown, await _aside(partial(prompt_offsets, self.text, shown=given), checked)

    def check_model(self, name: str | None) -> None:
        if name and name != self.model_name:
            raise UnknownModelError(f"model {name!r} is not served here: use {self.model_name!r}")

    def prepare(self, prompt_token_ids: Sequence[int], ask: Ask) -> Generation:
        """Check everything that can be checked here. Raises InvalidRequestError and kin."""
        self.check_model(ask.model)
        kept = last_ids(prompt_token_ids, ask.truncate_prompt_tokens)
        prompt = self.text.check_ids(kept, ask.prompt_field)
        self._limits.check_prompt(len(prompt), ask.prompt_field)
        check_stop(ask.stop)
        self._check_draft_tokens(ask.num_draft_tokens)
        check_request_id(ask.request_id)
        timeouts = [t for t in (ask.timeout_s, self._limits.timeout_s) if t is not None]
        request = Request(
            request_id=ask.request_id or self.pool.new_request_id(),
            prompt_token_ids=prompt,
            params=self._sampling(len(prompt), ask),
            end_token_ids=self.text.end_token_ids,
            speculation_enabled=ask.speculation_enabled,
            num_draft_tokens=ask.num_draft_tokens,
            spec_method=self._checked_method(ask.spec_method),
            priority=ask.priority,
            client=ask.client,
            timeout_s=min(timeouts, default=None),
            cache_salt=ask.cache_salt,
        )
        return Generation(request=request, stop=tuple(ask.stop), view=ask.view)

    def prepare_choices(
        self, prompts: Sequence[Sequence[int]], ask: Ask, n: int
    ) -> list[Generation]:
        """n choices of every prompt, prompt by prompt. Choice j has the seed derived from the
        request's and j, so the whole request comes again with its seed."""
        check_choices(n, len(prompts))
        if ask.resume is not None:
            check_fingerprint(ask.resume, self.system_fingerprint)
            ask = with_seed(ask, ask.resume)
        first = self.prepare(prompts[0], ask)
        seed = first.request.params.seed
        seeded = replace(ask, sampling={**ask.sampling, "seed": seed})
        ones = [first, *(self.prepare(prompt, seeded) for prompt in prompts[1:])]
        found = choices_of(ones, n)
        return found if ask.resume is None else resumed(found, ask, ask.resume, self.text)

    def run_choices(
        self, generations: Sequence[Generation], *, streams: bool = False
    ) -> AsyncGenerator[tuple[int, Piece]]:
        """Pieces of all, each with its place, as they come. What ends one by an abort or an error
        ends the others. `streams`: they are told as they come."""
        method = draft_method(self._speculation, generations[0].request)
        current_record().begin(generations, method)
        runs = [self._run_untold(one) if streams else self.run(one) for one in generations]
        return observed(generations, self._run_choices(generations, runs), streams=streams)

    async def _run_choices(
        self, generations: Sequence[Generation], runs: Sequence[AsyncGenerator[Piece]]
    ) -> AsyncGenerator[tuple[int, Piece]]:
        is_aborted = False
        told = interleaved([gathered(run, self._fewest) for run in runs])
        async with contextlib.aclosing(told) as news:
            async for place, piece in news:
                yield place, piece
                if piece.finish_reason is FinishReason.ABORT and not is_aborted:
                    is_aborted = True
                    for generation in generations:
                        await self.pool.abort(generation.request.request_id)

    def _run_untold(self, one: Generation) -> AsyncGenerator[Piece]:
        """As `run`, without what the client has brought back."""
        num_resumed = len(one.request.resume_token_ids)
        return untold(self.run(one), num_resumed) if num_resumed else self.run(one)

    async def run(self, generation: Generation) -> AsyncGenerator[Piece]:
        """Pieces until the last; leaving early aborts the request in the pool."""
        params = generation.request.params
        num_resumed = len(generation.request.resume_token_ids)
        prompt = generation.request.prompt_token_ids
        output = Output(self.text, params, generation.stop, generation.view, prompt)
        asked = self.pool.generate(generation.request)
        if num_resumed:
            asked = divided(asked, num_resumed)
        watch = RequestWatch(generation.request)
        current_record().watch(generation, watch)
        async with contextlib.aclosing(within(generation.request.timeout_s, asked)) as events:
            async for event in events:
                with self.pool.times.detokenise:
                    piece = output.take(event)
                self.pool.times.num_pieces += 1
                if event.index >= num_resumed or piece.finish_reason is not None:
                    watch.hear(self.pool.times.detokenise.started_s)
                check_end(piece, num_resumed)
                if piece.finish_reason is FinishReason.STOP and event.stats is None:
                    stats = await self._end_early(generation.request.request_id, events)
                    piece = replace(piece, stats=stats)
                if piece.finish_reason is not None:
                    ended = watch.end(event, piece.finish_reason, piece.stats)
                    self.pool.times.requests.observe(ended)
                watch.last = piece
                yield piece
                if piece.finish_reason is not None:
                    return

    async def _end_early(
        self, request_id: str, events: AsyncIterator[TokenEvent]
    ) -> RequestStats | None:
        """Abort what a stop string has ended, and hear what speculation had done for it.

        The answer is whole: a coordinator that is away or hangs must not hold it back.
        """
        with contextlib.suppress(PoolUnavailableError, TimeoutError):
            async with asyncio.timeout(self._stats_wait_s):
                await self.pool.abort(request_id)
                async for event in events:
                    if event.stats is not None:
                        return event.stats
        return None

    def _check_draft_tokens(self, num_draft_tokens: int | None) -> None:
        limit = self._speculation.num_draft_tokens
        if num_draft_tokens is not None:
            wording = f"in 0..{limit}, the server's own number"
            name = "speculative.num_speculative_tokens"
            check_range(name, num_draft_tokens, 0, limit, wording)

    def _checked_method(self, name: str | None) -> SpecMethod | None:
        """Raises InvalidRequestError for a method that this server has no means for."""
        if name is None:
            return None
        has_draft = self._speculation.uses_draft_model
        known = [method for method in SpecMethod if has_draft or not method.uses_draft_model]
        if name not in known:
            raise InvalidRequestError(
                f"speculative.method must be one of {', '.join(known)} here, got {name[:40]!r}",
                param="speculative.method",
            )
        return SpecMethod(name)

    def _sampling(self, prompt_len: int, ask: Ask) -> SamplingParams:
        room = self.max_model_len - prompt_len
        if room < 1:
            raise InvalidRequestError(
                f"the prompt has {prompt_len} tokens, the model's context is {self.max_model_len}: "
                "there is no room for an answer",
                param=ask.prompt_field,
                code="context_length_exceeded",
            )
        own = self._sampling_defaults
        longest = self._limits.longest_output(min(room, own.get("max_tokens", room)))
        seed = random.randrange(_DRAWN_SEEDS)
        defaults = SamplingParams(**own | {"seed": seed, "max_tokens": longest})
        field, most = ask.max_tokens_field, ask.sampling.get("max_tokens")
        if most is not None:
            check_range(field, most, 1, math.inf, "at least 1")
        params = resolve_sampling(ask.sampling, self.text, defaults)
        if params.grammar is not None:
            check_grammar(params.grammar)
        self._limits.check_output(params.max_tokens, field)
        if params.max_tokens > room:
            raise InvalidRequestError(
                f"{field}={params.max_tokens} and a prompt of {prompt_len} tokens exceed the "
                f"model's context of {self.max_model_len}: at most {room} can be asked for",
                param=field,
                code="context_length_exceeded",
            )
        return params


async def _aside(call: Callable[[Content], Result], content: Content) -> Result:
    """`call(content)`, in a thread where it takes long."""
    return await asyncio.to_thread(call, content) if len(content) > _LARGE else call(content)
