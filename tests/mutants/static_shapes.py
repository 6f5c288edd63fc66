"""Defects of passes in fixed shapes: padding that shows, steps that lose count, memory shared."""

from functools import partial

from tests.mutants.mutant import Mutant

_TESTS = "tests/models/cuda_graphs/"
_ANY_ROWS = _TESTS + "test_static_passes.py::test_any_rows_of_any_lengths_have_the_ragged_logits"
_STANDS_IN = (
    _TESTS + "test_static_passes.py::"
    "test_a_recorded_shape_stands_in_for_one_that_is_seldom_asked_for"
)
_LOOP = _TESTS + "test_draft_loop.py::"
_KERNEL = _TESTS + "test_triton_attention.py::"
_in_graph_runner = partial(Mutant, path="specdec_core/worker/cuda_graphs/graph_runner.py")
_in_recorder = partial(Mutant, path="specdec_core/worker/cuda_graphs/recorder.py")
_in_memory = partial(Mutant, path="specdec_core/loading/memory.py")
_in_triton = partial(Mutant, path="specdec_core/layers/attention/triton.py")

MUTANTS = (
    Mutant(
        name="padding-writes-to-its-row",
        path="specdec_core/worker/cuda_graphs/device_plan.py",
        old="return position_RQ, torch.where(offset_Q < count_R1, row_RQ, scratch_Q)",
        new="return position_RQ, row_RQ",
        breaks="a short row beside a longer one loses the keys of its last token",
        killed_by=_ANY_ROWS,
    ),
    Mutant(
        name="a-bucket-ends-with-the-row",
        path="specdec_core/worker/cuda_graphs/buckets.py",
        old="start + max(queries, count + num_ahead)",
        new="start + count + num_ahead",
        breaks="attention over blocks aligns a short row's queries at the wrong key",
        killed_by=_TESTS + "test_buckets.py::test_a_bucket_holds_every_token_of_its_rectangle",
    ),
    _in_graph_runner(
        name="logits-of-the-recording-handed-out",
        old="return logits_NV[: sum(batch.num_logits)].clone()",
        new="return logits_NV[: sum(batch.num_logits)]",
        breaks="the next pass of the shape changes what a caller holds",
        killed_by=_TESTS + "test_static_passes.py::test_logits_stay_the_callers",
    ),
    Mutant(
        name="a-step-forgets-what-it-has-fed",
        path="specdec_core/worker/cuda_graphs/draft_loop.py",
        old="later.starts.add_(later.counts)",
        new="later.starts.add_(1)",
        breaks="a draft that catches up by two tokens drafts from the wrong place",
        killed_by=_LOOP + "test_proposals_are_those_of_a_draft_asked_token_by_token",
    ),
    Mutant(
        name="unsure-tokens-stay-cached",
        path="specdec_core/worker/cuda_graphs/draft_loop.py",
        old="if num_unfed > 0:",
        new="if num_unfed > 5:",
        breaks="the draft caches tokens that nobody has proposed",
        killed_by=_LOOP + "test_a_proposal_ends_before_an_unsure_token",
    ),
    Mutant(
        name="noise-of-the-next-position",
        path="specdec_core/sampling/device.py",
        old="(positions_R1 + 1) * _GOLDEN64",
        new="(positions_R1 + 2) * _GOLDEN64",
        breaks="a sampled draft and its target no longer choose alike: fewer accepted tokens",
        killed_by=(
            _TESTS + "test_device_choice.py::test_keys_of_the_noise_are_those_of_the_host",
            _LOOP + "test_proposals_are_those_of_a_draft_asked_token_by_token",
        ),
    ),
    _in_recorder(
        name="the-newest-recording-goes-first",
        old="oldest = next((key for key in self._recorded if key not in kept), None)",
        new="oldest = next((key for key in reversed(self._recorded) if key not in kept), None)",
        breaks="shapes that are in use are recorded again and again",
        killed_by=_TESTS + "test_recorder.py::test_the_one_used_longest_ago_goes_first",
    ),
    _in_memory(
        name="recordings-without-memory-of-their-own",
        old="recorded = self.workspace_bytes + self.logit_bytes + RECORDING_BYTES",
        new="recorded = self.logit_bytes + RECORDING_BYTES",
        breaks="the cache takes what recorded passes need, and a GPU runs out of memory in service",
        killed_by="tests/models/test_memory.py::test_a_pass_needs_its_workspace_and_recorded_ones_another",
    ),
    _in_memory(
        name="logits-without-memory-in-the-plan",
        old="recorded = self.workspace_bytes + self.logit_bytes + RECORDING_BYTES",
        new="recorded = self.workspace_bytes + RECORDING_BYTES",
        breaks="the cache takes what the logits of recorded passes need",
        killed_by="tests/models/test_memory.py::test_logits_of_recorded_passes_have_memory_of_their_own",
    ),
    _in_recorder(
        name="memory-that-runs-out-is-not-looked-for",
        old="if num_to_leave is None or not may_retry or not self._evict_to(num_to_leave, kept):",
        new="if True:",
        breaks="a shape that comes when a GPU is full is never recorded, whatever could go for it",
        killed_by=_TESTS + "test_recorder.py::"
        "test_where_memory_runs_out_the_older_half_goes_and_the_shape_is_tried_again",
    ),
    _in_recorder(
        name="a-capture-without-memory-ends-all",
        old="if not is_out_of_memory(error):\n                capture.give_up()",
        new="capture.give_up()",
        breaks="a GPU that was full once runs every operation from the host until the next start",
        killed_by=_TESTS + "test_captures.py::test_a_capture_without_memory_ends_nothing",
    ),
    _in_recorder(
        name="one-pool-for-ever",
        old="if not self._graphs:",
        new="if self._pool is None:",
        breaks="PyTorch refuses the next capture once all graphs are gone",
        killed_by=_TESTS + "test_captures.py::test_when_all_graphs_are_gone_their_pool_goes_too",
    ),
    Mutant(
        name="the-probe-sees-one-tile-of-keys",
        path="specdec_core/layers/attention/select.py",
        old="(1, 40), (5, 200), (33, 560))",
        new="(1, 40))",
        breaks="a kernel that never scales earlier sums anew is taken, and answers nonsense",
        killed_by=_TESTS + "test_block_attention.py::"
        "test_the_probe_refuses_tiles_that_are_put_together_wrongly",
    ),
    Mutant(
        name="exact-whatever-it-costs",
        path="specdec_core/loading/exact_cost.py",
        old="if max(costs.values(), default=0.0) <= MAX_COST:",
        new="if True:",
        breaks="auto takes exact numerics on a GPU that is slowed down by half",
        killed_by="tests/models/test_exact_cost.py::"
        "test_auto_is_fast_where_exact_passes_of_any_size_take_over_a_tenth_longer",
    ),
    _in_memory(
        name="a-share-that-others-have-used",
        old="return min(self.free, round(self.total * utilization) - self.own)",
        new="return self.free - round(self.total * (1 - utilization))",
        breaks="the second replica of a GPU is refused",
        killed_by="tests/models/test_memory.py::test_the_share_is_a_replicas_own",
    ),
    Mutant(
        name="catching-up-is-answered-before-it-is-done",
        path="specdec_core/worker/replica.py",
        old="if ready and not any([row.num_choices for row, _ in ready]):",
        new="if False:",
        breaks="a GPU has several parts of a prompt before it, and a round's seconds hold them",
        killed_by="tests/models/test_fake_gpu.py::"
        "test_a_lease_that_only_catches_up_is_answered_when_the_gpu_is_done",
    ),
    Mutant(
        name="rows-that-choose-in-different-ways-are-read-apart",
        path="specdec_core/sampling/sampler.py",
        old="for step in (first, *([attempt] for attempt in others)):",
        new="for step in ([attempt] for attempt in (*first, *others)):",
        breaks="greedy rows beside sampled ones make the host wait twice for a GPU",
        killed_by="tests/models/test_fake_gpu.py::"
        "test_a_verification_of_rows_that_choose_in_different_ways_waits_once",
    ),
    Mutant(
        name="exact-padded-rows-are-gathered",
        path="specdec_core/worker/model_runner.py",
        old="if self.block_attention is not None:",
        new="if False:",
        breaks="exact eqspec on a GPU sums in another order than exact plain decoding",
        killed_by="tests/models/test_padded_model.py::"
        "test_exact_logits_come_from_the_attention_over_blocks_where_there_is_one",
    ),
    Mutant(
        name="a-list-is-copied-as-it-is",
        path="specdec_core/algorithms/padded/attention.py",
        old="on_device(first, torch.long, kv.shape.device)",
        new="torch.tensor(first, device=kv.shape.device)",
        breaks="the host waits for a GPU before each pass of the padded algorithms",
        killed_by="tests/models/test_padded_on_fake_gpu.py::test_a_pass_over_a_rectangle_never_waits",
    ),
    _in_triton(
        name="parts-end-a-tile-late",
        old="if (first_key + KEYS) % PART == 0:",
        new="if (first_key + KEYS) % PART == KEYS:",
        breaks="keys that are split on a GPU are summed in another order than keys that are not",
        killed_by=_KERNEL + "test_keys_that_are_split_give_the_same_bits",
    ),
    _in_triton(
        name="a-part-goes-on-into-the-next",
        old="end = tl.minimum(end, begin + PART)",
        new="end = end",
        breaks="keys that are split count more than once",
        killed_by=_KERNEL + "test_keys_that_are_split_give_the_same_bits",
    ),
    _in_triton(
        name="heads-that-lie-apart-taken-as-they-are",
        old="return some_TXD if is_so else some_TXD.contiguous()",
        new="return some_TXD",
        breaks="models that run through transformers' layers read other heads' numbers on a GPU",
        killed_by=(
            _KERNEL + "test_queries_need_not_lie_behind_each_other",
            _KERNEL + "test_new_keys_and_values_go_where_they_belong",
        ),
    ),
    Mutant(
        name="heads-turned-the-other-way",
        path="specdec_core/layers/elementwise_triton.py",
        old="low_added_XP = (-high_XP * low_sine_P)",
        new="low_added_XP = (high_XP * low_sine_P)",
        breaks="every answer of a GPU",
        killed_by="tests/models/test_triton_ops.py::test_they_answer_like_pytorch",
    ),
    _in_graph_runner(
        name="a-larger-shape-stands-in-for-good",
        old="if not others or self._num_stood_in[own] % _OWN_AFTER == 0:",
        new="if not others:",
        breaks="passes of a size that is asked for all the time stay padded",
        killed_by=_STANDS_IN,
    ),
    Mutant(
        name="a-shape-too-small-stands-in",
        path="specdec_core/worker/cuda_graphs/buckets.py",
        old="holds = all(own >= needed",
        new="holds = any(own >= needed",
        breaks="rows of a pass have no place in its buffers",
        killed_by=_TESTS + "test_buckets.py::"
        "test_a_shape_stands_in_for_a_smaller_one_that_takes_about_as_long",
    ),
    _in_graph_runner(
        name="steps-of-greedy-rows-stand-in-for-drawn-ones",
        old="if shape.work == work and shape.bucket",
        new="if shape.bucket",
        breaks="a draft proposes other tokens than its target would draw",
        killed_by=_LOOP + "test_steps_of_a_larger_shape_stand_in",
    ),
)
