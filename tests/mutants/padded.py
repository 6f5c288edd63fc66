"""Defects of the left-padded cache and of the paper's algorithms on it."""

from functools import partial

from tests.mutants.mutant import Mutant

_INVARIANTS = "specdec_core/algorithms/padded/invariants.py"
_EXSPEC = "specdec_core/algorithms/padded/exspec_padded.py"
_ATTENTION = "specdec_core/algorithms/padded/attention.py"
_KV_TESTS = "tests/kv_cache/test_padded.py::"
_DEFECT = "tests/equivalence/test_defects.py::test_defect_"
_EQUAL_TESTS = "tests/equivalence/test_padded.py::"
_EXSPEC_TESTS = "tests/core/test_padded_choice.py::"
_MODEL_TESTS = "tests/models/test_padded_model.py::"
_FAST_LOGITS = _MODEL_TESTS + "test_fast_logits_are_close_to_those_of_the_in_place_cache[llama-512]"
_EXACT_LOGITS = _MODEL_TESTS + "test_exact_logits_are_those_of_the_in_place_cache[llama-dtype0]"
_in_cache = partial(Mutant, path="specdec_core/algorithms/padded/cache.py")
_in_live_sequence = partial(Mutant, path="specdec_core/algorithms/live_sequence.py")
_in_round = partial(Mutant, path="specdec_core/algorithms/padded/round.py")

