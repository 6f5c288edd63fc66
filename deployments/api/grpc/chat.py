"""Conversations of the gRPC service, as chat templates expect them."""

from __future__ import annotations

from typing import Any

from deployments.errors import WrongTypeError
from deployments.ingress.generation_request import AnswerOptions
from deployments.text.answers.asking import CallsAsked
from deployments.text.chat_messages import checked_messages, checked_tools
from deployments.text.chat_rendering import ChatOptions, template_variables
from deployments.text.json_text import read_json
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError


def chat_of(chat: pb.ChatMessages) -> tuple[list[dict[str, Any]], ChatOptions]:
    """Return the messages and how they are rendered. Raises InvalidRequestError."""
    messages = checked_messages([_message(message) for message in chat.messages])
    shows_tools = chat.tool_choice != "none"
    effort = chat.reasoning_effort if chat.HasField("reasoning_effort") else None
    return messages, ChatOptions(
        add_generation_prompt=_adds_generation_prompt(chat),
        continues_final_message=chat.continue_final_message,
        variables=template_variables(
            {"reasoning_effort": effort, **_variables(chat.chat_template_kwargs)}
        ),
        tools=(_tools(chat) or ()) if shows_tools else (),
        template=chat.chat_template or None,
        add_special_tokens=chat.add_special_tokens,
    )


def answer_options(chat: pb.ChatMessages) -> AnswerOptions:
    """Return the options of the chat's answers. Raises InvalidRequestError."""
    choice = chat.tool_choice or "auto"
    needs_call = choice not in ("auto", "none")
    if needs_call and not chat.tools:
        raise InvalidRequestError(
            f"tool_choice={choice:.80} needs tools",
            param="tools",
            code="missing_required_parameter",
        )
    calls = CallsAsked(
        tools=_tools(chat),
        is_required=needs_call,
        name=choice if needs_call and choice != "required" else None,
        allows_many=not chat.HasField("parallel_tool_calls") or chat.parallel_tool_calls,
    )
    return AnswerOptions(
        calls=calls if chat.tools and choice != "none" else None,
        includes_reasoning=not chat.HasField("include_reasoning") or chat.include_reasoning,
        begins_in_prompt=_adds_generation_prompt(chat) or chat.continue_final_message,
    )


def _adds_generation_prompt(chat: pb.ChatMessages) -> bool:
    if chat.HasField("add_generation_prompt"):
        return chat.add_generation_prompt
    return not chat.continue_final_message


def _tools(chat: pb.ChatMessages) -> list[dict[str, Any]]:
    return checked_tools([_tool(i, tool) for i, tool in enumerate(chat.tools)])


def _message(message: pb.ChatMessage) -> dict[str, Any]:
    named = {field.name: value for field, value in message.ListFields()}
    calls = [
        {
            "id": call.id or None,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return {**named, "role": message.role, "content": message.content, "tool_calls": calls}


def _tool(place: int, tool: pb.Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = read_json(tool.parameters, f"tools.{place}.parameters")
    return {"type": "function", "function": function}


def _variables(text: str) -> dict[str, Any]:
    variables = read_json(text, "chat_template_kwargs") if text else {}
    if not isinstance(variables, dict):
        raise WrongTypeError(
            "chat_template_kwargs: must be a JSON object", param="chat_template_kwargs"
        )
    return variables
