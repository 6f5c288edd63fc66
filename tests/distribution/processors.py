"""Every way of shaping the distribution, each with parameters that change it a lot."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_core import SamplingParams

WINDOWS = ((0, 3), (1, 4))
"""Emitted ids whose joint law is tested. The second window lies behind the prefill, so that with
K >= 3 one verification pass can decide it whole."""
NUM_TOKENS = WINDOWS[-1][1]
END_ID = 3


@dataclass(frozen=True, slots=True)
class Processor:
    """Parameters under test, and the model's end ids. Seed and budget are the runs' business."""

    params: SamplingParams
    end_token_ids: frozenset[int] = frozenset()


def _shaped(*end_token_ids: int, **fields: object) -> Processor:
    params = SamplingParams(max_tokens=NUM_TOKENS, **fields)  # type: ignore[arg-type]
    return Processor(params, frozenset(end_token_ids))


PROCESSORS = {
    "untouched": _shaped(),
    "cold": _shaped(temperature=0.6),
    "hot": _shaped(temperature=1.5),
    "top_k": _shaped(top_k=3),
    "top_p": _shaped(top_p=0.75, temperature=1.3),
    "min_p": _shaped(min_p=0.15, temperature=1.3),
    "filters_together": _shaped(temperature=1.4, min_p=0.03, top_k=4, top_p=0.85),
    "end_id": _shaped(END_ID),
    "presence_penalty": _shaped(presence_penalty=1.5),
    "presence_reward": _shaped(presence_penalty=-1.0),
    "frequency_penalty": _shaped(frequency_penalty=2.0),
    "frequency_reward": _shaped(frequency_penalty=-1.0),
    "repetition_penalty": _shaped(repetition_penalty=6.0),
    "logit_bias": _shaped(logit_bias=((0, 1.5), (4, -2.0), (2, -100.0))),
    "min_tokens": _shaped(END_ID, min_tokens=2, stop_token_ids=(1,)),
    "allowed_token_ids": _shaped(allowed_token_ids=(0, 2, 4)),
    "bad_words": _shaped(bad_words=((4,), (0, 1), (2, 3, 0), (1, 0, 2, 0))),
    "all_together": _shaped(
        END_ID,
        temperature=1.2,
        top_p=0.9,
        min_p=0.02,
        presence_penalty=0.5,
        frequency_penalty=0.4,
        repetition_penalty=1.6,
        logit_bias=((0, -0.7), (3, 0.8)),
        min_tokens=2,
        bad_words=((4, 4), (1, 2)),
    ),
}
