"""Checks raw values, of files, flags and the environment, by the declarations of a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from deployments.config.flags import Declaration, assembled, declarations

R = TypeVar("R")
Translate = Callable[[dict[str, Any]], dict[str, Any]]


def checked(record: type[R], values: Mapping[str, Any], translate: Translate) -> R:
    """Return the record of `values`, by flat names. A text may stand for a value of any type.

    `translate` replaces names that are not declared. Raises pydantic's ValidationError with every
    mistake.
    """
    made: list[R] = []
    model: type[BaseModel] = _model(record, translate)  # type: ignore[arg-type]
    model.model_validate(values, context=made)
    return made[0]


@cache
def _model(record: Any, translate: Translate) -> type[BaseModel]:
    """Return a model whose validation makes the record. ValueErrors of both are mistakes."""

    def make(model: BaseModel, info: Any) -> BaseModel:
        given = {name: getattr(model, name) for name in model.model_fields_set}
        info.context.append(assembled(record, given))
        return model

    validators: dict[str, Any] = {
        "translate": model_validator(mode="before")(lambda values: translate(dict(values))),
        "make": model_validator(mode="after")(make),
    }
    fields: Any = {d.name: (_annotation(d), d.default) for d in declarations(record)}
    return create_model(
        record.__name__,
        __config__=ConfigDict(
            extra="forbid",
            protected_namespaces=(),
            hide_input_in_errors=True,  # the input may hold API keys
        ),
        __validators__=validators,
        **fields,
    )


def _annotation(declared: Declaration) -> Any:
    reading, options = declared.reading, declared.reading.typer or {}
    bounds: dict[str, Any] = {**reading.bounds}
    bounds |= {
        key: options[name] for key, name in (("ge", "min"), ("le", "max")) if name in options
    }
    rules: list[Any] = [Field(**bounds)]
    if reading.parse is not None:
        rules.append(BeforeValidator(partial(_of_text, reading.parse)))
    elif get_origin(declared.type) in (tuple, dict):
        rules.append(BeforeValidator(partial(_of_text, json.loads)))
    if reading.check is not None:
        rules.append(AfterValidator(reading.check))
    if reading.choices is not None:
        rules.append(AfterValidator(partial(_chosen, reading.choices)))
    return Annotated[declared.type, *rules]


def _of_text(parse: Callable[[str], Any], value: Any) -> Any:
    return parse(value) if isinstance(value, str) else value


def _chosen(choices: Callable[[], Iterable[str]], value: Any) -> Any:
    if value is not None and value not in tuple(choices()):
        *others, last = map(repr, choices())
        raise ValueError(f"Input should be {', '.join(others)} or {last}")
    return value
