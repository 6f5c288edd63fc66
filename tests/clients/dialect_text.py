"""A small tokenizer with a dialect's tokens and chat template."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from deployments.text.chat_rendering import ChatOptions
from deployments.text.tokenizer import TextModel, load_text_model
from tests.clients.dialects import Dialect

LOOP_SCRIPT = Path(__file__).with_name("loop_script.json")
"""Answers with reasoning and calls as data, for every format."""
_VOCAB_SIZE = 800
_MAX_MODEL_LEN = 4096
_QUESTION = {"role": "user", "content": "?"}


@functools.cache
def _words() -> str:
    """A byte-level tokenizer that knows the script's words, as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(LOOP_SCRIPT)], trainer)
    return str(tokenizer.to_str())


def dialect_text(dialect: Dialect) -> TextModel:
    """Return a text model that speaks the dialect."""
    tokenizer = Tokenizer.from_str(_words())
    tokenizer.add_special_tokens([*dialect.special, *dialect.ends])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in dialect.added])
    ends = [tokenizer.token_to_id(token) for token in dialect.ends]
    config = {"max_position_embeddings": _MAX_MODEL_LEN, "eos_token_id": ends}
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
        message["content"] = message["content"] if dialect.has_preamble else ""
        message["tool_calls"] = [
            {"id": f"call{i}", "type": "function", "function": {"name": name, "arguments": said}}
            for i, (name, said) in enumerate(given["calls"])
        ]
    rendered = text.render_chat([_QUESTION, message], ChatOptions(add_generation_prompt=False))
    start = dialect.answer_start(rendered)
    assert start is not None
    whole = rendered[start:]
    end, token = min((whole.find(token), token) for token in dialect.ends if token in whole)
    return whole[: end + len(token)]
