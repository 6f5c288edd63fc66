from specdec.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_KIND_UNSPECIFIED: _ClassVar[FailureKind]
    FAILURE_KIND_INVALID_REQUEST: _ClassVar[FailureKind]
    FAILURE_KIND_QUEUE_FULL: _ClassVar[FailureKind]
    FAILURE_KIND_ROW_FAILED: _ClassVar[FailureKind]
    FAILURE_KIND_POOL_FAILED: _ClassVar[FailureKind]
    FAILURE_KIND_CLIENT_LIMIT: _ClassVar[FailureKind]
    FAILURE_KIND_DEADLINE: _ClassVar[FailureKind]

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_TARGET: _ClassVar[Role]
    ROLE_DRAFT: _ClassVar[Role]

class RowStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_STATUS_UNSPECIFIED: _ClassVar[RowStatus]
    ROW_STATUS_OK: _ClassVar[RowStatus]
    ROW_STATUS_KV_MISS: _ClassVar[RowStatus]
    ROW_STATUS_NO_ROOM: _ClassVar[RowStatus]
    ROW_STATUS_FAILED: _ClassVar[RowStatus]
    ROW_STATUS_INVALID: _ClassVar[RowStatus]
    ROW_STATUS_NOT_READY: _ClassVar[RowStatus]
FAILURE_KIND_UNSPECIFIED: FailureKind
FAILURE_KIND_INVALID_REQUEST: FailureKind
FAILURE_KIND_QUEUE_FULL: FailureKind
FAILURE_KIND_ROW_FAILED: FailureKind
FAILURE_KIND_POOL_FAILED: FailureKind
FAILURE_KIND_CLIENT_LIMIT: FailureKind
FAILURE_KIND_DEADLINE: FailureKind
ROLE_UNSPECIFIED: Role
ROLE_TARGET: Role
ROLE_DRAFT: Role
ROW_STATUS_UNSPECIFIED: RowStatus
ROW_STATUS_OK: RowStatus
ROW_STATUS_KV_MISS: RowStatus
ROW_STATUS_NO_ROOM: RowStatus
ROW_STATUS_FAILED: RowStatus
ROW_STATUS_INVALID: RowStatus
ROW_STATUS_NOT_READY: RowStatus

class GenerateUp(_message.Message):
    __slots__ = ("submit", "abort", "times", "pace")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    abort: _generation_pb2.AbortRequest
    times: IngressTimes
    pace: Pace
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[_generation_pb2.AbortRequest, _Mapping]] = ..., times: _Optional[_Union[IngressTimes, _Mapping]] = ..., pace: _Optional[_Union[Pace, _Mapping]] = ...) -> None: ...

class Pace(_message.Message):
    __slots__ = ("hold_s",)
    HOLD_S_FIELD_NUMBER: _ClassVar[int]
    hold_s: float
    def __init__(self, hold_s: _Optional[float] = ...) -> None: ...

class IngressTimes(_message.Message):
    __slots__ = ("num_pieces", "detokenise_s", "respond_s", "requests")
    NUM_PIECES_FIELD_NUMBER: _ClassVar[int]
    DETOKENISE_S_FIELD_NUMBER: _ClassVar[int]
    RESPOND_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    num_pieces: int
    detokenise_s: float
    respond_s: float
    requests: _containers.RepeatedCompositeFieldContainer[_generation_pb2.HistogramStatus]
    def __init__(self, num_pieces: _Optional[int] = ..., detokenise_s: _Optional[float] = ..., respond_s: _Optional[float] = ..., requests: _Optional[_Iterable[_Union[_generation_pb2.HistogramStatus, _Mapping]]] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "prompt_token_ids", "emitted_token_ids", "resume", "sampling", "end_token_ids", "speculative", "priority", "pinned_fingerprint", "client", "cache_salt", "resume_token_ids", "acknowledge", "timeout_s", "trace")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EMITTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    END_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PINNED_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_token_ids: bytes
    emitted_token_ids: bytes
    resume: bool
    sampling: _generation_pb2.SamplingParams
    end_token_ids: bytes
    speculative: _generation_pb2.Speculative
    priority: int
    pinned_fingerprint: str
    client: str
    cache_salt: str
    resume_token_ids: bytes
    acknowledge: bool
    timeout_s: float
    trace: TraceContext
    def __init__(self, request_id: _Optional[str] = ..., prompt_token_ids: _Optional[bytes] = ..., emitted_token_ids: _Optional[bytes] = ..., resume: _Optional[bool] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., end_token_ids: _Optional[bytes] = ..., speculative: _Optional[_Union[_generation_pb2.Speculative, _Mapping]] = ..., priority: _Optional[int] = ..., pinned_fingerprint: _Optional[str] = ..., client: _Optional[str] = ..., cache_salt: _Optional[str] = ..., resume_token_ids: _Optional[bytes] = ..., acknowledge: _Optional[bool] = ..., timeout_s: _Optional[float] = ..., trace: _Optional[_Union[TraceContext, _Mapping]] = ...) -> None: ...

