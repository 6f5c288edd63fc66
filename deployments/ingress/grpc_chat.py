"""Conversations of the gRPC service, as chat templates expect them."""

from __future__ import annotations

from typing import Any

from deployments.errors import WrongTypeError
from deployments.text.chat_messages import checked_messages
from deployments.text.chat_template import ChatOptions, template_variables
from deployments.text.json_text import read_json
from deployments.text.tool_calls import checked_tools
from specdec.v1 import generation_pb2 as pb


def chat_of(chat: pb.ChatMessages) -> tuple[list[dict[str, Any]], ChatOptions]:
    """Return the messages and how they are rendered. Raises InvalidRequestError."""
    messages = checked_messages([_message(message) for message in chat.messages])
    continues = chat.continue_final_message
    effort = chat.reasoning_effort if chat.HasField("reasoning_effort") else None
    return messages, ChatOptions(
        add_generation_prompt=(
            chat.add_generation_prompt if chat.HasField("add_generation_prompt") else not continues
        ),
        continues_final_message=continues,
        variables=template_variables(
            {"reasoning_effort": effort, **_variables(chat.chat_template_kwargs)}
        ),
        tools=checked_tools([_tool(i, tool) for i, tool in enumerate(chat.tools)]) or (),
        template=chat.chat_template or None,
        add_special_tokens=chat.add_special_tokens,
    )


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
