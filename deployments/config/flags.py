"""Declares a command's flag or a service's setting once: on a field of a frozen record.

A new one is a field on the record of its subject, such as LoadOptions or SchedulerOptions.

`flag`, `argument` and `setting` make the fields of such a record. `section` puts one record into
another; names stay flat on the command line and in files. The record is what the code uses. The
command line (cli/command.py) and the check of the settings (config/checking.py) read the
declarations. Only the standard library is imported, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, field, fields
from enum import EnumType, StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from specdec_core.errors import InvalidRequestError

R = TypeVar("R")
REQUIRED: Any = MISSING
"""Default of a flag that must be given."""


def in_a_folder(file: Path | None) -> Path | None:
    """Return the file. Raises InvalidRequestError if it cannot be written later."""
    if file is not None and not file.parent.is_dir():
        raise InvalidRequestError(f"{file}: there is no folder {file.parent}")
    return file


INPUT_FILE: Any = {"exists": True, "dir_okay": False, "readable": True}
OUTPUT_FILE: Any = {"dir_okay": False, "writable": True, "callback": in_a_folder}
"""Keywords of `flag` for a file that is read, and for one that is written."""


def comma_names(text: str) -> tuple[str, ...]:
    """Return the names that commas separate."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


class Reading(NamedTuple):
    """How the value of a field is read."""

    typer: Mapping[str, Any] | None = None
    """Keywords of typer.Option. None: a setting without a flag."""
    names: tuple[str, ...] = ()
    """Names of the flag. If empty, the field's name."""
    parse: Callable[[str], Any] | None = None
    """Makes the value from a text, or raises ValueError."""
    text: str | None = None
    """Text that `parse` makes the default from."""
    check: Callable[[Any], Any] | None = None
    """Returns the value of a setting in its final form, or raises ValueError."""
    choices: Callable[[], Iterable[str]] | None = None
    """Returns the texts that are allowed."""
    bounds: Mapping[str, float] = {}
    """Bounds of a setting: `ge`, `gt`, `le`, as in pydantic's Field."""
    is_argument: bool = False


class Declaration(NamedTuple):
    """A declared field."""

    name: str
    """Name on the command line, with dashes, and in files."""
    field: str
    """Attribute of the record."""
    type: Any
    default: Any
    reading: Reading


class Section(NamedTuple):
    """A record within a record. Its names do not show this."""

    record: type
    declarations: tuple[Declaration, ...]
    """Fields that are flags or settings here."""
    defaults: Mapping[str, Any]
    """Defaults that differ from those of `record`, by field."""

    def make(self, values: Mapping[str, Any]) -> Any:
        given = {d.field: values[d.name] for d in self.declarations if d.name in values}
        return self.record(**{**self.defaults, **given})


def flag(
    default: Any,
    help: str,
    *names: str,
    parse: Callable[[str], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    choices: Callable[[], Iterable[str]] | type[StrEnum] | tuple[str, ...] | None = None,
    bounds: Mapping[str, float] | None = None,
    is_secret: bool = False,
    panel: str | None = None,
    **typer: Any,
) -> Any:
    """Return a field with a flag. Other keywords are those of typer.Option.

    `panel` is the flag's panel of the help, by default PANEL of the record.

    `min` and `max` hold for flag and setting, `bounds` for the setting alone. With `parse`, the
    default may be a text.
    """
    if isinstance(choices, tuple | EnumType):
        choices = partial(tuple, choices)
    text = default if parse is not None and isinstance(default, str) else None
    value = parse(text) if parse is not None and text is not None else default
    options = {"help": help, **({"rich_help_panel": panel} if panel else {}), **typer}
    reading = Reading(options, names, parse, text, check, choices, bounds or {})
    return _field(value, reading, is_secret=is_secret)


def argument(default: Any, help: str, metavar: str) -> Any:
    """Return a field that a command takes by its position."""
    return _field(default, Reading({"help": help, "metavar": metavar}, is_argument=True))


def setting(
    default: Any,
    *,
    parse: Callable[[str], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    is_secret: bool = False,
    **bounds: float,
) -> Any:
    """Return a field without a flag, which files and the environment set."""
    return _field(default, Reading(None, (), parse, None, check, None, bounds), is_secret=is_secret)


def _field(default: Any, reading: Reading, *, is_secret: bool = False) -> Any:
    metadata = {"reading": reading}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata, repr=not is_secret)


def section(
    record: type, only: Collection[str] = (), *, without: Collection[str] = (), **defaults: Any
) -> Any:
    """Return a field that holds a `record`. Its fields in `only` (or all) are flags and settings
    here, `without` some. `defaults` replace those of the record, as in `flag`."""
    declared = {
        d.name: _with_default(d, defaults) for d in declarations(record) if d.name not in without
    }
    values = {name: declared[name].default for name in declared.keys() & defaults.keys()}
    return section_of(record, [declared[name] for name in only or declared], {**defaults, **values})


def _with_default(declared: Declaration, defaults: Mapping[str, Any]) -> Declaration:
    default, reading = defaults.get(declared.name, declared.default), declared.reading
    if reading.parse is None or not isinstance(default, str):
        return declared._replace(default=default)
    return declared._replace(default=reading.parse(default), reading=reading._replace(text=default))


def section_of(record: type, declared: Iterable[Declaration], defaults: Mapping[str, Any]) -> Any:
    """Return a field that holds a `record`, from any declarations of its fields."""
    here = tuple(d._replace(default=defaults.get(d.field, d.default)) for d in declared)
    made = Section(record, here, defaults)
    return field(default_factory=partial(made.make, {}), metadata={"section": made})


def declarations(record: type) -> Iterator[Declaration]:
    """Every flag and setting of a record and its sections."""
    types = get_type_hints(record)
    panel = {"rich_help_panel": getattr(record, "PANEL", None)}
    for each in fields(record):
        if "section" in each.metadata:
            yield from each.metadata["section"].declarations
        elif "reading" in each.metadata:
            reading: Reading = each.metadata["reading"]
            if reading.typer is not None and not reading.is_argument:
                reading = reading._replace(typer={**panel, **reading.typer})
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield Declaration(each.name, each.name, types[each.name], default, reading)


def assembled(record: type[R], values: Mapping[str, Any]) -> R:
    """Return the record with its sections. What `values` leaves out has its default."""
    given = {
        each.name: each.metadata["section"].make(values)
        if "section" in each.metadata
        else values[each.name]
        for each in fields(record)  # type: ignore[arg-type]
        if "section" in each.metadata or each.name in values
    }
    return record(**given)


def values_of(record: Any) -> dict[str, Any]:
    """Return the value of every flag and setting by name."""
    values: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if "section" in each.metadata:
            declared = each.metadata["section"].declarations
            values |= {d.name: getattr(value, d.field) for d in declared}
        elif "reading" in each.metadata:
            values[each.name] = value
    return values


def made_of(record: type[R], options: Any, **others: Any) -> R:
    """Return a record whose fields have the values that `options` has under the same names.

    `others` win over them. None stands for the default of `record`.
    """
    names = {each.name for each in fields(record)}  # type: ignore[arg-type]
    values = {name: value for name, value in values_of(options).items() if name in names}
    given = {name: value for name, value in values.items() if value is not None}
    return record(**{**given, **others})