class TraceContext(_message.Message):
    __slots__ = ("traceparent", "tracestate")
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    traceparent: str
    tracestate: str
    def __init__(self, traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ...) -> None: ...

class GenerateDown(_message.Message):
    __slots__ = ("events", "state", "aborts", "accepted")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ABORTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TokenEvent]
    state: PoolState
    aborts: _containers.RepeatedCompositeFieldContainer[AbortOutcome]
    accepted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, events: _Optional[_Iterable[_Union[TokenEvent, _Mapping]]] = ..., state: _Optional[_Union[PoolState, _Mapping]] = ..., aborts: _Optional[_Iterable[_Union[AbortOutcome, _Mapping]]] = ..., accepted: _Optional[_Iterable[str]] = ...) -> None: ...

class AbortOutcome(_message.Message):
    __slots__ = ("request_id", "aborted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    aborted: bool
    def __init__(self, request_id: _Optional[str] = ..., aborted: _Optional[bool] = ...) -> None: ...

class PoolState(_message.Message):
    __slots__ = ("epoch", "num_targets", "num_drafts", "max_model_len", "model_digest", "fingerprint", "numerics", "num_live")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_TARGETS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    NUM_LIVE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    num_targets: int
    num_drafts: int
    max_model_len: int
    model_digest: str
    fingerprint: str
    numerics: str
    num_live: int
    def __init__(self, epoch: _Optional[int] = ..., num_targets: _Optional[int] = ..., num_drafts: _Optional[int] = ..., max_model_len: _Optional[int] = ..., model_digest: _Optional[str] = ..., fingerprint: _Optional[str] = ..., numerics: _Optional[str] = ..., num_live: _Optional[int] = ...) -> None: ...

class TokenEvent(_message.Message):
    __slots__ = ("request_id", "index", "token_ids", "finish_reason", "stats", "failure", "logprobs", "prompt_logprobs", "pinned_fingerprint", "num_cached_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    index: int
    token_ids: bytes
    finish_reason: _generation_pb2.FinishReason
    stats: _generation_pb2.SpeculationStats
    failure: Failure
    logprobs: _generation_pb2.Logprobs
    prompt_logprobs: _generation_pb2.Logprobs
    pinned_fingerprint: str
    num_cached_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., index: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., stats: _Optional[_Union[_generation_pb2.SpeculationStats, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., logprobs: _Optional[_Union[_generation_pb2.Logprobs, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[_generation_pb2.Logprobs, _Mapping]] = ..., pinned_fingerprint: _Optional[str] = ..., num_cached_tokens: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "retry_after_s", "num_queued", "max_queued", "param", "code")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    NUM_QUEUED_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    kind: FailureKind
    message: str
    retry_after_s: float
    num_queued: int
    max_queued: int
    param: str
    code: str
    def __init__(self, kind: _Optional[_Union[FailureKind, str]] = ..., message: _Optional[str] = ..., retry_after_s: _Optional[float] = ..., num_queued: _Optional[int] = ..., max_queued: _Optional[int] = ..., param: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class WorkUp(_message.Message):
    __slots__ = ("register", "result", "heartbeat", "reset_done", "drain")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESET_DONE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    register: Register
    result: GroupResult
    heartbeat: Heartbeat
    reset_done: ResetDone
    drain: Drain
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., result: _Optional[_Union[GroupResult, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., reset_done: _Optional[_Union[ResetDone, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("protocol_version", "replica_id", "role", "incarnation", "num_blocks", "block_size", "max_model_len", "vocab_size", "model_digest", "fingerprint", "numerics", "tile_rows", "device", "keeps_prefixes", "step_times", "max_num_seqs", "kv_cache_spec")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    TILE_ROWS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KEEPS_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMES_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_SPEC_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    replica_id: str
    role: Role
    incarnation: int
    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    model_digest: str
    fingerprint: str
    numerics: str
    tile_rows: int
    device: str
    keeps_prefixes: bool
    step_times: _containers.RepeatedCompositeFieldContainer[StepTime]
    max_num_seqs: int
    kv_cache_spec: KVCacheSpec
    def __init__(self, protocol_version: _Optional[int] = ..., replica_id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., incarnation: _Optional[int] = ..., num_blocks: _Optional[int] = ..., block_size: _Optional[int] = ..., max_model_len: _Optional[int] = ..., vocab_size: _Optional[int] = ..., model_digest: _Optional[str] = ..., fingerprint: _Optional[str] = ..., numerics: _Optional[str] = ..., tile_rows: _Optional[int] = ..., device: _Optional[str] = ..., keeps_prefixes: _Optional[bool] = ..., step_times: _Optional[_Iterable[_Union[StepTime, _Mapping]]] = ..., max_num_seqs: _Optional[int] = ..., kv_cache_spec: _Optional[_Union[KVCacheSpec, _Mapping]] = ...) -> None: ...

class KVCacheSpec(_message.Message):
    __slots__ = ("kind", "bytes_per_block")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    bytes_per_block: int
    def __init__(self, kind: _Optional[str] = ..., bytes_per_block: _Optional[int] = ...) -> None: ...

class StepTime(_message.Message):
    __slots__ = ("num_sequences", "num_rows", "seconds", "num_cached")
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_FIELD_NUMBER: _ClassVar[int]
    num_sequences: int
    num_rows: int
    seconds: float
    num_cached: int
    def __init__(self, num_sequences: _Optional[int] = ..., num_rows: _Optional[int] = ..., seconds: _Optional[float] = ..., num_cached: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("occupancy",)
    OCCUPANCY_FIELD_NUMBER: _ClassVar[int]
    occupancy: Occupancy
    def __init__(self, occupancy: _Optional[_Union[Occupancy, _Mapping]] = ...) -> None: ...

class Occupancy(_message.Message):
    __slots__ = ("num_slots", "num_free_blocks", "num_prefix_queries", "num_prefix_hits", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_QUERIES_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HITS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    num_slots: int
    num_free_blocks: int
    num_prefix_queries: int
    num_prefix_hits: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, num_slots: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_prefix_queries: _Optional[int] = ..., num_prefix_hits: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ResetDone(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("asked_ago_s",)
    ASKED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    asked_ago_s: float
    def __init__(self, asked_ago_s: _Optional[float] = ...) -> None: ...

class WorkDown(_message.Message):
    __slots__ = ("registered", "lease", "free", "reset", "drained")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    registered: Registered
    lease: GroupLease
    free: Free
    reset: Reset
    drained: Drained
    def __init__(self, registered: _Optional[_Union[Registered, _Mapping]] = ..., lease: _Optional[_Union[GroupLease, _Mapping]] = ..., free: _Optional[_Union[Free, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Free(_message.Message):
    __slots__ = ("sequence_ids",)
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    sequence_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class Drained(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RowRules(_message.Message):
    __slots__ = ("row", "sampling", "prompt_len", "stop_ids", "cache_salt")
    ROW_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LEN_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    row: int
    sampling: _generation_pb2.SamplingParams
    prompt_len: int
    stop_ids: bytes
    cache_salt: str
    def __init__(self, row: _Optional[int] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., prompt_len: _Optional[int] = ..., stop_ids: _Optional[bytes] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class GroupLease(_message.Message):
    __slots__ = ("lease_id", "epoch", "role", "ttl_s", "sequence_ids", "base_hashes", "shapes", "token_ids", "rules", "min_confidence", "num_scored", "traces")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    BASE_HASHES_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_SCORED_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    epoch: int
    role: Role
    ttl_s: float
    sequence_ids: _containers.RepeatedScalarFieldContainer[int]
    base_hashes: _containers.RepeatedScalarFieldContainer[int]
    shapes: bytes
    token_ids: bytes
    rules: _containers.RepeatedCompositeFieldContainer[RowRules]
    min_confidence: float
    num_scored: bytes
    traces: _containers.RepeatedCompositeFieldContainer[RowTrace]
    def __init__(self, lease_id: _Optional[int] = ..., epoch: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., ttl_s: _Optional[float] = ..., sequence_ids: _Optional[_Iterable[int]] = ..., base_hashes: _Optional[_Iterable[int]] = ..., shapes: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., rules: _Optional[_Iterable[_Union[RowRules, _Mapping]]] = ..., min_confidence: _Optional[float] = ..., num_scored: _Optional[bytes] = ..., traces: _Optional[_Iterable[_Union[RowTrace, _Mapping]]] = ...) -> None: ...

class RowTrace(_message.Message):
    __slots__ = ("row", "parent", "is_prefill")
    ROW_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    IS_PREFILL_FIELD_NUMBER: _ClassVar[int]
    row: int
    parent: TraceContext
    is_prefill: bool
    def __init__(self, row: _Optional[int] = ..., parent: _Optional[_Union[TraceContext, _Mapping]] = ..., is_prefill: _Optional[bool] = ...) -> None: ...

class RowError(_message.Message):
    __slots__ = ("row", "message")
    ROW_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    row: int
    message: str
    def __init__(self, row: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RowLogprobs(_message.Message):
    __slots__ = ("row", "logprobs", "prompt_logprobs")
    ROW_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    row: int
    logprobs: _generation_pb2.Logprobs
    prompt_logprobs: _generation_pb2.Logprobs
    def __init__(self, row: _Optional[int] = ..., logprobs: _Optional[_Union[_generation_pb2.Logprobs, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[_generation_pb2.Logprobs, _Mapping]] = ...) -> None: ...

class GroupResult(_message.Message):
    __slots__ = ("lease_id", "epoch", "seconds", "sequence_ids", "shapes", "token_ids", "errors", "occupancy", "logprobs", "held_s", "num_found", "recording_s")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    OCCUPANCY_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    NUM_FOUND_FIELD_NUMBER: _ClassVar[int]
    RECORDING_S_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    epoch: int
    seconds: float
    sequence_ids: _containers.RepeatedScalarFieldContainer[int]
    shapes: bytes
    token_ids: bytes
    errors: _containers.RepeatedCompositeFieldContainer[RowError]
    occupancy: Occupancy
    logprobs: _containers.RepeatedCompositeFieldContainer[RowLogprobs]
    held_s: float
    num_found: bytes
    recording_s: float
    def __init__(self, lease_id: _Optional[int] = ..., epoch: _Optional[int] = ..., seconds: _Optional[float] = ..., sequence_ids: _Optional[_Iterable[int]] = ..., shapes: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., errors: _Optional[_Iterable[_Union[RowError, _Mapping]]] = ..., occupancy: _Optional[_Union[Occupancy, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[RowLogprobs, _Mapping]]] = ..., held_s: _Optional[float] = ..., num_found: _Optional[bytes] = ..., recording_s: _Optional[float] = ...) -> None: ...
