"""Defects of the in-place cache and of the pass that reads and writes it."""

from functools import partial

from tests.mutants.mutant import Mutant

_BLOCKS = "specdec_core/kv_cache/block_allocator.py"
_AHEAD = "specdec_core/kv_cache/paged.py"
_TOUCH = "specdec_core/kernels/csrc/prefault.c"
_ATTENTION = "specdec_core/layers/attention/sdpa.py"
_BLOCKS_TESTS = "tests/kv_cache/test_blocks.py::"
_PAGED_TESTS = "tests/kv_cache/test_paged.py::"
_AHEAD_TESTS = "tests/kv_cache/test_backed_ahead.py::"
_ADAPTER_TESTS = "tests/models/test_transformers_adapter.py::"
_INTERLEAVED = (
    _ADAPTER_TESTS
    + "test_any_interleaving_of_feeds_and_rollbacks_gives_the_full_forwards_logits[llama-512]"
)
_GENERATE = _ADAPTER_TESTS + "test_greedy_ids_of_a_ragged_batch_equal_generate[llama]"
_in_model_runner = partial(Mutant, path="specdec_core/worker/model_runner.py")
_in_paged = partial(Mutant, path="specdec_core/kv_cache/paged.py")
_in_metadata = partial(Mutant, path="specdec_core/layers/attention/metadata.py")

