"""A setting is a field of a record. Its type, range and choices are checked by its declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.config.checking import checked
from deployments.config.flags import comma_names, declarations, flag, section, setting
from deployments.config.service import ServiceConfig, environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven:
    degrees: int = flag(180, "Heat.", bounds={"le": 300})
    shelf: str = setting("middle")
    beeps: tuple[int, ...] = setting(())

    def __post_init__(self) -> None:
        if self.degrees > 250 and self.shelf == "top":
            raise ValueError("the top shelf is too hot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kitchen:
    cooks: tuple[str, ...] = setting((), parse=comma_names)
    tiles: str = flag("white", "Colour.", choices=("white", "blue"))
    oven: Oven = section(Oven, shelf="low")


def kitchen(**values: Any) -> Kitchen:
    return checked(Kitchen, values, dict)


def test_texts_become_values_of_the_declared_types() -> None:
    made = kitchen(cooks="ann, bob", degrees="200", beeps="[1, 2]")
    assert made == Kitchen(cooks=("ann", "bob"), oven=Oven(degrees=200, beeps=(1, 2), shelf="low"))
    assert kitchen() == Kitchen()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"degrees": 301}, "less than or equal to 300"),
        ({"degrees": "hot"}, "valid integer"),
        ({"tiles": "red"}, "Input should be 'white' or 'blue'"),
        ({"oven": {}}, "Extra inputs"),
        ({"degrees": 260, "shelf": "top"}, "the top shelf is too hot"),
        ({"beeps": "[1"}, "beeps"),
    ],
)
def test_a_value_that_does_not_fit_its_declaration_is_refused(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        kitchen(**values)


def test_every_setting_of_the_service_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [declared.name for declared in declarations(ServiceConfig)]
    assert len(set(names)) == len(names)
    for name in names:
        monkeypatch.setenv(f"SPECDEC_{name}".upper(), name)
    assert environment() == {name: name for name in names}
