"""Measure cells in one process: the library's engine over scripted models on a modelled device."""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from benchmarks.host_time.answers import AnswerScript, lookups_from, random_texts
from benchmarks.host_time.cells import CPU_MAX_K, Cell, DeviceTimes, Method, Timed
from benchmarks.host_time.clocks import Clock, everyone_reads
from benchmarks.host_time.device import ModelledDevice, numbers_wait_for
from benchmarks.host_time.functions import Stats, shares_of
from benchmarks.host_time.parts import Spans, Split, clocked_parts, split
from benchmarks.host_time.scripted import ScriptedModel
from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.profiler import time_steps
from specdec_core.messages import Role
from specdec_core.request import FinishReason, TokenEvent
from specdec_core.step_times import StepTime

VOCAB = 256
"""Token IDs: so few that arithmetic over logits takes next to no time."""
_MAX_ROWS = 128
_METHODS = {
    Method.PLAIN: SpecMethod.NONE,
    Method.NGRAM_0: SpecMethod.NGRAM,
    Method.NGRAM_07: SpecMethod.NGRAM,
    Method.DRAFT: SpecMethod.DRAFT_MODEL,
}
_CLOCKED = ((0, 3), (1, 2))
"""Rounds of each four that are clocked, in each measured run. The runs are alike: what one of them
clocks, the other does not."""
_RUNS_BEFORE = {Method.PLAIN: 1, Method.NGRAM_0: 2, Method.NGRAM_07: 2, Method.DRAFT: 2}
"""Runs of an engine before it is measured: shapes are recorded and the policy learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of each request. The defaults are those of `make gpu-report`'s speed."""

    prompt: int = 512
    answer: int = 96

    @property
    def row(self) -> int:
        """Cache of a row, in tokens: whole blocks, with room for proposals."""
        return -(-(self.prompt + self.answer + 2 * CPU_MAX_K) // 64) * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Rounds of a run that are all clocked by part, or all not."""

    num_rounds: int
    seconds: float
    """Time in the engine's steps."""
    cpu_s: float
    """CPU time of the process in these steps, all threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an engine, from the round in which every row takes part to the first end."""

    unclocked: Half
    clocked: Half
    split: Split
    """Time of the clocked rounds by part."""
    num_tokens: int
    num_drafted: int
    num_proposed: int
    """Rounds of a sequence that had a proposal."""
    num_all_rounds: int
    """Rounds from the first request on to the last end, prompts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The runs of one cell once engine and policy have settled."""

    cell: Cell
    runs: tuple[Run, ...]
    missing: tuple[str, ...]
    """Names of clocked functions that this commit does not have."""
    functions: dict[str, float] = field(default_factory=dict)
    """Function -> share of the product's time in one more run. Empty without a profile."""


class Bench:
    """A pair of scripted models on one device, which all cells of that device use."""

    def __init__(self, times: DeviceTimes, lengths: Lengths, clock: Clock) -> None:
        self._lengths = lengths
        self._clock = clock
        self._max_k = times.max_k
        self.device = ModelledDevice(
            is_async=times.is_async, clock=clock.now, sleep=clock.sleep, spin_s=clock.spin_s
        )
        nobody = AnswerScript([(0,)], [(0,)], vocab_size=VOCAB)
        self.target, self.draft = (
            ScriptedModel(
                self.device,
                passes,
                nobody,
                vocab_size=VOCAB,
                kv_cache_tokens=(_MAX_ROWS + 1) * lengths.row,
                max_model_len=lengths.row,
                enable_prefix_caching=False,
                max_choices=_MAX_ROWS * (times.max_k + 1),
            )
            for passes in (times.target, times.draft_step)
        )
        self._know(self.target, Role.TARGET, times.target_timed)
        self._know(self.draft, Role.DRAFT, times.draft_timed)

    def measure(self, cell: Cell, *, is_profiled: bool = False) -> Measured:
        """Return the cell's rounds once engine and policy have settled."""
        spans = Spans(self._clock.now)
        with self.decoding(cell) as decode, clocked_parts(spans) as missing:
            for _ in range(_RUNS_BEFORE[cell.method]):
                decode(spans)
            _settle_heap()
            runs = tuple(decode(spans, places) for places in _CLOCKED)
            functions = _functions(decode, spans) if is_profiled else {}
        return Measured(cell=cell, runs=runs, missing=missing, functions=functions)

    @contextmanager
    def decoding(self, cell: Cell) -> Iterator[_Decoding]:
        """Yield what runs one engine of the cell over its prompts, as often as it is called."""
        lengths = self._lengths
        texts = random_texts(cell.rows, lengths.prompt + lengths.answer, VOCAB)
        prompts = [text[: lengths.prompt] for text in texts]
        answers = [text[lengths.prompt :] for text in texts]
        self.target.script = AnswerScript(prompts, answers, vocab_size=VOCAB)
        drafted = AnswerScript(
            prompts, answers, vocab_size=VOCAB, probability=cell.method.acceptance
        )
        self.draft.script = drafted
        is_ngram = _METHODS[cell.method] is SpecMethod.NGRAM
        with (
            numbers_wait_for(self.device),
            everyone_reads(self._clock),
            lookups_from(drafted) if is_ngram else nullcontext(),
        ):
            yield _Decoding(self._engine(cell), self.device, prompts, answers)

    def _know(self, model: ScriptedModel, role: Role, timed: Timed) -> None:
        """Tell the policy what passes take: what was `timed` elsewhere, or what they take here."""
        if timed:
            model.step_times = tuple(StepTime(*one) for one in timed)
            return
        with numbers_wait_for(self.device), everyone_reads(self._clock):
            model.step_times = time_steps(model, role, self._clock.now)

    def _engine(self, cell: Cell) -> Engine:
        method = _METHODS[cell.method]
        config = SchedulerConfig(
            max_group_size=cell.rows,
            window=2 * cell.rows,
            speculation=SpeculationConfig(
                method=method, num_draft_tokens=self._max_k, k_policy=KPolicyName.GOODPUT
            ),
        )
        is_plain = method is SpecMethod.NONE
        return Engine(
            self.target,
            self.draft if method in DRAFT_MODEL_METHODS else None,
            config=config,
            algorithm=AlgorithmName.AUTOREGRESSIVE if is_plain else AlgorithmName.EXSPEC,
            clock=self._clock.now,
        )


def _functions(decode: _Decoding, spans: Spans) -> dict[str, float]:
    """Profile the settled rounds of one more run."""
    profile = cProfile.Profile()
    decode(spans, around=profile)
    stats: Stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return shares_of(stats)


def _settle_heap() -> None:
    """Let no collection of garbage go through what was built before: it takes half a second."""
    gc.collect()
    gc.freeze()


class _Decoding:
    """Decodes the same prompts again and again; checks that the answers are the script's."""

    def __init__(
        self,
        engine: Engine,
        device: ModelledDevice,
        prompts: list[tuple[int, ...]],
        answers: list[tuple[int, ...]],
    ) -> None:
        self._engine = engine
        self._device = device
        self._prompts = prompts
        self._answers = answers

    def __call__(
        self,
        spans: Spans,
        places: Collection[int] = (),
        around: AbstractContextManager[object] = nullcontext(),  # noqa: B008  (it has no state)
    ) -> Run:
        """Decode all prompts once; of each four rounds, those at `places` are clocked by part.
        `around` is entered for each settled round.

        Raises RuntimeError if a request fails.
        """
        engine, answers = self._engine, _Answers(self._prompts)
        num_before_all = engine.stats.num_rounds
        for request in _requests(self._prompts, len(self._answers[0])):
            engine.add_request(request)
        while not answers.are_all_begun:
            answers.take(engine.step())
        before = engine.stats
        self._device.passes.clear()
        spans.switches.clear()
        halves = {True: _Count(), False: _Count()}
        while not answers.num_ended:
            num_before = engine.stats.num_rounds
            spans.is_on = (num_before - before.num_rounds) % 4 in places
            half = halves[spans.is_on]
            cpu_before, started = time.process_time(), time.perf_counter()
            with around:
                events = engine.step()
            half.seconds += time.perf_counter() - started
            half.cpu_s += time.process_time() - cpu_before
            half.num_rounds += engine.stats.num_rounds - num_before
            answers.take(events)
        spans.is_on = False
        after = engine.stats
        while engine.has_work:
            answers.take(engine.step())
        assert answers.in_order == self._answers, "the answers are not those of the script"
        return Run(
            unclocked=halves[False].result(),
            clocked=halves[True].result(),
            split=split(spans.switches, self._device.passes),
            num_tokens=after.num_committed - before.num_committed,
            num_drafted=after.num_drafted - before.num_drafted,
            num_proposed=after.num_proposed_rounds - before.num_proposed_rounds,
            num_all_rounds=engine.stats.num_rounds - num_before_all,
        )


@dataclass(slots=True)
class _Count:
    """A Half that grows."""

    num_rounds: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0

    def result(self) -> Half:
        return Half(num_rounds=self.num_rounds, seconds=self.seconds, cpu_s=self.cpu_s)


class _Answers:
    """What came out of an engine so far."""

    def __init__(self, prompts: Sequence[tuple[int, ...]]) -> None:
        self._tokens: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
        self.num_ended = 0

    @property
    def are_all_begun(self) -> bool:
        return all(self._tokens.values())

    @property
    def in_order(self) -> list[tuple[int, ...]]:
        return [tuple(tokens) for tokens in self._tokens.values()]

    def take(self, events: Sequence[TokenEvent]) -> None:
        """Append the tokens of some events. Raises RuntimeError if a request failed."""
        for event in events:
            if event.finish_reason is FinishReason.ERROR:
                raise RuntimeError(f"request {event.request_id} failed: {event.error}")
            self._tokens[event.request_id] += event.token_ids
            self.num_ended += event.finish_reason is not None


def _requests(prompts: Sequence[tuple[int, ...]], num_tokens: int) -> list[Request]:
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens)
    return [
        Request(request_id=str(i), prompt_token_ids=prompt, params=params)
        for i, prompt in enumerate(prompts)
    ]
