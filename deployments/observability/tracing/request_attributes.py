"""Attributes of a request's span: its parameters, and how it was decoded. Never any text."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.util.types import AttributeValue

from deployments.observability.tracing import names
from deployments.observability.tracing.span_protocols import TracedRequest
from specdec_core.request import RequestStats

Attributes = dict[str, AttributeValue]


def asked_attributes(generations: Sequence[TracedRequest], *, streams: bool) -> Attributes:
    """Return the attributes of a request with all its choices.

    Top-k and the penalties are left out at their neutral value.
    """
    request = generations[0].request
    params = request.params
    told: Attributes = {
        names.REQUEST_ID: request.request_id,
        names.REQUEST_STREAM: streams,
        names.REQUEST_MAX_TOKENS: params.max_tokens,
        names.REQUEST_TEMPERATURE: params.temperature,
        names.REQUEST_TOP_P: params.top_p,
        names.REQUEST_SEED: params.seed,
    }
    unusual = {
        names.REQUEST_TOP_K: params.top_k,
        names.REQUEST_FREQUENCY_PENALTY: params.frequency_penalty,
        names.REQUEST_PRESENCE_PENALTY: params.presence_penalty,
    }
    told |= {name: value for name, value in unusual.items() if value}
    if request.num_draft_tokens is not None or not request.speculation_enabled:
        told[names.NUM_SPEC_TOKENS] = request.num_draft_tokens or 0
    if request.spec_method is not None:
        told[names.SPEC_METHOD] = str(request.spec_method)
    prompts = [one for one in generations if one.choice == 0]
    if len(generations) > len(prompts):
        told[names.REQUEST_CHOICE_COUNT] = len(generations) // len(prompts)
    num_prompt = sum(len(one.request.prompt_token_ids) for one in prompts)
    return told | names.each(names.INPUT_TOKENS, num_prompt)


def speculation_attributes(stats: Sequence[RequestStats]) -> Attributes:
    """Return sums over the choices, and the maximum of their queue times."""
    return {
        names.NUM_ROUNDS: sum(one.num_rounds for one in stats),
        names.NUM_DRAFTED: sum(one.num_drafted for one in stats),
        names.NUM_ACCEPTED: sum(one.num_accepted for one in stats),
        names.NUM_PREEMPTIONS: sum(one.num_preemptions for one in stats),
        names.QUEUE_S: max(one.queue_s for one in stats),
    }
