"""Defects of our own forward."""

from tests.mutants.mutant import Mutant

_FUSED = "specdec_core/models/fused_decoder.py"
_FUSED_TESTS = "tests/models/test_fused_decoder.py::"
_SAME_BITS = _FUSED_TESTS + "test_its_logits_are_those_of_transformers_bit_for_bit[fused {}-dtype0]"

MUTANTS = (
    Mutant(
        name="halves-turned-the-other-way",
        path=_FUSED,
        old="    return torch.cat([-first, second], dim=-1)\n",
        new="    return torch.cat([first, -second], dim=-1)\n",
        breaks="queries and keys turn backwards: their angles agree, the trained ones do not",
        killed_by=(_SAME_BITS.format("llama"),),
    ),
    Mutant(
        name="gate-and-up-exchanged",
        path=_FUSED,
        old="_join(mlp.gate_proj, mlp.up_proj)",
        new="_join(mlp.up_proj, mlp.gate_proj)",
        breaks="the activation falls on the other half of the MLP",
        killed_by=(_SAME_BITS.format("llama"),),
    ),
    Mutant(
        name="head-norms-left-out",
        path=_FUSED,
        old='names = [name for name in ("q_norm", "k_norm") if hasattr(attention, name)]',
        new='names = [name for name in ("q_norm", "k_norm") if hasattr(layer, name)]',
        breaks="Qwen3's queries and keys keep their lengths",
        killed_by=(_SAME_BITS.format("qwen3"),),
    ),
    Mutant(
        name="biases-left-out-of-joined-linears",
        path=_FUSED,
        old="    has_bias = linears[0].bias is not None\n",
        new="    has_bias = False\n",
        breaks="Qwen2 without its biases: fluent at first",
        killed_by=(_FUSED_TESTS + "test_biases_and_tied_heads_are_kept",),
    ),
)
