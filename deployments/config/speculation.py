"""Declares the settings of speculation, and makes the scheduler's configuration of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from deployments.config.flags import flag, setting
from specdec_core.config import (
    WINDOW_PER_ROW,
    KPolicyName,
    NgramConfig,
    OverlapMode,
    SchedulerConfig,
    SpeculationConfig,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.speculation.registry import spec_methods


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """Source and number of the drafted tokens."""

    PANEL: ClassVar[str] = "Speculation"

    spec_method: str | None = flag(
        None,
        "Source of the drafted tokens. Default: draft_model with --spec-model, otherwise ngram "
        "(prompt lookup).",
        choices=spec_methods,
    )
    spec_model: str | None = flag(
        None, "Draft model. It may be the target itself.", metavar="PATH_OR_ID"
    )
    spec_tokens: int | None = flag(
        None,
        "Maximum drafted tokens per sequence and round (K), 0 to 32. 0 drafts nothing. Default: "
        "15 on CPUs and 8 on GPUs with --spec-policy goodput, otherwise 4.",
        metavar="K",
    )
    spec_policy: KPolicyName = flag(
        KPolicyName.GOODPUT,
        "Policy for the number of drafted tokens, up to --spec-tokens. Default: goodput. "
        "`goodput` drafts the number that is measured to pay, which may be 0. `schedule` follows "
        "the live sequences (spec_schedule). `fixed` always drafts the maximum, for experiments.",
    )
    spec_schedule: tuple[tuple[int, int, int], ...] = setting(())
    """(first, last, K): K drafted tokens while first to last sequences share a target, otherwise
    0."""
    spec_min_confidence: float = flag(
        0.0,
        "Minimum probability of a drafted token. A draft model proposes no token below it.",
        metavar="P",
    )
    overlap: OverlapMode = flag(
        OverlapMode.AUTO,
        "Verify one half of the sequences while the draft model works for the other. `auto` does "
        "so if it is measured to be faster. The tokens are the same.",
    )
    prompt_lookup_max: int | None = flag(
        None,
        "Maximum length of an n-gram for prompt lookup. Default: 8 with goodput, otherwise 4.",
        min=1,
    )
    prompt_lookup_min: int | None = flag(
        None,
        "Minimum length of an n-gram for prompt lookup. Default: 1 with goodput, otherwise 2.",
        min=1,
    )

    def scheduler_config(
        self,
        method: str,
        num_draft_tokens: int,
        *,
        rows: int,
        window: int | None = None,
        **limits: Any,
    ) -> SchedulerConfig:
        """Return the scheduler's configuration, for groups of at most `rows`.

        `window` is by default WINDOW_PER_ROW times the rows. `limits` are other fields of
        SchedulerConfig. Raises InvalidRequestError for settings that do not fit together.
        """
        lookup = self.prompt_lookup_max, self.prompt_lookup_min
        try:
            return SchedulerConfig(
                max_group_size=rows,
                window=window or WINDOW_PER_ROW * rows,
                overlap=self.overlap,
                speculation=SpeculationConfig(
                    method=method,
                    num_draft_tokens=num_draft_tokens,
                    k_policy=self.spec_policy,
                    k_schedule=self.spec_schedule,
                    min_confidence=self.spec_min_confidence,
                    ngram=NgramConfig.suiting(self.spec_policy, *lookup),
                ),
                **limits,
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
