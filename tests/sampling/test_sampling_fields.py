"""Declarations of the sampling parameters: the record itself follows from them."""

from __future__ import annotations

import math

import pytest

from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingField, SamplingParams

LIMITED = [field for field in SAMPLING_FIELDS if field.limits is not None]


def test_a_default_is_that_of_the_record() -> None:
    params = SamplingParams()
    assert {field.name: field.default for field in SAMPLING_FIELDS} == {
        name: getattr(params, name) for name in SamplingParams.__slots__
    }


@pytest.mark.parametrize("field", LIMITED, ids=lambda field: field.name)
def test_the_declared_limits_are_enforced_in_the_callers_words(field: SamplingField) -> None:
    assert field.limits is not None
    low, high, text = field.limits
    for edge in (low, high):
        if math.isfinite(edge):
            assert getattr(SamplingParams(**{field.name: edge}), field.name) == edge
    for wrong in (low - 1, high + 1, math.nan):
        if math.isinf(wrong):
            continue
        with pytest.raises(InvalidRequestError) as refusal:
            SamplingParams(**{field.name: wrong})
        assert str(refusal.value) == f"{field.proto_name} must be {text}, got {wrong}"
        assert refusal.value.param == field.proto_name


def test_a_flag_is_the_callers_name_with_dashes() -> None:
    flags = {field.name: field.flag for field in SAMPLING_FIELDS if field.flag is not None}
    assert flags["top_p"] == "--top-p"
    assert flags["num_logprobs"] == "--logprobs"
    assert "logit_bias" not in flags


def test_each_declaration_explains_itself_in_whole_sentences() -> None:
    for field in SAMPLING_FIELDS:
        assert field.help.endswith("."), field.name
        assert field.help[0].isupper(), field.name
