"""Request fields of OpenAI and other servers that a body does not declare.

The other servers are vLLM, llama.cpp, SGLang, TGI and Ollama. A field that changes no token passes.
Every other field passes with the values that change nothing, and is refused by name with any other
value. A field that is null counts as left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from deployments.text.sampling_fields import SamplingFields
from specdec_core.errors import InvalidRequestError

PASSES = frozenset(
    (
        # OpenAI: who asks, what is kept, and hints for speed.
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prediction"),
        *("parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention"),
        *("prompt_cache_options", "stream_options.include_obfuscation"),
        # vLLM and SGLang: means and bookkeeping.
        *("guided_decoding_backend", "mm_processor_kwargs", "media_io_kwargs"),
        *("spaces_between_special_tokens", "data_parallel_rank", "rid", "stream_reasoning"),
        # llama.cpp and others: caches, timings, and parameters of methods that are refused below.
        *("cache_prompt", "id_slot", "slot_id", "n_keep", "n_discard", "keep_alive", "num_ctx"),
        *("timings_per_token", "return_progress", "details", "mirostat_tau", "mirostat_eta"),
        *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
        *("xtc_threshold", "dynatemp_exponent", "adaptive_decay", "repeat_last_n", "penalize_nl"),
        *("grammar_lazy", "grammar_triggers", "preserved_tokens", "speculative.n_max"),
        *("speculative.n_min", "speculative.p_min"),
    )
)


class Known(NamedTuple):
    """A field that may change the answer."""

    neutral: tuple[object, ...] = ()
    """Values that change nothing, besides null."""
    instead: str = ""
    """Advice for the others."""


_OFF = Known((False,))
_ZERO = Known((0,))
_ONE = Known((1,))
_EMPTY = Known(("", [], {}))
_NEVER = Known()
_CHAT = "/v1/chat/completions takes it"
_TEXT = "/v1/completions takes it"
_MAX = Known((), "use max_tokens")

_DECODING: Mapping[str, Known] = {
    # OpenAI.
    "function_call": Known(("none", "auto"), "use tool_choice"),
    "modalities": Known((["text"],)),
    "moderation": _NEVER,
    "reasoning_effort": Known(("none",)),
    "suffix": Known(("",)),
    "verbosity": Known(("medium",)),
    "web_search_options": _NEVER,
    # Fields of the other route.
    "add_generation_prompt": Known((True,), _CHAT),
    "best_of": Known((1,), _TEXT),
    "chat_template": Known((), _CHAT),
    "chat_template_kwargs": Known(({},), _CHAT),
    "continue_final_message": Known((False,), _CHAT),
    "echo": Known((False,), _TEXT),
    "tool_choice": Known(("none", "auto"), _CHAT),
    "tools": Known(([],), _CHAT),
    "top_logprobs": Known((0,), f"{_CHAT}; for completions logprobs is the number"),
    # vLLM.
    "guided_whitespace_pattern": _NEVER,
    "include_reasoning": Known((True,)),
    "kv_transfer_params": Known(({},)),
    "length_penalty": _ONE,
    "logits_processors": Known(([],)),
    "logprob_token_ids": Known(([],)),
    "prompt_embeds": _NEVER,
    "repetition_detection": _NEVER,
    "return_tokens_as_token_ids": Known((False,), "use return_token_ids"),
    "structural_tag": _NEVER,
    "thinking_token_budget": _NEVER,
    "truncation_side": Known(("left",)),
    "use_beam_search": _OFF,
    "vllm_xargs": Known(({},)),
    # llama.cpp and text-generation-webui.
    "adaptive_target": Known((-1,)),
    "dry_multiplier": _ZERO,
    "dynatemp_range": _ZERO,
    "epsilon_cutoff": _ZERO,
    "eta_cutoff": _ZERO,
    "guidance_scale": _ONE,
    "lora": Known(([],)),
    "min_keep": _ZERO,
    "mirostat": _ZERO,
    "n_cmpl": Known((1,), "use n"),
    "n_indent": _ZERO,
    "n_predict": _MAX,
    "n_probs": Known((0,), "use logprobs"),
    "post_sampling_probs": _OFF,
    "reasoning_format": Known(("none", "auto", "deepseek")),
    "repeat_penalty": Known((1,), "use repetition_penalty"),
    "samplers": Known(([],)),
    "smoothing_factor": _ZERO,
    "t_max_predict_ms": Known((0, -1)),
    "tfs_z": _ONE,
    "top_a": _ZERO,
    "top_n_sigma": Known((-1, 0)),
    "typical_p": _ONE,
    "xtc_probability": _ZERO,
    # SGLang and TGI.
    "custom_logit_processor": Known(("",)),
    "custom_params": Known(({},)),
    "do_sample": Known((True,), "use temperature=0"),
    "ebnf": Known(("",), "use structured_outputs.grammar, in Lark's notation"),
    "lora_path": Known(("",)),
    "max_new_tokens": _MAX,
    "min_new_tokens": Known((0,), "use min_tokens"),
    "no_stop_trim": Known((False,), "use include_stop_str_in_output"),
    "return_hidden_states": _OFF,
    "separate_reasoning": Known((True,)),
    "stop_regex": Known(("", [])),
    "top_n_tokens": Known((0,), "use logprobs"),
    "watermark": _OFF,
    # Ollama, Mistral, Anthropic and the Responses API.
    "enable_thinking": Known((), "use chat_template_kwargs"),
    "max_output_tokens": _MAX,
    "max_tokens_to_sample": _MAX,
    "num_predict": _MAX,
    "random_seed": Known((), "use seed"),
    "stop_sequences": Known(([],), "use stop"),
}
"""Fields that say how an answer is decoded."""
DECODING: Mapping[str, Known] = {
    name: known for name, known in _DECODING.items() if name not in SamplingFields.model_fields
}
"""Without those that are sampling parameters here."""

_SHAPES: Mapping[str, Known] = {
    "audio": _NEVER,
    "content": Known((), "use prompt"),
    "context": Known(([],)),
    "data_sources": Known(([],)),
    "decoder_input_details": _OFF,
    "documents": _EMPTY,
    "extra_body": Known(({},), "send its fields at the top level"),
    "format": Known(("",), "use response_format"),
    "functions": Known(([],), "use tools"),
    "grammar": Known(("",), "use structured_outputs.grammar, in Lark's notation"),
    "image_data": Known(([],)),
    "images": Known(([],)),
    "input": Known((), "use messages or prompt"),
    "input_ids": Known((), "use prompt"),
    "inputs": Known((), "use prompt"),
    "instructions": Known(("",), "use messages"),
    "messages": Known((), _CHAT),
    "options": Known(({},), "send its fields at the top level"),
    "parameters": Known(({},), "send its fields at the top level"),
    "previous_response_id": _NEVER,
    "prompt": Known(("",), _TEXT),
    "raw": _OFF,
    "reasoning": Known(({},)),
    "return_full_text": Known((False,), "use echo"),
    "sampling_params": Known(({},), "send its fields at the top level"),
    "session_params": Known(({},)),
    "system": Known(("",), "use messages"),
    "template": Known(("",), "use chat_template"),
    "think": Known((), "use chat_template_kwargs"),
    "thinking": Known(({"type": "disabled"},), "use chat_template_kwargs"),
    "truncate": Known((), "use truncate_prompt_tokens"),
}
"""Fields whose names any record of text may have."""

OFFLINE: Mapping[str, Known] = {
    **DECODING,
    "add_special_tokens": Known((True,)),
    "guided_choice": _NEVER,
    "guided_grammar": _NEVER,
    "guided_json": _NEVER,
    "guided_regex": _NEVER,
    "include_stop_str_in_output": _OFF,
    "json_schema": _NEVER,
    "n": _ONE,
    "prompt_logprobs": _NEVER,
    "reasoning_effort": _NEVER,
    "regex": _NEVER,
    "response_format": Known(({"type": "text"},)),
    "resume": _NEVER,
    "skip_special_tokens": Known((True,)),
    "stop": Known(([],), "use stop_token_ids"),
    "structured_outputs": _NEVER,
    "truncate_prompt_tokens": _NEVER,
}
"""Fields of a request that `specdec generate` does not enforce."""

_KNOWN = {**DECODING, **_SHAPES}
NAMES = PASSES | _KNOWN.keys()


def check_neutral(name: str, value: Any, table: Mapping[str, Known] = _KNOWN) -> None:
    """Raise InvalidRequestError for a field of `table` that would change the answer."""
    known = table.get(name)
    if known is None or value is None or value in known.neutral:
        return
    hint = f"; {known.instead}" if known.instead else ""
    only = " or ".join(json.dumps(v) for v in known.neutral) or "null"
    raise InvalidRequestError(
        f"{name}={json.dumps(value):.80} is not supported here, only {only}{hint}",
        param=name,
        code="unsupported_value" if known.neutral else "unsupported_parameter",
    )
