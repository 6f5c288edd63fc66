"""Names of spans and attributes, from the GenAI conventions and from older tools.

They are written out here because opentelemetry-semantic-conventions keeps them in a private module.
A test compares the two.
"""

from __future__ import annotations

PROVIDER = "specdec"

PROVIDER_NAMES = ("gen_ai.provider.name", "gen_ai.system")
"""The name in the conventions, followed by older names. Every tuple here has this order."""
OPERATION = "gen_ai.operation.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_TOKEN = (
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.latency.time_to_first_token",
)
"""The second name is in no convention. vLLM and SGLang write it."""
INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
ERROR_TYPE = "error.type"
CANCELLED = "cancelled"
"""Value of ERROR_TYPE for a request whose client has disconnected."""
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
RPC_SYSTEM = "rpc.system"
RPC_SERVICE = "rpc.service"
RPC_METHOD = "rpc.method"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE = "service.instance.id"

POOL_SPAN = "specdec.pool"
"""A request in the scheduler, from its arrival to its last token."""
QUEUE_SPAN = "specdec.queue"
"""A request's time in the scheduler before its first lease."""
PREFILL_SPAN = "specdec.prefill"
"""One row of a lease that caches known tokens: the prompt, or all tokens after a move."""
DRAFT_SPAN = "specdec.draft"
VERIFY_SPAN = "specdec.verify"
ROUND_EVENT = "specdec.round"
"""Event in the scheduler's span: a target's answer that has committed tokens."""

REQUEST_ID = "specdec.request_id"
PROCESS = "specdec.process"
CELL = "specdec.cell"
ALGORITHM = "specdec.algorithm"
SPEC_METHOD = "specdec.spec_method"
NUM_SPEC_TOKENS = "specdec.num_spec_tokens"
"""Draft length K that speculation aims at."""
NUM_ROUNDS = "specdec.num_rounds"
NUM_DRAFTED = "specdec.num_drafted"
"""K of a round, or the sum over all rounds of a request. NUM_ACCEPTED is counted alike."""
NUM_ACCEPTED = "specdec.num_accepted"
NUM_TOKENS = "specdec.num_tokens"
"""Tokens of a round: the accepted ones and the target's own."""
NUM_PREEMPTIONS = "specdec.num_preemptions"
QUEUE_S = "specdec.queue_s"
FINISH_REASON = "specdec.finish_reason"
ROUND = "specdec.round"
"""Number of the round, counted from 0."""
LEASE_ID = "specdec.lease_id"
"""ID of the lease, equal in the spans of all rows of a group."""
REPLICA = "specdec.replica"
GROUP_SIZE = "specdec.group_size"
GROUP_IS_EQUAL = "specdec.group_equal_length"
NUM_FED = "specdec.num_fed"
"""Number of committed tokens that a row brings to the replica."""
ROW_STATUS = "specdec.row_status"
PASS_S = "specdec.pass_s"
DRAFT_S = "specdec.draft_s"
VERIFY_S = "specdec.verify_s"
WIRE_S = "specdec.wire_s"
SCHEDULE_S = "specdec.schedule_s"
REPLICA_S = "specdec.replica_s"


def each(names: tuple[str, ...], value: str | int | float) -> dict[str, str | int | float]:
    """Return one value under all of its names."""
    return dict.fromkeys(names, value)
