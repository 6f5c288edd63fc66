"""Set up an audit: requests from the lines of the file, models from the flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.cli.generate.prompt_file import PromptLine
from deployments.cli.generate.prompt_text import encode_line
from deployments.cli.generate.prompts import PromptOptions
from deployments.cli.verify.audit import Audit, Report
from deployments.cli.verify.draft import num_left_out, self_draft
from deployments.cli.verify.options import VerifyOptions
from deployments.demo.models import resolve_model
from deployments.ingress.generation_request import resolve_sampling
from deployments.text.tokenizer import TextModel
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.loading.loader import (
    LoadConfig,
    LoadedModel,
    check_same_tokenizer,
    load_model,
    load_tokenizer,
)
from specdec_core.request import Request
from specdec_core.worker.model_runner import ModelRunner

_ROUNDING = 64
"""Rounding of cached tokens, which are counted in blocks. At least the size of one block."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The chosen lines and their token IDs. The ID of a request is the index of its prompt."""

    lines: Sequence[PromptLine]
    prompt_token_ids: Sequence[tuple[int, ...]]
    text: TextModel
    options: VerifyOptions

    def request(self, index: int, temperature: float) -> Request:
        line = self.lines[index]
        params = self.options.sampling_params(temperature)
        return Request(
            request_id=str(index),
            prompt_token_ids=self.prompt_token_ids[index],
            params=resolve_sampling(line.sampling_overrides, self.text, params),
            end_token_ids=self.text.end_token_ids,
        )

    @property
    def longest(self) -> int:
        """Prompt and answer of the longest request, in tokens."""
        temperature = self.options.grid.temperatures[0]
        return max(self.request(index, temperature).max_len for index in range(len(self.lines)))


def read_prompts(options: VerifyOptions) -> Prompts:
    """Encode the lines. Raises InvalidRequestError naming the first line that cannot run."""
    text = options.loading.load_text(options.model)
    lines = options.prompts.read()
    ids = [_encode(options.prompts, text, line) for line in lines]
    prompts = Prompts(lines, ids, text, options)
    for index, line in enumerate(lines):
        with options.prompts.naming(line):
            _check(prompts, index)
    return prompts


def _encode(prompts: PromptOptions, text: TextModel, line: PromptLine) -> tuple[int, ...]:
    with prompts.naming(line):
        return encode_line(text, line, is_raw=prompts.raw_prompt)


def _check(prompts: Prompts, index: int) -> None:
    limit, temperatures = prompts.text.max_model_len, prompts.options.grid.temperatures
    longest = max(prompts.request(index, t).max_len for t in temperatures)
    if longest > limit:
        raise InvalidRequestError(
            f"prompt and max_tokens need {longest} positions, the model has {limit}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Models of one audit, loaded once for all of its cells."""

    target: LoadedModel
    draft: ModelRunner | None
    fast_target: LoadedModel | None
    """Target in fast numerics, only for comparison with an exact target."""

    def audit(self, target: LoadedModel, prompts: Prompts, report: Report) -> Audit:
        return Audit(
            target=target.model,
            draft=self.draft,
            numerics=target.model.numerics,
            make_request=prompts.request,
            make_config=prompts.options.scheduler_config,
            report=report,
        )


def load_models(options: VerifyOptions, prompts: Prompts) -> Models:
    """Load target and draft. Raises NotExactError if exact numerics were requested but are not
    available."""
    path = resolve_model(options.model)
    kv_cache_tokens = options.loading.kv_cache_tokens or _needed_kv_tokens(options, prompts)
    load = replace(options.loading, kv_cache_tokens=kv_cache_tokens).load_config()
    fast = replace(load, numerics=Numerics.FAST)
    target = load_model(path, load)
    is_exact = target.model.numerics is Numerics.EXACT
    return Models(
        target=target,
        draft=_load_draft(options, target, fast) if options.uses_draft_model else None,
        fast_target=load_model(path, fast) if options.compare_fast and is_exact else None,
    )


def _load_draft(options: VerifyOptions, target: LoadedModel, load: LoadConfig) -> ModelRunner:
    """Load the named model, or make a draft from the target without some of its layers."""
    num_layers = num_left_out(options.spec_model)
    if num_layers is not None:
        return self_draft(target.model, num_layers)
    path = resolve_model(options.spec_model)
    check_same_tokenizer(
        load_tokenizer(resolve_model(options.model), options.loading.revision),
        load_tokenizer(path, options.loading.draft_revision),
    )
    return load_model(path, replace(load, revision=options.loading.draft_revision)).model


def _needed_kv_tokens(options: VerifyOptions, prompts: Prompts) -> int:
    """Return the tokens for a full window of the longest request, and at least for the longest that
    the model allows."""
    windows = [options.scheduler_config(point, 0).window for point in options.points]
    num_sequences = min(max(windows, default=1), len(prompts.lines))
    longest = (prompts.longest // _ROUNDING + 2) * _ROUNDING
    return max(num_sequences * longest, prompts.text.max_model_len)
