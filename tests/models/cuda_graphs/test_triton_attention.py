"""Our kernel over a block table: on a GPU, else by Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from specdec_core.kernels.ops import BlockRows
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.paged import BlockAttention
from specdec_core.layers.attention.select import is_right
from tests.models.cuda_graphs.models import Twins, fixed, ragged
from tests.models.triton_here import DEVICE, needs_triton

pytestmark = needs_triton
BLOCK = 16
MANY = 1 << 20
"""Processors: keys of several parts are split."""


@pytest.fixture
def attention(in_order: None) -> BlockAttention:
    """Whose keys are not split."""
    return attention_on(1)


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter multiplies tiles by NumPy's BLAS, whose rows may see their place in a tile:
    here each sum has one order, as a GPU's have."""
    pytest.importorskip("triton")
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def product_in_order(builder: Any, a: Any, b: Any, d: Any, *precision: Any) -> Any:
        product = numpy.einsum("mk,kn->mn", a.data, b.data, dtype=d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", product_in_order)


def attention_on(num_processors: int) -> BlockAttention:
    from specdec_core.layers.attention.triton import TritonAttention

    return TritonAttention(num_processors)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("head_dim", "heads", "kv_heads"),
    [
        (16, 4, 2),
        (64, 9, 3),
        (128, 8, 1),
        (80, 4, 4),
        (96, 4, 2),
        (112, 2, 1),
        (192, 4, 2),
        (8, 2, 1),
    ],
)
def test_it_answers_like_the_textbook(
    attention: BlockAttention, dtype: torch.dtype, head_dim: int, heads: int, kv_heads: int
) -> None:
    shape = KVShape(
        num_layers=1, num_kv_heads=kv_heads, head_dim=head_dim, dtype=dtype, device=DEVICE
    )
    assert is_right(attention, shape, heads, BLOCK)


def test_a_query_has_the_same_bits_alone_and_in_company(attention: BlockAttention) -> None:
    """In any chunk of its row, beside rows of other lengths."""
    torch.manual_seed(0)
    keys, values = (torch.randn(40, BLOCK, 2, 32, device=DEVICE) for _ in range(2))
    query = torch.randn(100, 8, 32, device=DEVICE)
    table = torch.randperm(40, device=DEVICE).int()

    def rows(counts: list[int], ends: list[int], tables: list[torch.Tensor]) -> BlockRows:
        offsets = torch.tensor([0, *counts], device=DEVICE).cumsum(0).int()
        key_counts = torch.tensor(ends, device=DEVICE).int()
        return BlockRows(offsets, key_counts, torch.stack(tables), max(counts), max(ends))

    own, other = table[:20], table[20:]
    whole = attention(query[:70], keys, values, rows([70], [300], [own]), 0.2)
    chunks = rows([30, 9, 40], [260, 17, 300], [own, other, own])
    mixed = torch.cat([query[:30], query[80:89], query[30:70]])
    found = attention(mixed, keys, values, chunks, 0.2)
    assert torch.equal(found[:30], whole[:30])
    assert torch.equal(found[39:], whole[30:])
    last = attention(query[69:70], keys, values, rows([1], [300], [own]), 0.2)
    assert torch.equal(last, whole[69:])


@pytest.mark.parametrize(("counts", "ends"), [([5, 1], [520, 700]), ([1, 9], [256, 257])])
def test_keys_that_are_split_give_the_same_bits(
    in_order: None, counts: list[int], ends: list[int]
) -> None:
    """Also where a row has fewer parts than its company, or one that is full."""
    torch.manual_seed(0)
    keys, values = (torch.randn(50, BLOCK, 2, 16, device=DEVICE) for _ in range(2))
    query = torch.randn(sum(counts), 6, 16, device=DEVICE)
    offsets = torch.tensor([0, *counts], device=DEVICE).cumsum(0).int()
    blocks = torch.stack([torch.randperm(50, device=DEVICE).int() for _ in counts])
    rows = BlockRows(
        offsets, torch.tensor(ends, device=DEVICE).int(), blocks, max(counts), max(ends)
    )
    whole, split = (attention_on(n)(query, keys, values, rows, 0.25) for n in (1, MANY))
    assert torch.equal(whole, split)


@pytest.mark.parametrize("lies_by", ["token", "head"])
def test_queries_need_not_lie_behind_each_other(attention: BlockAttention, lies_by: str) -> None:
    """They come out of one product with the keys and values of their token, or of transformers'
    layers head by head."""
    torch.manual_seed(0)
    keys, values = (torch.randn(6, BLOCK, 2, 16, device=DEVICE) for _ in range(2))
    query = heads_of(3, 4, lies_by)
    ends, counts = torch.tensor([[0, 3], [90, 0]], device=DEVICE).int()
    blocks = torch.arange(6, device=DEVICE).int().view(1, 6)
    rows = BlockRows(ends, counts[:1], blocks, 3, 96)
    expected = attention(query.contiguous(), keys, values, rows, 0.25)
    assert torch.equal(attention(query, keys, values, rows, 0.25), expected)


