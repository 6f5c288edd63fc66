"""The demo model's tokenizer with a dialect's tokens and chat template."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from deployments.demo_models import model_folder
from deployments.text.chat_template import ChatOptions
from deployments.text.model import TextModel, load_text_model
from tests.clients.dialects import Dialect

_QUESTION = {"role": "user", "content": "?"}


def dialect_text(dialect: Dialect, max_model_len: int) -> TextModel:
    """Return a text model that speaks the dialect."""
    tokenizer = Tokenizer.from_file(str(model_folder("smollm2-135m") / "tokenizer.json"))
    tokenizer.add_special_tokens([*dialect.special, *dialect.ends])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in dialect.added])
    ends = [tokenizer.token_to_id(token) for token in dialect.ends]
    config = {"max_position_embeddings": max_model_len, "eos_token_id": ends}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "chat_template.jinja").write_text(dialect.template, encoding="utf-8")
        return load_text_model(
            name, tool_call_parser=dialect.calls, reasoning_parser=dialect.reasoning
        )


def written(text: TextModel, dialect: Dialect, answer: str | Mapping[str, Any]) -> str:
    """Return an answer with its marks, up to the token that ends it.

    `answer` is its content, or has `reasoning`, `content` and `calls`, which are lists of a name
    and arguments.
    """
    given = {"content": answer} if isinstance(answer, str) else answer
    message: dict[str, Any] = {"role": "assistant", "content": given.get("content", "")}
    if "reasoning" in given:
        message["reasoning_content"] = given["reasoning"]
    if "calls" in given:
        message["tool_calls"] = [
            {"id": f"call{i}", "type": "function", "function": {"name": name, "arguments": said}}
            for i, (name, said) in enumerate(given["calls"])
        ]
    rendered = text.render_chat([_QUESTION, message], ChatOptions(add_generation_prompt=False))
    whole = rendered[dialect.answer_start(rendered) :]
    end, token = min((whole.find(token), token) for token in dialect.ends if token in whole)
    return whole[: end + len(token)]
