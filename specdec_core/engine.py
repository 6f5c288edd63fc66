"""The library: requests in, tokens out, in one process. Handles token IDs, not text."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from specdec_core.algorithms.autoregressive import Autoregressive
from specdec_core.algorithms.exspec import Exspec
from specdec_core.algorithms.padded.eqspec import Eqspec
from specdec_core.algorithms.padded.exspec_padded import ExspecPadded
from specdec_core.algorithms.padded.model import padded
from specdec_core.algorithms.protocol import Algorithm, AlgorithmStats
from specdec_core.config import (
    WINDOW_PER_ROW,
    KPolicyName,
    SchedulerConfig,
    SpeculationConfig,
    default_draft_tokens,
)
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, QueueFullError
from specdec_core.grammar import GrammarCompiler
from specdec_core.model import CachedModel
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.speculation.registry import check_method

if TYPE_CHECKING:
    from specdec_core.loading.loader import LoadConfig
    from specdec_core.worker.model_runner import ModelRunner


class AlgorithmName(StrEnum):
    """The decoding algorithms an Engine can run."""

    EXSPEC = "exspec"
    AUTOREGRESSIVE = "autoregressive"
    EQSPEC = "eqspec"
    EXSPEC_PADDED = "exspec-padded"

    def k_policy(self, default: KPolicyName) -> KPolicyName:
        """Return the K policy in effect. Only exspec follows one. The padded algorithms draft K
        tokens in every round."""
        return default if self is AlgorithmName.EXSPEC else KPolicyName.FIXED


class Engine:
    """Decodes requests with one target and, when speculating, at most one draft model.

    Synchronous: every `step` runs one round. Not thread-safe; one caller.
    """

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel | None = None,
        *,
        config: SchedulerConfig | None = None,
        algorithm: AlgorithmName = AlgorithmName.EXSPEC,
        end_token_ids: frozenset[int] = frozenset(),
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`grammars` compiles the grammars of structured output. None refuses such requests."""
        config = config or SchedulerConfig()
        speculation = config.speculation.resolved(has_draft=draft is not None)
        config = replace(config, speculation=speculation)
        _check_pair(target, draft, speculation)
        self.end_token_ids = end_token_ids
        self.vocab_size = target.vocab_size
        self.max_model_len = target.max_model_len
        self._grammars = grammars
        self._algorithm: Algorithm
        if algorithm is AlgorithmName.AUTOREGRESSIVE:
            size = config.max_group_size
            self._algorithm = Autoregressive(target, batch_size=size, grammars=grammars)
        elif algorithm is AlgorithmName.EXSPEC:
            self._algorithm = Exspec(target, draft, config=config, grammars=grammars, clock=clock)
        else:
            make = Eqspec if algorithm is AlgorithmName.EQSPEC else ExspecPadded
            padded_draft = padded(draft) if draft else None
            self._algorithm = make(
                padded(target), padded_draft, config=config, grammars=grammars, clock=clock
            )

    @classmethod
    def load(
        cls,
        target: str,
        draft: str | None = None,
        *,
        pool: SchedulerConfig | None = None,
        load: LoadConfig | None = None,
        algorithm: AlgorithmName = AlgorithmName.EXSPEC,
    ) -> Engine:
        """Load models from folders or hub IDs. Raises ModelNotSupportedError when they do not fit.

        A draft is loaded only for an algorithm that drafts; it must share the target's tokenizer.
        Without `pool`, groups have as many rows as gain tokens per second here. K is then the
        default of the device.
        """
        from specdec_core.loading.loader import load_pair

        drafts = algorithm is not AlgorithmName.AUTOREGRESSIVE
        models = load_pair(target, draft if drafts else None, load)
        return cls(
            models.target.model,
            models.draft.model if models.draft else None,
            config=pool or _default_config(models.target.model, algorithm),
            algorithm=algorithm,
            end_token_ids=models.target.end_token_ids,
        )

    @property
    def has_work(self) -> bool:
        return self._algorithm.has_work

    @property
    def stats(self) -> AlgorithmStats:
        return self._algorithm.stats

    def add_request(self, request: Request) -> None:
        """Queue a request; `step` begins it. Raises InvalidRequestError or QueueFullError.

        A request without its own end IDs uses those of the model; `ignore_eos` drops them.
        """
        if not request.end_token_ids:
            request = replace(request, end_token_ids=self.end_token_ids)
        self._check(request)
        self._algorithm.add(request)

    def abort(self, request_id: str) -> bool:
        """End a request in any state; return False when it is unknown. Its last event follows."""
        return self._algorithm.abort(request_id)

    def step(self) -> list[TokenEvent]:
        """Run one round and return the committed tokens."""
        return self._algorithm.step()

    def generate(self, requests: Iterable[Request]) -> Iterator[TokenEvent]:
        """Decode all requests, yielding their token events as rounds commit them.

        Requests are taken from the iterable as the queue has room. Leaving the iteration early
        aborts unfinished requests.
        """
        waiting = deque(requests)
        live: set[str] = set()
        try:
            while waiting or live:
                while waiting and self._queue_if_room(waiting[0]):
                    live.add(waiting.popleft().request_id)
                for event in self.step():
                    if event.finish_reason is not None:
                        live.discard(event.request_id)
                    yield event
        finally:
            for request_id in live:
                self.abort(request_id)
            while live and self.has_work:
                live -= {event.request_id for event in self.step() if event.finish_reason}

    def _queue_if_room(self, request: Request) -> bool:
        """Queue a request. Return False if it must wait outside until queued ones have run."""
        try:
            self.add_request(request)
        except QueueFullError:
            return False
        return True

    def tokens(self, request: Request) -> Iterator[int]:
        """Decode one request, yielding its tokens one by one. Raises RuntimeError if it failed."""
        for event in self.generate([request]):
            yield from event.token_ids
            if event.finish_reason is FinishReason.ERROR:
                raise RuntimeError(f"request {event.request_id} failed: {event.error}")

    def _check(self, request: Request) -> None:
        check_method(request.spec_method)
        request.rules.compiled(self._grammars)
        generated = request.emitted_token_ids + request.resume_token_ids
        ids = (*request.prompt_token_ids, *generated)
        wrong = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if wrong is not None:
            raise InvalidRequestError(f"token id {wrong} is outside 0..{self.vocab_size - 1}")
        if request.resume_token_ids and not isinstance(self._algorithm, Exspec):
            raise InvalidRequestError(
                "resume_token_ids requires the algorithm exspec, which checks them"
            )
        if request.max_len > self.max_model_len:
            raise InvalidRequestError(
                f"{len(request.prompt_token_ids)} prompt tokens and max_tokens="
                f"{request.params.max_tokens} exceed the model's {self.max_model_len} positions",
                param="max_tokens",
                code="context_length_exceeded",
            )


def _default_config(target: ModelRunner, algorithm: AlgorithmName) -> SchedulerConfig:
    """Return the default configuration for a loaded target."""
    from specdec_core.loading.profiler import rows_of_a_group

    rows = rows_of_a_group(target)
    k_policy = algorithm.k_policy(KPolicyName.GOODPUT)
    k = default_draft_tokens(k_policy, has_gpu=target.device.type == "cuda")
    speculation = SpeculationConfig(num_draft_tokens=k)
    return SchedulerConfig(
        max_group_size=rows, window=WINDOW_PER_ROW * rows, speculation=speculation
    )


def _check_pair(
    target: CachedModel, draft: CachedModel | None, speculation: SpeculationConfig
) -> None:
    if draft is None:
        return
    if draft.vocab_size != target.vocab_size:
        raise ModelNotSupportedError(
            f"draft and target must share a tokenizer: the draft has {draft.vocab_size} ids, "
            f"the target {target.vocab_size}"
        )
    if not speculation.uses_draft_model:
        raise ModelNotSupportedError(
            f"a draft model was given, but method {speculation.method} never uses one"
        )
