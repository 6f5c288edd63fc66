"""The sampling parameters as JSON fields, in an HTTP body and in a line for `specdec generate`."""

from __future__ import annotations

from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, Field, create_model

from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingField

_OTHER_FORMS = {"grammar", "num_logprobs", "num_prompt_logprobs"}
"""Parameters that requests express by fields of other types. Each body declares these."""
_JSON_TYPES: dict[str, Any] = {"logit_bias": dict[str, float], "bad_words": list[str]}
"""Types of parameters that are not in JSON as they are in SamplingParams."""

_Model = TypeVar("_Model", bound=BaseModel)


def _json_type(field: SamplingField) -> Any:
    is_list = get_origin(field.type) is tuple
    return _JSON_TYPES.get(field.name, list[int] if is_list else field.type)


def _with_sampling_fields(model: type[_Model]) -> type[_Model]:
    """Return the model with one optional field for each parameter that JSON has."""
    declared: dict[str, Any] = {
        field.name: (_json_type(field) | None, Field(default=None, description=field.help))
        for field in SAMPLING_FIELDS
        if field.name not in _OTHER_FORMS
    }
    options: dict[str, Any] = {"__module__": model.__module__, "__doc__": model.__doc__}
    return create_model(model.__name__, __base__=model, **options, **declared)


@_with_sampling_fields
class SamplingFields(BaseModel):
    """Names as in the OpenAI API and in vLLM. None: not named. Values are checked later.

    The fields are those of SAMPLING_FIELDS. Code reads one of them by name.
    """

    max_tokens: int | None = None


SAMPLING_NAMES = set(SamplingFields.model_fields)
"""Fields that are the input of `resolve_sampling`."""
