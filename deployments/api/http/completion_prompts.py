"""The prompts of a completion, or a clear refusal."""

from __future__ import annotations

from typing import Any

from deployments.errors import WrongTypeError


def checked_prompts(prompt: Any) -> list[str | list[int]]:
    """Return a completion's prompts: text or IDs, one or a list of them. Raises for everything
    else."""
    if isinstance(prompt, list) and prompt and all(isinstance(p, str | list) for p in prompt):
        return [_checked_prompt(one) for one in prompt]
    return [_checked_prompt(prompt)]


def _checked_prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not set(map(type, prompt)) <= {int}:
        raise WrongTypeError(
            "prompt: must be a string, a list of token ids, or a list of those", param="prompt"
        )
    return prompt
