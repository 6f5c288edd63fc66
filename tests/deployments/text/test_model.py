"""Text without torch equals transformers' own; characters and stop strings are never split."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.chat_rendering import ChatOptions, compile_template
from deployments.text.detokenizer import IncrementalDetokenizer, StopStrings
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.loading.loader import load_model
from specdec_core.loading.tokenizers import load_tokenizer
from tests.service.tiny_folder import save_tiny_llama

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Größe of 日本語 🙂?\n\n"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def text(folder: Path) -> TextModel:
    return load_text_model(str(folder))


def test_ids_and_templates_equal_those_of_transformers(folder: Path, text: TextModel) -> None:
    tokenizer = load_tokenizer(str(folder))
    prompt = "naïve café 日本語 🙂 <|end|> x"
    assert list(text.encode(prompt)) == tokenizer(prompt)["input_ids"]
    rendered = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert text.render_chat(MESSAGES) == rendered
    ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)["input_ids"]
    assert list(text.encode_chat(MESSAGES)) == ids
    assert text.vocab_size == len(tokenizer)


TALK = [*MESSAGES, {"role": "assistant", "content": " The answer: "}]


@pytest.mark.parametrize("messages", [MESSAGES, TALK])
def test_an_answer_that_goes_on_is_rendered_as_transformers_does(
    folder: Path, text: TextModel, messages: list[dict[str, str]]
) -> None:
    options = ChatOptions(add_generation_prompt=False, continues_final_message=True)
    rendered = text.render_chat(messages, options)
    expected = load_tokenizer(str(folder)).apply_chat_template(
        messages, tokenize=False, continue_final_message=True
    )
    assert rendered == expected
    assert rendered.endswith(messages[-1]["content"])


def test_a_conversation_may_end_without_the_beginning_of_an_answer(
    folder: Path, text: TextModel
) -> None:
    rendered = text.render_chat(MESSAGES, ChatOptions(add_generation_prompt=False))
    expected = load_tokenizer(str(folder)).apply_chat_template(MESSAGES, tokenize=False)
    assert rendered == expected
    assert text.render_chat(MESSAGES).startswith(rendered)
    assert text.render_chat(MESSAGES) != rendered


def test_variables_reach_the_template_and_cannot_replace_its_own(text: TextModel) -> None:
    template = compile_template("{{ messages[0].content }} {{ mood }}{{ 1 // (size or 0) }}")
    shouting = replace(text, template=template)
    options = ChatOptions(variables={"mood": "loud", "size": 1})
    assert shouting.render_chat([{"role": "user", "content": "Hi"}], options) == "Hi loud1"
    with pytest.raises(InvalidRequestError, match="requests may not set 'messages'"):
        shouting.render_chat(MESSAGES, ChatOptions(variables={"messages": []}))
    with pytest.raises(InvalidRequestError, match="the chat template refuses"):
        shouting.render_chat(MESSAGES, ChatOptions(variables={"size": 0}))


def test_a_final_message_that_the_template_changes_cannot_be_continued(text: TextModel) -> None:
    loud = replace(text, template=compile_template("{{ messages[-1].content | upper }}"))
    options = ChatOptions(add_generation_prompt=False, continues_final_message=True)
    with pytest.raises(InvalidRequestError, match="does not show the last message"):
        loud.render_chat([{"role": "user", "content": "Hi"}], options)


def test_limits_equal_those_of_the_loaded_model(folder: Path, text: TextModel) -> None:
    loaded = load_model(str(folder))
    assert text.end_token_ids == loaded.end_token_ids == {0, 2}
    assert text.max_model_len == loaded.model.max_model_len
    assert text.vocab_size == loaded.model.vocab_size


def test_the_text_side_never_imports_torch(folder: Path) -> None:
    code = (
        "import sys, deployments.text.tokenizer as t; "
        f"t.load_text_model({str(folder)!r}).encode('x'); "
        "import deployments.ingress_replica, deployments.coordinator.actor, deployments.app; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_reader_of_answers_is_ready_without_torch(folder: Path) -> None:
    code = (
        "import sys, deployments.text.tokenizer as t; "
        f"text = t.load_text_model({str(folder)!r}, tool_call_parser='hermes'); "
        "assert 'transformers' not in sys.modules; text.answers.compile(); "
        "assert 'transformers' in sys.modules; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_prompt_that_can_never_fit_is_refused_before_it_is_tokenized(text: TextModel) -> None:
    with pytest.raises(InvalidRequestError, match="context length is 1024"):
        text.encode("x" * 3_000_000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{}", "not a usable tokenizer"),
        ("tokenizer_config.json", "nonsense", "not JSON"),
        ("chat_template.jinja", "{% if %}", "not valid"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    save_tiny_llama(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelNotSupportedError, match=message):
        load_text_model(str(tmp_path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotSupportedError, match="there is no model folder"):
        load_text_model(str(tmp_path / "nowhere"))


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_streamed_text_is_the_decoded_text(text: TextModel, content: str) -> None:
    ids = text.backend.encode(content, add_special_tokens=False).ids
    detokenizer = IncrementalDetokenizer(text.decode)
    pieces = [detokenizer.add(token_id) for token_id in ids]
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in content
    assert "".join([*pieces, detokenizer.flush()]) == text.decode(ids)


def test_a_cut_character_is_shown_only_at_the_end(text: TextModel) -> None:
    ids = text.backend.encode("🙂", add_special_tokens=False).ids
    if len(ids) == 1:
        ids = [text.backend.get_vocab()[letter] for letter in "ðŁĻĤ"]
    detokenizer = IncrementalDetokenizer(text.decode)
    assert [detokenizer.add(token_id) for token_id in ids[:-1]] == [""] * (len(ids) - 1)
    assert "\ufffd" in detokenizer.flush()


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_nothing_from_the_first_stop_string_on_is_ever_shown(
    pieces: list[str], stops: list[str]
) -> None:
    cutter = StopStrings(stops)
    shown, read = "", ""
    for piece in pieces:
        shown += cutter.add(piece)
        read += piece
        hits = [read.find(stop) for stop in stops if stop in read]
        if hits:
            assert cutter.stop_string is not None
            assert shown == read[: min(hits)]
            break
        assert read.startswith(shown)
        assert not any(stop in shown for stop in stops)
    else:
        assert shown + cutter.flush() == read


def test_the_generation_config_says_what_requests_leave_open(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    file = tmp_path / "generation_config.json"
    content = json.loads(file.read_text())
    given = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 9, "do_sample": False}
    file.write_text(json.dumps(content | given))
    defaults = load_text_model(str(tmp_path)).sampling_defaults
    assert defaults == {"temperature": 0.6, "top_k": 20, "max_tokens": 9}


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": "high"}, {"min_p": 3}])
def test_a_generation_config_that_no_request_may_have_is_refused_at_load(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    save_tiny_llama(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(wrong))
    with pytest.raises(
        ModelNotSupportedError, match=f"generation_config.json: .*{next(iter(wrong))}"
    ):
        load_text_model(str(tmp_path))
