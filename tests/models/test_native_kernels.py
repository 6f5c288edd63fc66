"""The CPU kernels: against float64, and rows that never see each other."""

from __future__ import annotations

import hashlib
import logging
import math
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specdec_core.kernels import ops as native_kernels
from specdec_core.kernels.build import build_library
from specdec_core.kernels.ops import (
    FLAGS,
    NativeKernels,
    build_kernels,
    load_kernels,
)
from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.layers.attention.metadata import plan_blocks
from specdec_core.layers.attention.paged import CpuAttention
from specdec_core.layers.cpu_linear import NativeLinear, replace_linears
from specdec_core.layers.elementwise import Heads, NativeOps, RMSNorm, Rotation, TorchOps
from specdec_core.layers.huge_pages import empty_in_huge_pages
from specdec_core.loading.self_check import check_rows, make_exact
from specdec_core.model import ForwardInput, score
from specdec_core.models.llama import LlamaModel, fuse
from specdec_core.models.registry import LLAMA_MODEL_TYPES
from specdec_core.worker import model_runner as transformers_adapter
from specdec_core.worker.model_runner import ModelRunner
from tests.tiny_models import VOCAB, tiny_model

WIDE = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
NO_AMX = (*FLAGS, "-mno-amx-bf16")
_EMULATED = Path(__file__).with_name("emulated_amx.h")
_DIGEST = hashlib.sha256(_EMULATED.read_bytes()).hexdigest()
BUILDS = {
    "as this machine is": FLAGS,
    "emulated pairs": (*NO_AMX, "-DMULTIPLIES_PAIRS", "-DEMULATES_PAIRS"),
    "emulated AMX": (*FLAGS, f"-DEMULATION={_DIGEST}", "-include", str(_EMULATED)),
    "AVX2": (*NO_AMX, "-mno-avx512f"),
    "without products": (*NO_AMX, "-mno-avx512bf16"),
    "without AMX": NO_AMX,
}
"""What this machine has, and the code for others as far as it can run here; first what runs on any:
cases of few builds that `make test` keeps are theirs."""
_LEFT_OUT = {"without AMX": "amx_bf16", "without products": "avx512_bf16", "AVX2": "avx512f"}
"""What a build leaves out: on a machine without it the code is that of another build."""


@pytest.fixture(scope="module", params=BUILDS)
def kernels(request: pytest.FixtureRequest) -> Iterator[NativeKernels]:
    num_threads = torch.get_num_threads()
    yield built(request.param)
    torch.set_num_threads(num_threads)  # else the tests of other files spin with two


def built(name: str) -> NativeKernels:
    """Skips where this machine cannot."""
    own = load_kernels()
    if own is None:
        pytest.skip("no C compiler")
    if name in _LEFT_OUT and _LEFT_OUT[name] not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this machine has no {_LEFT_OUT[name]} to leave out")
    torch.set_num_threads(2)
    try:
        return build_kernels(BUILDS[name])
    except subprocess.CalledProcessError:
        if BUILDS[name] is FLAGS:
            raise
        pytest.skip("the compiler does not know AMX or AVX-512 BF16")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def assert_nearly_rounded(actual: Tensor, exact: Tensor) -> None:
    """`actual` is one of the two bfloat16 numbers next to `exact`, but for float32's own error."""
    error = (actual.double() - exact).abs()
    assert (error <= exact.abs() * 2**-8 * 1.01 + 1e-30).all(), error.max()


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    normed = x.double() / (x.double().square().mean(-1, keepdim=True) + epsilon).sqrt()
    return normed.bfloat16().double() * weight.double()


@pytest.mark.parametrize("num_tokens", [1, 3, 40])
def test_the_norm_of_a_sum_is_rounded_as_transformers_rounds_it(
    kernels: NativeKernels, num_tokens: int
) -> None:
    x, update, weight = normal(num_tokens, 576), normal(num_tokens, 576, seed=1), normal(576)
    expected_x = x + update
    normed = kernels.add_norm(x, update, weight, 1e-5)
    assert torch.equal(x, expected_x)
    exact = rms_norm(expected_x, weight, 1e-5)
    off = (normed.double() - exact).abs() > exact.abs() * 2**-8 * 1.01
    assert off.double().mean() < 0.002, "a product of two roundings may fall to the other side"
    torch.testing.assert_close(normed.double(), exact, rtol=2**-6, atol=0)


def test_without_an_update_the_rows_stay_and_only_the_norm_is_taken(kernels: NativeKernels) -> None:
    x, weight = normal(5, 64), normal(64, seed=1)
    before = x.clone()
    normed = kernels.add_norm(x, None, weight, 1e-5)
    assert torch.equal(x, before)
    torch.testing.assert_close(normed.double(), rms_norm(x, weight, 1e-5), rtol=2**-6, atol=0)


