"""Text at the ingress: tokenizer, chat template, and the limits in the model's files.

Reads tokenizer.json with the tokenizers library and renders the chat template with jinja2, as
transformers does. Importing transformers would import torch, which is 245 MB in a process that
needs none. A folder without tokenizer.json goes through transformers after all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from deployments.errors import ContextLengthError
from deployments.text.answers.choosing import ChosenFormats, choose
from deployments.text.answers.parser_names import AUTO
from deployments.text.answers.reading import Answers
from deployments.text.chat_messages import (
    MAX_TEMPLATE_SECONDS,
    Message,
    SpecialTokensInText,
    TemplateInput,
)
from deployments.text.chat_rendering import ChatOptions, ChatTemplate, compile_template, render
from deployments.text.control_tokens import ControlTokens, control_token_ids
from deployments.text.detokenizer import Vocabulary, token_bytes_of
from deployments.text.sampling_fields import SamplingFields
from deployments.text.template_process import render_apart
from deployments.validation_errors import describe_errors
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError
from specdec_core.loading.files import local_folder
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingParams


def read_template(
    folder: Path, settings: Mapping[str, Any], chosen: Path | None = None
) -> ChatTemplate | None:
    """Return the chosen file's template, else the model's; None if there is none.

    `settings` are those of tokenizer_config.json. Raises ModelNotSupportedError.
    """
    if chosen is not None:
        return compile_template(chosen.read_text(encoding="utf-8"))
    sources = _sources(folder, settings)
    default = sources.get("default")
    tool_use = sources.get("tool_use")
    if default is not None:
        return compile_template(default, tool_use)
    return None if tool_use is None else compile_template(tool_use)


def _sources(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources by name, from the newest form that is there, as in transformers."""
    files = {file.stem: file for file in sorted(folder.glob("chat_templates/*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    return _named(settings.get("chat_template") or _legacy(folder / "chat_template.json"))


def _named(template: Any) -> dict[str, str]:
    """Return a single template as the default; older models have a list with names."""
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}
    return {"default": template} if template else {}


def _legacy(file: Path) -> Any:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8")).get("chat_template")
    except (ValueError, AttributeError) as error:
        raise ModelNotSupportedError(f"{file} is not a JSON object: {error}") from error


_OWN_VARIABLES = ("messages", "tools", "add_generation_prompt")
"""Variables of chat templates that have request fields of their own."""


_LONG = 2_000
"""Characters or IDs from which a call of the tokenizer holds up other threads noticeably."""


class Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...


class Backend(Vocabulary, Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding: ...

    def encode_batch_fast(
        self, input: Sequence[str], *, add_special_tokens: bool
    ) -> Sequence[Encoding]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def decode_batch(
        self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool
    ) -> Sequence[str]: ...

    def get_vocab_size(self) -> int: ...

    def get_vocab(self) -> dict[str, int]: ...

    def get_added_tokens_decoder(self) -> Mapping[int, Any]:
        """Return the added tokens by ID, each with its `content` and whether it is `special`."""
        ...

    def to_str(self) -> str:
        """As in tokenizer.json."""
        ...


@dataclass(frozen=True, slots=True)
class TextModel:
    """Everything about a model that can be known without its weights."""

    backend: Backend
    template: ChatTemplate | None
    special_tokens: Mapping[str, str]
    """Special tokens by role (bos_token, eos_token ...), as chat templates use them."""
    end_token_ids: frozenset[int]
    max_model_len: int
    longest_token_bytes: int
    token_bytes: Callable[[int], bytes]
    """Bytes of a token ID, special tokens included."""
    hidden_tokens: Mapping[int, str] = field(default_factory=dict)
    """Text of the special tokens, which `decode` leaves out, by ID."""
    answers: Answers | None = None
    """Reader of answers. None: their whole text is content."""
    formats: ChosenFormats = field(default_factory=ChosenFormats)
    """Formats in which answers are read, with the reasons."""
    control_tokens: ControlTokens | None = None
    """Tokens that texts of a conversation may not contain. None if they may contain all."""
    max_template_seconds: float = MAX_TEMPLATE_SECONDS
    """Maximum CPU time for rendering a request's own template."""
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Sampling values of the model's generation config, by the names of SamplingParams."""

    @property
    def vocab_size(self) -> int:
        return self.backend.get_vocab_size()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Return the IDs of a raw prompt."""
        self._refuse_hopeless(text, "prompt")
        return tuple(self._encode(text, add_special_tokens))

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) < _LONG:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        # Only batches release the interpreter's lock, so other threads run meanwhile.
        encode = self.backend.encode_batch_fast
        (encoding,) = encode([text], add_special_tokens=add_special_tokens)
        return encoding.ids

    def encode_part(self, text: str) -> tuple[int, ...]:
        """Return the IDs of text that stands among other text."""
        return tuple(self.backend.encode(text, add_special_tokens=False).ids)

    def encode_chat(
        self, messages: Sequence[Message], options: ChatOptions | None = None
    ) -> tuple[int, ...]:
        """Return the IDs of a conversation. Raises InvalidRequestError."""
        options = options or ChatOptions()
        if self.control_tokens is not None:
            messages, options = self.control_tokens.guarded(messages, options)
        text = self.render_chat(messages, options)
        self._refuse_hopeless(text, "messages")
        adds = options.add_special_tokens
        if self.control_tokens is None:
            return tuple(self._encode(text, adds))
        return self.control_tokens.encode(text, self._encode, add_special_tokens=adds)

    def render_chat(self, messages: Sequence[Message], options: ChatOptions | None = None) -> str:
        """Return the text of a conversation. Raises InvalidRequestError, also for names of
        variables that are taken."""
        options = options or ChatOptions()
        if options.variables:
            self._check_variables(options.variables)
        given = TemplateInput(
            messages=messages,
            tools=options.tools,
            variables={**self.special_tokens, **options.variables},
            add_generation_prompt=options.add_generation_prompt,
            continues_final_message=options.continues_final_message,
        )
        if options.template is not None:
            longest = self.longest_token_bytes * self.max_model_len
            return render_apart(options.template, given, longest, self.max_template_seconds)
        if self.template is None:
            message = "the model has no chat template: use completions instead"
            raise InvalidRequestError(message, param="messages")
        return render(self.template, given)

    def _check_variables(self, variables: Mapping[str, Any]) -> None:
        taken = sorted(variables.keys() & {*_OWN_VARIABLES, *self.special_tokens})
        if taken:
            raise InvalidRequestError(
                f"chat_template_kwargs: requests may not set {taken[0]!r}",
                param=f"chat_template_kwargs.{taken[0]}",
            )

    def check_ids(self, token_ids: Sequence[int], name: str) -> tuple[int, ...]:
        """Return the IDs, all of the vocabulary. Raises InvalidRequestError that begins with
        `name`."""
        limit = self.backend.get_vocab_size()
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < limit):
            wrong = next(i for i in token_ids if not 0 <= i < limit)
            message = f"{name}: token id {wrong} is not in 0..{limit - 1}"
            raise InvalidRequestError(message, param=name)
        return tuple(token_ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self.backend.decode(ids, skip_special_tokens=True)

    def decode_all(self, ids: Sequence[int]) -> str:
        """Return the text of the IDs, with special tokens shown."""
        if len(ids) < _LONG:
            return self.backend.decode(ids, skip_special_tokens=False)
        (text,) = self.backend.decode_batch([ids], skip_special_tokens=False)
        return text

    def _refuse_hopeless(self, text: str, param: str) -> None:
        """Refuse a text whose length alone shows that it never fits: tokenizing takes seconds."""
        fewest = len(text.encode(errors="replace")) // self.longest_token_bytes
        limit = self.max_model_len
        if fewest >= limit:
            problem = f"the prompt is too long: it has at least {fewest} tokens"
            raise ContextLengthError(problem, limit, f"send at most {limit - 1}", param=param)


def load_text_model(
    path_or_id: str,
    *,
    revision: str | None = None,
    chat_template: Path | None = None,
    max_model_len: int | None = None,
    special_tokens_in_text: SpecialTokensInText = SpecialTokensInText.ALLOW,
    max_template_seconds: float = MAX_TEMPLATE_SECONDS,
    tool_call_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> TextModel:
    """Read the files next to the weights. The file `chat_template` wins over those.

    `tool_call_parser` and `reasoning_parser` name formats of answers; "auto" takes them from the
    model's files. Raises ModelNotSupportedError if a file or a name is not usable.
    """
    folder = local_folder(path_or_id, revision)
    backend = _backend(folder)
    settings = _read_json(folder / "tokenizer_config.json")
    template = read_template(folder, settings, chat_template)
    formats = _formats(settings, template, tool_call_parser, reasoning_parser)
    return TextModel(
        backend=backend,
        template=template,
        answers=None if formats.answer_format is None else Answers(formats.answer_format),
        formats=formats,
        control_tokens=_control_tokens(backend, template, special_tokens_in_text),
        max_template_seconds=max_template_seconds,
        special_tokens=_special_tokens(settings),
        end_token_ids=end_token_ids(folder),
        max_model_len=_max_model_len(folder, max_model_len),
        longest_token_bytes=max(len(token.encode()) for token in backend.get_vocab()),
        token_bytes=token_bytes_of(backend),
        hidden_tokens=_hidden_tokens(backend),
        sampling_defaults=_sampling_defaults(folder / "generation_config.json"),
    )


def answer_formats(
    path_or_id: str,
    *,
    revision: str | None = None,
    chat_template: Path | None = None,
    tool_call_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> ChosenFormats:
    """Return the formats that `load_text_model` chooses, without loading the tokenizer."""
    folder = local_folder(path_or_id, revision)
    settings = _read_json(folder / "tokenizer_config.json")
    template = read_template(folder, settings, chat_template)
    return _formats(settings, template, tool_call_parser, reasoning_parser)


def _formats(
    settings: Mapping[str, Any], template: ChatTemplate | None, calls: str, reasoning: str
) -> ChosenFormats:
    sources = "" if template is None else template.all_sources
    return choose(sources, settings.get("response_template"), calls, reasoning)


def _hidden_tokens(backend: Backend) -> dict[int, str]:
    added = backend.get_added_tokens_decoder()
    return {token_id: token.content for token_id, token in added.items() if token.special}


def _control_tokens(
    backend: Backend, template: ChatTemplate | None, treatment: SpecialTokensInText
) -> ControlTokens | None:
    if treatment is SpecialTokensInText.ALLOW:
        return None
    ids = control_token_ids(backend.get_added_tokens_decoder(), template)
    return ControlTokens(ids, treatment)


def _sampling_defaults(file: Path) -> dict[str, Any]:
    """Only what is there: nothing is made up, and do_sample is not looked at, as in vLLM."""
    settings = _read_json(file)
    named = {
        field.name: settings.get(field.generation_config_key)
        for field in SAMPLING_FIELDS
        if field.generation_config_key is not None
    }
    defaults = {name: value for name, value in named.items() if value is not None}
    try:
        SamplingFields.model_validate(defaults, strict=True)
        SamplingParams(**defaults)
    except ValidationError as error:
        raise ModelNotSupportedError(f"{file}: {describe_errors(error)}") from error
    except InvalidRequestError as error:
        raise ModelNotSupportedError(f"{file}: {error}") from error
    return defaults


def end_token_ids(folder: Path) -> frozenset[int]:
    """Every id that ends an answer by the model's generation config and config."""
    listed = [
        _read_json(folder / name).get("eos_token_id")
        for name in ("config.json", "generation_config.json")
    ]
    ids = [ids if isinstance(ids, list) else [ids] for ids in listed if ids is not None]
    return frozenset(token_id for some in ids for token_id in some)


def _max_model_len(folder: Path, wanted: int | None) -> int:
    limit = _read_json(folder / "config.json").get("max_position_embeddings")
    if not isinstance(limit, int):
        raise ModelNotSupportedError(f"{folder}/config.json has no max_position_embeddings")
    if wanted is not None and wanted > limit:
        raise ModelNotSupportedError(f"max_model_len must be in 2..{limit}, got {wanted}")
    return wanted or limit


def _backend(folder: Path) -> Backend:
    if not (folder / "config.json").is_file():
        raise ModelNotSupportedError(f"{folder} is not a model folder: it has no config.json")
    file = folder / "tokenizer.json"
    if not file.is_file():
        return _converted_backend(folder)
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exceptions
        raise ModelNotSupportedError(f"{file} is not a usable tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    backend: Backend = tokenizer
    return backend


def _converted_backend(folder: Path) -> Backend:
    from specdec_core.loading.tokenizers import load_tokenizer

    backend: Backend | None = getattr(load_tokenizer(str(folder)), "backend_tokenizer", None)
    if backend is None:
        raise ModelNotSupportedError(
            f"{folder} has no tokenizer.json, and its files cannot be converted to one"
        )
    return backend


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    tokens = {name: value for name, value in settings.items() if name.endswith("_token")}
    contents = {
        name: value.get("content") if isinstance(value, dict) else value
        for name, value in tokens.items()
    }
    return {name: value for name, value in contents.items() if isinstance(value, str)}


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise ModelNotSupportedError(f"{file} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}
