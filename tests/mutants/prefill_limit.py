"""Defects of the limit of catch-up tokens: what it lets through, and whom it starves."""

from tests.mutants.mutant import Mutant

_TESTS = "tests/pool/test_prefill_limit.py::"
_KNOWN = "tests/pool/test_known_prefixes.py::"

MUTANTS = (
    Mutant(
        name="prefill-limit-never-comes-back",
        path="specdec_core/scheduler/batch_builder.py",
        old="board.num_out = sum([",
        new="board.num_out += sum([",
        breaks="behind the first prompts nobody begins any more",
        killed_by=(
            _TESTS + "test_the_first_tokens_of_prompts_come_in_turn_and_right",
            "tests/simulation/test_campaign.py"
            "::test_no_seed_finds_a_violation_and_everything_that_can_happen_happens",
        ),
    ),
    Mutant(
        name="prefill-limit-of-each-lease",
        path="specdec_core/scheduler/batch_builder.py",
        old="board.num_out = sum([",
        new="board.num_out = 0 * sum([",
        breaks="a stream waits for the prompts of two groups",
        killed_by=(_TESTS + "test_all_leases_that_are_open_count",),
    ),
    Mutant(
        name="long-chunks-beside-others",
        path="specdec_core/scheduler/batch_builder.py",
        old="if len(replica.sequences) == 1 and",
        new="if",
        breaks="streams wait twice as long for each chunk of a prompt",
        killed_by=(_TESTS + "test_a_prompt_that_is_alone_goes_by_twice_as_much",),
    ),
    Mutant(
        name="long-chunks-that-are-scored",
        path="specdec_core/scheduler/sequence.py",
        old="return not self.num_unscored and",
        new="return",
        breaks="a pass reports twice as many places as memory was planned for",
        killed_by=(_TESTS + "test_a_prompt_that_is_scored_does_not",),
    ),
    Mutant(
        name="long-chunks-that-are-checked",
        path="specdec_core/scheduler/sequence.py",
        old=" and self.resume_len <= len(self.ids)",
        new="",
        breaks="a pass checks twice as many ids as memory was planned for",
        killed_by=(_TESTS + "test_what_a_client_brings_back_does_not_either",),
    ),
    Mutant(
        name="long-chunk-never-goes",
        path="specdec_core/scheduler/ready_queue.py",
        old="if count and num_out and num_out + count > most:",
        new="if count and num_out + count > most:",
        breaks="a prompt whose chunk is longer than the limit waits for ever",
        killed_by=(_TESTS + "test_a_row_beyond_the_limit_goes_alone",),
    ),
    Mutant(
        name="short-prompts-overtake",
        path="specdec_core/scheduler/ready_queue.py",
        old="            most = 0\n",
        new="",
        breaks="a long prompt waits for as long as short ones come",
        killed_by=(_TESTS + "test_nobody_overtakes_a_prompt_that_has_to_wait",),
    ),
    Mutant(
        name="prompts-take-chunks-in-turns",
        path="specdec_core/scheduler/ready_queue.py",
        old="    return rank + min(",
        new="    return sequence.ready_since + 0 * min(",
        breaks="all prompts that arrive together have their first token as late as the last one",
        killed_by=(_TESTS + "test_prompts_that_came_together_go_one_after_the_other",),
    ),
    Mutant(
        name="long-prompts-yield-for-ever",
        path="specdec_core/scheduler/ready_queue.py",
        old="min(num_left * YIELD_S_PER_TOKEN, MAX_YIELD_S)",
        new="num_left * YIELD_S_PER_TOKEN",
        breaks="a very long prompt waits for minutes while short ones come",
        killed_by=(
            _TESTS + "test_no_prompt_is_so_long_that_it_waits_for_more_than_the_longest_yield",
        ),
    ),
    Mutant(
        name="streams-wait-as-prompts-do",
        path="specdec_core/scheduler/ready_queue.py",
        old="elif self._max_prefill is not None and plan.num_catching_up:",
        new="elif self._max_prefill is not None:",
        breaks="no stream is given a seat while older prompts wait",
        killed_by=(_TESTS + "test_prompts_that_wait_keep_no_stream_from_its_seat",),
    ),
    Mutant(
        name="audits-beyond-the-prefill-limit",
        path="specdec_core/scheduler/ready_queue.py",
        old="self._within(background, num_out)[:num_seats]",
        new="background[:num_seats]",
        breaks="clients wait for prompts of requests that nobody waits for",
        killed_by=(_TESTS + "test_rows_that_nobody_waits_for_count_too",),
    ),
    Mutant(
        name="first-rank-beyond-the-prefill-limit",
        path="specdec_core/scheduler/ready_queue.py",
        old="        return self._within([min(self, key=rank_of)], self.num_out)\n",
        new="        return [min(self, key=rank_of)]\n",
        breaks="where blocks are short a target is sent more prompts than it may have",
        killed_by=(
            _TESTS + "test_who_ranks_first_takes_the_place_of_others_only_within_the_limit",
        ),
    ),
    Mutant(
        name="prefixes-of-others-believed",
        path="specdec_core/scheduler/prefix_index.py",
        old="(prefix_hash, salt) if salt else prefix_hash",
        new="prefix_hash",
        breaks="streams wait for prompts that one tenant's cache has and another's may not use",
        killed_by=(_KNOWN + "test_another_salt_finds_nothing",),
    ),
    Mutant(
        name="prefixes-known-for-ever",
        path="specdec_core/scheduler/prefix_index.py",
        old="self._most = min(num_blocks, _MOST)",
        new="self._most = num_blocks * _MOST",
        breaks="the coordinator's memory grows with the prompts that have been",
        killed_by=(_KNOWN + "test_the_blocks_that_were_fed_last_are_remembered",),
    ),
    Mutant(
        name="scored-prompts-believed-cached",
        path="specdec_core/scheduler/prefix_index.py",
        old="if self._known and not row.num_scored:",
        new="if self._known:",
        breaks="streams wait for prompts of which every logit is computed",
        killed_by=(_KNOWN + "test_a_prompt_whose_logprobs_are_asked_for_is_computed",),
    ),
)
