"""Defects of exact numerics: a row's bits come to depend on its company, or the check is blind."""

from functools import partial

from tests.mutants.mutant import Mutant

_ACTIVATION = "specdec_core/batch_invariance/activation.py"
_ATTENTION = "specdec_core/batch_invariance/attention.py"
_EXACT = "specdec_core/loading/self_check.py"
_NUMERICS = "specdec_core/batch_invariance/size_classes.py"
_PLAN = "specdec_core/layers/attention/metadata.py"
_LINEAR_TESTS = "tests/models/test_exact_linear.py::"
_ACTIVATION_TESTS = "tests/models/test_exact_activation.py::"
_EXACT_TESTS = "tests/models/test_exact.py::"
_NUMERICS_TESTS = "tests/models/test_numerics.py::"
_in_linear = partial(Mutant, path="specdec_core/batch_invariance/linear.py")

MUTANTS = (
    _in_linear(
        name="calls-above-the-class",
        old="num_calls = -(-num_rows // self.rows.high)",
        new="num_calls = max(num_rows // self.rows.high, 1)",
        breaks="B(K + 1) rows run in one call of another order: 1 of 16 outputs equal",
        killed_by=_LINEAR_TESTS + "test_calls_stay_in_the_class",
    ),
    _in_linear(
        name="calls-below-the-class",
        old="if num_missing <= 0:",
        new="if num_missing <= 1:",
        breaks="one row alone is computed in another order than in company",
        killed_by=_LINEAR_TESTS + "test_calls_stay_in_the_class",
    ),
    _in_linear(
        name="whole-class-padded",
        old="num_missing = self.rows.fit(tile_MI.shape[0]) - tile_MI.shape[0]",
        new="num_missing = self.rows.high - tile_MI.shape[0]",
        breaks="nothing but speed: every call pays for the largest one",
        killed_by=_LINEAR_TESTS + "test_calls_stay_in_the_class",
    ),
    _in_linear(
        name="padding-rows-returned",
        old="return padded[: tile_MI.shape[0]]",
        new="return padded[-tile_MI.shape[0] :]",
        breaks="rows are answered with those of the padding",
        killed_by=_LINEAR_TESTS + "test_calls_stay_in_the_class",
    ),
    _in_linear(
        name="place-in-the-call-not-tried",
        old="if not torch.equal("
        "probe(tile_MI.roll(size // 2, 0)).roll(-(size // 2), 0), direct_MO):",
        new="if not torch.equal(probe(tile_MI), direct_MO):",
        breaks="a kernel that treats its last rows otherwise counts as one class",
        killed_by=_LINEAR_TESTS + "test_a_size_whose_rows_see_their_place_is_no_class",
    ),
    _in_linear(
        name="classes-never-differ",
        old="return torch.equal(shorter_MO, longer_MO[: shorter_MO.shape[0]])",
        new="return torch.allclose(shorter_MO, longer_MO[: shorter_MO.shape[0]], atol=1e-3)",
        breaks="sums that differ in the last bit count as equal",
        killed_by=_LINEAR_TESTS + "test_a_change_of_order_bounds_the_class",
    ),
    _in_linear(
        name="only-the-first-linear-of-a-shape-wrapped",
        old="    for name, linear in linears:\n",
        new="    for name, linear in linears[:1]:\n",
        breaks="all layers but the first run at any shape",
        killed_by=_LINEAR_TESTS + "test_every_linear_is_wrapped_by_the_class_of_its_shape",
    ),
    Mutant(
        name="undo-leaves-the-wrappers",
        path="specdec_core/batch_invariance/module.py",
        old="        model.set_submodule(name, module.plain)\n",
        new="        model.get_submodule(name)\n",
        breaks="a model that fell back to fast numerics still pays for exact ones",
        killed_by=_LINEAR_TESTS + "test_the_plain_linears_come_back",
    ),
    Mutant(
        name="class-of-the-largest-sizes-only",
        path=_NUMERICS,
        old="units = sum(max(size, count * sizes.low) + count * call_cost "
        "for count, size in calls)",
        new="units = sum(count * call_cost for count, size in calls)",
        breaks="nothing but speed: single rows are padded to the largest class",
        killed_by=_NUMERICS_TESTS + "test_the_class_that_serves_small_and_large_calls_cheaply",
    ),
    Mutant(
        name="class-one-size-too-long",
        path=_NUMERICS,
        old="breaks = [index + 1 for index, is_equal in enumerate(is_equal_to_next) "
        "if not is_equal]",
        new="breaks = [index + 2 for index, is_equal in enumerate(is_equal_to_next) "
        "if not is_equal]",
        breaks="a class holds one size of other bits",
        killed_by=_NUMERICS_TESTS + "test_the_class_that_serves_small_and_large_calls_cheaply",
    ),
    Mutant(
        name="key-length-not-rounded",
        path="specdec_core/layers/attention/metadata.py",
        old="num_whole = (num_keys - 1) // self.key_lens[-1] * self.key_lens[-1]",
        new="num_whole = num_keys // self.key_lens[-1] * self.key_lens[-1]",
        breaks="a row whose keys fill a block reads one block more than the same row in company",
        killed_by=_NUMERICS_TESTS + "test_key_lengths_round_up",
    ),
    Mutant(
        name="every-rounding-taken",
        path=_ATTENTION,
        old="if not torch.equal(*rows):",
        new="if not torch.allclose(*rows, atol=1e-3):",
        breaks="keys that the kernel sums in another order are read at some lengths",
        killed_by=_EXACT_TESTS + "test_bits_of_long_rows_do_not_depend_on_their_chunks[dtype0]",
    ),
    Mutant(
        name="rows-compared-approximately",
        path=_EXACT,
        old="    if not torch.equal(alone, in_batch):\n",
        new="    if not torch.allclose(alone, in_batch, atol=1e-2):\n",
        breaks="the self-check passes on a machine where bits differ",
        killed_by=_EXACT_TESTS + "test_without_classes_a_row_does_see_its_company",
    ),
    Mutant(
        name="refused-model-stays-exact",
        path=_EXACT,
        old="    model.class_table = None\n    return undo_exact(model.module)\n",
        new="    return undo_exact(model.module)\n",
        breaks="a model that failed its self-check says that it is exact",
        killed_by=_EXACT_TESTS + "test_a_row_that_sees_its_company_is_named",
    ),
    Mutant(
        name="ffn-rows-not-padded",
        path=_ACTIVATION,
        old="if width % _VECTOR == 0:",
        new="if True:",
        breaks="what a row leaves over of the last vector is computed by another formula",
        killed_by=_ACTIVATION_TESTS + "test_a_row_never_sees_its_company",
    ),
    Mutant(
        name="activation-cut-anywhere-among-threads",
        path=_ACTIVATION,
        old="if num_numbers <= _UNDIVIDED:",
        new="if True:",
        breaks="where one thread ends depends on the rows of the call, and with it a last bit",
        killed_by=_ACTIVATION_TESTS + "test_a_plain_activation_does_see_it",
    ),
    Mutant(
        name="long-feeds-in-one-row",
        path="specdec_core/worker/model_runner.py",
        old="self.max_tokens_per_pass, self.attention_shape.queries.high",
        new="self.max_tokens_per_pass, 10_000",
        breaks="a prefill's attention runs at query counts that were never checked",
        killed_by=_EXACT_TESTS + "test_attention_is_called_in_its_shapes_only",
    ),
    Mutant(
        name="single-queries-not-padded",
        path=_PLAN,
        old="num_queries = max(attention.queries.low, *(counts[row] for row in rows))",
        new="num_queries = max(counts[row] for row in rows)",
        breaks="one query is a class of its own on models without grouped queries",
        killed_by=_EXACT_TESTS + "test_attention_is_called_in_its_shapes_only",
    ),
    Mutant(
        name="norms-known-by-their-name-alone",
        path="specdec_core/batch_invariance/norm.py",
        old="return looks_plain and _computes_the_same(module)",
        new="return looks_plain",
        breaks="a norm that adds 1 to its weights is computed without",
        killed_by="tests/models/test_exact_norm.py::test_a_variant_is_left_alone",
    ),
    _in_linear(
        name="sizes-of-one-order-kept-apart",
        old="if torch.equal(other, first)), len(firsts))",
        new="if other is first), len(firsts))",
        breaks="nothing but speed: on a GPU large calls or small ones are of another class",
        killed_by=_LINEAR_TESTS + "test_sizes_of_one_order_are_one_class_wherever_they_lie",
    ),
)
