"""Translates other servers' setting names to ours, and refuses those that have no equivalent."""

from __future__ import annotations

from typing import Any

from specdec_core.config import KPolicyName

UNSUPPORTED: dict[str, tuple[tuple[object, ...], str]] = {
    "tensor_parallel_size": ((None, 1), "use target_replicas to spread load over devices"),
    "pipeline_parallel_size": ((None, 1), "use target_replicas to spread load over devices"),
    "data_parallel_size": ((None, 1), "use target_replicas"),
    "quantization": ((None, "none"), "use dtype bfloat16 or float16"),
    "kv_cache_dtype": ((None, "auto"), "the KV cache has the model's dtype"),
    "enable_lora": ((None, False), "merge the adapter into the weights and serve the folder"),
    "lora_modules": ((None, []), "merge the adapter into the weights and serve the folder"),
    "trust_remote_code": ((None, False), "use a model that transformers has itself"),
    "ssl_keyfile": ((None, ""), "end TLS at the gateway in front of the service"),
    "ssl_certfile": ((None, ""), "end TLS at the gateway in front of the service"),
}
"""Names that users bring from other servers: values that change nothing, and what to use
instead."""

ALWAYS_ON = {"enable_auto_tool_choice": "set tool_call_parser to none to switch calls off"}
"""Names of features that are always on here, and what to use instead of false."""

_SPECULATIVE_CONFIG_KEYS = {
    "method": "spec_method",
    "model": "spec_model",
    "num_speculative_tokens": "spec_tokens",
    "num_speculative_tokens_per_batch_size": "spec_schedule",
    "min_confidence": "spec_min_confidence",
    "prompt_lookup_max": "prompt_lookup_max",
    "prompt_lookup_min": "prompt_lookup_min",
}


def spread_speculative_config(values: dict[str, Any]) -> dict[str, Any]:
    """Replace vLLM's `speculative_config` object by the spec_* settings of the same meaning."""
    spec = values.get("speculative_config")
    if spec is None:
        return {name: value for name, value in values.items() if name != "speculative_config"}
    if not isinstance(spec, dict):
        raise ValueError(f"speculative_config must be an object, got {spec!r}")
    unknown = sorted(set(spec) - set(_SPECULATIVE_CONFIG_KEYS))
    if unknown:
        known = ", ".join(_SPECULATIVE_CONFIG_KEYS)
        raise ValueError(f"speculative_config has unknown keys {unknown}; known are {known}")
    spread = {_SPECULATIVE_CONFIG_KEYS[key]: value for key, value in spec.items()}
    if spread.get("spec_schedule"):
        spread.setdefault("spec_policy", KPolicyName.SCHEDULE)
    twice = sorted(set(spread) & set(values))
    if twice:
        raise ValueError(
            f"speculative_config and {twice} set the same value twice: leave one of them out"
        )
    return {name: value for name, value in values.items() if name != "speculative_config"} | spread


def refuse_unsupported(values: dict[str, Any]) -> dict[str, Any]:
    """Drop settings that change nothing. Raises ValueError that names what to use instead."""
    for name, (neutral, instead) in UNSUPPORTED.items():
        if name in values and values[name] not in neutral:
            raise ValueError(f"{name}={values[name]!r} is not supported yet: {instead}")
    for name, instead in ALWAYS_ON.items():
        if values.get(name) in (False, "false"):
            raise ValueError(f"{name}=false is not supported: {instead}")
    dropped = UNSUPPORTED.keys() | ALWAYS_ON.keys()
    return {name: value for name, value in values.items() if name not in dropped}
