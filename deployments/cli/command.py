"""Makes a typer command of a function that takes one record. The record declares its flags."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from inspect import Parameter, Signature
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from deployments.cli.parsers import one_of
from deployments.config.flags import REQUIRED, Declaration, assembled, declarations, section_of

R = TypeVar("R")


def command(app: typer.Typer) -> Callable[[Callable[[R], None]], Callable[[R], None]]:
    """Return a decorator that adds a command of the function's name and docstring to `app`."""

    def add(run: Callable[[R], None]) -> Callable[[R], None]:
        record = next(iter(get_type_hints(run).values()))

        def call(**values: Any) -> None:
            run(assembled(record, values))

        parameters = [_parameter(one) for one in declarations(record) if one.reading.typer]
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        app.command(run.__name__.replace("_", "-"), help=run.__doc__)(call)
        return run

    return add


def _parameter(declared: Declaration) -> Parameter:
    """Return the parameter that typer makes a flag of."""
    reading, kind, default = declared.reading, declared.type, declared.default
    options = dict(reading.typer or {})
    if reading.parse is not None:
        options["callback"] = _refusing(reading.parse, default)
        kind, default = str, reading.text
    elif reading.choices is not None:
        options["callback"] = _refusing(one_of(reading.choices(), without_none(kind)), None)
        options.setdefault("metavar", f"[{'|'.join(reading.choices())}]")
        kind = str
    names = reading.names
    if kind is bool and not names:
        names = (f"--{declared.name.replace('_', '-')}",)
    info = typer.Argument(**options) if reading.is_argument else typer.Option(*names, **options)
    return Parameter(
        declared.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default is REQUIRED else default,
        annotation=Annotated[kind | None if default is None else kind, info],
    )


def optional_section(record: type) -> Any:
    """Return a field with the flags of `record` as a mapping by name. None: not given.

    Nothing but choices is checked: what is not given may come from elsewhere.
    """
    return section_of(dict, (_optional(d) for d in declarations(record) if d.reading.typer), {})


def _optional(declared: Declaration) -> Declaration:
    kind, reading = without_none(declared.type), declared.reading
    is_text = get_origin(kind) is tuple or (
        issubclass(kind, Enum) and "metavar" in (reading.typer or {})
    )
    return declared._replace(
        field=declared.name,
        type=str if is_text else kind,
        default=None,
        reading=reading._replace(parse=None),
    )


def without_none(kind: Any) -> Any:
    """Return `int` for `int | None`, and any other type as it is."""
    kinds = [each for each in get_args(kind) if each is not NoneType]
    return kinds[0] if len(kinds) == 1 and NoneType in get_args(kind) else kind


def _refusing(parse: Callable[[str], Any], default: Any) -> Callable[[str | None], Any]:
    """Return a callback for typer that makes a refusal of the flag of a ValueError."""

    def callback(text: str | None) -> Any:
        try:
            return default if text is None else parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return callback