def test_a_gate_is_silu_times_up(kernels: NativeKernels) -> None:
    gate_up = torch.cat([normal(7, 96) * 8, normal(7, 96, seed=1)], dim=1)
    gate, up = gate_up.double().chunk(2, dim=1)
    silu = (gate * gate.sigmoid()).bfloat16().double()
    torch.testing.assert_close(kernels.gate(gate_up).double(), silu * up, rtol=2**-6, atol=1e-30)


def test_a_gate_keeps_what_is_no_number_and_what_is_far_out(kernels: NativeKernels) -> None:
    gate = torch.tensor([math.nan, math.inf, -math.inf, -200.0, 200.0, 0.0, -88.0, 88.0] * 2)
    gate_up = torch.cat([gate, torch.ones(16)]).bfloat16().unsqueeze(0)
    expected = nn.functional.silu(gate.bfloat16().float())
    actual = kernels.gate(gate_up)[0].float()
    torch.testing.assert_close(actual, expected, rtol=2**-7, atol=1e-35, equal_nan=True)


@pytest.mark.parametrize("has_norms", [False, True])
def test_heads_turn_as_with_the_operations_of_pytorch(
    kernels: NativeKernels, has_norms: bool
) -> None:
    rotation = Rotation(normal(9, 64, seed=1), normal(9, 64, seed=2))
    norms = (_norm(3), _norm(4)) if has_norms else (None, None)
    heads = Heads(6, 2, *norms)
    row = normal(9, 10, 64)
    expected = TorchOps().rotate(row.clone(), rotation, heads)
    actual = NativeOps(kernels).rotate(row.clone(), rotation, heads)
    if has_norms:
        torch.testing.assert_close(actual, expected, rtol=2**-6, atol=2**-7)
    else:
        assert torch.equal(actual, expected)
    assert torch.equal(actual[:, 8:], row[:, 8:]), "values stay"


def _norm(seed: int) -> RMSNorm:
    norm = nn.Module()
    norm.weight = nn.Parameter(normal(64, seed=seed), requires_grad=False)
    norm.variance_epsilon = 1e-6  # type: ignore[assignment]
    return RMSNorm(norm)


class Cache:
    """A paged cache of one layer with random keys and values, and queries for its pieces."""

    num_heads = 6

    def __init__(self, kernels: NativeKernels, head_dim: int = 64, num_kv_heads: int = 2) -> None:
        self.head_dim = head_dim
        self.num_kv_heads = num_kv_heads
        shape = KVShape(
            num_layers=1,
            num_kv_heads=self.num_kv_heads,
            head_dim=head_dim,
            dtype=torch.bfloat16,
            device=torch.device("cpu"),
        )
        self.kv = PagedKV(shape, num_blocks=200)
        self.kernels = kernels

    def attend(self, pieces: Sequence[tuple[int, int, int]], heads: Tensor) -> Tensor:
        """`heads` [T, H + 2 K, D] of the tokens of (slot, place of the first, number of tokens);
        caches them."""
        rows = [(slot, range(count), 0) for slot, _, count in pieces]
        batch = ForwardInput.of(rows, starts=[start for _, start, _ in pieces])
        attention = CpuAttention(self.kernels)
        metadata = attention.plan(batch, self.kv)
        sizes = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        query, key, value = torch.split(heads, sizes, dim=1)
        return attention.attend(metadata, self.kv.pools(0), query, key, value, self.head_dim**-0.5)

    def sequence(self, num_tokens: int, seed: int) -> Tensor:
        num_heads = self.num_heads + 2 * self.num_kv_heads
        return normal(num_tokens, num_heads, self.head_dim, seed=seed)

    def slot_for(self, num_tokens: int) -> int:
        slot = self.kv.allocate()
        self.kv.extend({slot: num_tokens})
        return slot


