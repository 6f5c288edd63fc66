"""Defects of our own forward."""

from functools import partial

from tests.mutants.mutant import Mutant

_FUSED_TESTS = "tests/models/test_fused_decoder.py::"
_KERNEL_TESTS = "tests/models/test_native_kernels.py::"
_SAME_BITS = _FUSED_TESTS + "test_its_logits_are_those_of_transformers_bit_for_bit[fused {}-dtype0]"
_in_llama = partial(Mutant, path="specdec_core/models/llama.py")
_in_attention_h = partial(Mutant, path="specdec_core/kernels/csrc/attention.h")

MUTANTS = (
    Mutant(
        name="halves-turned-the-other-way",
        path="specdec_core/layers/elementwise.py",
        old="    swapped = torch.cat([-second, first], dim=-1)\n",
        new="    swapped = torch.cat([second, -first], dim=-1)\n",
        breaks="queries and keys turn backwards: their angles agree, the trained ones do not",
        killed_by=_SAME_BITS.format("llama"),
    ),
    _in_llama(
        name="gate-and-up-exchanged",
        old="_join(mlp.gate_proj, mlp.up_proj)",
        new="_join(mlp.up_proj, mlp.gate_proj)",
        breaks="the activation falls on the other half of the MLP",
        killed_by=_SAME_BITS.format("llama"),
    ),
    _in_llama(
        name="head-norms-left-out",
        old="RMSNorm(getattr(attention, name)) if hasattr(attention, name) else None",
        new="RMSNorm(getattr(attention, name)) if hasattr(layer, name) else None",
        breaks="Qwen3's queries and keys keep their lengths",
        killed_by=_SAME_BITS.format("qwen3"),
    ),
    _in_llama(
        name="biases-left-out-of-joined-linears",
        old="    has_bias = linears[0].bias is not None\n",
        new="    has_bias = False\n",
        breaks="Qwen2 without its biases: fluent at first",
        killed_by=_FUSED_TESTS + "test_biases_and_tied_heads_are_kept",
    ),
    _in_attention_h(
        name="a-kernel-query-misses-its-own-key",
        old="(vi){0} + (int32_t)last_key);",
        new="(vi){0} + (int32_t)last_key - 1);",
        breaks="a token does not see itself",
        killed_by=_KERNEL_TESTS + "test_attention_is_that_of_the_textbook",
    ),
    _in_attention_h(
        name="a-kernel-reads-keys-behind-the-last",
        old="const bf16 *odd = j + 1 < tile->count ?",
        new="const bf16 *odd = j < tile->count ?",
        breaks="what an earlier request left in a block spreads, if it is no number",
        killed_by=_KERNEL_TESTS + "test_what_lies_behind_the_last_key_never_spreads",
    ),
    _in_attention_h(
        name="a-kernel-sums-by-company",
        old="total_of[q] = (vf){0};",
        new="total_of[q] = (vf){0} + 1e-6f * (float)(u->num_keys % 7);",
        breaks="a query's weights depend on how far the last query of its chunk sees",
        killed_by=_KERNEL_TESTS
        + "test_a_query_has_the_same_bits_alone_in_company_and_in_any_chunk",
    ),
    _in_attention_h(
        name="a-kernel-unit-of-all-heads-reads-the-first",
        old="const bf16 *rows = tile->rows + head * size + j * tile->stride;",
        new="const bf16 *rows = tile->rows + j * tile->stride;",
        breaks="a batch's heads mix the values of another; few sequences do not",
        killed_by=_KERNEL_TESTS + "test_few_queries_of_many_sequences_have_the_bits_of_one",
    ),
    Mutant(
        name="a-kernel-linear-without-bias",
        path="specdec_core/kernels/csrc/products.h",
        old="const bf16 *bias = p->bias ? p->bias + block * OUTPUTS : no_bias;",
        new="const bf16 *bias = no_bias;",
        breaks="Qwen2 without its biases: fluent at first",
        killed_by=_KERNEL_TESTS + "test_a_linear_is_a_product_and_a_row_never_sees_its_company",
    ),
    Mutant(
        name="a-kernel-linear-loses-the-last-rows",
        path="specdec_core/kernels/csrc/products.h",
        old="if (chunk + 1 == p->num_chunks) end = p->rows;",
        new="if (chunk + 1 == p->num_chunks) end = p->rows / TILE_ROWS * TILE_ROWS;",
        breaks="rows behind the last whole tile are what was in memory",
        killed_by=_KERNEL_TESTS + "test_a_linear_is_a_product_and_a_row_never_sees_its_company",
    ),
    Mutant(
        name="a-kernel-linear-forgets-a-row-of-thirteen",
        path="specdec_core/kernels/csrc/products_pairs.h",
        old="CASE(6, 1, asks)",
        new="case 6: multiply_rows(p, first, 5, blocks, 1, asks, to); break;",
        breaks="without AMX one row of 13 is what was in memory",
        killed_by=_KERNEL_TESTS + "test_a_linear_is_a_product_and_a_row_never_sees_its_company",
    ),
)
