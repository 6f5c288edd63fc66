"""Turns a GenerateRequest into a GenerationRequest. Its prompt is read elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deployments.api.grpc.chat import answer_options
from deployments.ingress.generation_request import GenerationRequest, OutputOptions, Resume
from deployments.text.structured_output import ANY_OBJECT, choice, json_schema, lark, regex
from deployments.wire.request_codec import drafting_from_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec


def request_of(message: pb.GenerateRequest) -> GenerationRequest:
    """Return the request. Raises InvalidRequestError for what a GenerationRequest cannot hold."""
    speculative = message.speculative
    num_draft_tokens, method = drafting_from_pb(speculative)
    return GenerationRequest(
        sampling=_named(message.sampling),
        stop=tuple(message.stop),
        speculation_enabled=speculative.enabled if speculative.HasField("enabled") else True,
        num_draft_tokens=num_draft_tokens,
        spec_method=method,
        priority=message.priority,
        cache_salt=message.cache_salt,
        request_id=message.request_id,
        timeout_s=message.deadline_ms / 1000 if message.deadline_ms else None,
        view=OutputOptions(
            shows_special_tokens=message.HasField("skip_special_tokens")
            and not message.skip_special_tokens,
            includes_stop=message.include_stop_str_in_output,
        ),
        truncate_prompt_tokens=message.truncate_prompt_tokens or None,
        resume=_resume(message.resume) if message.HasField("resume") else None,
        answer=answer_options(message.chat) if message.HasField("chat") else None,
        prompt_field=message.WhichOneof("input") or "prompt",
    )


def _resume(message: pb.Resume) -> Resume:
    return Resume(
        token_ids=[tuple(one.ids) for one in message.token_ids],
        seed=message.seed if message.HasField("seed") else None,
        system_fingerprint=message.system_fingerprint,
    )


def _named(sampling: pb.SamplingParams) -> dict[str, Any]:
    """Return the fields that are present."""
    named = {field.name: value for field, value in sampling.ListFields()}
    structured_output = named.pop("structured_output", None)
    return named | {
        "bad_word_ids": [word.ids for word in sampling.bad_word_ids],
        "grammar": None if structured_output is None else _grammar(structured_output),
    }


def _grammar(structured_output: pb.StructuredOutput) -> GrammarSpec:
    name = structured_output.WhichOneof("kind")
    field = f"structured_output.{name}"
    match name:
        case "json_schema":
            return json_schema(structured_output.json_schema, field)
        case "regex":
            return regex(structured_output.regex, field)
        case "grammar":
            return lark(structured_output.grammar, field)
        case "choice":
            return choice(list(structured_output.choice.texts), f"{field}.texts")
        case "json_object" if structured_output.json_object:
            return replace(ANY_OBJECT, param=field)
    raise InvalidRequestError(
        "structured_output must set one of its kinds",
        param="structured_output",
        code="missing_required_parameter",
    )
