"""Defects of the prefix cache: what is found, who may write, what is given back."""

from functools import partial

from tests.mutants.mutant import Mutant

_KV_TESTS = "tests/kv_cache/test_prefix_cache.py::"
_REPLICA_TESTS = "tests/core/test_replica_prefix.py::"
_EVICTION = _KV_TESTS + "test_unnamed_blocks_go_first_then_the_ends_of_what_was_let_go_first"
_in_block_allocator = partial(Mutant, path="specdec_core/kv_cache/block_allocator.py")
_in_paged = partial(Mutant, path="specdec_core/kv_cache/paged.py")
_in_replica = partial(Mutant, path="specdec_core/worker/replica.py")

MUTANTS = (
    _in_block_allocator(
        name="blocks-known-by-their-own-ids-alone",
        old="            self._num_serials += 1\n",
        new="",
        breaks="a sentence that occurs in two prompts brings the other prompt's keys",
        killed_by=_KV_TESTS + "test_equal_ids_behind_another_beginning_are_another_block",
    ),
    _in_paged(
        name="rewritten-block-keeps-its-name",
        old="            self._allocator.evict(block)\n            return\n",
        new="            return\n",
        breaks="a prompt finds a block whose end was written again with other ids",
        killed_by=_KV_TESTS + "test_a_block_that_is_written_again_is_not_found_by_its_old_ids",
    ),
    _in_paged(
        name="copy-of-the-whole-block",
        old="        kept = self._pool_L2NBHD[:, :, block, :num_kept]\n"
        "        self._pool_L2NBHD[:, :, own, :num_kept].copy_(kept)\n",
        new="        self._pool_L2NBHD[:, :, own].copy_(self._pool_L2NBHD[:, :, block])\n",
        breaks="a NaN behind the places that are kept reaches another request",
        killed_by=_KV_TESTS + "test_a_copy_takes_only_the_places_that_are_kept",
    ),
    _in_paged(
        name="begun-block-lost-at-adoption",
        old="            self._allocator.free(state.blocks[num_full:])\n",
        new="",
        breaks="chunks that end inside of a block leak it",
        killed_by=_KV_TESTS + "test_adoption_goes_on_behind_what_a_slot_has",
    ),
    _in_block_allocator(
        name="second-copy-leaks",
        old="            self.incref(cached.block)\n            self.free([block])\n",
        new="            self.incref(cached.block)\n",
        breaks="requests that begin alike at one time leak a block for every one they share",
        killed_by=_KV_TESTS + "test_two_slots_that_computed_the_same_keep_one_block",
    ),
    _in_block_allocator(
        name="evicted-block-still-found",
        old="        del self._by_key[key]\n",
        new="",
        breaks="a prompt finds a block that holds another request's keys by now",
        killed_by=_EVICTION,
    ),
    _in_replica(
        name="last-token-adopted",
        old="end = end_len - (row.num_choices > 0)",
        new="end = end_len",
        breaks="a prompt of whole blocks that was seen before has no logits to choose by",
        killed_by=_REPLICA_TESTS + "test_the_last_token_is_fed_where_a_token_is_chosen",
    ),
    _in_replica(
        name="scored-prompt-adopted",
        old="if end // size == base_len // size or row.num_scored:",
        new="if end // size == base_len // size:",
        breaks="prompt_logprobs of a prompt that was seen before are those of other places",
        killed_by=_REPLICA_TESTS + "test_a_row_that_scores_its_prompt_feeds_all_of_it",
    ),
    _in_replica(
        name="drafted-tokens-published",
        old="            if self._cache is not None:  # most drafted tokens are soon rolled back\n"
        "                self._cache.publish(cached.slot, cached.ids[:], cached.rules.cache_salt)\n"
        "            cached.extend(tokens[: max(row.num_choices - 1, 0)])\n",
        new="            cached.extend(tokens[: max(row.num_choices - 1, 0)])\n"
        "            if self._cache is not None:\n"
        "                self._cache.publish("
        "cached.slot, cached.ids[:], cached.rules.cache_salt)\n",
        breaks="every rejection inside of a full block renames it; the cache fills with guesses",
        killed_by=_REPLICA_TESTS
        + "test_what_a_draft_only_drafted_is_not_found_until_it_is_committed",
    ),
    _in_replica(
        name="failed-row-stays-findable",
        old="            self._cache.evict(cached.slot)",
        new="            self._cache.publish(cached.slot, cached.ids, cached.rules.cache_salt)",
        breaks="a system prompt that met a NaN once fails every request until a restart",
        killed_by=_REPLICA_TESTS + "test_what_a_failed_row_computed_is_not_found",
    ),
    _in_replica(
        name="replica-finds-what-another-left",
        old="            self._cache.evict_all()",
        new="            self._cache.evict(model.allocate())",
        breaks="a benchmark's second run over a model finds the prompts of its first",
        killed_by=_REPLICA_TESTS + "test_a_replica_starts_with_nothing_whoever_used_its_model",
    ),
    Mutant(
        name="found-in-the-last-chunk-alone",
        path="specdec_core/scheduler/sequence.py",
        old="num_matched + (self.num_cached_prompt if base_len else 0)",
        new="num_matched",
        breaks="the usage of a long prompt tells of its last chunk",
        killed_by="tests/deployments/coordinator/test_cached_tokens.py"
        "::test_a_request_hears_how_much_of_its_prompt_was_found",
    ),
)