MUTANTS = (
    Mutant(
        name="block-handed-out-twice",
        path=_BLOCKS,
        old="            self._flip(after, self._vacant)\n",
        new="",
        breaks="two sequences write their keys into one block",
        killed_by=_BLOCKS_TESTS + "test_random_use_never_hands_a_block_out_twice",
    ),
    _in_model_runner(
        name="kernels-without-runs",
        old="            run_length=RUN_LENGTH if self.kernels else 1,\n",
        new="",
        breaks="in a service that ran for a while each block lies in another place of memory",
        killed_by="tests/models/test_native_kernels.py::"
        "test_rows_of_a_model_with_kernels_lie_in_runs_of_blocks[as this machine is]",
    ),
    Mutant(
        name="who-ends-waits-for-all-memory",
        path=_AHEAD,
        old="            if not threading.main_thread().is_alive():\n                return\n",
        new="",
        breaks="a process on a busy machine ends seconds later than it could",
        killed_by=_AHEAD_TESTS + "test_a_process_that_ends_meanwhile_ends_well_and_soon",
    ),
    Mutant(
        name="backed-bytes-are-cleared",
        path=_TOUCH,
        old="    __atomic_compare_exchange_n(byte, &zero, 0, 0, __ATOMIC_RELAXED",
        new="    __atomic_exchange_n(byte, zero, __ATOMIC_RELAXED); (void)(0",
        breaks="a key or value that was written meanwhile is lost",
        killed_by=_AHEAD_TESTS + "test_touched_pages_are_backed_and_their_bytes_stay",
    ),
    _in_model_runner(
        name="no-memory-is-backed-ahead",
        old="            touch=load_touch() if self.kernels else None,\n",
        new="",
        breaks="each new block costs the pass that writes it 150 page faults",
        killed_by="tests/models/test_native_kernels.py::"
        "test_a_model_with_kernels_has_memory_backed_ahead[as this machine is]",
    ),
    _in_paged(
        name="rollback-extends-a-shorter-slot",
        old="        if length >= state.length:\n            return\n",
        new="",
        breaks="a slot counts places as cached that were never written",
        killed_by=_PAGED_TESTS
        + "test_a_slot_takes_blocks_as_it_grows_and_gives_them_back_as_it_shrinks",
    ),
    _in_paged(
        name="rolled-back-blocks-stay-in-the-table",
        old="        del state.blocks[num_kept:]\n",
        new="",
        breaks="two block tables name one block",
        killed_by=_PAGED_TESTS + "test_random_slots_never_share_a_block",
    ),
    _in_paged(
        name="rolled-back-blocks-not-given-back",
        old="        self._allocator.free(reversed(state.blocks[num_kept:]))\n",
        new="",
        breaks="every rejection leaks blocks",
        killed_by=_PAGED_TESTS
        + "test_a_slot_takes_blocks_as_it_grows_and_gives_them_back_as_it_shrinks",
    ),
    _in_paged(
        name="block-not-cleared",
        old="        if taken and self._clears_blocks:\n",
        new="        if False:\n",
        breaks="a NaN of an earlier request reaches a later one through a masked key",
        killed_by=_PAGED_TESTS + "test_a_nan_does_not_outlive_its_request",
    ),
    _in_model_runner(
        name="nobody-clears-blocks",
        old="clears_blocks=self.kernels is None,",
        new="clears_blocks=False,",
        breaks="without kernels of our own, a NaN reaches a later request through a masked key",
        killed_by=_ADAPTER_TESTS + "test_a_nan_in_freed_blocks_reaches_nobody",
    ),
    _in_model_runner(
        name="blocks-are-cleared-for-kernels-that-do-not-mind",
        old="clears_blocks=self.kernels is None,",
        new="clears_blocks=True,",
        breaks="a round of 16 rows writes 0.4 MB for nothing, in one thread",
        killed_by="tests/models/test_native_kernels.py::"
        "test_a_model_with_kernels_leaves_blocks_as_they_are",
    ),
    Mutant(
        name="values-behind-the-last-key-are-read",
        path="specdec_core/kernels/csrc/attention.h",
        old="const bf16 *odd = j + 1 < tile->count ? rows + tile->stride : no_row;",
        new="const bf16 *odd = rows + tile->stride;",
        breaks="a NaN that another request has left behind the last key spreads",
        killed_by=(
            "tests/models/test_native_kernels.py::test_what_lies_behind_the_last_key_never_spreads",
            "tests/models/test_native_kernels.py::"
            "test_nor_does_it_where_one_unit_takes_all_key_heads",
        ),
    ),
    _in_metadata(
        name="tables-padded-with-a-block-of-another",
        old='numbers.extend(array("i", table[-1:]) * (width - len(table)))',
        new="numbers.extend([0] * (width - len(table)))",
        breaks="a NaN of one request reaches all others through masked keys",
        killed_by=(
            "tests/models/test_padded_model.py::test_a_nan_in_one_row_reaches_no_other",
            "tests/models/cuda_graphs/test_static_passes.py::"
            "test_what_fails_in_a_sequence_does_not_spread",
        ),
    ),
    _in_metadata(
        name="mask-one-key-too-wide",
        old="device=position_RQ.device) > position_RQ.unsqueeze(-1)",
        new="device=position_RQ.device) > position_RQ.unsqueeze(-1) + 1",
        breaks="a token sees the one behind it: a draft confirms itself",
        killed_by=_INTERLEAVED,
    ),
    _in_metadata(
        name="mask-hides-the-own-place",
        old="device=position_RQ.device) > position_RQ.unsqueeze(-1)",
        new="device=position_RQ.device) >= position_RQ.unsqueeze(-1)",
        breaks="a token does not see itself; the first of a sequence sees nothing: NaN",
        killed_by=_GENERATE,
    ),
    _in_metadata(
        name="positions-count-from-the-pass",
        old="        positions += own\n",
        new="        positions += range(count)\n",
        breaks="position ids start at 0 in every pass",
        killed_by=_GENERATE,
    ),
    _in_metadata(
        name="key-written-one-place-off",
        old="[table[position // size] * size + position % size for position in own]",
        new="[table[p // size] * size + p % size for p in [max(i - 1, 0) for i in own]]",
        breaks="each new key overwrites the one before it",
        killed_by=_GENERATE,
    ),
    _in_metadata(
        name="queries-in-the-order-of-the-segments",
        old="token_index=None if is_in_order else",
        new="token_index=None if len(queries) > 1 or is_in_order else",
        breaks="rows are answered with the attention of others when long and short rows mix",
        killed_by=_ADAPTER_TESTS + "test_long_feeds_of_a_pass_share_their_attention",
    ),
    _in_metadata(
        name="logits-of-the-first-tokens",
        old="wanted += range(end - num_logits, end)",
        new="wanted += range(end - num_logits - (end > 1), end - (end > 1))",
        breaks="verification reads the logits one place too early",
        killed_by=_INTERLEAVED,
    ),
    _in_metadata(
        name="padded-query-sees-past-the-row",
        old="padded = [(row, min(i, counts[row] - 1)) for row in rows",
        new="padded = [(row, i) for row in rows",
        breaks="an index beyond the pass, or a neighbour's query in the padding",
        killed_by=_INTERLEAVED,
    ),
    _in_metadata(
        name="key-length-of-the-first-row",
        old="key_len = attention.key_len(max(ends[row] for row in rows))",
        new="key_len = attention.key_len(ends[rows[0]])",
        breaks="longer companions lose the keys beyond the first row's length",
        killed_by=_INTERLEAVED,
    ),
    Mutant(
        name="values-stored-as-keys",
        path=_ATTENTION,
        old="for pool, new in zip(pools, (key_TKD, value_TKD), strict=True):",
        new="for pool, new in zip(pools, (key_TKD, key_TKD), strict=True):",
        breaks="everything, fluently",
        killed_by=_GENERATE,
    ),
    Mutant(
        name="query-heads-folded-in-the-wrong-order",
        path=_ATTENTION,
        old="shape = (num_rows, num_tokens // num_rows, num_kv_heads, "
        "num_heads // num_kv_heads, head_dim)\n"
        "    return query_THD.view(shape).permute(0, 2, 3, 1, 4)",
        new="shape = (num_rows, num_tokens // num_rows, num_heads // num_kv_heads, "
        "num_kv_heads, head_dim)\n"
        "    return query_THD.view(shape).permute(0, 3, 2, 1, 4)",
        breaks="query heads read the keys of another group",
        killed_by=_GENERATE,
    ),
    _in_model_runner(
        name="failed-pass-leaves-its-places",
        old="            self.rollback(slot, start)\n",
        new="            self.cached_len(slot)\n",
        breaks="after an error a slot counts places as cached that were not written",
        killed_by=_ADAPTER_TESTS + "test_a_pass_that_raises_leaves_everything_unchanged",
    ),
)
