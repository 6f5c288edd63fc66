"""`specdec generate`: decode every line of a file with the engine, in this process.

Each line is one request. --seed and the other sampling flags apply to every line unchanged, unless
the line sets its own. A served request with the same prompt, seed and parameters therefore gives
the same token IDs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.api.http.logprob_json import logprob_records
from deployments.cli.generate.options import GenerateOptions
from deployments.cli.generate.output import OrderedWriter, answer_record, run_stats
from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.generate.prompt_text import Conversation, encode_line, first_messages
from deployments.cli.progress import request_progress
from deployments.config.flags import values_of
from deployments.ingress.generation_request import resolve_sampling
from deployments.text.detokenizer import answer_text
from deployments.text.tokenizer import TextModel
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import SpecdecError
from specdec_core.loading.loader import LoadedPair
from specdec_core.loading.profiler import rows_of_a_group
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, Request, TokenEvent

Report = Callable[[int, float], None]
"""Called with (lines done, tokens per second)."""


@dataclass(eq=False, slots=True)
class Dialogue:
    """One line: its conversation so far and the answer that is being decoded."""

    line: PromptLine
    request: Request
    messages: Conversation
    turn: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)


def run(options: GenerateOptions) -> None:
    """Decode the file. Raises InvalidRequestError before the first token if possible."""
    lines = options.prompts.read()
    text = options.loading.load_text(options.model)
    started = time.perf_counter()
    models = _load_models(options)
    engine = _make_engine(options, models, len(lines))
    load_s = time.perf_counter() - started
    with options.output.open("w", encoding="utf-8") as out, request_progress(len(lines)) as report:
        writer = OrderedWriter(out, [line.line_number for line in lines])
        decoding = Decoding(engine, text, options, writer)
        seconds = decoding.run(lines, report)
    if options.stats is not None:
        stats = run_stats(engine.stats, num_requests=len(lines), seconds=seconds)
        stats |= {"load_seconds": load_s, "fingerprint": models.target.fingerprint}
        stats |= {"settings": {**values_of(options), "spec_tokens": options.max_draft_tokens}}
        options.stats.write_text(json.dumps(stats, indent=2, default=str) + "\n")
    if decoding.num_failed:
        raise SpecdecError(f"{decoding.num_failed} of {len(lines)} requests failed: see the output")


def _load_models(options: GenerateOptions) -> LoadedPair:
    drafts = AlgorithmName(options.algorithm) is not AlgorithmName.AUTOREGRESSIVE
    return options.loading.load_models(options.model, options.drafting.draft if drafts else None)


def _make_engine(options: GenerateOptions, models: LoadedPair, num_requests: int) -> Engine:
    return Engine(
        models.target.model,
        models.draft.model if models.draft else None,
        config=options.scheduler_config(num_requests, rows_of_a_group(models.target.model)),
        algorithm=AlgorithmName(options.algorithm),
        end_token_ids=models.target.end_token_ids,
    )


class Decoding:
    """One run over the lines: the live dialogues, and the results of their turns."""

    def __init__(
        self, engine: Engine, text: TextModel, options: GenerateOptions, writer: OrderedWriter
    ) -> None:
        self.num_failed = 0
        self._engine = engine
        self._text = text
        self._options = options
        self._writer = writer
        self._live: dict[str, Dialogue] = {}

    def run(self, lines: Sequence[PromptLine], report: Report) -> float:
        """Decode every line and return the seconds taken."""
        dialogues = [self._begin(line) for line in lines]
        if self._options.sort_by_length:
            dialogues.sort(key=lambda dialogue: len(dialogue.request.prompt_token_ids))
        for dialogue in dialogues:
            self._submit(dialogue)
        started, num_tokens = time.perf_counter(), 0
        while self._live:
            for event in self._engine.step():
                num_tokens += len(event.token_ids)
                self._take(event)
            seconds = time.perf_counter() - started
            report(len(lines) - len(self._live), num_tokens / seconds)
        return time.perf_counter() - started

    def _begin(self, line: PromptLine) -> Dialogue:
        with self._options.prompts.naming(line):
            ids = encode_line(self._text, line, is_raw=self._options.prompts.raw_prompt)
            return Dialogue(line, self._request(line, ids), first_messages(line))

    def _request(
        self, line: PromptLine, prompt_token_ids: tuple[int, ...], turn: int = 0
    ) -> Request:
        return Request(
            request_id=f"{line.line_number}.{turn}",
            prompt_token_ids=prompt_token_ids,
            params=resolve_sampling(line.sampling_overrides, self._text, self._options.sampling),
            end_token_ids=self._engine.end_token_ids,
        )

    def _submit(self, dialogue: Dialogue) -> None:
        with self._options.prompts.naming(dialogue.line):
            self._engine.add_request(dialogue.request)
        self._live[dialogue.request.request_id] = dialogue

    def _take(self, event: TokenEvent) -> None:
        dialogue = self._live[event.request_id]
        dialogue.output_token_ids.extend(event.token_ids)
        dialogue.logprobs.extend(event.logprobs)
        if event.finish_reason is not None:
            del self._live[event.request_id]
            self._finish_turn(dialogue, event)

    def _finish_turn(self, dialogue: Dialogue, event: TokenEvent) -> None:
        prompt = dialogue.request.prompt_token_ids
        text = answer_text(self._text, prompt, dialogue.output_token_ids)
        dialogue.records.append(self._record(dialogue, event, text))
        if event.finish_reason is FinishReason.ERROR:
            self.num_failed += 1
        elif dialogue.turn + 1 < self._num_turns(dialogue.line):
            self._submit(self._next_turn(dialogue, text))
            return
        self._writer.write(dialogue.line.line_number, dialogue.records)

    def _next_turn(self, dialogue: Dialogue, answer: str) -> Dialogue:
        """Return the next turn. The model's own answer becomes context of the next question."""
        turn = dialogue.turn + 1
        assert dialogue.line.turns is not None, "only a line with turns has a next one"
        question = {"role": "user", "content": dialogue.line.turns[turn]}
        messages = [*dialogue.messages, {"role": "assistant", "content": answer}, question]
        with self._options.prompts.naming(dialogue.line):
            request = self._request(dialogue.line, self._text.encode_chat(messages), turn)
        return Dialogue(dialogue.line, request, messages, turn, records=dialogue.records)

    def _num_turns(self, line: PromptLine) -> int:
        return len(line.turns) if line.turns and self._options.turns == "all" else 1

    def _record(self, dialogue: Dialogue, event: TokenEvent, text: str) -> dict[str, Any]:
        record = answer_record(
            dialogue.line, dialogue.request, dialogue.output_token_ids, text, event
        )
        if dialogue.request.params.num_logprobs is not None:
            record["logprobs"] = logprob_records(dialogue.output_token_ids, dialogue.logprobs)
        return {**record, "turn": dialogue.turn} if self._options.turns == "all" else record