def plain_attention(heads: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """Of one whole sequence, in float64."""
    sizes = [num_heads, num_kv_heads, num_kv_heads]
    query, key, value = (some.double() for some in torch.split(heads, sizes, dim=1))
    groups = num_heads // num_kv_heads
    key, value = (some.repeat_interleave(groups, dim=1) for some in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * heads.shape[2] ** -0.5
    hidden = torch.ones(scores.shape[1:]).triu(1).bool()
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


@pytest.mark.covering(2)
@pytest.mark.parametrize("head_dim", [32, 64, 128, 256])
@pytest.mark.parametrize("num_tokens", [1, 16, 17, 45, 300])
def test_attention_is_that_of_the_textbook(
    kernels: NativeKernels, num_tokens: int, head_dim: int
) -> None:
    cache = Cache(kernels, head_dim)
    heads = cache.sequence(num_tokens, seed=0)
    piece = (cache.slot_for(num_tokens), 0, num_tokens)
    expected = plain_attention(heads, cache.num_heads, cache.num_kv_heads)
    torch.testing.assert_close(
        cache.attend([piece], heads).double(), expected, rtol=2**-6, atol=2**-7
    )


def test_a_query_has_the_same_bits_alone_in_company_and_in_any_chunk(
    kernels: NativeKernels,
) -> None:
    lengths = (1, 7, 16, 33, 100, 257)
    alone = [_one_by_one(Cache(kernels), length, seed) for seed, length in enumerate(lengths)]
    cache, rng = Cache(kernels), random.Random(0)
    sequences = [cache.sequence(length, seed) for seed, length in enumerate(lengths)]
    slots = [cache.slot_for(length) for length in lengths]
    together: list[list[Tensor]] = [[] for _ in lengths]
    done = [0] * len(lengths)
    while done != list(lengths):
        counts = [min(rng.randint(0, 40), n - d) for n, d in zip(lengths, done, strict=True)]
        members = [i for i, count in enumerate(counts) if count]
        pieces = [(slots[i], done[i], counts[i]) for i in members]
        fed = [sequences[i][done[i] : done[i] + counts[i]] for i in members]
        outputs = cache.attend(pieces, torch.cat(fed)) if members else torch.empty(0)
        for i, output in zip(members, outputs.split([counts[i] for i in members]), strict=True):
            together[i].append(output)
            done[i] += counts[i]
    for one, parts in zip(alone, together, strict=True):
        assert torch.equal(one, torch.cat(parts))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_few_queries_of_many_sequences_have_the_bits_of_one(
    kernels: NativeKernels, num_kv_heads: int
) -> None:
    """Where sequences are enough for all threads, one unit takes all key heads."""

    def new_cache() -> Cache:
        return Cache(kernels, num_kv_heads=num_kv_heads)

    lengths = [3, 4, 15, 16, 17, 32, 33, 64, 100, 131, 255, 300]
    alone = [_one_by_one(new_cache(), length, seed) for seed, length in enumerate(lengths)]
    cache = new_cache()
    sequences = [cache.sequence(length, seed) for seed, length in enumerate(lengths)]
    slots = [cache.slot_for(length) for length in lengths]
    for slot, sequence, length in zip(slots, sequences, lengths, strict=True):
        if length > 3:
            cache.attend([(slot, 0, length - 3)], sequence[:-3])
    pieces = [(slot, n - 3, 3) for slot, n in zip(slots, lengths, strict=True)]
    together = cache.attend(pieces, torch.cat([sequence[-3:] for sequence in sequences]))
    for one, some in zip(alone, together.split(3), strict=True):
        assert torch.equal(one[-3:], some)


def _one_by_one(cache: Cache, length: int, seed: int) -> Tensor:
    heads, slot = cache.sequence(length, seed), cache.slot_for(length)
    return torch.cat([cache.attend([(slot, i, 1)], heads[i : i + 1]) for i in range(length)])


def test_what_lies_behind_the_last_key_never_spreads(kernels: NativeKernels) -> None:
    """So blocks need not be cleared before somebody else takes them."""
    cache = Cache(kernels)
    heads, slot = cache.sequence(21, seed=0), cache.slot_for(21)
    for pool in cache.kv.pools(0):
        pool.fill_(math.nan)
    output = cache.attend([(slot, 0, 21)], heads)
    assert not output.isnan().any()
    torch.testing.assert_close(
        output.double(), plain_attention(heads, 6, 2), rtol=2**-6, atol=2**-7
    )


def test_nor_does_it_where_one_unit_takes_all_key_heads(kernels: NativeKernels) -> None:
    """Few queries of many sequences, in blocks that hold NaN elsewhere."""
    outputs = []
    for left_behind in (0.0, math.nan):
        cache = Cache(kernels)
        lengths = [1, 3, 15, 16, 17, 31, 32, 33, 47, 100]
        slots = [cache.slot_for(length) for length in lengths]
        for pool in cache.kv.pools(0):
            pool.fill_(left_behind)
        parts = []
        for done, count in ((0, 1), (1, 2), (3, 3)):
            rows = [i for i, length in enumerate(lengths) if length >= done + count]
            fed = [cache.sequence(lengths[i], seed=i)[done : done + count] for i in rows]
            pieces = [(slots[i], done, count) for i in rows]
            parts.append(cache.attend(pieces, torch.cat(fed)))
        outputs.append(torch.cat(parts))
    assert not outputs[1].isnan().any()
    assert torch.equal(*outputs)


def test_a_model_with_kernels_leaves_blocks_as_they_are(kernels: NativeKernels) -> None:
    """Clearing takes a hundredth of a round of 16 rows."""
    model = native_model("llama", kernels)
    prompt = tuple(range(40))
    logits = []
    for left_behind in (0.0, math.nan):
        for layer in range(model.cache_shape.num_layers):
            for pool in model._kv.pools(layer):
                pool.fill_(left_behind)
        slot = model.allocate()
        logits.append(score(model, [(slot, prompt, 1)]))
        logits.append(score(model, [(slot, (7,), 1)]))
        behind = model._kv.pools(0)[0][model._kv.block_table(slot)[2] * 16 + 15]
        assert behind.isnan().all() == math.isnan(left_behind)
        model.free(slot)
    assert torch.equal(torch.cat(logits[:2]), torch.cat(logits[2:]))


def test_a_model_with_kernels_has_memory_backed_ahead(
    kernels: NativeKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = threading.Event()
    monkeypatch.setattr(transformers_adapter, "load_touch", lambda: lambda *area: touched.set())
    model = native_model("llama", kernels)
    score(model, [(model.allocate(), (1, 2, 3), 1)])
    assert touched.wait(60)


def test_rows_of_a_model_with_kernels_lie_in_runs_of_blocks(kernels: NativeKernels) -> None:
    model = native_model("llama", kernels)
    slots = [model.allocate() for _ in range(2)]
    for _ in range(3):
        score(model, [(slot, range(16), 1) for slot in slots])
    assert [list(model._kv.block_table(slot)) for slot in slots] == [[0, 1, 2], [8, 9, 10]]


class OneTokenBlocks:
    """A cache of one-token blocks, as the padded algorithms read their batch."""

    block_size = 1

    def __init__(self, kv: PagedKV, num_tokens: int) -> None:
        self.shape = kv.shape
        rows = list(range(40, 40 + num_tokens))
        random.Random(0).shuffle(rows)
        self.rows = rows

    def block_table(self, slot: int) -> Sequence[int]:
        return self.rows


def test_blocks_of_any_size_give_the_same_bits(kernels: NativeKernels) -> None:
    cache = Cache(kernels)
    heads, slot = cache.sequence(45, seed=0), cache.slot_for(45)
    piece = (slot, 0, 45)
    expected = cache.attend([piece], heads)
    batch = ForwardInput.of([(slot, range(45), 0)], starts=[0])
    plan = plan_blocks(batch, OneTokenBlocks(cache.kv, 45))
    query, key, value = torch.split(heads, [6, 2, 2], dim=1)
    assert plan.rows is not None
    pools, rows = cache.kv.pools(0), plan.rows
    actual = kernels.attend(query, key, value, pools, plan.write_index, rows, 1, 64**-0.5)
    assert torch.equal(actual, expected)


@pytest.mark.covering(2)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(32, 32), (64, 64), (64, 96), (576, 960), (1536, 576)])
def test_a_linear_is_a_product_and_a_row_never_sees_its_company(
    kernels: NativeKernels, shape: tuple[int, int], has_bias: bool
) -> None:
    plain = nn.Linear(*shape, bias=has_bias).bfloat16()
    model = nn.Sequential(plain)
    assert replace_linears(model, kernels) == 1
    linear = model[0]
    rows = normal(150, shape[0])
    exact = nn.functional.linear(
        rows.double(), plain.weight.double(), plain.bias.double() if has_bias else None
    )
    with torch.inference_mode():
        all_at_once = linear(rows)
        scale = exact.abs().amax()
        torch.testing.assert_close(
            all_at_once.double() / scale, exact / scale, rtol=2**-7, atol=2**-16
        )
        assert linear(rows[:0]).shape == (0, shape[1])
        for size in (*range(1, 67), 100, 149):
            for first in (0, 150 - size):
                part = linear(rows[first : first + size].contiguous())
                assert torch.equal(part, all_at_once[first : first + size]), (size, first)


def test_where_the_system_refuses_amx_the_kernels_do_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As sandboxes do."""
    built("as this machine is")
    without = build_kernels(NO_AMX)

    def build(source: Path, flags: Sequence[str]) -> tuple[Any, str]:
        library, identity = build_library(source, flags)
        if "-mno-amx-bf16" not in flags:
            monkeypatch.setattr(library, "specdec_prepare", lambda: 1)
        return library, identity

    monkeypatch.setattr(native_kernels, "build_library", build)
    assert build_kernels().identity == without.identity


def test_linears_that_do_not_fit_stay(kernels: NativeKernels) -> None:
    model = nn.Sequential(
        nn.Linear(64, 32).bfloat16(), nn.Linear(32, 40).bfloat16(), nn.Linear(40, 32)
    )
    assert replace_linears(model, kernels) == 1
    assert [type(layer) for layer in model] == [NativeLinear, nn.Linear, nn.Linear]


def test_the_weights_of_a_model_lie_one_behind_the_other(kernels: NativeKernels) -> None:
    model = nn.Sequential(nn.Linear(64, 96).bfloat16(), nn.Linear(96, 32).bfloat16())
    replace_linears(model, kernels)
    first, second = (layer.packed for layer in model)
    assert first.data_ptr() % 2**21 == 0
    assert second.data_ptr() == first.data_ptr() + 2 * first.numel()


def test_memory_in_huge_pages_is_zeroed_and_of_the_length_asked_for() -> None:
    memory = empty_in_huge_pages(3_000_001)
    assert memory.shape == (3_000_001,)
    assert memory.data_ptr() % 2**21 == 0
    assert not memory.any()


def test_memory_is_had_where_there_are_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("mmap.MADV_HUGEPAGE")
    assert not empty_in_huge_pages(100).any()


def native_model(architecture: str, kernels: NativeKernels) -> ModelRunner:
    decoder = LlamaModel(tiny_model(architecture, **WIDE).bfloat16(), kernels)
    decoder.use_native_linears()
    return ModelRunner(decoder, vocab_size=VOCAB, kv_cache_tokens=8192)


@pytest.mark.covering(1)
@pytest.mark.parametrize("architecture", LLAMA_MODEL_TYPES)
def test_a_whole_model_is_exact_in_any_shape(kernels: NativeKernels, architecture: str) -> None:
    model = native_model(architecture, kernels)
    table = make_exact(model)
    assert str(table.attention) == "attention of any shape"
    check_rows(model)


@pytest.mark.covering(1)
@pytest.mark.parametrize("architecture", LLAMA_MODEL_TYPES)
def test_all_layers_in_one_call_have_the_bits_of_the_layers_one_by_one(
    kernels: NativeKernels, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = _logits_of_rounds(native_model(architecture, kernels))
    monkeypatch.setattr("specdec_core.models.llama.stack_of", lambda *_: None)
    assert torch.equal(at_once, _logits_of_rounds(native_model(architecture, kernels)))


def _logits_of_rounds(model: ModelRunner) -> Tensor:
    rng = random.Random(0)
    slots = [model.allocate() for _ in range(4)]
    logits = []
    for sizes in ((1, 40, 17, 64), (1, 5, 4, 1), (3, 1, 1, 9)):
        fed = [[rng.randrange(VOCAB) for _ in range(size)] for size in sizes]
        logits.append(score(model, [(s, f, len(f)) for s, f in zip(slots, fed, strict=True)]))
    return torch.cat(logits)


@pytest.mark.covering(1)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_its_logits_are_as_near_to_float32_as_those_of_transformers(
    kernels: NativeKernels, architecture: str
) -> None:
    ids = [random.Random(0).randrange(VOCAB) for _ in range(120)]
    plain = tiny_model(architecture, **WIDE).bfloat16()
    with torch.inference_mode():
        theirs = plain(input_ids=torch.tensor([ids])).logits[0].float()
        best = plain.float()(input_ids=torch.tensor([ids])).logits[0]
    model = native_model(architecture, kernels)
    ours = score(model, [(model.allocate(), ids, len(ids))])
    error, their_error = ((some - best).square().mean().sqrt() for some in (ours, theirs))
    assert error < 1.15 * their_error


def test_only_bfloat16_models_of_whole_vectors_take_the_kernels() -> None:
    if load_kernels() is None:
        pytest.skip("no C compiler")
    taken = [
        fuse(tiny_model("llama", **changes).to(dtype), uses_kernels=True).kernels is not None
        for dtype, changes in (
            (torch.bfloat16, WIDE),
            (torch.float32, WIDE),
            (torch.bfloat16, {**WIDE, "head_dim": 16}),
            (torch.bfloat16, {**WIDE, "hidden_act": "gelu"}),
        )
    ]
    assert taken == [True, False, False, False]


def test_without_a_compiler_pytorch_does_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    native_kernels.load_kernels.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert load_kernels() is None
    finally:
        native_kernels.load_kernels.cache_clear()
    assert "/nowhere/cc" in caplog.text
    assert "C compiler" in caplog.text
