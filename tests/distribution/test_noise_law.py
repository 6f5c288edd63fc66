"""The hash is uniform, bit by bit and byte by byte, and its noise is standard Gumbel to the tails.

Along each of its three arguments: neighbouring ids are compared in every choice, neighbouring
positions make a text, and neighbouring seeds are what people use.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from specdec_core.sampling.gumbel import gumbel_of, hash31, noise_keys
from specdec_core.sampling_params import MAX_SEED
from tests.distribution.chi_square import ChiSquare, goodness_of_fit, total

COUNT = 1 << 20
BITS = 31
CPU = torch.device("cpu")
EULER = 0.5772156649015329


def hashes(pairs: list[tuple[int, int]], ids: range) -> Tensor:
    return hash31(noise_keys(pairs, CPU), torch.tensor(ids, dtype=torch.int32))


def along_ids() -> Tensor:
    return hashes([(1234, 56)], range(COUNT))


def along_positions() -> Tensor:
    """16 ids at each of 65,536 positions; position by position for one id, then the next."""
    return hashes([(99, i) for i in range(COUNT // 16)], range(0, 49152, 3072)).T


def along_seeds() -> Tensor:
    return hashes([(s, 7) for s in range(COUNT // 16)], range(0, 49152, 3072)).T


def along_great_seeds() -> Tensor:
    """Seeds that differ in their highest bits alone."""
    step = MAX_SEED // (COUNT // 16)
    return hashes([(s * step, 7) for s in range(COUNT // 16)], range(0, 49152, 3072)).T


STREAMS = {f.__name__: f for f in (along_ids, along_positions, along_seeds, along_great_seeds)}


@pytest.fixture(params=STREAMS, scope="module")
def stream(request: pytest.FixtureRequest) -> Tensor:
    bits: Tensor = STREAMS[request.param]().flatten().long()
    assert bits.numel() == COUNT
    return bits


def uniform_fit(values: Tensor, num_cells: int) -> ChiSquare:
    counts = torch.bincount(values, minlength=num_cells).tolist()
    observed = Counter({cell: count for cell, count in enumerate(counts) if count})
    return goodness_of_fit(observed, dict.fromkeys(range(num_cells), 1 / num_cells))


def test_every_bit_is_fair(stream: Tensor) -> None:
    for bit in range(BITS):
        result = uniform_fit(stream >> bit & 1, 2)
        assert not result.is_rejected, f"bit {bit}: {result}"


@pytest.mark.parametrize("shift", [0, 8, 16, 23])
def test_every_byte_is_uniform(stream: Tensor, shift: int) -> None:
    result = uniform_fit(stream >> shift & 255, 256)
    assert not result.is_rejected, str(result)


@pytest.mark.parametrize("shift", [0, 13, 27])
def test_neighbours_are_independent(stream: Tensor, shift: int) -> None:
    """Half-bytes of a hash and of the one behind it: 256 equally likely pairs."""
    half_byte = stream >> shift & 15
    result = uniform_fit(half_byte[0::2] * 16 + half_byte[1::2], 256)
    assert not result.is_rejected, str(result)


@pytest.mark.parametrize(
    ("argument", "num_bits"), [("seed", 63), ("position", 20), ("token id", 18)]
)
def test_every_input_bit_flips_every_output_bit_half_of_the_time(
    argument: str, num_bits: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    count = 4096
    seeds = torch.randint(MAX_SEED, (count,), generator=generator).tolist()
    positions = torch.randint(1 << 20, (count,), generator=generator).tolist()
    ids_N1 = torch.randint(1 << 18, (count, 1), generator=generator, dtype=torch.int32)
    pairs = list(zip(seeds, positions, strict=True))
    before = hash31(noise_keys(pairs, CPU), ids_N1)
    for bit in range(num_bits):
        flipped = {
            "seed": ([(s ^ 1 << bit, i) for s, i in pairs], ids_N1),
            "position": ([(s, i ^ 1 << bit) for s, i in pairs], ids_N1),
            "token id": (pairs, ids_N1 ^ 1 << bit),
        }
        new_pairs, new_ids_N1 = flipped[argument]
        change = (hash31(noise_keys(new_pairs, CPU), new_ids_N1) ^ before).flatten().long()
        result = total(uniform_fit(change >> out & 1, 2) for out in range(BITS))
        assert not result.is_rejected, f"{argument} bit {bit}: {result}"


def test_noise_has_64_equally_likely_cells(stream: Tensor) -> None:
    """exp(-exp(-g)) of standard Gumbel noise is uniform."""
    cells = gumbel_of(stream.int()).double().neg().exp().neg().exp().mul(64).long().clamp(max=63)
    result = uniform_fit(cells, 64)
    assert not result.is_rejected, str(result)


def many_noises() -> Tensor:
    return gumbel_of(hashes([(5, i) for i in range(128)], range(1 << 16))).flatten()


def test_tails_are_as_heavy_as_gumbel_s() -> None:
    """8 million draws: some 51 lie above 12, where a coarse uniform would have gaps."""
    noise = many_noises()
    edges = [-math.inf, -2.7, -2.5, -2.2, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, math.inf]
    below = [math.exp(-math.exp(-edge)) if edge > -700 else 0.0 for edge in edges]
    law = {i: below[i + 1] - below[i] for i in range(len(edges) - 1)}
    cells = torch.bucketize(noise, torch.tensor(edges[1:-1]))
    observed = Counter(dict(enumerate(torch.bincount(cells, minlength=len(law)).tolist())))
    result = goodness_of_fit(observed, law)
    assert result.degrees >= 7
    assert not result.is_rejected, str(result)


def test_moments_are_gumbel_s() -> None:
    """Mean, variance, skewness and kurtosis, each within 5 standard errors (6e-7)."""
    noise = many_noises().double()
    n = noise.numel()
    variance = math.pi**2 / 6
    z = (noise - EULER) / math.sqrt(variance)
    moments = {1: 0.0, 2: 1.0, 3: 1.1395470994, 4: 5.4}
    for power, expected in moments.items():
        values = z**power
        error = float(values.std()) / math.sqrt(n)
        assert abs(float(values.mean()) - expected) < 5 * error, f"moment {power}"


def test_the_greatest_of_many_ids_is_any_of_them_and_gumbel_again() -> None:
    """The maximum of V noises lies log V higher than one: what a flat distribution chooses by."""
    vocab_size, num_rows = 4096, 4096
    parts = [
        gumbel_of(hashes([(77, first + i) for i in range(512)], range(vocab_size))).max(dim=1)
        for first in range(0, num_rows, 512)
    ]
    winners = torch.cat([part.indices for part in parts])
    result = uniform_fit(winners // 16, 256)
    assert not result.is_rejected, str(result)
    greatest = torch.cat([part.values for part in parts]).double() - math.log(vocab_size)
    cells = greatest.neg().exp().neg().exp().mul(64).long().clamp(max=63)
    result = uniform_fit(cells, 64)
    assert not result.is_rejected, str(result)


def test_faulty_generators_are_rejected() -> None:
    """A byte value that comes 10 % too rarely; a bit that is 0.6 % unfair; a 23-bit uniform."""
    bits = along_ids().flatten().long()
    byte = bits & 255
    is_moved = (byte == 17) & (torch.arange(COUNT) % 10 == 0)
    assert uniform_fit(torch.where(is_moved, 18, byte), 256).is_rejected
    is_cleared = torch.arange(COUNT) % 170 == 0
    assert uniform_fit(torch.where(is_cleared, 0, bits & 1), 2).is_rejected
    coarse = bits >> 8 << 8
    assert uniform_fit(coarse & 255, 256).is_rejected


def test_positions_that_share_noise_are_rejected() -> None:
    half_byte = along_positions().flatten().long() & 15
    result = uniform_fit(half_byte[0::2] * 16 + half_byte[0::2], 256)
    assert result.is_rejected
