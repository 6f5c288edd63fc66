"""How a cache of full attention counts, which is what every replica has today."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.kv_cache.spec import FullAttentionSpec, KVCacheSpec
from specdec_core.messages import Role
from specdec_core.model import replica_info
from tests.fakes import TokenListModel
from tests.paged_fake import PagedTokenModel

SHAPE = KVShape(
    num_layers=3, num_kv_heads=2, head_dim=4, dtype=torch.bfloat16, device=torch.device("cpu")
)


@pytest.mark.parametrize(("length", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_a_begun_block_is_a_whole_one(length: int, num_blocks: int) -> None:
    assert FullAttentionSpec(4).blocks_for(length) == num_blocks


@given(st.integers(1, 64), st.integers(1, 10_000))
def test_the_longest_sequence_fills_its_blocks(block_size: int, num_blocks: int) -> None:
    spec = FullAttentionSpec(block_size)
    longest = spec.max_len(num_blocks)
    assert spec.blocks_for(longest) == num_blocks
    assert spec.blocks_for(longest + 1) == num_blocks + 1


def test_any_number_of_tokens_can_be_taken_back_and_a_sequence_alone_takes_nothing() -> None:
    spec: KVCacheSpec = FullAttentionSpec(4)
    assert spec.max_rollback is None
    assert spec.bytes_per_sequence == 0


def test_the_bytes_of_a_block_are_those_of_its_part_of_the_pool() -> None:
    kv = PagedKV(SHAPE, num_blocks=5, block_size=8)
    pool_bytes = sum(pool.nbytes for layer in kv.all_pools for pool in layer)
    assert kv.spec == FullAttentionSpec(8, pool_bytes // 5)


def test_slots_take_as_many_blocks_as_the_spec_says() -> None:
    kv = PagedKV(SHAPE, num_blocks=50, block_size=8)
    slot = kv.allocate()
    for count in (1, 6, 1, 1, 30):
        kv.extend({slot: count})
        assert kv.num_free_blocks == 50 - kv.spec.blocks_for(kv.cached_len(slot))
    kv.rollback(slot, 9)
    assert kv.num_free_blocks == 50 - kv.spec.blocks_for(9)


@pytest.mark.parametrize("enable", [True, False])
def test_a_replica_registers_with_the_facts_of_its_model(enable: bool) -> None:
    model = PagedTokenModel(num_blocks=7, block_size=2, enable_prefix_caching=enable)
    info = replica_info(model, Role.DRAFT, "d1", 9, model_digest="m", device="gpu0")
    assert (info.replica_id, info.role, info.incarnation) == ("d1", Role.DRAFT, 9)
    assert (info.model_digest, info.device) == ("m", "gpu0")
    assert (info.num_blocks, info.kv_cache_spec) == (7, model.kv_cache_spec)
    assert (info.max_model_len, info.vocab_size) == (model.max_model_len, model.vocab_size)
    assert info.keeps_prefixes is enable
    assert not replica_info(TokenListModel(), Role.TARGET, "t", 1).keeps_prefixes
