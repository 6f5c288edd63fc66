"""The table of sampling parameters in docs/api.md.

python -m tests.deployments.text.sampling_table
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from deployments.text.sampling_fields import SamplingFields
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingField

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
_TYPES: dict[Any, str] = {
    float | None: "number",
    int | None: "integer",
    bool | None: "boolean",
    list[int] | None: "token IDs",
    list[str] | None: "texts",
    dict[str, float] | None: "numbers by token ID",
}
_TABLE = re.compile("(?<=<!-- sampling parameters -->\n).*?(?=<!-- end -->)", re.DOTALL)
BY_HAND = {"seed", "max_tokens"}
"""Parameters whose defaults depend on the route. They have lines of their own in the page."""


def with_table(page: str) -> str:
    """Return the page with the present table."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += [_line(field) for field in SAMPLING_FIELDS if _is_listed(field)]
    return _TABLE.sub(lambda _: "".join(f"{line}\n" for line in lines), page)


def _is_listed(field: SamplingField) -> bool:
    return field.name in SamplingFields.model_fields and field.name not in BY_HAND


def _line(field: SamplingField) -> str:
    kind = _TYPES[SamplingFields.model_fields[field.name].annotation]
    limits = f" {field.limits.text}" if field.limits else ""
    default = "none" if field.default == () else f"{field.default:g}"
    if field.type is bool:
        default = str(field.default).lower()
    mark = "*" if field.generation_config_key else ""
    return f"| `{field.name}`{mark} | {kind}{limits} | {default} | {field.help} |"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