MUTANTS = (
    _in_cache(
        name="right-padded-batch",
        old="    return [longest - length for length in content_lens]\n",
        new="    return [0 * longest for _ in content_lens]\n",
        breaks="contents begin together and end ragged",
        killed_by=_KV_TESTS + "test_rounds_of_realignment_equal_a_per_row_reference",
    ),
    _in_cache(
        name="rows-shifted-the-wrong-way",
        old="shifts = [old - new for old, new in zip(starts, self.starts, strict=True)]",
        new="shifts = [new - old for old, new in zip(starts, self.starts, strict=True)]",
        breaks="after a round every row reads another's place: repetition and gibberish",
        killed_by=_KV_TESTS + "test_rounds_of_realignment_equal_a_per_row_reference",
    ),
    _in_cache(
        name="finished-row-keeps-its-place",
        old="self.cached_lens = [self.cached_lens[row] for row in rows]",
        new="self.cached_lens = self.cached_lens[: len(rows)]",
        breaks="rows behind one that left are taken for those before them",
        killed_by=_KV_TESTS + "test_rounds_of_realignment_equal_a_per_row_reference",
    ),
    _in_cache(
        name="padding-has-positions",
        old="return torch.arange(num_columns, device=device) - starts_B1",
        new="return torch.arange(num_columns, device=device) - 0 * starts_B1",
        breaks="position ids count the padding",
        killed_by=_KV_TESTS + "test_places_hide_the_padding_and_count_from_0",
    ),
    _in_cache(
        name="padded-rollback-extends",
        old="self.cached_lens[row] = min(self.cached_lens[row], length)",
        new="self.cached_lens[row] = length",
        breaks="a draft that is behind counts tokens as cached that it never saw",
        killed_by=_KV_TESTS + "test_a_rollback_never_caches_more",
    ),
    _in_cache(
        name="stacked-row-unpadded",
        old="start, into, n = kv.starts[source], stacked.starts[index], stacked.cached_lens[index]",
        new="start, into, n = kv.starts[source], 0, stacked.cached_lens[index]",
        breaks="rows that were stacked read their padding",
        killed_by=_KV_TESTS + "test_rows_of_several_batches_are_stacked_in_order",
    ),
    Mutant(
        name="invariant-of-the-rectangle-blind",
        path=_INVARIANTS,
        old="assert len(set(ends)) <= 1",
        new="assert len(set(ends)) <= len(ends)",
        breaks="debug mode lets a ragged batch pass (I1)",
        killed_by=_KV_TESTS + "test_the_invariants_name_what_is_broken",
    ),
    Mutant(
        name="invariant-of-the-pending-token-blind",
        path=_INVARIANTS,
        old="assert kv.cached_lens == expected",
        new="assert len(kv.cached_lens) == len(expected)",
        breaks="debug mode lets a cache pass that holds the pending token (I3)",
        killed_by=_KV_TESTS + "test_the_invariants_name_what_is_broken",
    ),
    _in_live_sequence(
        name="defect-1-end-searched-in-the-last-token-alone",
        old="stop_ids = self.request.stop_ids\n",
        new="stop_ids = self.request.stop_ids & {result.tokens[-1]}\n",
        breaks="a drafted end id that is accepted is followed by more tokens",
        killed_by=_DEFECT + "1_nothing_follows_a_drafted_end_that_is_accepted[eqspec]",
    ),
    _in_live_sequence(
        name="defect-2-end-searched-in-the-prompt",
        old="        event = self._event(tokens, result.logprobs[: len(tokens)])\n",
        new="        if stop_ids.intersection(self.ids):\n"
        "            self.finish_reason = FinishReason.STOP\n"
        "        event = self._event(tokens, result.logprobs[: len(tokens)])\n",
        breaks="chat templates end turns with the end id: answers of one token",
        killed_by=_DEFECT + "2_an_end_id_in_the_prompt_ends_nothing[eqspec]",
    ),
    _in_round(
        name="defect-7-answers-in-order-of-length",
        old="rows = zip(group.sequences, proposals, results, strict=True)\n",
        new="by_length = sorted(group.sequences, key=lambda s: len(s.ids))\n"
        "        rows = zip(by_length, proposals, results, strict=True)\n",
        breaks="clients get each other's answers",
        killed_by=_DEFECT + "7_every_answer_belongs_to_its_request_whatever_the_order[eqspec]",
    ),
    _in_round(
        name="defect-8-smallest-budget-for-all",
        old="wanted = [s.num_draft_tokens(self._speculation) for s in group.sequences]",
        new="wanted = [\n"
        "                min(s.num_draft_tokens(self._speculation) for s in group.sequences)\n"
        "            ] * len(group.sequences)",
        breaks="one nearly finished row shrinks everybody's draft",
        killed_by=_DEFECT + "8_a_row_drafts_by_its_own_budget_and_wishes[eqspec]",
    ),
    Mutant(
        name="defect-9-fresh-row-discards-the-group",
        path=_EXSPEC,
        old="fresh = [s for s in chosen if s not in self._homes()]",
        new="fresh = [s for s in chosen if not all(c in self._homes() for c in chosen)]",
        breaks="a fresh row in a fallback group throws away the whole group's KV",
        killed_by=_DEFECT + "9_every_token_is_fed_to_the_target_once[exspec-padded]",
    ),
    _in_round(
        name="defect-10-draft-keeps-no-cache",
        old="batch.rollback(row, len(sequence.ids) - 1)",
        new="batch.rollback(row, (len(sequence.ids) - 1) * (batch is group.target))",
        breaks="the draft reads the whole prefix again in every round",
        killed_by=_DEFECT + "10_the_draft_keeps_its_cache_between_rounds[eqspec]",
    ),
    _in_round(
        name="pending-token-cached",
        old="batch.rollback(row, len(sequence.ids) - 1)",
        new="batch.rollback(row, len(sequence.ids))",
        breaks="a draft believes KV of a rejected token where the target chose another",
        killed_by=_EQUAL_TESTS + "test_speculative_output_equals_plain_output",
    ),
    _in_round(
        name="draft-fed-the-last-token-alone",
        old="return _row(row, sequence, draft.cached_len(row), (), num_tokens)",
        new="return _row(row, sequence, len(sequence.ids) - 1, (), num_tokens)",
        breaks="after a full acceptance the draft lacks a token: it guesses wrong from then on",
        killed_by=_EQUAL_TESTS + "test_eqspec_moves_nothing_while_all_rows_commit_equally_many",
    ),
    _in_round(
        name="finished-rows-stay-in-the-batch",
        old="live = [row for row, s in enumerate(group.sequences) if s.finish_reason is None]\n",
        new="live = list(range(len(group.sequences)))\n"
        "        live = live if any(s.finish_reason is None for s in group.sequences) else []\n",
        breaks="finished rows are verified to the end and their clients hear more",
        killed_by=_DEFECT + "9_every_token_is_fed_to_the_target_once[eqspec]",
    ),
    Mutant(
        name="full-group-needs-one-more",
        path=_EXSPEC,
        old="if len(sequences) >= size]",
        new="if len(sequences) > size]",
        breaks="groups of equal length are realigned that need not be",
        killed_by=_EXSPEC_TESTS
        + "test_rows_of_one_length_are_stacked_wherever_they_stand_in_the_window",
    ),
    _in_live_sequence(
        name="rectangle-of-the-present-lengths",
        old="lengths = [s.request.max_len for s in (*self.admitted, self._waiting[0])]",
        new="lengths = [len(s.ids) for s in (*self.admitted, self._waiting[0])]",
        breaks="the batch outgrows its memory in the middle of its requests",
        killed_by=_EXSPEC_TESTS
        + "test_requests_are_admitted_in_order_while_all_fit_into_one_rectangle",
    ),
    Mutant(
        name="padding-attended-to",
        path=_ATTENTION,
        old="return (column_B1S < 0) | (column_B1S > query_BQ1)",
        new="return column_B1S > query_BQ1",
        breaks="rows see the zeros, or the leftovers, in front of their content",
        killed_by=_FAST_LOGITS,
    ),
    Mutant(
        name="rectangle-mask-one-column-too-wide",
        path=_ATTENTION,
        old="return (column_B1S < 0) | (column_B1S > query_BQ1)",
        new="return (column_B1S < 0) | (column_B1S > query_BQ1 + 1)",
        breaks="a token sees the one behind it",
        killed_by=_FAST_LOGITS,
    ),
    _in_cache(
        name="exact-view-without-the-offset",
        old="first = slot * self.num_columns + self.starts[slot]",
        new="first = slot * self.num_columns",
        breaks="exact numerics read the padding in place of the row",
        killed_by=_EXACT_LOGITS,
    ),
)
