"""The sampling parameters as JSON fields: of an HTTP body as of a line for `specdec generate`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class SamplingFields(BaseModel):
    """Names as in the OpenAI API and in vLLM. None: not named. Values are checked later.

    `logprobs` is not among them, because it is a number or, in a chat, a yes.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None

    @property
    def named_sampling(self) -> dict[str, Any]:
        """Return the parameters for `resolve_sampling`."""
        return {name: getattr(self, name) for name in SamplingFields.model_fields}
