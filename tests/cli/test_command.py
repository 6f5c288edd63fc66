"""A command is a function that takes one record. The record declares flags and settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

from deployments.cli.command import command
from deployments.cli.sampling import sampling_section
from deployments.config.flags import (
    OUTPUT_FILE,
    REQUIRED,
    argument,
    assembled,
    declarations,
    flag,
    made_of,
    section,
    setting,
    values_of,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingParams


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    PANEL: ClassVar[str] = "Paint"

    shade: Shade = flag(Shade.LIGHT, "How bright.", choices=Shade)
    finish: Shade | None = flag(None, "What the last coat looks like.", choices=Shade)
    coats: int = flag(1, "How often.", min=1)
    lacquer: str = flag("none", "What comes last.")
    recipe: str = setting("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaintOptions:
    wall: str = argument("north", "Which wall.", "WALL")
    output: Path = flag(REQUIRED, "The picture.", **OUTPUT_FILE)
    widths: tuple[int, ...] = flag("1,2", "Of the brushes.", "--widths", "--width", parse=_numbers)
    paint: Paint = section(Paint, without=("lacquer",), coats=2)
    sampling: SamplingParams = sampling_section("temperature", "logprobs")


taken: list[PaintOptions] = []
app = typer.Typer()


@command(app)
def paint_wall(options: PaintOptions) -> None:
    """Paint a wall."""
    taken.append(options)


@app.command()
def other() -> None:
    """With a second command the first one is called by its name."""


def run(*arguments: str) -> str:
    """Return what the command prints."""
    result = CliRunner().invoke(app, ["paint-wall", *arguments])
    if isinstance(result.exception, InvalidRequestError):
        raise result.exception
    return result.output


MORE = ("--logprobs", "2", "--finish", "light")


def test_the_function_takes_the_record_that_the_flags_say(tmp_path: Path) -> None:
    file = tmp_path / "wall.png"
    run("south", "--output", str(file), "--width", "3,4", "--shade", "dark", *MORE)
    options = taken.pop()
    assert options == PaintOptions(
        wall="south",
        output=file,
        widths=(3, 4),
        paint=Paint(shade=Shade.DARK, finish=Shade.LIGHT, coats=2),
        sampling=SamplingParams(temperature=0.0, num_logprobs=2, max_tokens=128),
    )
    assert options.paint.shade is Shade.DARK
    assert values_of(options) == {
        "wall": "south",
        "output": file,
        "widths": (3, 4),
        "shade": "dark",
        "finish": "light",
        "coats": 2,
        "recipe": "",
        "temperature": 0.0,
        "logprobs": 2,
    }
    assert assembled(PaintOptions, values_of(options)) == options


def test_what_is_not_given_has_the_default_of_the_declaration(tmp_path: Path) -> None:
    run("--output", str(tmp_path / "wall.png"))
    options = taken.pop()
    assert (options.wall, options.widths, options.paint.coats) == ("north", (1, 2), 2)
    assert assembled(PaintOptions, {"output": options.output}) == options


def test_the_help_is_that_of_the_declarations() -> None:
    text = run("--help")
    assert "Paint a wall." in text
    assert "--lacquer" not in text
    assert "--recipe" not in text, "a setting is no flag"
    assert "[light|dark]" in text
    assert "default: 1,2" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--output"),
        (("--output", "wall.png", "--coats", "0"), "equal to 1"),
        (("--output", "wall.png", "--shade", "red"), "'red' is not one of light, dark"),
        (("--output", "wall.png", "--widths", "a"), "invalid literal"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_flag(
    arguments: tuple[str, ...], message: str
) -> None:
    text = run(*arguments)
    assert "Error" in text
    assert message in text


def test_an_output_file_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="there is no folder"):
        run("--output", str(tmp_path / "none" / "wall.png"))


def test_every_sampling_parameter_with_a_flag_is_a_flag_of_generate() -> None:
    from deployments.cli.generate.options import GenerateOptions

    names = {declared.name for declared in declarations(GenerateOptions)}
    assert {one.proto_name for one in SAMPLING_FIELDS if one.flag} <= names


def test_a_record_is_made_of_the_flags_of_its_names() -> None:
    @dataclass(frozen=True)
    class Flags:
        size: int = flag(3, "A size.")
        width: int | None = flag(None, "A width.")
        other: int = flag(1, "For something else.")

    @dataclass(frozen=True)
    class Made:
        size: int
        width: int = 7
        name: str = ""

    assert made_of(Made, Flags(), name="n") == Made(3, 7, "n")
    assert made_of(Made, Flags(width=2), size=5) == Made(5, 2)
