"""Matches a node's labels against the labels that a process asks for, by Ray's label selectors."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VALUES = re.compile(r"^(!?)(?:(?:in)?\((.*)\)|(.*))$")


def fits(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether the labels match every entry of `selector`.

    An entry is `value`, `!value`, `in(one, other)` or `!in(one, other)`. A missing label has no
    value.
    """
    return all(_is_met(wanted, labels.get(key)) for key, wanted in selector.items())


def _is_met(wanted: str, has: str | None) -> bool:
    found = _VALUES.match(wanted)
    assert found is not None, "it matches everything"
    not_, several, one = found.groups()
    values = {value.strip() for value in several.split(",")} if several is not None else {one}
    return (has in values) is not bool(not_)
