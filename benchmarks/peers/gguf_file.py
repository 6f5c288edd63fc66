"""A Llama folder as a float16 GGUF file, with the tokenizer of a GGUF file that is there already.

OpenVINO GenAI reads models from GGUF without any other package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

_OWN_KEYS = ("general.architecture", "llama.block_count", "general.file_type")
_MOSTLY_F16 = 1
_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_IN_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(folder: Path, like: Path, output: Path) -> None:
    """`like` gives the tokenizer, the template and the shape, all but the number of layers."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(output, "llama")
    _copy_header(writer, gguf.GGUFReader(like))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_file_type(_MOSTLY_F16)
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = _in_gguf_order(name, tensor.float().numpy(), config)
        writer.add_tensor(
            gguf_name(name), values.astype(np.float16 if values.ndim == 2 else np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_header(writer: Any, reader: Any) -> None:
    for entry in reader.fields.values():
        if entry.name.startswith("GGUF.") or entry.name in _OWN_KEYS:
            continue
        kind, *inner = entry.types
        writer.add_key_value(
            entry.name, entry.contents(), kind, sub_type=inner[-1] if inner else None
        )


def gguf_name(name: str) -> str:
    """What GGUF calls a tensor of a Llama checkpoint."""
    base = name.removesuffix(".weight")
    if base in _TOP:
        return f"{_TOP[base]}.weight"
    _, _, layer, part = base.split(".", 3)
    return f"blk.{layer}.{_IN_LAYER[part]}.weight"


def _in_gguf_order(name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """GGUF has the rotated halves of a query or key head interleaved."""
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }.get(name.split(".")[-2])
    if heads is None:
        return values
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, values.shape[1])
    return halves.swapaxes(1, 2).reshape(values.shape)
