"""The noise is one function of seed, position and id, whatever the batch around it."""

from __future__ import annotations

import math

import pytest
import torch

from specdec_core.sampling.gumbel import (
    LARGEST_NOISE,
    NOISE_ERROR,
    gumbel,
    gumbel_of,
    hash31,
    noise_keys,
)
from specdec_core.sampling_params import MAX_SEED, derive_seed, mix64
from tests.sampling import reference

CPU = torch.device("cpu")
PAIRS = [(0, 0), (0, 1), (1, 0), (12345, 2047), (MAX_SEED, 131071)]


def test_hash_integers_equal_the_reference_bit_for_bit() -> None:
    ids = [0, 1, 2, 31, 49151, 151935, 262143]
    hashes = hash31(noise_keys(PAIRS, CPU), torch.tensor(ids, dtype=torch.int32))
    assert hashes.tolist() == [[reference.hash31(s, i, v) for v in ids] for s, i in PAIRS]


def test_the_mixed_integer_is_pinned() -> None:
    """Changing the hash changes every seeded output, so it must not happen by accident."""
    assert mix64(0, 0) == reference.mix64(0, 0) == 0xA706DD2F4D197E6F
    assert (
        int(hash31(noise_keys([(7, 3)], CPU), torch.tensor([11], dtype=torch.int32))) == 588171618
    )


def test_keys_are_made_on_the_device_that_is_asked_for() -> None:
    assert noise_keys(PAIRS, torch.device("meta")).is_meta


def test_keys_and_bits_are_four_bytes_each() -> None:
    """Of eight the low halves would be the same, at twice the memory."""
    keys = noise_keys(PAIRS, CPU)
    assert keys.dtype is hash31(keys, torch.zeros(1, dtype=torch.int32)).dtype is torch.int32


def test_noise_of_an_id_does_not_depend_on_the_ids_and_rows_around_it() -> None:
    keys = noise_keys(PAIRS, CPU)
    ids = torch.arange(5000, dtype=torch.int32)
    whole = gumbel(keys, ids)
    for count in (1, 3, 8, 17, 256):
        some = torch.randperm(5000, generator=torch.Generator().manual_seed(count))[:count]
        assert torch.equal(gumbel(keys, ids[some]), whole[:, some])
        assert torch.equal(gumbel(keys[2:3], ids[some]), whole[2:3, some])


def test_noise_is_finite_at_the_ends_of_the_hash() -> None:
    """w = 0.5 * 2^-31 gives the greatest noise, w = 1 - 2^-24 the least; both are finite."""
    noise = gumbel(noise_keys([(s, 0) for s in range(64)], CPU), torch.arange(49152).int())
    assert noise.isfinite().all()
    assert noise.max() < -math.log(2.0**-32) + 0.1
    assert noise.min() > -math.log(24 * math.log(2)) - 0.1


def test_noise_of_extreme_bits() -> None:
    """The ends of the hash, and everywhere no more noise than fewer bits have."""
    ends = torch.tensor([0, 1, 2**31 - 1], dtype=torch.int32)
    least = -math.log(-math.log1p(-(1 - 2.0**-24)))
    expected = [-math.log(2.0**-32), -math.log(1.5 * 2.0**-31), least]
    assert gumbel_of(ends).tolist() == pytest.approx(expected, abs=1e-5)
    assert float(gumbel_of(ends)[0]) < LARGEST_NOISE < 22.181
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(0, 2**31 - 1, (1_000_000,), generator=generator, dtype=torch.int32)
    bits[:1000] >>= 18
    noise = gumbel_of(bits.sort().values)
    assert (noise[1:] - noise[:-1].cummin(dim=0).values).max() < NOISE_ERROR


def test_uniforms_are_uniform() -> None:
    """Chi-square over 64 cells, 2^20 draws; p < 1e-4 at 115 for 63 degrees of freedom."""
    hashes = hash31(noise_keys([(5, i) for i in range(16)], CPU), torch.arange(65536).int())
    counts = torch.bincount((hashes >> 25).flatten().long(), minlength=64).double()
    expected = hashes.numel() / 64
    assert float(((counts - expected) ** 2 / expected).sum()) < 115


@pytest.mark.parametrize("shift", [1, 2, 16])
def test_neighbouring_positions_and_ids_are_uncorrelated(shift: int) -> None:
    """|r| of 2^17 independent pairs exceeds 4 / sqrt(n) with probability 6e-5."""
    w = hash31(noise_keys([(9, i) for i in range(33)], CPU), torch.arange(4096).int()).double()
    w = (w - w.mean()) / w.std()
    for first, second in ((w[:-shift], w[shift:]), (w[:, :-shift], w[:, shift:])):
        assert abs(float((first * second).mean())) < 4 / math.sqrt(first.numel())


def test_choice_zero_keeps_the_seed_and_the_others_are_valid_seeds() -> None:
    seeds = {derive_seed(MAX_SEED, j) for j in range(1000)}
    assert derive_seed(MAX_SEED, 0) == MAX_SEED
    assert derive_seed(7, 3) == reference.mix64(7, 3) >> 1
    assert len(seeds) == 1000
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
