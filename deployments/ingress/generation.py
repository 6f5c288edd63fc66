"""One generation from prompt to text, whatever the protocol: checks, defaults, stops, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from deployments.errors import PoolUnavailableError, UnknownModelError
from deployments.ingress.cells.client import OnAccepted, Pool
from deployments.ingress.client_resume import (
    check_end,
    check_fingerprint,
    resumed,
    untold,
    with_seed,
)
from deployments.ingress.echo import echo_of
from deployments.ingress.generation_request import (
    Generation,
    GenerationRequest,
    resolve_sampling,
)
from deployments.ingress.grammar_check import GrammarCheck
from deployments.ingress.output import ChatReading, Output, OutputChunk
from deployments.ingress.request_limits import (
    INLINE,
    Lanes,
    RequestLimits,
    check_allowed_ids,
    check_choices,
    check_request_id,
    check_stop,
    last_ids,
)
from deployments.ingress.request_log import current_record
from deployments.ingress.streams import events_of, gathered, interleaved
from deployments.observability.metrics.request_times import RequestWatch
from deployments.observability.tracing.requests import RequestSpans, observed
from deployments.text.chat_messages import Message
from deployments.text.chat_rendering import ChatOptions
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.tokenizer import TextModel
from specdec_core.config import SpeculationConfig
from specdec_core.errors import InvalidRequestError, out_of_range
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams, derive_seed
from specdec_core.speculation.registry import draft_limit, draft_method, spec_methods

_CHARS_PER_ID = 4
"""Cost of decoding one token ID, expressed in characters to tokenize."""
_OWN_TEMPLATES = 2
"""Maximum concurrent renderings of request templates. Each is a process, and may last for
seconds."""
_DRAWN_SEEDS = 2**53
"""Exclusive upper bound of drawn seeds. Responses carry the seed, and many clients read a JSON
number as a double."""


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
        grammar_limits: GrammarLimits = DEFAULT_LIMITS,
        trusts_chat_templates: bool = False,
        stream_interval: int = 1,
        stats_wait_s: float = 2.0,
        spans: RequestSpans | None = None,
    ) -> None:
        """`sampling_defaults`, keyed by the names of SamplingParams, fills what a request leaves
        open.

        `trusts_chat_templates`: requests may bring their own templates.
        """
        self.text = text
        self.pool = pool
        self.model_name = model_name
        self.spans = spans or RequestSpans()
        self.lanes = Lanes()
        self._speculation = speculation
        self._sampling_defaults = dict(sampling_defaults or {})
        self._trusts_chat_templates = trusts_chat_templates
        self._own_templates = ThreadPoolExecutor(_OWN_TEMPLATES, "own-template")
        self.limits = limits or RequestLimits()
        self._grammars = GrammarCheck(grammar_limits, text.end_token_ids)
        self._chats = ChatReading(text)
        self._stream_interval = stream_interval
        self._stats_wait_s = stats_wait_s

    @property
    def is_ready(self) -> bool:
        return self.pool.is_serving

    @property
    def max_model_len(self) -> int:
        """Maximum prompt plus output, in tokens. The targets' value overrules the model's files."""
        state = self.pool.state
        return (state.max_model_len if state else 0) or self.text.max_model_len

    @property
    def numerics(self) -> str:
        """Numerics of the targets, "exact" or "fast". Empty without a coordinator."""
        return self.pool.state.numerics if self.pool.state else ""

    @property
    def system_fingerprint(self) -> str:
        state = self.pool.state
        return f"{state.model_digest[:12]} {state.fingerprint}" if state else ""

    def num_spec_tokens(self, request: Request) -> int:
        """Return the maximum K of `request`."""
        return draft_limit(self._speculation, request)

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Encode `text` as TextModel does, while other requests continue."""
        (ids,) = await self.encode_all([text], add_special_tokens=add_special_tokens)
        return tuple(ids)

    async def encode_all(
        self, prompts: Sequence[str | Sequence[int]], *, add_special_tokens: bool = True
    ) -> list[Sequence[int]]:
        """Return the IDs of all prompts of a request, some of which may be IDs already."""
        num_chars = sum(map(len, prompts))
        self.limits.check_prompt_chars(num_chars)
        encode = partial(self.text.encode, add_special_tokens=add_special_tokens)

        def encoded() -> list[Sequence[int]]:
            return [encode(one) if isinstance(one, str) else one for one in prompts]

        return await self.lanes.run(num_chars, encoded)

    async def encode_chat(
        self, messages: Sequence[Message], options: ChatOptions | None = None, *, num_bytes: int = 0
    ) -> tuple[int, ...]:
        """Return the token IDs of a rendered chat. `num_bytes` is the size of the request, with its
        tools and calls."""
        size = max(self.limits.check_messages(messages), num_bytes)
        call = partial(self.text.encode_chat, messages, options)
        if options is not None and options.template is not None:
            return await self._run_own_template(call)
        # A template's cost is not known from its input, so the event loop never renders one.
        return await self.lanes.run(max(size, INLINE + 1), call)

    async def _run_own_template(self, call: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """Return `call()`, which renders a request's own template.

        Raises InvalidRequestError if this server accepts no templates from requests.
        """
        if not self._trusts_chat_templates:
            raise InvalidRequestError(
                "chat_template: this server accepts no templates from requests "
                "(trust_request_chat_template is off)",
                param="chat_template",
                code="unsupported_parameter",
            )
        # A thread stays busy until its process ends, also if the caller has left.
        return await asyncio.get_running_loop().run_in_executor(self._own_templates, call)

    async def decode_all(self, token_ids: Sequence[int], name: str) -> str:
        def decoded() -> str:
            return self.text.decode_all(self.text.check_ids(token_ids, name))

        return await self.lanes.run(len(token_ids), decoded)

    async def echo(
        self, prompts: Sequence[tuple[Sequence[int], str | None]], *, has_offsets: bool
    ) -> list[tuple[str, tuple[int, ...]]]:
        """Return each prompt's text, and where its tokens begin in it, if `has_offsets`.

        A prompt's text is known if the client sent text.
        """
        for ids, _ in prompts:
            self.limits.check_prompt(len(ids), self.max_model_len, "prompt")

        def echoed() -> list[tuple[str, tuple[int, ...]]]:
            return [
                echo_of(self.text, self.text.check_ids(ids, "prompt"), given, has_offsets)
                for ids, given in prompts
            ]

        num_ids = sum(len(ids) for ids, _ in prompts)
        return await self.lanes.run(num_ids * _CHARS_PER_ID, echoed)

    def check_model(self, name: str | None) -> None:
        if name and name != self.model_name:
            raise UnknownModelError(f"model {name!r} is not served here: use {self.model_name!r}")

    def prepare(
        self, prompt: Sequence[int], ask: GenerationRequest, params: SamplingParams | None = None
    ) -> Generation:
        """Check everything but the model and the grammar. Raises InvalidRequestError and kin.
        `params` are those of another prompt of the same request, which were checked."""
        kept = last_ids(prompt, ask.truncate_prompt_tokens)
        self.limits.check_prompt(len(kept), self.max_model_len, ask.prompt_field)
        prompt_token_ids = self.text.check_ids(kept, ask.prompt_field)
        if ask.stop:
            check_stop(ask.stop)
        if ask.num_draft_tokens is not None or ask.spec_method is not None:
            self._check_speculation(ask)
        check_request_id(ask.request_id)
        timeouts = [t for t in (ask.timeout_s, self.limits.timeout_s) if t is not None]
        request = Request(
            request_id=ask.request_id or self.pool.new_request_id(),
            prompt_token_ids=prompt_token_ids,
            params=self._sampling(len(prompt_token_ids), ask, params),
            end_token_ids=self.text.end_token_ids,
            speculation_enabled=ask.speculation_enabled,
            num_draft_tokens=ask.num_draft_tokens,
            spec_method=ask.spec_method,
            priority=ask.priority,
            client=ask.client,
            timeout_s=min(timeouts, default=None),
            cache_salt=ask.cache_salt,
        )
        return Generation(request=request, stop=tuple(ask.stop), view=ask.view, reading=ask.reading)

    async def checked_choices(
        self, prompts: Sequence[Sequence[int]], ask: GenerationRequest, n: int, num_bytes: int = 0
    ) -> list[Generation]:
        """Return `n` checked choices of every prompt, in prompt order. The same seed repeats them
        all. `num_bytes`: size of the request, whose tools may become a grammar."""
        check_choices(n, len(prompts))
        num_choices = n * len(prompts)
        if ask.answer is not None:
            prepared = partial(self._chats.prepared, ask, ask.answer, prompts[0])
            ask = await self.lanes.read(num_bytes, prepared)
        if ask.resume is not None:
            check_fingerprint(ask.resume, self.system_fingerprint)
            ask = with_seed(ask, ask.resume)
        first = self.prepare(prompts[0], ask)
        params = first.request.params
        if params.allowed_token_ids:
            check_allowed_ids(len(params.allowed_token_ids), num_choices)
        choices = [first] if num_choices == 1 else self._all_choices(first, prompts, ask, n)
        if ask.resume is not None:
            choices = resumed(choices, ask, ask.resume, self.text)
        if params.grammar is not None:
            await self._grammars.check(params.grammar)
        return choices

    def _all_choices(
        self, first: Generation, prompts: Sequence[Sequence[int]], ask: GenerationRequest, n: int
    ) -> list[Generation]:
        """Return `n` choices of every prompt. `first` is that of the first prompt, checked."""
        choices: list[Generation] = []
        request_id, params = first.request.request_id, first.request.params
        for prompt in prompts:
            one = self.prepare(prompt, ask, params) if choices else first
            for choice in range(n):
                place, seed = len(choices), derive_seed(params.seed, choice)
                request = replace(
                    one.request,
                    request_id=f"{request_id}-{place}" if place else request_id,
                    params=replace(one.request.params, seed=seed),
                )
                choices.append(replace(one, request=request, choice=choice))
        return choices

    def run_choices(
        self,
        generations: Sequence[Generation],
        *,
        streams: bool = False,
        on_accepted: OnAccepted | None = None,
    ) -> AsyncGenerator[tuple[int, OutputChunk]]:
        """Yield the chunks of all generations as they come, each with the index of its generation.

        If one generation ends by an abort or an error, the others end too. `streams`: the client
        gets each chunk at once. `on_accepted` is called for each one that the scheduler has queued.
        """
        method = draft_method(self._speculation, generations[0].request)
        record = current_record()
        record.generations, record.method = generations, method
        runs = []
        for generation in generations:
            run = self.run(generation, on_accepted)
            if streams and generation.request.resume_token_ids:
                run = untold(run, len(generation.request.resume_token_ids))
            runs.append(gathered(run, self._stream_interval) if self._stream_interval > 1 else run)
        merged = _only(runs[0]) if len(runs) == 1 else self._all(generations, runs)
        return observed(generations, merged, streams=streams)

    async def _all(
        self, generations: Sequence[Generation], runs: Sequence[AsyncGenerator[OutputChunk]]
    ) -> AsyncGenerator[tuple[int, OutputChunk]]:
        is_aborted = False
        async with contextlib.aclosing(interleaved(runs)) as merged:
            async for place, piece in merged:
                yield place, piece
                if piece.finish_reason is FinishReason.ABORT and not is_aborted:
                    is_aborted = True
                    for generation in generations:
                        await self.pool.abort(generation.request.request_id)

    async def run(
        self, generation: Generation, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[OutputChunk]:
        """Yield chunks until the last one. Leaving early aborts the request in the scheduler."""
        request, times = generation.request, self.pool.times
        num_resumed, prompt = len(request.resume_token_ids), request.prompt_token_ids
        output = Output(self.text, request.params, generation.stop, generation.view, prompt)
        asked = self.pool.generate(request, on_accepted=on_accepted)
        watch = RequestWatch(request)
        current_record().watches.append((generation, watch))
        async with contextlib.aclosing(events_of(request, asked)) as events:
            async for event in events:
                with times.detokenise:
                    piece = output.take(event)
                times.num_pieces += 1
                if event.index >= num_resumed or piece.finish_reason is not None:
                    watch.receive(times.detokenise.started_s)
                if num_resumed:
                    check_end(piece, num_resumed)
                if piece.finish_reason is FinishReason.STOP and event.stats is None:
                    stats = await self._end_early(request.request_id, events)
                    piece = replace(piece, stats=stats)
                if piece.finish_reason is not None:
                    times.observe(watch.end(event, piece.finish_reason, piece.stats))
                watch.last = piece
                yield piece
                if piece.finish_reason is not None:
                    return

    async def _end_early(
        self, request_id: str, events: AsyncIterator[TokenEvent]
    ) -> RequestStats | None:
        """Abort a request that a stop string has ended, and return its speculation statistics.

        The answer is complete, so a coordinator that is away or hangs must not delay it.
        """
        with contextlib.suppress(PoolUnavailableError, TimeoutError):
            async with asyncio.timeout(self._stats_wait_s):
                await self.pool.abort(request_id)
                async for event in events:
                    if event.stats is not None:
                        return event.stats
        return None

    def _check_speculation(self, ask: GenerationRequest) -> None:
        """Check that this server can use the request's K and method."""
        limit = self._speculation.num_draft_tokens
        if ask.num_draft_tokens is not None and not 0 <= ask.num_draft_tokens <= limit:
            wording = f"in 0..{limit}, the server's spec_tokens"
            name = "speculative.num_speculative_tokens"
            raise out_of_range(name, ask.num_draft_tokens, 0, limit, wording)
        if ask.spec_method is None:
            return
        known = spec_methods(has_draft_model=self._speculation.uses_draft_model)
        if ask.spec_method not in known:
            raise InvalidRequestError(
                f"speculative.method must be one of {', '.join(known)} here, "
                f"got {ask.spec_method[:40]!r}",
                param="speculative.method",
            )

    def _sampling(
        self, prompt_len: int, ask: GenerationRequest, resolved: SamplingParams | None
    ) -> SamplingParams:
        """Return the sampling parameters of one prompt. `resolved` are those of another prompt of
        the request, so that the cost is paid once."""
        max_model_len, own = self.max_model_len, self._sampling_defaults
        most = self.limits.max_output(max_model_len - prompt_len)
        longest = min(most, own.get("max_tokens", most))
        field, asked = ask.max_tokens_field, ask.sampling.get("max_tokens")
        if asked is not None and asked < 1:
            raise out_of_range(field, asked, 1, math.inf, "at least 1")
        if resolved is None:
            seed = random.randrange(_DRAWN_SEEDS)
            defaults = SamplingParams(**own | {"seed": seed, "max_tokens": longest})
            params = resolve_sampling(ask.sampling, self.text, defaults)
        else:
            params = replace(resolved, max_tokens=longest) if asked is None else resolved
        if params.max_tokens > most:
            raise self.limits.refusal_of_output(params.max_tokens, prompt_len, max_model_len, field)
        return params


async def _only(run: AsyncGenerator[OutputChunk]) -> AsyncGenerator[tuple[int, OutputChunk]]:
    async with contextlib.aclosing(run) as pieces:
        async for piece in pieces:
            yield 0, piece
