"""Flags of sampling, made of the declarations of SamplingParams."""

from __future__ import annotations

import math
from typing import Any

from deployments.config.flags import Declaration, Reading, section_of
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingField, SamplingParams

_DEFAULTS = {"temperature": 0.0, "max_tokens": 128}
"""Defaults of commands that differ from those of a request."""


def sampling_section(*only: str) -> Any:
    """Return a field of SamplingParams with the flags `only`, or with all that there are."""
    chosen = (one for one in SAMPLING_FIELDS if one.flag and (not only or one.proto_name in only))
    return section_of(SamplingParams, map(_declaration, chosen), _DEFAULTS)


def _declaration(one: SamplingField) -> Declaration:
    assert one.flag is not None, "only fields with a flag are chosen"
    options: dict[str, Any] = {"help": one.help, "rich_help_panel": "Sampling"}
    if one.limits is not None and one.limits.high == math.inf:
        options["min"] = one.limits.low
    elif one.limits is not None:
        options["help"] += f" {one.limits.text.capitalize()}."
    reading = Reading(options, names=(one.flag,))
    return Declaration(one.proto_name, one.name, one.type, one.default, reading)
