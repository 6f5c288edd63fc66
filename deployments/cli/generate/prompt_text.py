"""Convert a line of the input file to prompt token IDs or a request, with the service's text
model."""

from __future__ import annotations

from typing import Any

from deployments.cli.generate.prompt_file import PromptLine
from deployments.ingress.generation_request import resolve_sampling
from deployments.text.chat_messages import checked_messages
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams

Conversation = list[dict[str, Any]]


def first_messages(line: PromptLine) -> Conversation:
    """Return the line's messages. A bare prompt or turn is a message of the user."""
    if line.messages is not None:
        return line.messages
    return [{"role": "user", "content": line.first_text}]


def encode_line(text: TextModel, line: PromptLine, *, is_raw: bool) -> tuple[int, ...]:
    """Return the token IDs of the line's prompt. If the line has several turns, take the first."""
    if line.prompt_token_ids is not None:
        return tuple(line.prompt_token_ids)
    if is_raw and line.messages is not None:
        raise InvalidRequestError("messages need the chat template: leave --raw-prompt out")
    if is_raw:
        return text.encode(line.first_text)
    if text.template is None:
        raise InvalidRequestError(
            "the model has no chat template: give --chat-template FILE or --raw-prompt"
        )
    return text.encode_chat(checked_messages(first_messages(line)))


def line_request(
    text: TextModel, line: PromptLine, params: SamplingParams, *, is_raw: bool
) -> Request:
    """Return the line as one request. Sampling parameters of the line override `params`."""
    return Request(
        request_id=str(line.line_number),
        prompt_token_ids=encode_line(text, line, is_raw=is_raw),
        params=resolve_sampling(line.sampling_overrides, text, params),
        end_token_ids=text.end_token_ids,
    )
