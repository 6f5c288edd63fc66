"""The sampling law by enumeration, in plain Python and float64: the oracle of this folder.

Written from docs/algorithm.md and the field descriptions of SamplingParams, for models with a few
ids. It walks every continuation and multiplies probabilities; there is no noise in it, no batch and
no draft. The model is any function from ids to raw logits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from specdec_core import SamplingParams

LogitsOf = Callable[[Sequence[int]], Sequence[float]]


class Context(NamedTuple):
    """What the law of the next id may depend on besides the logits."""

    prompt: tuple[int, ...]
    emitted: tuple[int, ...]
    stop_ids: frozenset[int]


NextLaw = Callable[[Sequence[float], SamplingParams, Context], Mapping[int, float]]


def next_id_law(
    logits: Sequence[float], params: SamplingParams, context: Context
) -> dict[int, float]:
    """Probability of every id that may be chosen: bans, bias, penalties, temperature, filters."""
    z = list(logits)
    for banned in _banned_ids(len(z), params, context):
        z[banned] = -math.inf
    z = [value + dict(params.logit_bias).get(v, 0.0) for v, value in enumerate(z)]
    z = [_penalised(value, v, params, context) for v, value in enumerate(z)]
    top = max(z)
    if params.temperature == 0.0:
        return {z.index(top): 1.0}
    weights = {
        v: math.exp((value - top) / params.temperature)
        for v, value in enumerate(z)
        if value > -math.inf
    }
    kept = kept_ids(weights, params)
    mass = math.fsum(weights[v] for v in kept)
    return {v: weights[v] / mass for v in kept}


def kept_ids(weights: Mapping[int, float], params: SamplingParams) -> list[int]:
    """min-p, then top-k, then top-p, over the ids by weight; ties by id."""
    order = sorted(weights, key=lambda v: (-weights[v], v))
    order = [v for v in order if weights[v] >= params.min_p * weights[order[0]]]
    if params.top_k > 0:
        order = order[: params.top_k]
    whole = math.fsum(weights[v] for v in order)
    nucleus: list[int] = []
    while math.fsum(weights[v] for v in nucleus) < params.top_p * whole:
        nucleus.append(order[len(nucleus)])
        if len(nucleus) == len(order):
            break
    return nucleus


def _banned_ids(vocab_size: int, params: SamplingParams, context: Context) -> set[int]:
    banned: set[int] = set()
    if params.allowed_token_ids:
        banned |= set(range(vocab_size)) - set(params.allowed_token_ids)
    if len(context.emitted) < params.min_tokens:
        banned |= context.stop_ids
    for word in params.bad_words:
        before = word[:-1]
        if context.emitted[len(context.emitted) - len(before) :] == before:
            banned.add(word[-1])
    return {v for v in banned if v < vocab_size}


def _penalised(z: float, v: int, params: SamplingParams, context: Context) -> float:
    count = Counter(context.emitted)[v]
    if count or v in context.prompt:
        z = z / params.repetition_penalty if z > 0 else z * params.repetition_penalty
    return z - params.frequency_penalty * count - params.presence_penalty * (count > 0)


def joint_law(
    logits_of: LogitsOf,
    prompt: tuple[int, ...],
    params: SamplingParams,
    *,
    num_tokens: int,
    end_token_ids: Collection[int] = (),
    next_law: NextLaw = next_id_law,
) -> dict[tuple[int, ...], float]:
    """Probability of every output of `num_tokens` ids; a stop id ends an output earlier."""
    ends = frozenset() if params.ignore_eos else frozenset(end_token_ids)
    stop_ids = ends.union(params.stop_token_ids)
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(num_tokens):
        for emitted in [e for e in law if len(e) == length and not (e and e[-1] in stop_ids)]:
            probability = law.pop(emitted)
            context = Context(prompt, emitted, stop_ids)
            for v, p in next_law(logits_of((*prompt, *emitted)), params, context).items():
                law[(*emitted, v)] = probability * p
    return law


def window_law(
    joint: Mapping[tuple[int, ...], float], start: int, end: int
) -> dict[tuple[int, ...], float]:
    """The law of emitted[start:end], whatever stands before."""
    law: dict[tuple[int, ...], float] = {}
    for emitted, probability in joint.items():
        window = emitted[start:end]
        law[window] = law.get(window, 0.0) + probability
    return law
