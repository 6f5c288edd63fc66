"""Our own copy of the conventions' names, against the package that has them."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv._incubating.attributes import rpc_attributes as rpc
from opentelemetry.semconv._incubating.attributes import service_attributes as service
from opentelemetry.semconv.attributes import error_attributes as error
from opentelemetry.semconv.attributes import http_attributes as http

from deployments.observability.tracing import names


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (names.PROVIDER_NAMES, (gen_ai.GEN_AI_PROVIDER_NAME, gen_ai.GEN_AI_SYSTEM)),
        (names.OPERATION, gen_ai.GEN_AI_OPERATION_NAME),
        (names.REQUEST_MODEL, gen_ai.GEN_AI_REQUEST_MODEL),
        (names.REQUEST_MAX_TOKENS, gen_ai.GEN_AI_REQUEST_MAX_TOKENS),
        (names.REQUEST_TEMPERATURE, gen_ai.GEN_AI_REQUEST_TEMPERATURE),
        (names.REQUEST_TOP_P, gen_ai.GEN_AI_REQUEST_TOP_P),
        (names.REQUEST_TOP_K, gen_ai.GEN_AI_REQUEST_TOP_K),
        (names.REQUEST_SEED, gen_ai.GEN_AI_REQUEST_SEED),
        (names.REQUEST_FREQUENCY_PENALTY, gen_ai.GEN_AI_REQUEST_FREQUENCY_PENALTY),
        (names.REQUEST_PRESENCE_PENALTY, gen_ai.GEN_AI_REQUEST_PRESENCE_PENALTY),
        (names.REQUEST_CHOICE_COUNT, gen_ai.GEN_AI_REQUEST_CHOICE_COUNT),
        (names.REQUEST_STREAM, gen_ai.GEN_AI_REQUEST_STREAM),
        (names.RESPONSE_ID, gen_ai.GEN_AI_RESPONSE_ID),
        (names.RESPONSE_MODEL, gen_ai.GEN_AI_RESPONSE_MODEL),
        (names.FINISH_REASONS, gen_ai.GEN_AI_RESPONSE_FINISH_REASONS),
        (names.TIME_TO_FIRST_TOKEN[0], gen_ai.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK),
        (
            names.INPUT_TOKENS,
            (gen_ai.GEN_AI_USAGE_INPUT_TOKENS, gen_ai.GEN_AI_USAGE_PROMPT_TOKENS),
        ),
        (
            names.OUTPUT_TOKENS,
            (gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS, gen_ai.GEN_AI_USAGE_COMPLETION_TOKENS),
        ),
        (names.ERROR_TYPE, error.ERROR_TYPE),
        (names.HTTP_METHOD, http.HTTP_REQUEST_METHOD),
        (names.HTTP_ROUTE, http.HTTP_ROUTE),
        (names.RPC_METHOD, rpc.RPC_METHOD),
        (names.SERVICE_INSTANCE, service.SERVICE_INSTANCE_ID),
    ],
)
def test_the_names_are_those_of_the_conventions(ours: object, theirs: object) -> None:
    assert ours == theirs
