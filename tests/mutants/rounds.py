"""Defects of a speculative round on one replica: positions, noise, rollback, leases, ids."""

from functools import partial

from tests.mutants.mutant import Mutant

_PLAIN = "specdec_core/algorithms/autoregressive.py"
_REPLICA_TESTS = "tests/core/test_replica.py::"
_ROUND_TESTS = "tests/core/test_speculative_round.py::"
_PLAIN_TESTS = "tests/core/test_autoregressive.py::"
_FAKES = "tests/equivalence/test_fakes.py::"
_EQUAL = _FAKES + "test_speculative_output_equals_plain_output[1-4-3]"
_SELF_DRAFT = _FAKES + "test_a_draft_that_equals_the_target_is_always_accepted[4]"
_in_round = partial(Mutant, path="specdec_core/worker/round.py")
_in_replica = partial(Mutant, path="specdec_core/worker/replica.py")

MUTANTS = (
    _in_round(
        name="noise-position-off-by-one",
        old="SampleRow(rules, num_committed + j, history)",
        new="SampleRow(rules, num_committed + j + 1, history)",
        breaks="sampled tokens differ from those of plain decoding",
        killed_by=_EQUAL,
    ),
    _in_round(
        name="noise-position-counts-from-the-round",
        old="SampleRow(rules, num_committed + j, history)",
        new="SampleRow(rules, num_committed, history)",
        breaks="the tokens of a round share their noise: they depend on K",
        killed_by=_EQUAL,
    ),
    _in_round(
        name="noise-position-includes-the-proposal",
        old="num_committed = target.cached_len(cached.slot) - len(row.proposal)",
        new="num_committed = target.cached_len(cached.slot)",
        breaks="a sampled token depends on how many were drafted",
        killed_by=_EQUAL,
    ),
    _in_round(
        name="draft-noise-one-position-off",
        old="samples.append(SampleRow(cached.rules, draft.cached_len(cached.slot), history))",
        new="samples.append(SampleRow(cached.rules, draft.cached_len(cached.slot) + 1, history))",
        breaks="nothing but speed: acceptance falls from .53 to .35",
        killed_by=_SELF_DRAFT,
    ),
    _in_round(
        name="draft-noise-not-coupled",
        old="samples.append(SampleRow(cached.rules, draft.cached_len(cached.slot), history))",
        new="params = type(cached.rules.params)(temperature=cached.rules.params.temperature)\n"
        "            own = SamplingRules(params, cached.rules.prompt_len)\n"
        "            samples.append(SampleRow(own, draft.cached_len(cached.slot)))",
        breaks="a draft with a seed of its own guesses as well as chance",
        killed_by=_SELF_DRAFT,
    ),
    _in_round(
        name="penalties-without-the-drafts-before",
        old="return (*cached.ids, *row.new_ids, *proposal)",
        new="return (*cached.ids, *row.new_ids)",
        breaks="position j of a proposal does not see drafts 1 to j: penalties are wrong",
        killed_by=_ROUND_TESTS + "test_a_round_commits_what_plain_decoding_would_emit",
    ),
    _in_round(
        name="nothing-rolled-back",
        old="target.rollback(cached.slot, target.cached_len(cached.slot) - num_rejected)",
        new="pass",
        breaks="the KV of rejected tokens stays",
        killed_by=_REPLICA_TESTS + "test_a_round_accepts_the_matching_prefix_and_caches_n_minus_1",
    ),
    _in_round(
        name="rollback-one-too-few",
        old="num_rejected = len(row.proposal) + 1 - len(tokens)",
        new="num_rejected = max(len(row.proposal) - len(tokens), 0)",
        breaks="the KV of the first rejected token stays",
        killed_by=_REPLICA_TESTS + "test_a_round_accepts_the_matching_prefix_and_caches_n_minus_1",
    ),
    _in_round(
        name="rollback-to-the-round-s-start",
        old="num_rejected = len(row.proposal) + 1 - len(tokens)",
        new="num_rejected = len(row.proposal)",
        breaks="accepted tokens are fed a second time",
        killed_by=_REPLICA_TESTS + "test_a_round_accepts_the_matching_prefix_and_caches_n_minus_1",
    ),
    _in_round(
        name="draft-fed-its-whole-proposal-again",
        old="batch = ForwardInput.of((rows[i][1].slot, proposals[i][-1:], 1) for i in live)",
        new="batch = ForwardInput.of((rows[i][1].slot, proposals[i], 1) for i in live)",
        breaks="the draft sees its first tokens twice",
        killed_by=_REPLICA_TESTS + "test_a_draft_caches_all_drafted_tokens_but_the_last",
    ),
    _in_round(
        name="one-drafted-token-too-many",
        old="live = [i for i in live if len(proposals[i]) < rows[i][0].num_choices]",
        new="live = [i for i in live if len(proposals[i]) <= rows[i][0].num_choices]",
        breaks="K + 1 tokens are drafted; the last is never wanted",
        killed_by=_REPLICA_TESTS + "test_drafts_of_different_lengths_share_a_lease",
    ),
    _in_round(
        name="longest-proposal-for-every-row",
        old="live = [i for i in live if len(proposals[i]) < rows[i][0].num_choices]",
        new="live = [i for i in live if any(len(proposals[k]) < rows[k][0].num_choices "
        "for k in live)]",
        breaks="rows draft beyond their own K when a companion has a larger one",
        killed_by=_REPLICA_TESTS + "test_drafts_of_different_lengths_share_a_lease",
    ),
    _in_round(
        name="failed-choice-drafted",
        old="return [token != NO_CHOICE for token in tokens]",
        new="return [True for token in tokens]",
        breaks="-1 is proposed and fed to the target as a token",
        killed_by=_ROUND_TESTS + "test_a_draft_stops_where_nothing_can_be_chosen",
    ),
    _in_round(
        name="failed-choice-committed",
        old="            if NO_CHOICE in tokens:\n"
        "                tokens = tokens[: max(tokens.index(NO_CHOICE), 1)]\n",
        new="",
        breaks="-1 is emitted where nothing may be chosen behind an accepted draft",
        killed_by=_ROUND_TESTS + "test_what_stands_before_a_position_without_a_choice_is_committed",
    ),
    _in_round(
        name="logprobs-of-another-position",
        old="tokens += (*result.tokens, *[NO_CHOICE] * num_unused)",
        new="tokens += (*[NO_CHOICE] * num_unused, *result.tokens)",
        breaks="a token is reported with the log-probability of a later position",
        killed_by=_ROUND_TESTS + "test_each_token_is_measured_at_its_own_position",
    ),
    _in_round(
        name="choice-of-a-catch-up-row-shifts-the-others",
        old="ForwardInput.of((c.slot, row.new_ids, min(row.num_choices, 1)) for row, c in rows)",
        new="ForwardInput.of((c.slot, row.new_ids, 1) for row, c in rows)",
        breaks="rows that only catch up are given the logits of others",
        killed_by=_REPLICA_TESTS + "test_drafts_of_different_lengths_share_a_lease",
    ),
    _in_replica(
        name="cached-ids-not-compared",
        old="if cached.prefix_hashes[base_len] != row.base_hash:",
        new="if cached.prefix_hashes[base_len] == EMPTY_HASH != row.base_hash:",
        breaks="a slot with other ids of the same length is taken for the right one",
        killed_by=_REPLICA_TESTS + "test_other_ids_at_the_same_length_are_a_miss",
    ),
    _in_replica(
        name="ids-truncated-but-not-their-kv",
        old="            self._model.rollback(cached.slot, base_len)\n",
        new="            self._model.cached_len(cached.slot)\n",
        breaks="what was fed before base_len moved back is attended to",
        killed_by=_REPLICA_TESTS + "test_truncation_to_base_len_is_the_rollback",
    ),
    _in_round(
        name="kv-truncated-but-not-its-hashes",
        old="        del self.prefix_hashes[length + 1 :]\n",
        new="        del self.prefix_hashes[length + 2 :]\n",
        breaks="the hash of forgotten ids vouches for new ones",
        killed_by=_REPLICA_TESTS + "test_ids_behind_a_truncation_are_known_by_their_hash",
    ),
    _in_replica(
        name="missing-base-tolerated",
        old="if cached_len < base_len:",
        new="if cached_len + 1 < base_len:",
        breaks="a lease that starts behind a gap is run",
        killed_by=_REPLICA_TESTS + "test_a_base_beyond_the_cache_is_a_miss_that_says_what_is_there",
    ),
    _in_replica(
        name="freed-sequence-keeps-its-slot",
        old="                self._model.free(cached.slot)\n",
        new="                cached.truncate(0)\n",
        breaks="freed sequences keep their slots: the replica runs out of blocks",
        killed_by=_REPLICA_TESTS + "test_freeing_and_resetting_give_every_slot_back",
    ),
    _in_replica(
        name="blocks-of-the-proposal-forgotten",
        old="blocks_for(base_len + len(row.new_ids) + num_drafted)",
        new="blocks_for(base_len + len(row.new_ids))",
        breaks="a group that does not fit fails as a whole in the middle of the pass",
        killed_by=_REPLICA_TESTS + "test_the_room_of_a_proposal_is_counted",
    ),
    _in_replica(
        name="room-counted-row-by-row",
        old="            num_free -= num_new\n",
        new="",
        breaks="two rows are promised the same last block",
        killed_by=_REPLICA_TESTS + "test_a_row_without_room_is_refused_before_anything_is_fed",
    ),
    _in_replica(
        name="answers-in-the-order-of-running",
        old="rows=tuple([answers[row.sequence_id] for row in lease.rows])",
        new="rows=tuple(answers.values())",
        breaks="results come back in another order than the rows were sent",
        killed_by=_REPLICA_TESTS + "test_answers_come_in_the_order_of_the_rows",
    ),
    Mutant(
        name="plain-decoding-at-the-wrong-position",
        path=_PLAIN,
        old="rows = [SampleRow(r.rules, len(r.ids), r.ids) for r in running]",
        new="rows = [SampleRow(r.rules, len(r.ids) - 1, r.ids) for r in running]",
        breaks="the reference itself: sampled tokens use the noise of the position before",
        killed_by=_EQUAL,
    ),
    Mutant(
        name="plain-decoding-overfills-the-cache",
        path=_PLAIN,
        old="if num_free < 0 and self._running:",
        new="if False:",
        breaks="plain decoding runs out of blocks in the middle of its requests",
        killed_by=_PLAIN_TESTS
        + "test_a_request_is_admitted_when_it_can_run_to_its_end_beside_the_others",
    ),
)