def heads_of(num_tokens: int, num_heads: int, lies_by: str) -> Tensor:
    """Heads of 16 numbers; not all that lies there."""
    if lies_by == "head":
        return torch.randn(num_heads, num_tokens, 16, device=DEVICE).transpose(0, 1)
    return torch.randn(num_tokens, 2 + num_heads, 16, device=DEVICE)[:, 1:-1]


@pytest.mark.parametrize("lies_by", ["token", "head"])
def test_new_keys_and_values_go_where_they_belong(attention: BlockAttention, lies_by: str) -> None:
    """And nowhere else."""
    keys, values = (torch.zeros(40, 3, 16, device=DEVICE) for _ in range(2))
    new_keys, new_values = heads_of(5, 3, lies_by), heads_of(5, 3, lies_by)
    index = torch.tensor([7, 0, 39, 12, 13], device=DEVICE)
    attention.write(keys, values, index, new_keys, new_values)
    for pool, new in ((keys, new_keys), (values, new_values)):
        expected = torch.zeros_like(pool)
        expected[index] = new
        assert torch.equal(pool, expected)


def test_blocks_of_one_token_give_the_same_bits(attention: BlockAttention) -> None:
    """The paper's cache, read row by row, is one of such blocks."""
    torch.manual_seed(0)
    keys, values = (torch.randn(12, BLOCK, 2, 32, device=DEVICE) for _ in range(2))
    query = torch.randn(7, 8, 32, device=DEVICE)
    blocks = torch.randperm(12, device=DEVICE).int().view(2, 6)
    ends, counts = torch.tensor([[0, 5, 7], [90, 71, 0]], device=DEVICE).int()
    rows = BlockRows(ends, counts[:2], blocks, 5, 96)
    expected = attention(query, keys, values, rows, 0.2)
    places = blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=DEVICE)
    rows = rows._replace(blocks=places.flatten(1).int())
    one_by_one = (pool.view(-1, 1, 2, 32) for pool in (keys, values))
    assert torch.equal(attention(query, *one_by_one, rows, 0.2), expected)


def test_what_lies_behind_the_last_key_never_spreads(attention: BlockAttention) -> None:
    keys, values = (torch.randn(3, BLOCK, 1, 16, device=DEVICE) for _ in range(2))
    query = torch.randn(1, 2, 16, device=DEVICE)
    blocks = torch.tensor([[2, 0, 1]], device=DEVICE).int()
    rows = BlockRows(torch.tensor([0, 1], device=DEVICE).int(), None, blocks, 1, 48)  # type: ignore[arg-type]
    rows = rows._replace(key_counts=torch.tensor([20], device=DEVICE).int())
    before = attention(query, keys, values, rows, 0.25)
    for pool in (keys, values):
        pool[1] = pool[0, 4:] = torch.nan
    assert torch.equal(attention(query, keys, values, rows, 0.25), before)


@pytest.mark.thorough
@pytest.mark.skipif(torch.cuda.is_available(), reason="the tiny models are on the CPU")
def test_passes_have_the_logits_of_gathered_attention(attention: BlockAttention) -> None:
    decoder = "fused qwen3"
    twins = Twins(
        ragged(decoder),
        fixed(decoder, block_attention=attention),
        ragged(decoder, block_attention=attention),
    )
    first, second, third = (twins.allocate() for _ in range(3))
    twins.check({first: (40, 2), second: (1, 1), third: (17, 17)})
    twins.check({first: (1, 1), second: (5, 5), third: (2, 1)})
    twins.rollback(second, 2)
    twins.check({first: (7, 7), second: (1, 1), third: (5, 5)})


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter counts products")
def test_a_long_row_makes_its_company_read_nothing_more(
    attention: BlockAttention, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    products: list[None] = []
    create_dot = InterpreterBuilder.create_dot

    def counted(*args: Any) -> Any:
        products.append(None)
        return create_dot(*args)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", counted)
    keys, values = (torch.randn(40, BLOCK, 1, 16) for _ in range(2))

    def count(counts: list[int], ends: list[int]) -> int:
        products.clear()
        offsets = torch.tensor([0, *counts]).cumsum(0).int()
        blocks = torch.arange(40).int().repeat(len(counts), 1)
        rows = BlockRows(offsets, torch.tensor(ends).int(), blocks, max(counts), max(ends))
        attention(torch.randn(sum(counts), 1, 16), keys, values, rows, 0.25)
        return len(products)

    assert count([320, 1], [320, 600]) == count([320], [320]) + count([1], [600])
